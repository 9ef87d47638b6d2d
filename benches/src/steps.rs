//! Measures steps of shell scripts on a volume of small files: the tools in turn, in rounds.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, anyhow};
use testkit::process::{find_program, run, run_timed};

use crate::{
    comparison_table::{Line, Results, Table},
    machine::Machine,
    peers::{Missing, Named, Programs},
    small_files::{change, let_files_age, ms},
    workdir::{FileSystem, WorkDir, enter_namespace},
};

/// The settings of a bench of steps.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Rounds that each median is of
    #[arg(long, default_value_t = 3)]
    pub rounds: u64,
    /// Folder to work in
    #[arg(long, default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// What the trees are kept on, mounted for the time of the bench
    #[arg(long, value_enum, default_value = "tmpfs")]
    pub fs: FileSystem,
    /// The volferry to measure; by default the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    pub volferry: Option<PathBuf>,
    /// A command that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub limit: u64,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What a reader of the figures has to know besides
    #[arg(long, default_value = "")]
    pub note: String,
}

/// A running bench. Scripts start in its work folder.
#[derive(Debug)]
pub struct Steps<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The number of files in the volume.
    pub files: u64,
    /// Where the trees are.
    pub work: WorkDir,
    /// The measured program.
    pub program: PathBuf,
    /// The programs, keys and addresses that scripts name.
    pub variables: Vec<(&'static str, String)>,
    /// What a reader of the figures has to know.
    pub notes: Vec<String>,
    tools: Vec<Named>,
    missing: Vec<Missing>,
    lines: Vec<Line>,
}

/// A tool's part of a step.
#[derive(Debug, Clone, Copy)]
pub struct Way<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// The script that runs before each measurement.
    pub prepare: &'a str,
    /// The script that is measured.
    pub script: &'a str,
}

/// Returns a tool's part of a step.
pub const fn way<'a>(tool: &'a str, prepare: &'a str, script: &'a str) -> Way<'a> {
    Way { tool, prepare, script }
}

impl<'a> Steps<'a> {
    /// Makes the work folder, with `image_bytes` if it is on an image.
    pub fn start(settings: &'a Settings, files: u64, image_bytes: u64) -> anyhow::Result<Self> {
        enter_namespace(settings.fs)?;
        let programs = Programs { root: PathBuf::new(), volferry: settings.volferry.clone() };
        let program =
            programs.volferry().map_err(|missing| anyhow!("{}: {}", missing.name, missing.remedy))?;
        let work = WorkDir::make(&settings.dir, settings.fs, image_bytes)?;
        let at = |name: &str| work.trees().join(name).display().to_string();
        let variables = vec![
            ("VOLFERRY", program.display().to_string()),
            ("HOME", at("")),
            ("RESTIC_REPOSITORY", at("restic")),
            ("RESTIC_PASSWORD", "bench".into()),
            ("BORG_REPO", at("borg")),
            ("BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK", "yes".into()),
        ];
        let (tools, missing, lines, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut steps = Self { settings, files, work, program, variables, notes, tools, missing, lines };
        steps.name("volferry", "$VOLFERRY --version", "");
        Ok(steps)
    }

    /// Adds a tool, if it is installed. `remedy` is what installs it.
    pub fn add(&mut self, name: &str, version: &str, leaves_out: &str, remedy: &str) {
        match find_program(name) {
            Some(_) => self.name(name, version, leaves_out),
            None => self.lacks(name, remedy),
        }
    }

    /// Names a tool whose version a script prints.
    pub fn name(&mut self, name: &str, version: &str, leaves_out: &str) {
        let said = run(&mut self.command(version)).unwrap_or_default();
        let version = said.lines().next().unwrap_or("unknown").to_owned();
        self.tools.push(Named { name: name.into(), version, leaves_out: leaves_out.into() });
    }

    /// Records that a tool is not installed.
    pub fn lacks(&mut self, name: &str, remedy: &str) {
        self.missing.push(Missing { name: name.into(), remedy: remedy.into() });
    }

    /// Returns whether a tool is installed.
    pub fn has(&self, tool: &str) -> bool {
        self.missing.iter().all(|missing| missing.name != tool)
    }

    /// Measures a step in rounds, its tools in turn, each round after `before`. Scripts have the round as `$ROUND`.
    pub fn step(
        &mut self,
        step: &str,
        ways: &[Way<'_>],
        before: impl Fn(&Self, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let ways: Vec<&Way<'_>> = ways.iter().filter(|way| self.has(way.tool)).collect();
        let mut times = vec![Vec::new(); ways.len()];
        for round in 0..self.settings.rounds {
            before(self, round)?;
            self.variables.push(("ROUND", round.to_string()));
            for (way, times) in ways.iter().zip(&mut times) {
                self.shell(way.prepare)?;
                self.work.sync()?;
                times.push(self.time(way.script).with_context(|| step.to_owned())?);
            }
            self.variables.pop();
        }
        let samples: Vec<_> = ways.iter().zip(&times).map(|(way, times)| (way.tool, &times[..])).collect();
        self.line(self.files, step, None, &samples);
        Ok(())
    }

    /// Adds a line to the table, with a median for each tool. `reach_ms` is the project's target time.
    pub fn line(&mut self, files: u64, step: &str, reach_ms: Option<f64>, samples: &[(&str, &[f64])]) {
        let line = Line::of_samples(format!("{files} files"), step.into(), reach_ms, samples);
        let medians: Vec<_> = line.tools.values().map(|it| it.median_ms).collect();
        eprintln!("{files} files, {step}: {medians:?} ms");
        self.lines.push(line);
    }

    /// Changes files of a volume, and waits until a snapshot trusts their times.
    pub fn change(&self, volume: &str, changed: u64, round: u64) -> anyhow::Result<()> {
        change(&self.work.trees().join(volume), self.files, changed, round)?;
        let_files_age();
        Ok(())
    }

    /// Runs a script, and returns the milliseconds that it took.
    pub fn time(&self, script: &str) -> anyhow::Result<f64> {
        let done = run_timed(self.command(script), self.work.trees(), self.limit());
        Ok(ms(done.with_context(|| script.to_owned())?.elapsed))
    }

    /// Runs a script that is not measured.
    pub fn shell(&self, script: &str) -> anyhow::Result<()> {
        run(&mut self.command(script)).map(drop).with_context(|| script.to_owned())
    }

    /// Returns the time that a command may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.settings.limit)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).current_dir(self.work.trees());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Prints the table, and writes the figures to the file that was asked for.
    pub fn finish(mut self, title: &str) -> anyhow::Result<bool> {
        self.notes.extend((!self.settings.note.is_empty()).then(|| self.settings.note.clone()));
        let results = Results {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            machine: Machine::describe(self.work.trees()),
            rounds: self.settings.rounds,
            durable: true,
            tables: vec![Table { title: title.into(), tools: self.tools, rows: self.lines }],
            missing: self.missing,
            note: self.notes.join("\n"),
        };
        results.tables.iter().for_each(|table| println!("{}", table.to_markdown()));
        println!("{}", results.note);
        crate::write_json(self.settings.json.as_deref(), &results)?;
        Ok(true)
    }
}
