//! Measures history that travels: copies of a chain of snapshots to another volume and to object storage, a mounted
//! one, and archives of a snapshot.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use benches::{
    machine::Machine,
    peers::{Missing, Named, Programs},
    process::{Daemon, find_program, free_port, run, run_timed},
    rng::Rng,
    small_files::{change, fill, let_files_age, ms},
    table::{Line, Results, Table},
    workdir::{FileSystem, WorkDir, enter_namespace},
};
use clap::Parser;

/// The name of the S3 server's bucket, and of its account and secret.
const BUCKET: &str = "bench";

/// Measures copies of a history, its mount and its archives, beside restic and tar where they are installed.
#[derive(Debug, Parser)]
struct Args {
    /// Files in the tree
    #[arg(long, default_value_t = 200_000)]
    files: u64,
    /// Snapshots in the chain, each with 0.1 % of the files changed
    #[arg(long, default_value_t = 20)]
    snapshots: u64,
    /// Mebibytes of the one file that is exported and imported
    #[arg(long, default_value_t = 1024)]
    archive: u64,
    /// Rounds that each median is of
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Folder to work in
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The volferry to measure; by default the one beside this program
    #[arg(long, value_name = "PROGRAM")]
    volferry: Option<PathBuf>,
    /// The S3 server, s3s-fs; by default the one on PATH
    #[arg(long, value_name = "PROGRAM")]
    s3: Option<PathBuf>,
    /// A command that takes longer has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    benches::exit_code(bench(&Args::parse()))
}

fn bench(args: &Args) -> anyhow::Result<bool> {
    enter_namespace(FileSystem::Tmpfs)?;
    let programs = Programs { root: PathBuf::new(), volferry: args.volferry.clone() };
    let program = programs.volferry().map_err(|missing| anyhow!("{}: {}", missing.name, missing.remedy))?;
    let work = WorkDir::make(&args.dir, FileSystem::Tmpfs, 0)?;
    let machine = Machine::look(work.trees());
    eprintln!("{machine}");
    let mut bench = Bench::new(args, &work, &program)?;
    bench.measure()?;
    let results = bench.results(machine);
    results.tables.iter().for_each(|table| println!("{}", table.to_markdown()));
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_string_pretty(&results)? + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(true)
}

struct Bench<'a> {
    args: &'a Args,
    work: &'a WorkDir,
    /// The programs, keys and addresses that scripts name as variables.
    variables: Vec<(&'static str, String)>,
    missing: Vec<Missing>,
    lines: Vec<Line>,
}

/// A tool's part of a step.
struct Way {
    tool: &'static str,
    /// A shell script that runs before each measurement.
    prepare: &'static str,
    /// The shell script that is measured.
    script: &'static str,
    samples: Vec<f64>,
}

impl Way {
    fn new(tool: &'static str, prepare: &'static str, script: &'static str) -> Self {
        Self { tool, prepare, script, samples: Vec::new() }
    }
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args, work: &'a WorkDir, program: &Path) -> anyhow::Result<Self> {
        let variables = vec![
            ("VOLFERRY", program.display().to_string()),
            ("VOLFERRY_KEY_FILE", work.trees().join("key").display().to_string()),
            ("HOME", work.trees().display().to_string()),
            ("RESTIC_PASSWORD", "bench".into()),
            ("RESTIC_FROM_PASSWORD", "bench".into()),
        ];
        let missing = find_program("restic").is_none().then(|| lacking("restic", "apt-get install restic"));
        Ok(Self { args, work, variables, missing: missing.into_iter().collect(), lines: Vec::new() })
    }

    fn measure(&mut self) -> anyhow::Result<()> {
        self.chain()?;
        self.copies()?;
        self.mounted()?;
        self.object_storage()?;
        self.archives()
    }

    fn has(&self, tool: &str) -> bool {
        self.missing.iter().all(|missing| missing.name != tool)
    }

    /// Takes the snapshots of the chain with each tool.
    fn chain(&self) -> anyhow::Result<()> {
        let volume = self.work.trees().join("volume");
        fs::create_dir(&volume)?;
        fill(&volume, self.args.files)?;
        if self.has("restic") {
            self.shell("restic init -r repository")?;
        }
        (0..self.args.snapshots).try_for_each(|nth| self.one_more(nth))
    }

    /// Changes a thousandth of the files, and takes a snapshot with each tool.
    fn one_more(&self, nth: u64) -> anyhow::Result<()> {
        change(&self.work.trees().join("volume"), self.args.files, self.args.files / 1000, nth)?;
        let_files_age();
        self.shell("$VOLFERRY snapshot create volume")?;
        if self.has("restic") {
            self.shell("cd volume && restic backup -r ../repository --exclude .volferry .")?;
        }
        Ok(())
    }

    /// Measures copies to another store of the same kind.
    fn copies(&mut self) -> anyhow::Result<()> {
        let (files, all) = (self.args.files, self.args.snapshots);
        let ours = "$VOLFERRY snapshot copy volume copy --all";
        let theirs = "restic copy --from-repo repository -r repository2";
        let new =
            "rm -rf repository2 && restic init -r repository2 --copy-chunker-params --from-repo repository";
        let first = [Way::new("volferry", "rm -rf copy; mkdir copy", ours), Way::new("restic", new, theirs)];
        self.step(format!("copy of {all} snapshots to another volume"), first, |_, _| Ok(()))?;
        let next = [Way::new("volferry", "true", ours), Way::new("restic", "true", theirs)];
        let step = format!("copy of the next one, {} changed", files / 1000);
        self.step(step, next, |bench, round| bench.one_more(all + round))
    }

    /// Measures how a mounted history is read, beside the files of the volume.
    fn mounted(&mut self) -> anyhow::Result<()> {
        self.shell("mkdir mountpoint")?;
        let program = PathBuf::from(&self.variables[0].1);
        let trees = self.work.trees();
        let paths = [trees.join("volume"), trees.join("mountpoint")].map(|path| path.display().to_string());
        let mut mount = Daemon::start(&program, &["snapshot", "mount", &paths[0], &paths[1]], trees)?;
        mount.until(|| trees.join("mountpoint/latest").exists()).context("waiting for the mount")?;
        for (step, mounted, live) in [
            (
                "find in a mounted snapshot",
                "find mountpoint/latest/ | wc -l",
                "find volume -path volume/.volferry -prune -o -print | wc -l",
            ),
            (
                "tar of a mounted snapshot",
                "tar -C mountpoint/latest -c . | wc -c",
                "tar -C volume --exclude .volferry -c . | wc -c",
            ),
        ] {
            let ways = [Way::new("volferry", "true", mounted), Way::new("the files", "true", live)];
            self.step(step.into(), ways, |_, _| Ok(()))?;
        }
        self.shell("umount mountpoint")
    }

    /// Measures an S3 server of this machine as a second site.
    fn object_storage(&mut self) -> anyhow::Result<()> {
        let Some(server) = self.args.s3.clone().or_else(|| find_program("s3s-fs")) else {
            self.missing.push(lacking("s3s-fs", ".ci/tools test"));
            return Ok(());
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let root = self.work.trees().join("s3");
        fs::create_dir_all(root.join(BUCKET))?;
        let (port, folder) = (address.port().to_string(), root.display().to_string());
        let flags = ["--host", "127.0.0.1", "--port", &port, "--access-key", BUCKET, "--secret-key", BUCKET];
        let mut serving = Daemon::start(&server, &[&flags[..], &[&folder]].concat(), self.work.trees())?;
        serving.accepts(address)?;
        self.shell("$VOLFERRY snapshot key $VOLFERRY_KEY_FILE")?;
        self.variables.extend([
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_ALLOW_HTTP", "true".into()),
            ("AWS_DEFAULT_REGION", "us-east-1".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", BUCKET.into()),
            ("AWS_SECRET_ACCESS_KEY", BUCKET.into()),
            ("RESTIC_REPOSITORY", format!("s3:http://{address}/{BUCKET}/restic")),
        ]);
        self.second_site()
    }

    fn second_site(&mut self) -> anyhow::Result<()> {
        let all = self.args.snapshots + self.args.rounds;
        let empty = "rm -rf s3/bench/volferry fresh; mkdir fresh";
        let ours =
            "$VOLFERRY snapshot create volume && $VOLFERRY snapshot copy volume s3://bench/volferry latest";
        let new = "rm -rf s3/bench/restic && restic init";
        let theirs = "cd volume && restic backup --exclude .volferry .";
        let restore = "$VOLFERRY snapshot copy s3://bench/volferry fresh latest
            $VOLFERRY snapshot restore fresh latest";
        let prune = "$VOLFERRY snapshot prune s3://bench/volferry --keep-last 1";
        let steps = [
            ("backup to S3, first", [(empty, ours), (new, theirs)]),
            ("backup to S3, nothing changed", [("true", ours), ("true", theirs)]),
            (
                "restore of all from S3",
                [
                    ("rm -rf fresh; mkdir fresh", restore),
                    ("rm -rf restored", "restic restore latest --target restored"),
                ],
            ),
            (
                "prune of S3 to one snapshot",
                [("true", prune), ("true", "restic forget --keep-last 1 --prune")],
            ),
        ];
        for (step, [(empty, ours), (new, theirs)]) in steps {
            let ways = [Way::new("volferry", empty, ours), Way::new("restic", new, theirs)];
            self.step(step.into(), ways, |bench, round| {
                if step.starts_with("prune") { bench.one_more_at_each_site(all + round) } else { Ok(()) }
            })?;
        }
        Ok(())
    }

    /// Brings a snapshot with changed files to each tool's second site, so that a prune has something to do.
    fn one_more_at_each_site(&self, nth: u64) -> anyhow::Result<()> {
        change(&self.work.trees().join("volume"), self.args.files, self.args.files / 1000, nth)?;
        let_files_age();
        self.shell(
            "$VOLFERRY snapshot create volume && $VOLFERRY snapshot copy volume s3://bench/volferry latest",
        )?;
        if self.has("restic") {
            self.shell("cd volume && restic backup --exclude .volferry .")?;
        }
        Ok(())
    }

    /// Measures archives of a snapshot with one large file, beside GNU tar.
    fn archives(&mut self) -> anyhow::Result<()> {
        let large = self.work.trees().join("large");
        fs::create_dir(&large)?;
        let mut bytes = vec![0; (self.args.archive as usize) << 20];
        Rng::new(7).fill(&mut bytes);
        fs::write(large.join("file"), &bytes)?;
        drop(bytes);
        let_files_age();
        self.shell("$VOLFERRY snapshot create large")?;
        let export = [
            Way::new("volferry", "rm -f archive", "$VOLFERRY snapshot export large latest --tar > archive"),
            Way::new("tar", "rm -f archive2", "tar -C large --exclude .volferry -c . > archive2"),
        ];
        self.step(format!("export of {} MiB", self.args.archive), export, |_, _| Ok(()))?;
        let import = [
            Way::new("volferry", "rm -rf back; mkdir back", "$VOLFERRY snapshot import back --tar < archive"),
            Way::new("tar", "rm -rf back; mkdir back", "tar -C back -x < archive2"),
        ];
        self.step(format!("import of {} MiB", self.args.archive), import, |_, _| Ok(()))
    }

    /// Measures a step in rounds, its tools in turn, each round after `change`.
    fn step<const N: usize>(
        &mut self,
        step: String,
        ways: [Way; N],
        change: impl Fn(&Self, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut ways: Vec<Way> = ways.into_iter().filter(|way| self.has(way.tool)).collect();
        for round in 0..self.args.rounds {
            change(self, round)?;
            for way in &mut ways {
                self.shell(way.prepare)?;
                self.work.sync()?;
                let limit = Duration::from_secs(self.args.limit);
                let done = run_timed(self.command(way.script), self.work.trees(), limit);
                way.samples.push(ms(done.with_context(|| format!("{step}: {}", way.script))?.elapsed));
            }
        }
        let samples: Vec<(&str, &[f64])> = ways.iter().map(|way| (way.tool, &way.samples[..])).collect();
        eprintln!("{step}: {samples:?} ms");
        self.lines.push(Line::of_samples(format!("{} files", self.args.files), step, None, &samples));
        Ok(())
    }

    /// Runs a script that is not measured.
    fn shell(&self, script: &str) -> anyhow::Result<()> {
        run(&mut self.command(script)).map(drop).with_context(|| script.to_owned())
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).current_dir(self.work.trees());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn results(self, machine: Machine) -> Results {
        let version = |program: &str, word: &str| {
            let said = run(Command::new(program).arg(word)).unwrap_or_default();
            said.lines().next().unwrap_or("unknown").to_string()
        };
        let named = |name: &str, version: String, leaves_out: &str| Named {
            name: name.into(),
            version,
            leaves_out: leaves_out.into(),
        };
        let tools = vec![
            named("volferry", version(&self.variables[0].1, "--version"), ""),
            named("restic", version("restic", "version"), "deletes of a restore"),
            named("the files", "without a mount".into(), ""),
            named("tar", version("tar", "--version"), "checks"),
        ];
        Results {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            machine,
            rounds: self.args.rounds,
            durable: true,
            tables: vec![Table { title: "history".into(), tools, rows: self.lines }],
            missing: self.missing,
            note: String::new(),
        }
    }
}

fn lacking(name: &str, remedy: &str) -> Missing {
    Missing { name: name.into(), remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
