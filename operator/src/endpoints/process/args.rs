//! The command line of an endpoint's first process.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use clap::Args;

use crate::names;

/// How an endpoint's first process is called; the operator writes this command line into the pod.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "volferry-operator endpoint [OPTIONS] -- <COMMAND>...")]
pub struct ServiceArgs {
    /// The SyncEndpoint's namespace.
    #[arg(long)]
    pub namespace: String,
    /// The SyncEndpoint's name.
    #[arg(long)]
    pub name: String,
    /// The SyncEndpoint's UID: a later one of the same name is left alone.
    #[arg(long)]
    pub uid: String,
    /// The Secret that keeps the endpoint's key.
    #[arg(long)]
    pub key_secret: String,
    /// The file of the key, from that Secret; it is missing until the Secret is there.
    #[arg(long)]
    pub key: PathBuf,
    /// The file of the key before it, with which the endpoint is served, too, if the file is there.
    #[arg(long)]
    pub former_key: PathBuf,
    /// A folder in memory, for the keys and the files of the service.
    #[arg(long)]
    pub state: PathBuf,
    /// The path at which the volume is mounted.
    #[arg(long)]
    pub volume: PathBuf,
    /// The claim of that volume: no peer is served once the SyncEndpoint names another.
    #[arg(long)]
    pub claim: String,
    /// The port for UDP and TCP.
    #[arg(long)]
    pub port: u16,
    /// The port of probes and metrics.
    #[arg(long)]
    pub metrics_port: u16,
    /// The pod's addresses.
    #[arg(long, env = names::ENV_POD_IPS, value_delimiter = ',')]
    pub pod_ips: Vec<IpAddr>,
    /// `volferry serve` and its arguments, without the configuration.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

impl ServiceArgs {
    /// Returns the address on which a port of this pod listens: of both families if the pod has the newer one.
    pub(super) fn listen(&self, port: u16) -> SocketAddr {
        let any: IpAddr = if self.pod_ips.iter().any(IpAddr::is_ipv6) {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        (any, port).into()
    }
}
