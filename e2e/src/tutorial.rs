//! The tutorials of `docs/`: their commands are run as they are written, and print what is written.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::programs;

/// Stands in a page for text, or as a line for lines, that may be anything.
const ANY: char = '…';

/// A page of `docs/src/tutorials`, and where its commands run.
pub struct Tutorial {
    page: PathBuf,
    steps: Vec<Step>,
    folder: PathBuf,
    kubeconfig: TempDir,
    variables: Vec<(String, OsString)>,
}

/// A block of commands, and what it prints if the page says so.
struct Step {
    line: usize,
    section: usize,
    script: String,
    output: Option<String>,
}

impl Tutorial {
    /// Opens a page to run its commands in that folder, and in that namespace of the cluster of a kubeconfig.
    ///
    /// # Errors
    ///
    /// An error names a page that cannot be read or has hardly any commands.
    pub async fn open(page: &str, folder: &Path, kubeconfig: &Path, namespace: &str) -> Result<Self> {
        let page = programs::repository().join(format!("docs/src/tutorials/{page}.md"));
        let steps = steps(&fs::read_to_string(&page).with_context(|| page.display().to_string())?);
        ensure!(steps.len() > 1, "{} has no steps", page.display());
        // The commands may change the kubeconfig, so they get a copy.
        let own = tempfile::tempdir()?;
        fs::copy(kubeconfig, own.path().join("config")).context("copying the kubeconfig")?;
        let tutorial = Self { page, steps, folder: folder.into(), kubeconfig: own, variables: Vec::new() };
        let script = format!("kubectl config set-context --current --namespace={namespace} >/dev/null");
        tutorial.run(&Step { line: 0, section: 0, script, output: None }).await?;
        Ok(tutorial)
    }

    /// Sets a variable that the page has its reader set.
    pub fn set(&mut self, variable: &str, value: impl AsRef<OsStr>) {
        self.variables.push((variable.into(), value.as_ref().into()));
    }

    /// Runs the commands of those sections, counted from 1.
    ///
    /// # Errors
    ///
    /// An error names the line of a step that fails or prints something else.
    pub async fn follow(&self, sections: RangeInclusive<usize>) -> Result<()> {
        for step in self.steps.iter().filter(|step| sections.contains(&step.section)) {
            let done = self.run(step).await;
            done.with_context(|| format!("{}:{}", self.page.display(), step.line))?;
        }
        Ok(())
    }

    async fn run(&self, step: &Step) -> Result<()> {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &step.script]).current_dir(&self.folder).kill_on_drop(true);
        command.env("PATH", path()?).env("KUBECONFIG", self.kubeconfig.path().join("config"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let done = command.output().await.context("cannot run bash")?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(done.status.success(), "{}\n{said}{complaints}", done.status);
        let Some(expected) = &step.output else { return Ok(()) };
        let (wanted, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), said.lines().collect());
        ensure!(
            lines_match(&wanted, &found),
            "the page says\n{expected}\nand the commands\n{said}{complaints}"
        );
        Ok(())
    }
}

/// Returns the blocks of a page that are marked `sh`, each with the block marked `text` that follows it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut section = 0;
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        section += usize::from(line.starts_with("## "));
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let text: String = block.map(|line| format!("{line}\n")).collect();
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step { line: at + 1, section, script: text, output: None }),
            ("text", Some(last)) => last.output = Some(text),
            _ => {}
        }
    }
    steps
}

/// Returns a PATH with kubectl and its plugin at the front.
fn path() -> Result<OsString> {
    let programs = [programs::of_cluster("kubectl")?, programs::of_workspace("kubectl-volferry")?];
    let own = programs.iter().filter_map(|program| program.parent()).map(Into::into);
    Ok(env::join_paths(own.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))?)
}

fn lines_match(wanted: &[&str], found: &[&str]) -> bool {
    match (wanted, found) {
        ([], []) => true,
        ([first, rest @ ..], _) if first.chars().eq([ANY]) => {
            (0..=found.len()).any(|skipped| lines_match(rest, &found[skipped..]))
        }
        ([first, rest @ ..], [line, others @ ..]) => {
            text_matches(&plain(first), &plain(line)) && lines_match(rest, others)
        }
        _ => false,
    }
}

/// Makes one blank of several, since columns are as wide as their cells.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text_matches(wanted: &str, found: &str) -> bool {
    match wanted.split_once(ANY) {
        None => wanted == found,
        Some((before, after)) => found.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| text_matches(after, &rest[at..]))
        }),
    }
}

#[test]
fn an_output_matches_a_page_whose_dots_stand_for_anything() {
    let matches = |wanted: &str, found: &str| {
        lines_match(&wanted.lines().collect::<Vec<_>>(), &found.lines().collect::<Vec<_>>())
    };
    assert!(matches("a…\n…\nNAME  X", "abc\n1\n2\nNAME    X"));
    assert!(matches("…\nlast", "last") && matches("a …c…", "a b c"));
    assert!(!matches("a", "a\nb") && !matches("a\nb", "a") && !matches("a…c", "ab"));
    let page = "## 1\n```sh\nls\n```\n```console\nno\n```\n```text\nx\n```\n";
    let steps = steps(page);
    assert_eq!((steps.len(), steps[0].section, steps[0].line), (1, 1, 2));
    assert_eq!((steps[0].script.as_str(), steps[0].output.as_deref()), ("ls\n", Some("x\n")));
}
