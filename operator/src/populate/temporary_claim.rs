//! Builds what the populator makes for a claim: a temporary claim, and the SyncJob that fills it. Pure.

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt as _, api::ObjectMeta};

use crate::{
    api::{ClaimReference, DestinationEndpoint, Files, SourceEndpoint, SyncJob, SyncJobSpec},
    names::{self, ANNOTATION_SELECTED_NODE},
};

/// The field manager of what the populator makes.
pub const POPULATOR: &str = "volferry-populator";
/// Annotation of a temporary claim: the node that it was told to be on, which its provisioner may refuse.
pub const ANNOTATION_TOLD: &str = "volferry.dev/told-node";

/// Returns the name of the temporary claim and of the SyncJob that fills it.
pub fn name(claim: &PersistentVolumeClaim) -> String {
    format!("vf-populate-{}", claim.uid().unwrap_or_default())
}

/// Returns whether an object belongs to a claim.
pub fn is_of(object: &impl kube::ResourceExt, claim: &PersistentVolumeClaim) -> bool {
    object.owner_references().iter().any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
}

/// Returns the node that the scheduler has chosen for a claim's first consumer.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.annotations().get(ANNOTATION_SELECTED_NODE).map(String::as_str)
}

/// Builds the temporary claim: as the claim, but without its source, so that the storage makes a volume that is empty
/// or from the VolumeSnapshot `image`.
pub fn claim(
    claim: &PersistentVolumeClaim,
    image: Option<&TypedLocalObjectReference>,
) -> PersistentVolumeClaim {
    let spec = PersistentVolumeClaimSpec {
        data_source: image.cloned(),
        data_source_ref: None,
        volume_name: None,
        ..claim.spec.clone().unwrap_or_default()
    };
    let node = selected_node(claim);
    let annotations = [ANNOTATION_SELECTED_NODE, ANNOTATION_TOLD].into_iter();
    let annotations = annotations.filter_map(|key| Some((key.into(), node?.into()))).collect();
    let metadata = ObjectMeta { annotations: Some(annotations), ..metadata(claim) };
    PersistentVolumeClaim { metadata, spec: Some(spec), ..PersistentVolumeClaim::default() }
}

/// Returns whether a temporary claim asks for such a volume as the claim does. Its volume is given to the claim, past
/// the quotas on what claims ask for.
pub fn is_like(temporary: &PersistentVolumeClaim, claim: &PersistentVolumeClaim) -> bool {
    let asks = |of: &PersistentVolumeClaim| {
        let spec = of.spec.clone().unwrap_or_default();
        (spec.storage_class_name, spec.resources, spec.volume_mode, spec.access_modes)
    };
    asks(temporary) == asks(claim)
}

/// Builds the SyncJob that restores a snapshot of the copy, or the files as they are, into the temporary claim.
pub fn filler(claim: &PersistentVolumeClaim, job: &SyncJob, snapshot: Option<String>) -> SyncJob {
    let here = |name: String| ClaimReference { claim_name: name, namespace: None };
    let copy = &job.spec.destination;
    let mut pods = job.spec.pods.clone();
    pods.security_context.fs_group_from = None;
    let spec = SyncJobSpec {
        source: SourceEndpoint {
            persistent_volume_claim: copy.persistent_volume_claim.clone().map(|claim| here(claim.claim_name)),
            path: copy.path.clone(),
            snapshot,
            pods: copy.pods.clone(),
            ..SourceEndpoint::default()
        },
        destination: DestinationEndpoint {
            persistent_volume_claim: Some(here(name(claim))),
            path: "/".into(),
            ..DestinationEndpoint::default()
        },
        files: Files { preserve: job.spec.files.preserve, ..Files::default() },
        pods,
        parallelism: 1,
        ..SyncJobSpec::default()
    };
    SyncJob { metadata: metadata(claim), spec, status: None }
}

/// Builds the SyncJob that reads what another one does, for the claim that this other one writes to.
pub fn filler_from_source(claim: &PersistentVolumeClaim, job: &SyncJob) -> SyncJob {
    let to = ClaimReference { claim_name: name(claim), namespace: None };
    let mut pods = job.spec.pods.clone();
    pods.security_context.fs_group_from = None;
    let spec = SyncJobSpec {
        source: job.spec.source.clone(),
        destination: DestinationEndpoint {
            persistent_volume_claim: Some(to),
            create: None,
            volume_snapshots: None,
            ..job.spec.destination.clone()
        },
        files: job.spec.files.clone(),
        transfer: job.spec.transfer.clone(),
        pods,
        parallelism: 1,
        ..SyncJobSpec::default()
    };
    SyncJob { metadata: metadata(claim), spec, status: None }
}

/// Returns the metadata of what belongs to a claim, which the garbage collector deletes with it.
fn metadata(claim: &PersistentVolumeClaim) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "PersistentVolumeClaim".into(),
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    // A SyncJobSet takes no claim of a run.
    let labels = [(names::LABEL_MANAGED_BY, POPULATOR), (names::LABEL_RUN, "populate")];
    ObjectMeta {
        name: Some(name(claim)),
        namespace: claim.namespace(),
        labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}
