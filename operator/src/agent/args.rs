//! How the agent is called, and what of its command line is one shard's alone.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use contract::{Shard, Side};
use thiserror::Error;

use crate::launch::{self, process::ProcessError};

/// How the agent is called; the operator writes this command line into the pod.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// The SyncRun's namespace.
    #[arg(long)]
    pub namespace: String,
    /// The SyncRun's name.
    #[arg(long)]
    pub name: String,
    /// The SyncRun's UID: a later one of the same name is left alone.
    #[arg(long)]
    pub uid: String,
    /// The try's name in reports.
    #[arg(long)]
    pub run: String,
    /// Which end of the run this is.
    #[arg(long, value_parser = parse_side)]
    pub side: Side,
    /// How many pods a side share the run, each with a shard of the tree.
    #[arg(long, default_value_t = 1)]
    pub shards: u32,
    /// Which of them this is. Kubernetes gives the pods of an Indexed Job their numbers this way.
    #[arg(long, env = "JOB_COMPLETION_INDEX", default_value_t = 0)]
    pub index: u32,
    /// The addresses of the sinks of all shards, for a source to dial its own. Absent: the command has it.
    #[arg(long = "sink", value_name = "IP:PORT")]
    pub sinks: Vec<String>,
    /// Where `volferry` leaves its report.
    #[arg(long)]
    pub report: PathBuf,
    /// Where the termination message goes.
    #[arg(long, default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
    /// `volferry` and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

impl AgentArgs {
    /// The shard, if there are several.
    pub(super) fn shard(&self) -> Option<Shard> {
        (self.shards > 1).then_some(Shard { index: self.index, count: self.shards })
    }

    /// Returns the arguments of `volferry` that are this shard's alone. `volferry receive` has none: its source tells it
    /// the shard.
    pub(super) fn shard_args(&self) -> Result<Vec<OsString>, AgentError> {
        let Some(shard) = self.shard() else { return Ok(Vec::new()) };
        if !shard.is_valid() {
            return Err(AgentError::NoSuchShard(shard));
        }
        if self.command.get(1).is_some_and(|subcommand| subcommand == "receive") {
            return Ok(Vec::new());
        }
        let mut args = vec![OsString::from(format!("--shard={shard}"))];
        if !self.sinks.is_empty() {
            let sink = self.sinks.get(shard.index as usize).ok_or(AgentError::NoSuchShard(shard))?;
            args.push(launch::connect_arg(sink).into());
        }
        Ok(args)
    }
}

/// Why the agent could not do its part.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The process does not start, or is lost.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The pod's number is not one of the run's.
    #[error("the run has no shard {0}: see --shards, --sink and JOB_COMPLETION_INDEX")]
    NoSuchShard(Shard),
}

fn parse_side(text: &str) -> Result<Side, String> {
    match text {
        "source" => Ok(Side::Source),
        "sink" => Ok(Side::Sink),
        _ => Err("expected `source` or `sink`".into()),
    }
}
