//! The command line of pairs.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use contract::Side;

use super::claim_place::{ClaimPlace, Scope, time};
use crate::api::ServiceType;

#[derive(Debug, Subcommand)]
pub(super) enum PairCommand {
    /// Print a SyncEndpoint of one claim and a SyncJob that keeps it in step with a claim of another cluster. With
    /// --apply, make both, try the way between them, introduce them to each other, and wait for the first run.
    Pair {
        #[command(flatten)]
        flags: PairFlags,
        #[command(flatten)]
        made: MadeFlags,
    },
    /// Delete the SyncJob of a pair, and the SyncEndpoint unless it has other peers. The claims stay as they are.
    Unpair {
        #[command(flatten)]
        flags: PairFlags,
    },
    /// Give the SyncJob of a pair another key. The endpoint takes both keys until a run has succeeded with the new one.
    Rotate {
        #[command(flatten)]
        flags: PairFlags,
        /// Give the SyncEndpoint another key instead, and have the SyncJob expect it. Other peers may come with the one
        /// before until the next rotation.
        #[arg(long)]
        endpoint: bool,
    },
}

/// The two claims of a pair.
#[derive(Debug, Clone, Args)]
pub(super) struct PairFlags {
    /// The claim that is read: CLAIM, NAMESPACE/CLAIM or CONTEXT/NAMESPACE/CLAIM.
    #[arg(long, value_name = "PLACE")]
    pub(super) from: ClaimPlace,
    /// The claim that is written, in the same form.
    #[arg(long, value_name = "PLACE")]
    pub(super) to: ClaimPlace,
    /// The claim that gets the SyncEndpoint. The other cluster has to be able to reach its cluster.
    #[arg(long, value_enum, default_value = "to")]
    pub(super) serve: ServeFlag,
    /// The name of both objects. Absent: that of the claim that is read.
    #[arg(long)]
    pub(super) name: Option<String>,
    /// How long to wait for each step.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(super) timeout: Duration,
}

/// What is made for a pair.
#[derive(Debug, Clone, Args)]
pub(super) struct MadeFlags {
    /// How the endpoint is reached.
    #[arg(long, value_enum, default_value = "load-balancer")]
    pub(super) service: ServiceFlag,
    /// The name or address by which the endpoint is reached, in place of the one that its cluster gives it.
    #[arg(long, value_name = "HOST")]
    pub(super) host_name: Option<String>,
    /// The port of the endpoint's Service. Absent: 7400.
    #[arg(long)]
    pub(super) port: Option<u16>,
    /// Make both in their clusters.
    #[arg(long)]
    pub(super) apply: bool,
    /// Make no pod that tries the way to the endpoint. The first run finds out, too.
    #[arg(long, requires = "apply")]
    pub(super) no_trial: bool,
    /// The image of that pod. Absent: that of Volferry's last Job in the namespace, or else the chart's.
    #[arg(long, requires = "apply")]
    pub(super) image: Option<String>,
}

impl PairFlags {
    /// Returns the same claims with what the command line says about all of them.
    pub(super) fn at(mut self, of_line: &Scope) -> Self {
        for place in [&mut self.from, &mut self.to] {
            Scope { namespace: place.namespace, context: place.context, .. } = place.scope(of_line);
        }
        self
    }

    /// Returns the end that is served.
    pub(super) fn served(&self) -> Side {
        match self.serve {
            ServeFlag::From => Side::Source,
            ServeFlag::To => Side::Sink,
        }
    }

    /// Returns the claim that is served.
    pub(super) fn served_claim(&self) -> &ClaimPlace {
        match self.serve {
            ServeFlag::From => &self.from,
            ServeFlag::To => &self.to,
        }
    }

    /// Returns the claim whose pod dials.
    pub(super) fn dialling_claim(&self) -> &ClaimPlace {
        match self.serve {
            ServeFlag::From => &self.to,
            ServeFlag::To => &self.from,
        }
    }
}

/// The claim that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ServeFlag {
    /// The one that is read.
    From,
    /// The one that is written.
    To,
}

/// The types of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ServiceFlag {
    /// An address of the cluster's load balancer.
    LoadBalancer,
    /// A port of each node.
    NodePort,
    /// A name inside the cluster.
    ClusterIp,
}

impl From<ServiceFlag> for ServiceType {
    fn from(flag: ServiceFlag) -> Self {
        match flag {
            ServiceFlag::LoadBalancer => Self::LoadBalancer,
            ServiceFlag::NodePort => Self::NodePort,
            ServiceFlag::ClusterIp => Self::ClusterIP,
        }
    }
}
