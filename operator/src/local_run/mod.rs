//! `volferry-operator run FILE`: runs the SyncJobs of a manifest, with processes instead of pods.
//!
//! A manifest is validated as the API server and the controller do it, the two ends are the same programs with the same
//! arguments, and the status is built by the same functions; only the cluster is missing.

mod args;
mod display;
mod folders;
mod manifest;
mod pair;

use std::{
    io::{self, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{ExitCode, RunParams, Shard, Side, chain};
use futures::{TryStreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::{sync::watch, time::Instant};

pub use self::args::{LineForm, LocalArgs, LocalError};
use self::{
    display::{Display, SharedDisplay},
    folders::{Folders, refuse_unknown_claims},
    manifest::Manifest,
    pair::{GRACE, ProcessPair},
};
use crate::{
    api::SyncJobStatus,
    ends::{destination_identity, source_and_sink::Ends},
    engine::{EndArgs, Folder, listen_arg, local_args, sink_args, source_args},
    names,
    run::outcome::{self, Outcome},
    spec::validate::ValidatedSyncJob,
    status::{run_status, synced},
};

/// How long the source tries to reach the sink, which is already listening, in seconds.
const DIAL_TIMEOUT_S: u64 = 30;

/// Runs all jobs of a manifest, one after another, and returns the worst of their exit statuses.
pub async fn run(args: &LocalArgs) -> ExitCode {
    match try_run(args).await {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            error.exit()
        }
    }
}

async fn try_run(args: &LocalArgs) -> Result<ExitCode, LocalError> {
    // Validate all documents before the first job runs.
    let jobs = manifest::read(&args.file)?;
    refuse_unknown_claims(&jobs, &args.volumes)?;
    let program = program(args)?;
    let folders = jobs.iter().map(|it| Folders::of(&it.job, args)).collect::<Result<Vec<_>, _>>()?;
    let mut worst = ExitCode::Done;
    let mut is_first = true;
    for (Manifest { job, known }, folders) in jobs.iter().zip(&folders) {
        if job.suspend {
            eprintln!("{}: skipped, as its spec says `suspend: true`", job.name);
            continue;
        }
        let display = Display::new(&job.name, args.dry_run);
        let mut status = SyncJobStatus { destination: known.clone(), ..SyncJobStatus::default() };
        let exit = run_one(job, folders, &mut status, &program, display).await?;
        if args.dry_run.is_none() {
            print_status(job, &status, !is_first).map_err(LocalError::Output)?;
            is_first = false;
        }
        worst = worse(worst, exit);
    }
    Ok(worst)
}

async fn run_one(
    job: &ValidatedSyncJob,
    folders: &Folders,
    status: &mut SyncJobStatus,
    program: &Path,
    mut display: Display,
) -> Result<ExitCode, LocalError> {
    let run = run_status::new_run(&job.name, 1, 1, job.trigger.clone(), Timestamp::now());
    run_status::begin(status, run, Timestamp::now());
    let params = RunParams {
        run: names::run_id(&job.name, 1),
        dry_run: display.is_dry(),
        image: folders.has_device(),
        expect_volume: destination_identity::expected(status, job, None),
        ..job.params.clone()
    };
    let outcome = try_once(job, folders, &params, program, &mut display).await?;
    run_status::finish(status, &outcome, Some(job.history_limit), Timestamp::now());
    synced::set_synced(status, true, false, 1, Timestamp::now());
    let folder = job.run_folder(Side::Sink);
    destination_identity::remember(status, &folder, Some(job), None, &outcome.report);
    display.finish(status);
    Ok(outcome.exit)
}

/// Performs one try with a pair of processes for each shard, all at once, like the pods of a cluster.
async fn try_once(
    job: &ValidatedSyncJob,
    folders: &Folders,
    params: &RunParams,
    program: &Path,
    display: &mut Display,
) -> Result<Outcome, LocalError> {
    // The result of a dry run does not depend on the division into shards.
    let shards = if params.dry_run { 1 } else { job.parallelism };
    let count = shards as usize;
    let scratch = &Scratch::new(&params.run)?;
    let screen = &SharedDisplay::new(display, count);
    let deadline = Instant::now() + job.timeout;
    let (give_up, until) = watch::channel(deadline);
    let pair = async |index: u32| {
        let shard = (shards > 1).then_some(Shard { index, count: shards });
        let pair = ProcessPair::new(index as usize, screen, until.clone())?;
        if job.is_local {
            let report = scratch.report(Side::Sink, index);
            let args = quiet(local_args(&folders.source, &folders.destination, &report, params));
            let ending = pair.run_as_one(program, args).await?;
            return Ok((index, Ends { source: ending.clone(), sink: ending }));
        }
        let args = command_lines(scratch, folders, &RunParams { shard, ..params.clone() });
        Ok::<_, LocalError>((index, pair.run(program, args).await?))
    };
    let mut running: FuturesUnordered<_> = (0..shards).map(pair).collect();
    let mut over = Vec::with_capacity(count);
    while let Some((index, Ends { source, sink })) = running.try_next().await? {
        let outcome = outcome::judge(&source, &sink);
        if outcome.breaks_others() {
            give_up.send_modify(|until| *until = (*until).min(Instant::now() + GRACE));
        }
        over.push((index, outcome));
    }
    Ok(in_time(outcome::of_shards(over, count), job.timeout, deadline))
}

/// Returns the arguments of both ends.
fn command_lines(scratch: &Scratch, folders: &Folders, params: &RunParams) -> Ends<Vec<String>> {
    let index = params.shard.map_or(0, |shard| shard.index);
    let end = |side, folder| scratch.end(side, index, folder, &params.run);
    let source = source_args(&end(Side::Source, &folders.source), DIAL_TIMEOUT_S, params);
    let mut sink = sink_args(&end(Side::Sink, &folders.destination), params);
    sink.push(listen_arg((Ipv4Addr::LOCALHOST, 0).into()));
    Ends { source: quiet(source), sink: quiet(sink) }
}

/// Adds the flag that silences an end about successful runs, because this process prints the summary.
fn quiet(mut args: Vec<String>) -> Vec<String> {
    args.push("--quiet".into());
    args
}

/// Replaces the outcome of an unsuccessful run by a timeout, if the deadline has passed.
fn in_time(outcome: Outcome, timeout: Duration, deadline: Instant) -> Outcome {
    if Instant::now() >= deadline && outcome.exit != ExitCode::Done {
        Outcome::stopped(outcome::timed_out(timeout, ""))
    } else {
        outcome
    }
}

/// A directory for reports that is removed when the run has ended.
struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    fn new(run: &str) -> Result<Self, LocalError> {
        let unique = format!("volferry-{run}-{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
        let dir = std::env::temp_dir().join(unique);
        // Accessible only to this user, so that nobody else can place a file there first.
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&dir)
            .map_err(LocalError::Scratch)?;
        Ok(Self { dir })
    }

    fn end(&self, side: Side, shard: u32, folder: &Folder, run: &str) -> EndArgs {
        EndArgs { folder: folder.clone(), job: run.into(), report: self.report(side, shard) }
    }

    fn report(&self, side: Side, shard: u32) -> String {
        self.path(&format!("{side}-{shard}.json"))
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "the run's reports are not removed");
        }
    }
}

fn program(args: &LocalArgs) -> Result<PathBuf, LocalError> {
    if let Some(program) = &args.volferry {
        return Ok(program.clone());
    }
    let beside = std::env::current_exe().map_err(LocalError::NoProgram)?.with_file_name("volferry");
    beside.metadata().map_err(LocalError::NoProgram)?;
    Ok(beside)
}

fn print_status(job: &ValidatedSyncJob, status: &SyncJobStatus, separate: bool) -> io::Result<()> {
    let text = manifest::with_status(job, status).map_err(io::Error::other)?;
    let mut stdout = io::stdout().lock();
    if separate {
        stdout.write_all(b"---\n")?;
    }
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Returns the more severe of two exit statuses.
fn worse(a: ExitCode, b: ExitCode) -> ExitCode {
    let rank = |code| match code {
        ExitCode::Done => 0,
        ExitCode::Partial => 1,
        ExitCode::PeerLost => 2,
        ExitCode::Failed => 3,
        ExitCode::Guard => 4,
        ExitCode::Identity => 5,
        ExitCode::Usage => 6,
    };
    if rank(b) > rank(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_exit_status_stands_for_all() {
        let all = [ExitCode::Done, ExitCode::Guard, ExitCode::Partial, ExitCode::PeerLost];
        assert_eq!(all.into_iter().fold(ExitCode::Done, worse), ExitCode::Guard);
    }

    #[test]
    fn scratch_is_private_and_goes() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = Scratch::new("web-1").unwrap();
        let dir = scratch.dir.clone();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert!(!dir.exists());
    }
}
