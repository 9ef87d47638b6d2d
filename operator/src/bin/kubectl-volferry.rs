//! `kubectl volferry`: SyncJobs and their runs for people, with the rights of the user's kubeconfig.

use std::process::ExitCode;

use clap::Parser as _;
use operator::plugin::{self, PluginArgs};

#[tokio::main]
async fn main() -> ExitCode {
    plugin::run(PluginArgs::parse()).await
}
