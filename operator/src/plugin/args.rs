use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use contract::Side;

pub(super) use super::claim_place::{ClaimPlace, Scope};
use super::{claim_place::time, move_args::MoveFlags, pair_args::PairCommand};
use crate::api::{BenchmarkTree, PodSecurity};

/// Shows SyncJobs and their runs; asks for, suspends and resumes runs.
#[derive(Debug, Parser)]
#[command(name = "kubectl-volferry", bin_name = "kubectl volferry", version)]
pub struct PluginArgs {
    #[command(flatten)]
    pub(super) scope: Scope,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(flatten)]
    InCluster(ClusterCommand),
    /// Bring a claim in step with one of another namespace or cluster, through this machine: for clusters that cannot
    /// see each other. A pod at each end mounts its claim meanwhile; they encrypt what passes here with keys of their
    /// own.
    Copy {
        /// The claim with the files: CLAIM, NAMESPACE/CLAIM or CONTEXT/NAMESPACE/CLAIM.
        #[arg(value_name = "FROM")]
        from: ClaimPlace,
        /// The claim that they go to.
        #[arg(value_name = "TO")]
        to: ClaimPlace,
        #[command(flatten)]
        pod: PodFlags,
        #[command(flatten)]
        sync: SyncFlags,
    },
    #[command(flatten)]
    Pairs(PairCommand),
    /// Print SyncJobs that do what another tool does. Nothing in the cluster is read or changed.
    #[command(subcommand)]
    Migrate(MigrateCommand),
}

#[derive(Debug, Subcommand)]
pub(super) enum ClusterCommand {
    /// Show how a SyncJob stands, or a table of all.
    Status {
        /// The SyncJob. Absent: all of the namespace.
        job: Option<String>,
        /// The SyncJobs of all namespaces.
        #[arg(short = 'A', long, conflicts_with = "job")]
        all_namespaces: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Show what all SyncJobs do right now, as it changes: phase, rate and rest of the runs under way, and what others
    /// wait for. Ctrl-C ends it.
    Top {
        /// The SyncJobs of all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Print the table once; so it is where standard output is no terminal.
        #[arg(long)]
        once: bool,
    },
    /// List the runs of a SyncJob, the newest first.
    Runs {
        /// The SyncJob.
        job: String,
        #[command(flatten)]
        form: Form,
    },
    /// Print what the pods of a run said.
    Logs {
        /// A SyncJob, for the run in progress or else the last one, or a SyncRun. A name that both have is the
        /// SyncJob's.
        #[arg(value_name = "JOB|RUN")]
        name: String,
        /// Only the pods of this end. The one pod of a local run is its sink.
        #[arg(long)]
        end: Option<SideArg>,
        /// Go on until the pods end.
        #[arg(short = 'f', long)]
        follow: bool,
    },
    /// Ask for a run of a SyncJob now, by a new SyncRun.
    RunNow {
        /// The SyncJob.
        job: String,
        /// Let the guards pass in this run, such as those against an empty source and too many deletes.
        #[arg(long)]
        force: bool,
        /// Wait until the run has ended; exit code 1 if it does not succeed.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Cancel the run of a SyncJob that is queued or in progress. What has arrived is kept for the next run.
    Cancel {
        /// The SyncJob.
        job: String,
    },
    /// Start no further run of a SyncJob. A run in progress goes on to its end.
    Suspend {
        /// The SyncJob.
        job: String,
    },
    /// Start runs of a SyncJob again, after `suspend` or after a restore in place.
    Resume {
        /// The SyncJob.
        job: String,
    },
    /// Bring the destination of a SyncJob back to one of its snapshots, by a new SyncRun. Then no run starts until it
    /// is resumed.
    Restore {
        /// The SyncJob.
        job: String,
        /// The snapshot's name or its first digits, a tag, `latest`, or `as-of:TIME`.
        snapshot: String,
        /// Only this file or folder of the snapshot, such as /accounts/2026.csv; all else stays. May be repeated.
        #[arg(long = "path", value_name = "PATH")]
        paths: Vec<String>,
        /// Do not keep the state before in a pinned snapshot.
        #[arg(long)]
        no_safety: bool,
        /// Restore all that is whole of a damaged snapshot.
        #[arg(long)]
        keep_going: bool,
        /// Restore owners, set-id bits, capabilities and devices although other users can write to the volume.
        #[arg(long)]
        trust_store: bool,
        /// Wait until the run has ended; exit code 1 if it does not succeed.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Measure how fast files get from the source's volume of a SyncJob to the destination's, by a new SyncRun. Both
    /// volumes stay as they are.
    Bench {
        /// The SyncJob.
        job: String,
        /// The tree to make.
        #[arg(long, value_enum, default_value = "mixed")]
        tree: BenchmarkTree,
        /// Run each step this many times.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
        rounds: u32,
        /// Wait until the benchmark has ended, and print what it found; exit code 1 if it does not succeed.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        form: Form,
    },
    /// List the snapshots of a SyncJob on its destination, as its last run with a snapshot found them.
    Snapshots {
        /// The SyncJob.
        job: String,
        #[command(flatten)]
        form: Form,
    },
    /// Look into the snapshots on the destination of a SyncJob: list them, or what a folder of one has. A pod reads the
    /// volume meanwhile, and is gone afterwards.
    Browse {
        /// The SyncJob.
        job: String,
        /// The snapshot's name or its first digits, a tag, `latest`, or `as-of:TIME`. Absent: list the snapshots.
        snapshot: Option<String>,
        /// The folder. Absent: the top one.
        path: Option<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Write a file of a snapshot to standard output: `kubectl volferry get JOB SNAPSHOT PATH > FILE`. Exit code 1 if
    /// not all of it came.
    Get {
        /// The SyncJob.
        job: String,
        /// The snapshot's name or its first digits, a tag, `latest`, or `as-of:TIME`.
        snapshot: String,
        /// The file, such as /accounts/2026.csv.
        path: String,
        #[command(flatten)]
        limit: Limit,
    },
    /// Bring a claim in step with a folder of this machine, as `volferry sync SRC CLAIM` would. It takes a kubeconfig
    /// and the program `volferry`, and no operator: a pod mounts the claim meanwhile, and is gone afterwards.
    Push {
        /// The folder, file, device or image of this machine.
        #[arg(value_name = "SRC")]
        source: PathBuf,
        /// The PersistentVolumeClaim.
        claim: String,
        #[command(flatten)]
        pod: PodFlags,
        #[command(flatten)]
        sync: SyncFlags,
    },
    /// Bring a folder of this machine in step with a claim, as `volferry sync CLAIM DST` would. See `push`.
    Pull {
        /// The PersistentVolumeClaim.
        claim: String,
        /// The folder, file, device or image of this machine.
        #[arg(value_name = "DST")]
        destination: PathBuf,
        #[command(flatten)]
        pod: PodFlags,
        #[command(flatten)]
        sync: SyncFlags,
    },
    /// Join standard input and output to those of a command in a pod, as `volferry sync` has ssh do it.
    #[command(hide = true)]
    Stream {
        /// The pod.
        pod: String,
        /// The command and its arguments, separated by blanks.
        command: String,
    },
    /// Move a StatefulSet or Deployment to another storage class: its claims are copied while it runs, it is stopped
    /// for the rest, and the new volumes get the old claims' names. Without --apply, print what would be done. It may
    /// be killed and run again at any point.
    Move {
        #[command(flatten)]
        flags: MoveFlags,
    },
    /// Look for what keeps runs from succeeding: the operator, the CRDs, your rights, the namespace, nodes, claims and
    /// the last failures. Exit code 1 if there is an error among the findings.
    Doctor {
        /// The SyncJob. Absent: all of the namespace.
        job: Option<String>,
    },
    /// Print the report of a SyncJob's last run as JSON, which `volferry report` reads.
    Report {
        /// The SyncJob.
        job: String,
    },
}

/// The tools that SyncJobs can take the place of.
#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Read VolSync's ReplicationSources and ReplicationDestinations, and print a SyncJob for each pair.
    Volsync {
        /// A file with the objects as YAML or JSON, also as a list; - is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print a SyncJob that does what this command line of pv-migrate does.
    PvMigrate {
        /// The arguments of pv-migrate.
        #[arg(
            value_name = "ARGUMENTS",
            trailing_var_arg = true,
            allow_hyphen_values = true,
            required = true
        )]
        args: Vec<String>,
    },
}

/// How long a pod may take.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Limit {
    /// Give up after this time, such as 30s or 2h; the pod is gone then.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time)]
    pub(super) timeout: Duration,
}

/// The pod by which a claim is reached.
#[derive(Debug, Clone, Args)]
pub(super) struct PodFlags {
    /// The image with Volferry's programs, of this version. Absent: that of Volferry's last Job in the namespace, or
    /// else the chart's.
    #[arg(long)]
    pub(super) image: Option<String>,
    /// Run the pod as this user and group, to whom new files belong then. Absent: as root where the namespace lets
    /// syncers run as root, else as the user of syncers.
    #[arg(long, value_name = "UID[:GID]", value_parser = user)]
    pub(super) user: Option<UserAndGroup>,
    /// End the pod after this time, such as 90m or 72h, if it is still there.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    pub(super) timeout: Duration,
}

/// The user of a pod, and its group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UserAndGroup {
    user: i64,
    group: Option<i64>,
}

impl PodFlags {
    /// Returns the user and groups that the pod is asked to have.
    pub(super) fn security(&self) -> PodSecurity {
        let group = self.user.and_then(|of| of.group);
        PodSecurity {
            run_as_user: self.user.map(|of| of.user),
            run_as_group: group,
            fs_group: group,
            ..PodSecurity::default()
        }
    }
}

/// What `volferry sync` is given.
#[derive(Debug, Clone, Args)]
pub(super) struct SyncFlags {
    /// Flags of `volferry sync`, after --, such as --delete or --exclude '*.tmp'.
    #[arg(last = true, value_name = "FLAGS")]
    pub(super) flags: Vec<OsString>,
}

fn user(text: &str) -> Result<UserAndGroup, String> {
    let number = |text: &str| match text.parse() {
        Ok(number) if (0..=u32::MAX.into()).contains(&number) => Ok(number),
        _ => Err(String::from("write numbers, such as 1000 or 1000:1000")),
    };
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    Ok(UserAndGroup { user: number(user)?, group: group.map(number).transpose()? })
}

/// The output form.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Form {
    /// The form of the output.
    #[arg(short = 'o', long, default_value = "text")]
    pub(super) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Lines for people.
    Text,
    /// The objects.
    Json,
    /// The objects.
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SideArg {
    /// The end that reads.
    Source,
    /// The end that writes.
    Sink,
}

impl From<SideArg> for Side {
    fn from(end: SideArg) -> Self {
        match end {
            SideArg::Source => Self::Source,
            SideArg::Sink => Self::Sink,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_flags_may_follow_the_command() {
        PluginArgs::command().debug_assert();
        let line = ["kubectl-volferry", "logs", "web", "--end", "sink", "-n", "prod", "--context=far"];
        let args = PluginArgs::try_parse_from(line).unwrap();
        assert_eq!(args.scope.namespace.as_deref(), Some("prod"));
        assert_eq!(args.scope.context.as_deref(), Some("far"));
        assert!(matches!(
            args.command,
            Command::InCluster(ClusterCommand::Logs { end: Some(SideArg::Sink), follow: false, .. })
        ));
        let line = ["kubectl-volferry", "push", "./data", "web", "--user=7:8", "--", "--delete", "-n"];
        let args = PluginArgs::try_parse_from(line).unwrap();
        let Command::InCluster(ClusterCommand::Push { pod, sync, .. }) = args.command else { panic!("push") };
        assert_eq!(pod.user, Some(UserAndGroup { user: 7, group: Some(8) }));
        assert_eq!(sync.flags, ["--delete", "-n"]);
        assert!(user("root").is_err() && user("1:").is_err() && user("-1").is_err());
        let place = |typed: &str| {
            let ClaimPlace { context, namespace, claim } = typed.parse().unwrap();
            [context.unwrap_or_default(), namespace.unwrap_or_default(), claim]
        };
        assert_eq!(place("web"), ["", "", "web"]);
        assert_eq!(place("prod/web"), ["", "prod", "web"]);
        assert_eq!(place("arn:aws:eks:x:1:cluster/a/prod/web"), ["arn:aws:eks:x:1:cluster/a", "prod", "web"]);
        assert_eq!(place("a//web"), ["a", "", "web"]);
        assert!(
            ["", "/web", "//web", "a/b/", "web/"].iter().all(|typed| typed.parse::<ClaimPlace>().is_err())
        );
        let both = PluginArgs::try_parse_from(["kubectl-volferry", "status", "web", "-A"]);
        assert!(both.unwrap_err().to_string().contains("--all-namespaces"));
    }
}
