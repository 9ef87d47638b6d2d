use std::collections::BTreeMap;

use contract::{History, Reason, RunResult, Timings};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{files::DeleteLimit, pods::PodSettings, rules, spec::Snapshots, status::SnapshotStatus};

/// One claim that stands ready for runs from outside the cluster, and who may come.
#[allow(clippy::duplicated_attributes)] // taken for attributes: the arguments that printer columns have in common
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "volferry.dev",
    version = "v1alpha1",
    kind = "SyncEndpoint",
    plural = "syncendpoints",
    namespaced,
    status = "SyncEndpointStatus",
    shortname = "se",
    category = "volferry",
    derive = "PartialEq",
    doc = "A claim that stands ready for runs from outside the cluster, over UDP and TCP, for the peers whose keys it lists.",
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Access", type_ = "string", json_path = ".spec.access"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Last run",
        type_ = "date",
        json_path = ".status.lastRun.completionTime",
        description = "When the last run of a peer ended"
    ),
    printcolumn(name = "Result", type_ = "string", json_path = ".status.lastRun.result", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::sync_endpoint()))]
pub struct SyncEndpointSpec {
    /// The claim that peers read or write.
    pub persistent_volume_claim: EndpointClaim,
    /// The folder inside the volume that peers get. No part of the path may be a symbolic link. With access Write,
    /// missing folders of the path are created.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
    /// Read: peers get the folder's files. Write: peers send files into it; what is there can be changed and deleted.
    pub access: EndpointAccess,
    /// The peers that may come, by their public keys. A peer may have several. A key that is taken out is a stranger's
    /// at once, and its run ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub peers: Vec<EndpointPeer>,
    /// How peers reach the endpoint.
    #[serde(default)]
    pub service: EndpointService,
    /// What holds for each run, whatever its peer asks for.
    #[serde(default, skip_serializing_if = "EndpointDemands::is_empty")]
    pub demands: EndpointDemands,
    /// Take a snapshot of the folder after each run that succeeds. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Snapshots>,
    /// Settings of the endpoint's pod.
    #[serde(default, skip_serializing_if = "PodSettings::is_empty")]
    pub pods: PodSettings,
    /// The number of the endpoint's own key. A number that is one higher has the pod make another key, which the status
    /// tells; the endpoint serves with the key of the number before, too. It can only grow, by one at a time.
    #[serde(default = "first_key", skip_serializing_if = "is_first_key")]
    #[schemars(range(min = 1, max = 1_000_000), extend("x-kubernetes-validations" = rules::key_version(), "default" = 1))]
    pub key_version: i32,
    /// Serve nobody. The address and the key stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// A PersistentVolumeClaim of the endpoint's namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EndpointClaim {
    /// The claim's name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub claim_name: String,
}

/// What peers may do with the folder.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndpointAccess {
    /// To get its files.
    #[default]
    Read,
    /// To send files into it.
    Write,
}

/// A peer that may come.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPeer {
    /// What the peer is called in the status, in metrics and in the log.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = rules::peer_name()))]
    pub name: String,
    /// The public half of the peer's key: 44 characters, as `volferry enroll` and a SyncJob's status have it.
    #[schemars(length(min = 44, max = 44), extend("x-kubernetes-validations" = rules::public_key()))]
    pub public_key: String,
}

/// The Service by which peers reach an endpoint.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::endpoint_service()))]
pub struct EndpointService {
    /// The Service's type.
    #[serde(rename = "type")]
    pub service_type: ServiceType,
    /// The port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// The port of each node, with type NodePort or LoadBalancer. Absent: one that Kubernetes chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<i32>,
    /// What carries the runs. UDP is faster. Not every load balancer has both at one address.
    #[schemars(length(min = 1, max = 2))]
    pub protocols: Vec<ServiceProtocol>,
    /// Annotations of the Service, by which load balancers and DNS controllers are told what to do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = rules::annotations()))]
    pub annotations: BTreeMap<String, String>,
    /// The class of load balancer. Absent: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub load_balancer_class: Option<String>,
    /// Whether the Service has one or two IP families: SingleStack, PreferDualStack or RequireDualStack. Absent: as the
    /// cluster decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// The name or address by which peers reach the endpoint, in place of the one that the cluster gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::host_name()))]
    pub host_name: Option<String>,
}

impl Default for EndpointService {
    fn default() -> Self {
        Self {
            service_type: ServiceType::ClusterIP,
            port: 7400,
            node_port: None,
            protocols: vec![ServiceProtocol::Udp, ServiceProtocol::Tcp],
            annotations: BTreeMap::new(),
            load_balancer_class: None,
            ip_family_policy: None,
            host_name: None,
        }
    }
}

/// The type of a Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the types of core/v1 Service
pub enum ServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
}

/// A protocol of a Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)] // the protocols of core/v1 Service
pub enum ServiceProtocol {
    Udp,
    Tcp,
}

/// The IP families of a Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the policies of core/v1 Service
pub enum IpFamilyPolicy {
    SingleStack,
    PreferDualStack,
    RequireDualStack,
}

/// What the owner of an endpoint demands of each run.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointDemands {
    /// Refuses a run that would delete too much. Absent: the limit that the peer names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_limit: Option<DeleteLimit>,
    /// Delete nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_delete: bool,
    /// gitignore patterns; what they match is neither sent, written nor deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 4096)))]
    #[schemars(extend("x-kubernetes-validations" = rules::each_glob()))]
    pub exclude: Vec<String>,
    /// The most bytes of each run in a second, for example `100Mi`. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::bandwidth()))]
    pub bandwidth_limit: Option<String>,
    /// The snapshots that peers may bring along, with access Write. None: none. Kept: those that
    /// `snapshots.retain` keeps. All: all that a peer sends; no rule drops them.
    #[serde(skip_serializing_if = "History::is_none")]
    pub history: History,
    /// How many peers may wait for their turn; one more is refused. Absent: 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub queue: Option<i32>,
}

impl EndpointDemands {
    /// Returns whether nothing is demanded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the operator and the endpoint's pod have found. The pod writes its public key, the runs and the peers, and the
/// operator the rest.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SyncEndpointStatus {
    /// The `metadata.generation` that the conditions are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What peers write in the place of a folder, such as `203.0.113.7:7400::web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub address: Option<String>,
    /// The public half of the endpoint's own key, which peers pin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub public_key: Option<String>,
    /// Ready, and while they are true Reconciling and Stalled, as kstatus defines them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The last run of any peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<EndpointRun>,
    /// The last runs, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub history: Vec<EndpointRun>,
    /// The endpoint's snapshots on the volume, after the last run that took one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotStatus>,
    /// The peers that came, the last one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub peers: Vec<EndpointVisitor>,
}

/// A run of a peer.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EndpointRun {
    /// The peer's name.
    #[schemars(length(max = 64))]
    pub peer: String,
    /// What the peer did.
    pub access: EndpointAccess,
    /// The run's name, as the peer says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub run: String,
    /// How it ended.
    pub result: RunResult,
    /// A word for programs when the result is not `Succeeded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reason: Option<Reason>,
    /// What happened and what to do next, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// What carried it: udp or tcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub link: Option<String>,
    /// Entries found at the source.
    #[serde(default)]
    pub files_scanned: u64,
    /// Entries created, updated and deleted.
    #[serde(default)]
    pub files_changed: u64,
    /// Entries that could not be synced.
    #[serde(default)]
    pub files_failed: u64,
    /// Sum of the sizes of the changed files.
    #[serde(default)]
    pub bytes_changed: u64,
    /// Bytes that crossed the network.
    #[serde(default)]
    pub bytes_on_wire: u64,
    /// Wall time of each phase, in milliseconds.
    #[serde(default)]
    pub timings: Timings,
}

/// A peer that came.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EndpointVisitor {
    /// Its name.
    #[schemars(length(max = 64))]
    pub name: String,
    /// How many runs it had since the endpoint was made.
    #[serde(default)]
    pub runs: u64,
    /// When its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
    /// How that run ended.
    pub last_result: RunResult,
}

fn first_key() -> i32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn is_first_key(version: &i32) -> bool {
    *version <= first_key()
}

fn root() -> String {
    "/".into()
}
