//! The operator's command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use operator::{
    agent::{self, AgentArgs},
    controller::serve::{self, ControllerArgs, ServeError},
    endpoints::process::{self, ServiceArgs},
    local_run::{self, LocalArgs},
    plugin::report::{self, ReportArgs},
    populate::serve::{self as populator, PopulateArgs},
    telemetry::{
        self, LogFormat,
        ready::{self, ReadyArgs},
    },
    user_pods::hold::{self, HoldArgs},
};
use tokio::runtime::Builder;

/// Keeps the files of one volume in step with another's.
#[derive(Debug, Parser)]
#[command(name = "volferry-operator", version, propagate_version = true)]
struct Cli {
    /// The form of log lines, which go to standard error.
    #[arg(long, global = true, default_value = "text", env = "VOLFERRY_LOG_FORMAT")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

/// The stack of each worker. Without optimization, parsing the objects of Kubernetes and planning a step take more than
/// the 2 MiB that are usual; only what is used takes memory.
const WORKER_STACK_BYTES: usize = 8 << 20;

#[derive(Debug, Subcommand)]
enum Command {
    /// Reconcile the SyncJobs of a cluster.
    Controller(Box<ControllerArgs>),
    /// Fill claims whose dataSourceRef names a SyncJob with its copy.
    Populate(PopulateArgs),
    /// Run one end of a run in a syncer pod, as its first process.
    Agent(AgentArgs),
    /// Keep a pod for one command of a user, as its first process.
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Serve a SyncEndpoint in its pod, as its first process.
    Endpoint(ServiceArgs),
    /// Run SyncJob manifests here, with processes in place of pods.
    Run(LocalArgs),
    /// Say from SyncRuns how long the runs of a SyncJob took, and whether they have become slower.
    Report(ReportArgs),
    /// Ask a controller whether it is ready, as `helm test` does.
    Ready(ReadyArgs),
}

fn main() -> ExitCode {
    let runtime = Builder::new_multi_thread().enable_all().thread_stack_size(WORKER_STACK_BYTES).build();
    match runtime {
        Ok(runtime) => runtime.block_on(run(Cli::parse())),
        Err(error) => {
            eprintln!("error: cannot start threads: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> ExitCode {
    telemetry::init(cli.log_format);
    match cli.command {
        Command::Controller(args) => served(serve::serve(*args, cli.log_format).await),
        Command::Populate(args) => served(populator::serve(args).await),
        Command::Agent(args) => exit_code(agent::run(&args).await),
        Command::Hold(args) => hold::run(&args).await,
        Command::Endpoint(args) => exit_code(process::run(&args).await),
        Command::Run(args) => local_run::run(&args).await.into(),
        Command::Report(args) => report::run(args).await,
        Command::Ready(args) => ready::ready(&args).await,
    }
}

fn served(ended: Result<(), ServeError>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    tracing::error!("{}", contract::chain(&error));
    ExitCode::FAILURE
}

/// Converts an exit status to the eight bits of the operating system.
fn exit_code(status: i32) -> ExitCode {
    u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)
}
