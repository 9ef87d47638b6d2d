use contract::History;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{pods::EndPodSettings, point_in_time::PointInTime, rules, volume_snapshots::VolumeSnapshots};

/// Where the files are.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::source()))]
pub struct SourceEndpoint {
    /// The claim that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// In place of a claim: a folder that another cluster or machine serves, which is read. The run has one pod, with
    /// the destination's claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<RemoteEndpoint>,
    /// The folder inside the volume whose content is synced. It must exist, and no part of the path may be a symbolic
    /// link. If the destination's claim has volumeMode Block and this one Filesystem: the file that is restored to that
    /// device.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
    /// Copy a snapshot that is kept on the source's volume in place of its current files, to restore it: the snapshot
    /// with this name or these first digits of it, the newest with this tag, `latest`, or, with `as-of:` and a time,
    /// the newest of that time or before, such as `as-of:2026-11-22T18:00:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::snapshot()))]
    pub snapshot: Option<String>,
    /// Keep the owners, set-id bits, capabilities and devices that the snapshot has, although other users can write to
    /// the store that it is in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_store: bool,
    /// Copy all that is whole of a damaged snapshot. The rest counts as failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_going: bool,
    /// Read the volume as it was at one instant, which the storage captures after `hooks.before`; `hooks.after` runs as
    /// soon as that is done. Absent: read the volume itself, while its application may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point_in_time: Option<PointInTime>,
    /// Copy the snapshots of the source into the destination's store once the files have arrived, with their ids,
    /// times, tags, notes and pins. Kept: those that `spec.snapshots.retain` keeps; copies that it does not keep any
    /// more are dropped. All: all that are not forgotten at the source; no rule drops the copies. Snapshots that were
    /// removed at the destination stay away.
    #[serde(default, skip_serializing_if = "History::is_none")]
    pub history: History,
    /// Settings of the syncer pods of this end, which override or extend those in `spec.pods`.
    #[serde(default, skip_serializing_if = "EndPodSettings::is_empty")]
    pub pods: EndPodSettings,
}

/// Where the files are copied to.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::destination()))]
pub struct DestinationEndpoint {
    /// The claim that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimReference>,
    /// In place of a claim: a folder that another cluster or machine serves, which is written. The run has one pod,
    /// with the source's claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<RemoteEndpoint>,
    /// In place of a claim: object storage, which gets an encrypted snapshot of the source from each run. The run has
    /// one pod, with the source's claim. `spec.snapshots.retain` says which snapshots stay; without
    /// `spec.snapshots`, all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_store: Option<ObjectStore>,
    /// Create the claim if it does not exist. Absent: it must exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateClaim>,
    /// The folder inside the volume that gets what the source's has. Missing folders of the path are created; no
    /// part of the path may be a symbolic link. If the source's claim has volumeMode Block and this one Filesystem: the
    /// file that becomes the image of that device.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), extend("x-kubernetes-validations" = rules::folder()))]
    pub path: String,
    /// Have the storage take a VolumeSnapshot of the volume after each run that succeeded, before the next one begins;
    /// `status.latestImage` names the newest. They go with the SyncJob. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshots: Option<VolumeSnapshots>,
    /// Settings of the syncer pods of this end, which override or extend those in `spec.pods`.
    #[serde(default, skip_serializing_if = "EndPodSettings::is_empty")]
    pub pods: EndPodSettings,
}

/// A PersistentVolumeClaim.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// The claim's name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub claim_name: String,
    /// The claim's namespace; another one than the SyncJob's has to consent with a SyncGrant. Absent: the SyncJob's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = rules::object_name()))]
    pub namespace: Option<String>,
}

/// A folder that another cluster or machine serves: a SyncEndpoint, or a folder of `volferry serve`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RemoteEndpoint {
    /// Where it is, as `status.address` of a SyncEndpoint has it: `HOST::FOLDER`, `HOST:PORT::FOLDER`, or one of these
    /// with a path below the folder, such as `copy.example.org:7400::web/uploads`. An IPv6 address is in brackets.
    #[schemars(length(min = 4, max = 512), extend("x-kubernetes-validations" = rules::remote_address()))]
    pub address: String,
    /// The public half of its key: 44 characters, as `status.publicKey` of a SyncEndpoint has it. An end with another
    /// key is refused.
    #[schemars(length(min = 44, max = 44), extend("x-kubernetes-validations" = rules::public_key()))]
    pub public_key: String,
    /// The key by which the other side knows this SyncJob. Absent: the pod of the first run makes one and keeps it in a
    /// Secret. In both cases `status.identity.publicKey` has its public half, for the peers of the other side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentitySecret>,
}

/// A place in object storage that speaks S3.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStore {
    /// `s3://BUCKET/PREFIX`. SyncJobs of one cluster and key may share a prefix: what they have in common is kept once.
    #[schemars(length(min = 6, max = 512), extend("x-kubernetes-validations" = rules::bucket_url()))]
    pub url: String,
    /// A Secret of the SyncJob's namespace with the entries `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
    /// `encryption.key`, the file that `volferry snapshot key` makes. It may have `AWS_ENDPOINT_URL`, `AWS_REGION`,
    /// `AWS_SESSION_TOKEN`, `AWS_ALLOW_HTTP` (`true` for a store without TLS), and `ca.crt`, the certificates of
    /// authorities in the place of the usual ones.
    pub secret_ref: ObjectStoreSecret,
}

/// The name of a Secret.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectStoreSecret {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub name: String,
}

/// A Secret of the SyncJob's namespace with a key, in the entry `identity.key`, as `volferry enroll` makes its file.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct IdentitySecret {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub secret_name: String,
}

/// The claim that is created if none of its name exists.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CreateClaim {
    /// The storage class. Absent: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = rules::object_name()))]
    pub storage_class_name: Option<String>,
    /// How the volume can be mounted.
    #[serde(default = "read_write_once")]
    #[schemars(length(min = 1, max = 3))]
    pub access_modes: Vec<AccessMode>,
    /// The volume's size, for example `10Gi`. Absent: that of the source's claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = rules::volume_size()))]
    pub size: Option<String>,
    /// Expand an existing claim to `size` before a run, if its storage class allows expansion; `size` may then be
    /// raised. A claim never shrinks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grow: bool,
}

/// How a volume can be mounted. A destination is always written to, so that `ReadOnlyMany` is not among them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the modes of core/v1 PersistentVolumeClaim
pub enum AccessMode {
    ReadWriteOnce,
    ReadWriteMany,
    ReadWriteOncePod,
}

fn root() -> String {
    "/".into()
}

fn read_write_once() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}
