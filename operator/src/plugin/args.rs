use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use contract::Side;

use crate::api::BenchmarkTree;

/// Shows SyncJobs and their runs; asks for, suspends and resumes runs.
#[derive(Debug, Parser)]
#[command(name = "kubectl-volferry", bin_name = "kubectl volferry", version)]
pub struct PluginArgs {
    #[command(flatten)]
    pub(super) scope: Scope,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Which cluster and namespace; the kubeconfig is the one of kubectl.
#[derive(Debug, Clone, Args)]
pub(super) struct Scope {
    /// The namespace. Absent: that of the kubeconfig's context.
    #[arg(short = 'n', long, global = true)]
    pub(super) namespace: Option<String>,
    /// The context of the kubeconfig. Absent: the current one.
    #[arg(long, global = true)]
    pub(super) context: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(flatten)]
    InCluster(ClusterCommand),
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
        end: Option<End>,
        /// Go on until the pods end.
        #[arg(short = 'f', long)]
        follow: bool,
    },
    /// Ask for a run of a SyncJob now, by a new SyncRun.
    RunNow {
        /// The SyncJob.
        job: String,
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

fn time(text: &str) -> Result<Duration, String> {
    match text.parse::<kube::core::Duration>() {
        Ok(time) if !time.is_negative() && time >= Duration::from_secs(1) => Ok(time.into()),
        _ => Err("write a time such as 90s, 10m or 1h30m".into()),
    }
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum End {
    /// The end that reads.
    Source,
    /// The end that writes.
    Sink,
}

impl From<End> for Side {
    fn from(end: End) -> Self {
        match end {
            End::Source => Self::Source,
            End::Sink => Self::Sink,
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
            Command::InCluster(ClusterCommand::Logs { end: Some(End::Sink), follow: false, .. })
        ));
        let both = PluginArgs::try_parse_from(["kubectl-volferry", "status", "web", "-A"]);
        assert!(both.unwrap_err().to_string().contains("--all-namespaces"));
    }
}
