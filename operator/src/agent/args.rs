//! The command line of the agent, and the part of its arguments that differs between shards.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;
use contract::{Shard, Side};
use thiserror::Error;

use crate::{api::OnHookFailure, engine, names, snapshots::keep_base_snapshot::ChangedDemand};

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
    /// The try's number in the SyncRun.
    #[arg(long = "try", default_value_t = 1)]
    pub number: i32,
    /// Which end of the run this is.
    #[arg(long, value_parser = parse_side)]
    pub side: Side,
    /// How many pods a side share the run, each with a shard of the tree.
    #[arg(long, default_value_t = 1)]
    pub shards: u32,
    /// Which of them this is. Kubernetes gives the pods of an Indexed Job their numbers this way.
    #[arg(long, env = "JOB_COMPLETION_INDEX", default_value_t = 0)]
    pub index: u32,
    /// For which hook `before` to wait: one whose failure ends the run (`Fail`), or does not (`Continue`). It begins
    /// once all pods of the run have found their volumes free.
    #[arg(long, value_name = "ON_FAILURE", value_parser = parse_policy)]
    pub await_hook: Option<OnHookFailure>,
    /// The port to listen at over UDP and TCP, of an end that does.
    #[arg(long, value_name = "PORT", requires = "pod_ip")]
    pub listen_port: Option<u16>,
    /// The pod's address, to listen at.
    #[arg(long, env = names::ENV_POD_IP)]
    pub pod_ip: Option<IpAddr>,
    /// The file of the key for an endpoint in its Secret, of a pod that dials one.
    #[arg(long, value_name = "FILE", requires = "key_copy")]
    pub key: Option<PathBuf>,
    /// Where this pod's copy of the key goes, in memory.
    #[arg(long, value_name = "FILE")]
    pub key_copy: Option<PathBuf>,
    /// The file of the key for object storage in its Secret, of a pod that takes a snapshot there.
    #[arg(long, value_name = "FILE", requires = "key_copy")]
    pub store_key: Option<PathBuf>,
    /// What the storage is asked for the changed blocks of the source, as JSON.
    #[arg(long, value_name = "JSON", value_parser = parse_changed)]
    pub changed_blocks: Option<Box<ChangedDemand>>,
    /// The Secret to create with a new key if none is mounted.
    #[arg(long, value_name = "SECRET", requires_all = ["key", "syncjob", "syncjob_uid"])]
    pub key_secret: Option<String>,
    /// The SyncJob's name, as the owner of that Secret.
    #[arg(long)]
    pub syncjob: Option<String>,
    /// The SyncJob's UID.
    #[arg(long)]
    pub syncjob_uid: Option<String>,
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
    /// Returns the shard, if there are several.
    pub(super) fn shard(&self) -> Option<Shard> {
        (self.shards > 1).then_some(Shard { index: self.index, count: self.shards })
    }

    /// Returns the arguments of `volferry` that only this pod has: its listen address and its shard. `volferry receive`
    /// learns the shard from its source. Fails if the run has no such shard.
    pub(super) fn own_args(&self) -> Result<Vec<OsString>, NoSuchShard> {
        let address = self.pod_ip.zip(self.listen_port).map(SocketAddr::from);
        let mut args: Vec<OsString> =
            address.map(|address| engine::listen_arg(address).into()).into_iter().collect();
        let Some(shard) = self.shard() else { return Ok(args) };
        if !shard.is_valid() {
            return Err(NoSuchShard(shard));
        }
        if self.command.get(1).is_none_or(|subcommand| subcommand != "receive") {
            args.push(format!("--shard={shard}").into());
        }
        Ok(args)
    }
}

/// The error that the pod's index is not the index of one of the run's shards.
#[derive(Debug, Error)]
#[error("the run has no shard {0}: see --shards and JOB_COMPLETION_INDEX")]
pub struct NoSuchShard(Shard);

fn parse_policy(text: &str) -> Result<OnHookFailure, String> {
    serde_json::from_value(text.into()).map_err(|_| "expected `Fail` or `Continue`".into())
}

fn parse_changed(text: &str) -> Result<Box<ChangedDemand>, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn parse_side(text: &str) -> Result<Side, String> {
    match text {
        "source" => Ok(Side::Source),
        "sink" => Ok(Side::Sink),
        _ => Err("expected `source` or `sink`".into()),
    }
}
