//! What is known of a move that has begun: a Secret, which outlives this program and the StatefulSet. It has the
//! manifests that are created again, so it is where fewer may write than in a ConfigMap, and fewer may read.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::{
    cluster::{Cluster, failed},
    error::PluginError,
    move_args::WorkloadName,
};
use crate::names;

/// The entry of the Secret.
const ENTRY: &str = "move.json";
/// The longest part of a name that is readable.
const MAX_STEM: usize = 40;

/// How far a move is. Each stage can be begun again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Stage {
    /// The first copies are made, while the workload runs.
    Copy,
    /// The workload is scaled to zero.
    Stop,
    /// The rest is copied, and all is compared.
    Verify,
    /// The claims get the other volumes.
    Swap,
    /// The StatefulSet gets the other class.
    Template,
    /// The workload is scaled as before.
    Start,
    /// The old volumes are kept for the way back.
    Moved,
}

impl Stage {
    /// Returns the stage that follows.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Copy => Self::Stop,
            Self::Stop => Self::Verify,
            Self::Verify => Self::Swap,
            Self::Swap => Self::Template,
            Self::Template => Self::Start,
            Self::Start | Self::Moved => Self::Moved,
        }
    }
}

/// One move of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MoveRecord {
    pub(super) workload: WorkloadName,
    /// The class that the claims get.
    pub(super) class: String,
    pub(super) replicas: i64,
    pub(super) stage: Stage,
    /// Whether the claims get their old volumes again.
    pub(super) is_back: bool,
    pub(super) claims: Vec<MovedClaim>,
    /// The classes that the templates of the StatefulSet had.
    pub(super) template_classes: BTreeMap<String, Option<String>>,
    /// The workload as it was stopped last. What has been compared holds while it stays so.
    #[serde(default)]
    pub(super) stopped_at: Option<String>,
    /// The StatefulSet, while it is made anew.
    pub(super) manifest: Option<Value>,
}

/// A claim that gets another volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MovedClaim {
    pub(super) name: String,
    /// The claim as it was, without what the cluster adds.
    pub(super) manifest: Value,
    pub(super) old_volume: String,
    /// The volume of the new class, once the copy is whole.
    pub(super) new_volume: Option<String>,
    /// The node of the pod that used it, where the volume of a class that waits for a pod has to be made.
    pub(super) node: Option<String>,
}

impl MovedClaim {
    /// Returns the name of the SyncJob that copies it, and of the claim with the copy.
    pub(super) fn copy(&self) -> String {
        copy_of(&self.name)
    }

    pub(super) fn field(&self, pointer: &str) -> &Value {
        self.manifest.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(super) fn has_mode(&self, mode: &str) -> bool {
        self.field("/spec/accessModes").as_array().is_some_and(|modes| modes.iter().any(|it| it == mode))
    }

    pub(super) fn is_device(&self) -> bool {
        self.field("/spec/volumeMode") == "Block"
    }
}

/// Returns the name of what copies a claim.
pub(super) fn copy_of(claim: &str) -> String {
    format!("{}-{}", copy_stem(claim), names::fingerprint(claim))
}

/// A record, and the version of the Secret that it was read from.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) record: MoveRecord,
    version: Option<String>,
}

/// The Secret of a workload's move.
pub(super) struct Records {
    api: Api<Secret>,
    name: String,
    path: String,
}

impl Records {
    pub(super) fn new(cluster: &Cluster, workload: &WorkloadName) -> Self {
        let whole = workload.to_string();
        let name = format!("{}-{}", copy_stem(&workload.name), names::fingerprint(&whole));
        Self {
            api: Api::namespaced(cluster.client.clone(), &cluster.namespace),
            path: format!("Secret {}/{name}", cluster.namespace),
            name,
        }
    }

    /// Returns the record of a move that has begun.
    pub(super) async fn read(&self, workload: &WorkloadName) -> Result<Option<Kept>, PluginError> {
        let found = self.api.get_opt(&self.name).await.map_err(failed(format!("read {}", self.path)))?;
        let Some(found) = found else { return Ok(None) };
        let entry = found.data.as_ref().and_then(|data| data.get(ENTRY));
        let record: Option<MoveRecord> = entry.and_then(|entry| serde_json::from_slice(&entry.0).ok());
        let Some(record) = record.filter(|record| record.workload == *workload) else {
            let why = format!("{} is no record of a move", self.path);
            return Err(PluginError::blocked(why, "delete it if it is none of a move"));
        };
        Ok(Some(Kept { record, version: found.metadata.resource_version }))
    }

    pub(super) async fn create(&self, record: MoveRecord) -> Result<Kept, PluginError> {
        let made = self.api.create(&PostParams::default(), &self.secret(&record, None)?).await;
        let made = made.map_err(failed(format!("create {}", self.path)))?;
        Ok(Kept { record, version: made.metadata.resource_version })
    }

    /// Writes the record, unless somebody else has meanwhile.
    pub(super) async fn write(&self, kept: &mut Kept) -> Result<(), PluginError> {
        let secret = self.secret(&kept.record, kept.version.clone())?;
        let written = self.api.replace(&self.name, &PostParams::default(), &secret).await;
        kept.version = written.map_err(failed(format!("write {}", self.path)))?.metadata.resource_version;
        Ok(())
    }

    /// Refuses to go on once somebody else has written the record, such as the same command at another place.
    pub(super) async fn check_is_same(&self, kept: &Kept) -> Result<(), PluginError> {
        let found = self.api.get_metadata_opt(&self.name).await;
        let found = found.map_err(failed(format!("read {}", self.path)))?;
        if found.is_some_and(|it| it.metadata.resource_version == kept.version) {
            return Ok(());
        }
        let why = format!("{} has changed meanwhile", self.path);
        Err(PluginError::blocked(why, "see whether the command runs elsewhere, and run it in one place"))
    }

    pub(super) async fn delete(&self) -> Result<(), PluginError> {
        match self.api.delete(&self.name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop).map_err(failed(format!("delete {}", self.path))),
        }
    }

    fn secret(&self, record: &MoveRecord, version: Option<String>) -> Result<Secret, PluginError> {
        let entry = ByteString(serde_json::to_vec(record)?);
        let labels = [(names::LABEL_MANAGED_BY.into(), "kubectl-volferry".into())];
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            resource_version: version,
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        Ok(Secret { metadata, data: Some([(ENTRY.into(), entry)].into()), ..Secret::default() })
    }
}

fn copy_stem(name: &str) -> String {
    format!("vf-move-{}", names::shorten(name, MAX_STEM))
}
