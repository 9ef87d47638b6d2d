use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// How data travels.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::transfer()))]
pub struct Transfer {
    /// Whether data is compressed on the wire. Auto: depending on the data and the link. None: never. Zstd: always, at
    /// compressionLevel.
    #[serde(default)]
    pub compression: CompressionMode,
    /// The zstd level of `compression: Zstd`. Absent: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 19))]
    pub compression_level: Option<i32>,
    /// The most bytes per second on the wire, for example `100Mi`; with parallelism, of all shards together. Absent:
    /// unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::bandwidth()))]
    pub bandwidth_limit: Option<String>,
    /// How the two volumes are connected. Network: each has a pod of its own, with QUIC between them. Local: one pod
    /// mounts both, on a node that can. Auto: Local if both are the same claim, or if any node can mount both according
    /// to their access modes, and the spec sets neither parallelism nor a bandwidth limit; else Network.
    #[serde(default)]
    pub placement: Placement,
}

/// Whether data is compressed on the wire.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CompressionMode {
    /// Depending on the data and the link.
    #[default]
    Auto,
    /// Never.
    None,
    /// Always, with zstd at `compressionLevel`.
    Zstd,
}

/// Whether the two volumes are mounted by one pod or meet over the network.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// `Local` where one pod can mount both volumes, else `Network`.
    #[default]
    Auto,
    /// A pod for each volume, QUIC between them.
    Network,
    /// One pod with both volumes, and no network.
    Local,
}
