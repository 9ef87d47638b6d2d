//! The command line of `move`.

use std::{fmt, str::FromStr, time::Duration};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::claim_place::time;

/// What is moved, and how.
#[derive(Debug, Clone, Args)]
pub(super) struct MoveFlags {
    /// The workload: statefulset/NAME or deployment/NAME.
    #[arg(value_name = "KIND/NAME")]
    pub(super) workload: WorkloadName,
    /// The storage class that its claims get. A move that has begun knows it.
    #[arg(long, value_name = "CLASS")]
    pub(super) to_class: Option<String>,
    /// Move only this claim, or for a StatefulSet the claims of this template. May be repeated. Absent: all that have
    /// another class.
    #[arg(long = "claim", value_name = "NAME")]
    pub(super) claims: Vec<String>,
    /// Do what is printed. Without it, nothing is changed.
    #[arg(long)]
    pub(super) apply: bool,
    /// Go the way back: give the claims their old volumes again, as these were when the workload was stopped. What was
    /// written since stays on the new volumes, which are kept.
    #[arg(long, conflicts_with_all = ["to_class", "claims"])]
    pub(super) back: bool,
    /// Let go of the old volumes, which the storage then deletes if its class says so. There is no way back afterwards.
    #[arg(long, conflicts_with_all = ["to_class", "claims", "back"])]
    pub(super) forget: bool,
    /// Do not compare all content by checksums while the workload is stopped.
    #[arg(long)]
    pub(super) no_verify: bool,
    /// Go on although the copies have other owners than the files.
    #[arg(long)]
    pub(super) any_owner: bool,
    /// How long each step of the cluster may take, such as the end of a pod. Runs may take as long as they need.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub(super) timeout: Duration,
}

/// A workload, as it is typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkloadName {
    pub(super) kind: WorkloadKind,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WorkloadKind {
    StatefulSet,
    Deployment,
}

impl WorkloadKind {
    /// Returns the name of the kind in URLs.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulsets",
            Self::Deployment => "deployments",
        }
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.plural().trim_end_matches('s'), self.name)
    }
}

impl FromStr for WorkloadName {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let (kind, name) = typed.split_once('/').unwrap_or_default();
        let kind = match kind {
            "sts" | "statefulset" | "statefulsets" => WorkloadKind::StatefulSet,
            "deploy" | "deployment" | "deployments" => WorkloadKind::Deployment,
            _ => return Err("write statefulset/NAME or deployment/NAME".into()),
        };
        if name.is_empty() || name.contains('/') {
            return Err("the name is missing, as in statefulset/db".into());
        }
        Ok(Self { kind, name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_a_kind_and_a_name() {
        let of = |typed: &str| typed.parse::<WorkloadName>().map(|it| it.to_string());
        assert_eq!(of("sts/db").unwrap(), "statefulset/db");
        assert_eq!(of("deployments/web").unwrap(), "deployment/web");
        for wrong in ["db", "pod/db", "sts/", "sts/a/b", "/db"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
