//! The resolved configuration of a command line: no options conflict, and the engine supports all of them.

mod config_error;
mod job;
mod link_config;
mod offsite_job;
mod output_config;
mod refused_for_services;
mod run_params;
mod service_link;
mod several_sources;
mod sync_job;

use std::path::{Path, PathBuf};

use contract::{Demands, Side};

pub(crate) use config_error::ConfigError;
pub(crate) use job::{Job, NamedJob, Run};
pub(crate) use link_config::LinkConfig;
pub(crate) use output_config::{ChangeForm, Output, ProgressMode, Surroundings};

use super::{
    flags::{
        BenchFlags, Command, DoctorFlags, EnrollFlags, Flags, GenerateFlags, OutputFlags, PeersCommand,
        ReportFlags, ServeFlags, SyncFlags,
    },
    remote::place::Place,
    snapshot::flags::SnapshotCommand,
};
use link_config::check_unlinked;
use offsite_job::{bucket_of, offsite_job};
use run_params::{check_params, params};
use sync_job::{place, sync_job};

/// A command that can be carried out.
#[derive(Debug)]
pub(super) enum Config {
    Keygen {
        out: PathBuf,
    },
    Report(ReportFlags),
    Doctor(DoctorFlags),
    /// A bench, with the link to the other end if this is one of two.
    Bench(Box<BenchFlags>, Option<LinkConfig>),
    Generate(GenerateFlags),
    /// The defaults of flags are to be shown.
    Defaults,
    Serve(ServeFlags),
    Enroll(Box<EnrollFlags>),
    Peers(Box<PeersCommand>),
    /// The end of a run that another machine started.
    Remote,
    Run(Box<Run>),
    Snapshot(Box<SnapshotCommand>),
}

/// Refuses a place on another machine.
fn check_local(path: &Path) -> Result<(), ConfigError> {
    match Place::read(path.into()) {
        Ok(Place::Here(_)) => Ok(()),
        _ => Err(ConfigError::OtherMachine(path.into())),
    }
}

impl Config {
    /// Resolves `flags`. Touches the file system only to open the log, and to check that a report can be written to its
    /// path, which would otherwise fail at the end of a run.
    pub(super) fn resolve(flags: Flags, surroundings: Surroundings) -> Result<Self, ConfigError> {
        Ok(match flags.command {
            Command::Keygen(keygen) => Self::Keygen { out: keygen.into_inner().out },
            Command::Report(report) => Self::Report(report.into_inner()),
            Command::Doctor(doctor) => Self::Doctor(doctor.into_inner()),
            Command::Bench(bench) => Self::of_bench(bench.into_inner())?,
            Command::Generate(generate) => Self::Generate(generate.into_inner()),
            Command::Config => Self::Defaults,
            Command::Serve(serve) => Self::Serve(serve.into_inner()),
            Command::Enroll(enroll) => Self::Enroll(Box::new(enroll.into_inner())),
            Command::Peers(peers) => Self::Peers(Box::new(peers.into_inner().command)),
            Command::Remote => Self::Remote,
            Command::Snapshot(snapshot) => Self::Snapshot(Box::new(snapshot.into_inner().command)),
            Command::Send(send) => {
                let send = send.into_inner();
                check_local(&send.source)?;
                let source = place(send.source.clone(), send.source_path);
                let link = LinkConfig::resolve(send.link, Side::Source)?;
                let params = send.source_snapshot.add_to(params(send.params)?);
                let params = check_params(send.wire.add_to(params))?;
                let once = send.once || !link.may_serve();
                let jobs =
                    vec![NamedJob { name: send.source, job: Job::Send { source, link, params, once } }];
                Run::resolve(jobs, send.output, surroundings)?
            }
            Command::Receive(receive) => {
                let receive = receive.into_inner();
                check_local(&receive.destination)?;
                let link = LinkConfig::resolve(receive.link, Side::Sink)?;
                let destination = place(receive.destination.clone(), receive.destination_path);
                let (snapshot, backup) = (receive.snapshot.into(), receive.backup);
                let demands = backup.add_to(Demands { snapshot, ..receive.demands.into() });
                let once = receive.once;
                let job = Job::Receive { destination, link, once, demands };
                let jobs = vec![NamedJob { name: receive.destination, job }];
                Run::resolve(jobs, receive.output, surroundings)?
            }
            Command::Sync(sync) => {
                let sync = sync.into_inner();
                let output = sync.output.clone();
                let runs = several_sources::runs(sync)?.into_iter();
                let jobs = runs.map(|(source, sync)| one_source(source, sync)).collect::<Result<_, _>>()?;
                Run::resolve(jobs, output, surroundings)?
            }
        })
    }

    fn of_bench(mut bench: BenchFlags) -> Result<Self, ConfigError> {
        let ends = [&bench.source, &bench.destination];
        ends.into_iter().flatten().try_for_each(|path| check_local(path))?;
        let link = std::mem::take(&mut bench.link);
        let link = match bench.end {
            Some(end) => Some(LinkConfig::resolve(link, end.into())?),
            None => check_unlinked(&link, bench.bandwidth_limit).map(|()| None)?,
        };
        Ok(Self::Bench(Box::new(bench), link))
    }
}

/// Returns the run of `sync` from one of its sources.
fn one_source(source: PathBuf, sync: SyncFlags) -> Result<NamedJob, ConfigError> {
    let job = match bucket_of(&sync.destination) {
        Some(url) => {
            check_local(&source)?;
            offsite_job(source.clone(), url?, sync)?
        }
        None => sync_job(source.clone(), sync)?,
    };
    Ok(NamedJob { name: source, job })
}

impl Run {
    fn resolve(
        mut jobs: Vec<NamedJob>,
        output: OutputFlags,
        surroundings: Surroundings,
    ) -> Result<Config, ConfigError> {
        if output.itemize_changes && jobs.iter().any(|it| matches!(it.job, Job::Offsite { .. })) {
            return Err(ConfigError::NotForBucket("--itemize-changes".into()));
        }
        let tells = output.itemize_changes || output.verbose > 0;
        jobs.iter_mut().for_each(|it| it.job.set_itemize_changes(tells));
        let output = Output::resolve(output, jobs.iter().any(|it| it.job.sends()), surroundings)?;
        Ok(Config::Run(Box::new(Self { jobs, output })))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use syncer::session::Endpoint;

    use super::*;

    const TERMINAL: Surroundings = Surroundings { terminal: true, cursor: true, color: true };
    const PIPE: Surroundings = Surroundings { terminal: false, ..TERMINAL };

    fn resolve(args: &[&str], surroundings: Surroundings) -> Result<Run, ConfigError> {
        let flags = Flags::try_parse_from(["volferry"].iter().chain(args)).unwrap();
        let Config::Run(run) = Config::resolve(flags, surroundings)? else { panic!("not a run: {args:?}") };
        Ok(*run)
    }

    fn job(args: &[&str]) -> Job {
        resolve(args, PIPE).unwrap().jobs.remove(0).job
    }

    fn output(args: &[&str], surroundings: Surroundings) -> Output {
        resolve(&[&["sync", "a", "b"], args].concat(), surroundings).unwrap().output
    }

    #[test]
    fn limits_between_which_no_size_is_are_refused() {
        let limits = |min: &str, max: &str| resolve(&["sync", "a", "b", min, max], PIPE);
        assert!(limits("--min-size=5", "--max-size=5").is_ok());
        assert!(matches!(limits("--min-size=2k", "--max-size=1k"), Err(ConfigError::NoSize)));
    }

    #[test]
    fn a_shard_names_its_run() {
        let args = ["sync", "a", "b", "--shard=0/2"];
        assert!(matches!(resolve(&args, PIPE), Err(ConfigError::ShardOfNoRun)));
        assert!(resolve(&[&args[..], &["--run=r"]].concat(), PIPE).is_ok());
        assert!(resolve(&["sync", "a", "b", "--shard=0/1"], PIPE).is_ok());
    }

    #[test]
    fn a_snapshot_is_copied_as_a_whole() {
        for flag in [
            "--include=a",
            "--exclude=a",
            "--filter=- a",
            "--ignore-files",
            "--min-size=1",
            "--max-size=1",
            "--existing",
            "--chmod=u+w",
            "--chown=1",
            "--remove-source-files",
        ] {
            let refused = resolve(&["sync", "a", "b", "--source-snapshot=latest", flag], PIPE);
            assert!(matches!(refused, Err(ConfigError::NotForSnapshots(_))), "{flag}");
        }
        let of_snapshot = job(&["sync", "a", "b", "--source-snapshot=v1", "--delete"]);
        assert!(
            matches!(of_snapshot, Job::Sync { params, .. } if params.source_snapshot.as_deref() == Some("v1"))
        );
    }

    #[test]
    fn a_shard_takes_no_snapshot() {
        let args = ["sync", "a", "b", "--shard=0/2", "--run=r", "--snapshot"];
        assert!(matches!(resolve(&args, PIPE), Err(ConfigError::ShardedSnapshot)));
        assert!(resolve(&["sync", "a", "b", "--snapshot"], PIPE).is_ok());
        let args = ["sync", "a", "b", "--shard=0/2", "--run=r", "--backup-dir=old"];
        assert!(matches!(resolve(&args, PIPE), Err(ConfigError::ShardedBackup)));
    }

    #[test]
    fn attributes_that_are_kept_by_default_may_be_declined() {
        let args =
            ["sync", "a", "b", "--no-xattrs", "--no-acls", "--no-hard-links", "--no-sparse", "--no-specials"];
        let Job::Sync { params, .. } = job(&args) else { panic!("not a sync") };
        assert!(!params.preserve.xattrs);
    }

    #[test]
    fn an_end_listens_or_dials() {
        let end = |args: &[&str]| resolve(&[&["send", "a", "--identity", "i"], args].concat(), PIPE);
        assert!(matches!(end(&[]), Err(ConfigError::NoEndpoint)));
        let both = ["--listen", "127.0.0.1:0", "--connect", "h:1"];
        assert!(matches!(end(&both), Err(ConfigError::TwoEndpoints)));
        let dials = end(&["--connect", "h:1"]).unwrap().jobs.remove(0).job;
        let Job::Send { link, .. } = dials else { panic!("not a send") };
        let LinkConfig::Known { endpoint, side, connect_timeout, .. } = link else { panic!("no identity") };
        assert!(matches!(endpoint, Endpoint::Connect(address) if address == "h:1"));
        assert_eq!((side, connect_timeout), (Side::Source, Duration::from_secs(10)));
    }

    #[test]
    fn flags_that_have_no_effect_without_another_are_refused() {
        let listens = ["send", "a", "--identity=i", "--listen=127.0.0.1:0", "--connect-timeout=1"];
        assert!(matches!(resolve(&listens, PIPE), Err(ConfigError::TimeoutOfListener)));
        let dials = ["receive", "a", "--identity=i", "--connect=h:1", "--connect-timeout=1"];
        assert!(resolve(&dials, PIPE).is_ok());
        let limit = ["sync", "a", "b", "--delete-limit=10"];
        assert!(matches!(resolve(&limit, PIPE), Err(ConfigError::LimitOfNoDelete)));
        assert!(resolve(&[&limit[..], &["--delete"]].concat(), PIPE).is_ok());
    }

    #[test]
    fn a_folder_below_is_apart_from_the_folder_that_is_trusted() {
        let below = job(&["sync", "a", "b", "--source-path=/in", "--destination-path=x/y"]);
        let Job::Sync { source, destination, .. } = below else { panic!("not a sync") };
        assert_eq!((source.trusted.as_path(), source.path()), (Path::new("a"), "a/in".into()));
        assert_eq!((destination.trusted.as_path(), destination.path()), (Path::new("b"), "b/x/y".into()));
    }

    #[test]
    fn a_bar_needs_a_terminal_that_can_move_its_cursor() {
        let dumb = Surroundings { cursor: false, ..TERMINAL };
        for (flag, at_terminal) in [
            ("--progress=auto", ProgressMode::Bar),
            ("--progress=bar", ProgressMode::Bar),
            ("--progress=json", ProgressMode::Json),
            ("--progress=none", ProgressMode::None),
        ] {
            let elsewhere = if at_terminal == ProgressMode::Bar { ProgressMode::None } else { at_terminal };
            assert_eq!(output(&[flag], TERMINAL).progress, at_terminal, "{flag}");
            assert_eq!(output(&[flag], PIPE).progress, elsewhere, "{flag} in a pipe");
            assert_eq!(output(&[flag], dumb).progress, elsewhere, "{flag} on a dumb terminal");
        }
    }

    #[test]
    fn a_quiet_run_has_no_bar_and_keeps_the_events_that_were_asked_for() {
        assert_eq!(output(&["--quiet", "--progress=bar"], TERMINAL).progress, ProgressMode::None);
        assert_eq!(output(&["-q", "--progress=json"], TERMINAL).progress, ProgressMode::Json);
    }

    #[test]
    fn colours_need_a_terminal_and_no_objection() {
        assert!(output(&[], TERMINAL).color);
        assert!(!output(&[], Surroundings { color: false, ..TERMINAL }).color);
        assert!(!output(&[], PIPE).color);
    }

    #[test]
    fn a_report_that_could_not_be_written_is_refused_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let report = |path: &Path| {
            let flag = format!("--report={}", path.display());
            resolve(&["sync", "a", "b", &flag], PIPE)
        };
        assert!(matches!(report(dir.path()), Err(ConfigError::ReportIsFolder(_))));
        assert!(matches!(report(&dir.path().join("no/r.json")), Err(ConfigError::ReportFolder { .. })));
        assert!(report(&dir.path().join("r.json")).is_ok());
        assert!(report(Path::new("r.json")).is_ok());
    }
}
