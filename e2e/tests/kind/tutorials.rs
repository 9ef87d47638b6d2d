//! The tutorials of `docs/`: their commands are run as they are written, and print what is written.

use std::{env, ffi::OsString, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use e2e::{cluster::Sandbox, programs};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde_json::json;
use tokio::process::Command;

/// Stands in a page for text, or as a line for lines, that may be anything.
const ANY: char = '…';

#[tokio::test]
async fn a_claim_is_mirrored() {
    follow("mirror").await;
}

#[tokio::test]
async fn a_snapshot_is_restored() {
    follow("restore").await;
}

#[tokio::test]
async fn a_stateful_set_moves_to_another_storage_class() {
    follow("storage-class").await;
}

#[tokio::test]
async fn a_sync_job_lives_in_git() {
    follow("gitops").await;
}

#[tokio::test]
async fn a_job_that_stalls_shows_in_the_metrics() {
    follow("alerts").await;
}

/// A block of commands, and what it prints if the page says so.
struct Step {
    line: usize,
    script: String,
    output: Option<String>,
}

/// Runs the steps of a tutorial in a namespace of its own, with a fresh folder as the working directory.
async fn follow(page: &str) {
    let sandbox = Sandbox::with(page, json!({}), json!({})).await;
    add_storage_class(&sandbox, "fast").await.unwrap();
    let path = programs::repository().join(format!("docs/src/tutorials/{page}.md"));
    let steps = steps(&fs::read_to_string(&path).unwrap());
    assert!(steps.len() > 2, "{} has no steps", path.display());
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::copy(env::var_os("KUBECONFIG").unwrap(), &kubeconfig).unwrap();
    let namespace =
        format!("kubectl config set-context --current --namespace={} >/dev/null", sandbox.namespace);
    let first = Step { line: 0, script: namespace, output: None };
    for step in [first].into_iter().chain(steps) {
        let done = run(folder.path(), &step).await;
        done.with_context(|| format!("{}:{}", path.display(), step.line)).unwrap();
    }
}

/// Makes a storage class like the default one, under another name.
async fn add_storage_class(sandbox: &Sandbox, name: &str) -> Result<()> {
    let classes = Api::<StorageClass>::all(sandbox.client.clone());
    let mut class = classes.get("standard").await?;
    class.metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    classes.patch(name, &PatchParams::apply("volferry-e2e"), &Patch::Apply(class)).await?;
    Ok(())
}

/// Returns the blocks of a page that are marked `sh`, each with the block marked `text` that follows it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let text: String = block.map(|line| format!("{line}\n")).collect();
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step { line: at + 1, script: text, output: None }),
            ("text", Some(last)) => last.output = Some(text),
            _ => {}
        }
    }
    steps
}

async fn run(folder: &Path, step: &Step) -> Result<()> {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &step.script]).current_dir(folder).kill_on_drop(true);
    command.env("PATH", path()?).env("KUBECONFIG", folder.join("kubeconfig"));
    let done = command.output().await.context("cannot run bash")?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.success(), "{}\n{said}{complaints}", done.status);
    let Some(expected) = &step.output else { return Ok(()) };
    let (wanted, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), said.lines().collect());
    ensure!(lines_match(&wanted, &found), "the page says\n{expected}\nand the commands\n{said}{complaints}");
    Ok(())
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
    let page = "```sh\nls\n```\n```console\nno\n```\n```text\nx\n```\n";
    let steps = steps(page);
    assert_eq!((steps.len(), steps[0].script.as_str(), steps[0].output.as_deref()), (1, "ls\n", Some("x\n")));
}
