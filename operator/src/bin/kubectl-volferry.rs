//! `kubectl volferry`: shows and controls SyncJobs and their runs, with the permissions of the user's kubeconfig.

use std::process::ExitCode;

use clap::Parser as _;
use operator::plugin::{self, PluginArgs};

#[tokio::main]
async fn main() -> ExitCode {
    plugin::run(PluginArgs::parse()).await
}
