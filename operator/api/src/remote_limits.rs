//! What a SyncJob cannot ask for if one of its ends is no claim of this cluster.

use std::fmt;

use contract::SnapshotEngine;

use super::{spec::SyncJobSpec, transfer::Placement};

/// What a SyncJob with a remote end cannot ask for.
pub struct RemoteLimit {
    /// The field, below `spec`.
    pub field: &'static str,
    /// Why, and what to write instead.
    pub problem: &'static str,
    /// Whether a spec asks for it, in CEL, in a spec whose one end is `endpoint`.
    pub(super) cel: &'static str,
    /// The same.
    pub is_asked: fn(&SyncJobSpec) -> bool,
}

impl fmt::Display for RemoteLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

/// All that a SyncJob with a remote end cannot ask for. The CRD's rules and the operator read the same table.
pub const REMOTE_LIMITS: &[RemoteLimit] = &[
    RemoteLimit {
        field: "destination.endpoint",
        problem: "goes with a source that is a claim, as the run's pod is where that is: name a claim at one of the two ends",
        cel: "has(self.source.endpoint) && has(self.destination.endpoint)",
        is_asked: |spec| spec.source.endpoint.is_some() && spec.destination.endpoint.is_some(),
    },
    RemoteLimit {
        field: "source.path",
        problem: "is for a claim: write the path behind the folder, in source.endpoint.address",
        cel: "has(self.source.endpoint) && self.source.path != '/'",
        is_asked: |spec| spec.source.endpoint.is_some() && spec.source.path != "/",
    },
    RemoteLimit {
        field: "destination.path",
        problem: "is for a claim: write the path behind the folder, in destination.endpoint.address",
        cel: "has(self.destination.endpoint) && self.destination.path != '/'",
        is_asked: |spec| spec.destination.endpoint.is_some() && spec.destination.path != "/",
    },
    RemoteLimit {
        field: "source.pointInTime",
        problem: "is for a claim: an endpoint's owner says what it serves",
        cel: "has(self.source.endpoint) && has(self.source.pointInTime)",
        is_asked: |spec| spec.source.endpoint.is_some() && spec.source.point_in_time.is_some(),
    },
    RemoteLimit {
        field: "source.trustStore",
        problem: "is for a claim: an endpoint's owner decides about the owners of its snapshots",
        cel: "has(self.source.endpoint) && has(self.source.trustStore) && self.source.trustStore",
        is_asked: |spec| spec.source.endpoint.is_some() && spec.source.trust_store,
    },
    RemoteLimit {
        field: "source.pods",
        problem: "is for a claim: no pod of this SyncJob is at an endpoint; write destination.pods, or pods",
        cel: "has(self.source.endpoint) && has(self.source.pods)",
        is_asked: |spec| spec.source.endpoint.is_some() && !spec.source.pods.is_empty(),
    },
    RemoteLimit {
        field: "destination.pods",
        problem: "is for a claim: no pod of this SyncJob is at an endpoint; write source.pods, or pods",
        cel: "has(self.destination.endpoint) && has(self.destination.pods)",
        is_asked: |spec| spec.destination.endpoint.is_some() && !spec.destination.pods.is_empty(),
    },
    RemoteLimit {
        field: "destination.create",
        problem: "is for a claim: an endpoint has its own",
        cel: "has(self.destination.endpoint) && has(self.destination.create)",
        is_asked: |spec| spec.destination.endpoint.is_some() && spec.destination.create.is_some(),
    },
    RemoteLimit {
        field: "destination.volumeSnapshots",
        problem: "is for a claim: an endpoint's owner takes those of its volume",
        cel: "has(self.destination.endpoint) && has(self.destination.volumeSnapshots)",
        is_asked: |spec| spec.destination.endpoint.is_some() && spec.destination.volume_snapshots.is_some(),
    },
    RemoteLimit {
        field: "snapshots",
        problem: "is for a destination that is a claim: an endpoint's owner says which snapshots it takes, in spec.snapshots of \
                  the SyncEndpoint",
        cel: "has(self.destination.endpoint) && has(self.snapshots)",
        is_asked: |spec| spec.destination.endpoint.is_some() && spec.snapshots.is_some(),
    },
    RemoteLimit {
        field: "source.persistentVolumeClaim.namespace",
        problem: "is for two claims: the pod that dials an endpoint has its key in the SyncJob's namespace, so create the SyncJob \
                  in the claim's",
        cel: "has(self.destination.endpoint) && has(self.source.persistentVolumeClaim) && \
              has(self.source.persistentVolumeClaim.__namespace__)",
        is_asked: |spec| {
            let claim = spec.source.persistent_volume_claim.as_ref();
            spec.destination.endpoint.is_some() && claim.is_some_and(|claim| claim.namespace.is_some())
        },
    },
    RemoteLimit {
        field: "destination.persistentVolumeClaim.namespace",
        problem: "is for two claims: the pod that dials an endpoint has its key in the SyncJob's namespace, so create the SyncJob \
                  in the claim's",
        cel: "has(self.source.endpoint) && has(self.destination.persistentVolumeClaim) && \
              has(self.destination.persistentVolumeClaim.__namespace__)",
        is_asked: |spec| {
            let claim = spec.destination.persistent_volume_claim.as_ref();
            spec.source.endpoint.is_some() && claim.is_some_and(|claim| claim.namespace.is_some())
        },
    },
    RemoteLimit {
        field: "transfer.placement",
        problem: "Local is one pod with two claims, and the other end is reached by the network: write Auto",
        cel: "(has(self.source.endpoint) || !has(self.destination.persistentVolumeClaim)) && self.transfer.placement == 'Local'",
        is_asked: |spec| spec.has_remote_end() && spec.transfer.placement == Placement::Local,
    },
    RemoteLimit {
        field: "parallelism",
        problem: "above 1 is for two claims: an endpoint serves one run of a peer at a time, and a snapshot in object storage has \
                  one; write 1",
        cel: "(has(self.source.endpoint) || !has(self.destination.persistentVolumeClaim)) && self.parallelism > 1",
        is_asked: |spec| spec.has_remote_end() && spec.parallelism > 1,
    },
    RemoteLimit {
        field: "destination.objectStore",
        problem: "takes snapshots of a claim: name one as the source",
        cel: "has(self.destination.objectStore) && has(self.source.endpoint)",
        is_asked: |spec| spec.destination.object_store.is_some() && spec.source.endpoint.is_some(),
    },
    RemoteLimit {
        field: "source.persistentVolumeClaim.namespace",
        problem: "does not go with destination.objectStore, whose Secret is in the SyncJob's namespace: create the SyncJob in \
                  the claim's",
        cel: "has(self.destination.objectStore) && has(self.source.persistentVolumeClaim) && \
              has(self.source.persistentVolumeClaim.__namespace__)",
        is_asked: |spec| {
            let claim = spec.source.persistent_volume_claim.as_ref();
            spec.destination.object_store.is_some() && claim.is_some_and(|claim| claim.namespace.is_some())
        },
    },
    RemoteLimit {
        field: "source.snapshot",
        problem: "is a snapshot already, and destination.objectStore takes one of the files: remove one of the two",
        cel: "has(self.destination.objectStore) && has(self.source.snapshot)",
        is_asked: |spec| spec.destination.object_store.is_some() && spec.source.snapshot.is_some(),
    },
    RemoteLimit {
        field: "source.history",
        problem: "is for volumes, and destination.objectStore has a history of its own: remove it",
        cel: "has(self.destination.objectStore) && has(self.source.history) && self.source.history != 'None'",
        is_asked: |spec| spec.destination.object_store.is_some() && !spec.source.history.is_none(),
    },
    RemoteLimit {
        field: "destination.path",
        problem: "is for a claim: write the prefix in destination.objectStore.url",
        cel: "has(self.destination.objectStore) && self.destination.path != '/'",
        is_asked: |spec| spec.destination.object_store.is_some() && spec.destination.path != "/",
    },
    RemoteLimit {
        field: "destination",
        problem: "has only url and secretRef in objectStore: create, volumeSnapshots and pods are for a claim; remove them",
        cel: "has(self.destination.objectStore) && (has(self.destination.create) || has(self.destination.volumeSnapshots) || \
              has(self.destination.pods))",
        is_asked: |spec| {
            let to = &spec.destination;
            to.object_store.is_some()
                && (to.create.is_some() || to.volume_snapshots.is_some() || !to.pods.is_empty())
        },
    },
    RemoteLimit {
        field: "snapshots",
        problem: "has only retain and verify with destination.objectStore: remove engine and minKeep",
        cel: "has(self.destination.objectStore) && has(self.snapshots) && (has(self.snapshots.minKeep) || \
              self.snapshots.engine != 'Auto')",
        is_asked: |spec| {
            let asked = spec
                .snapshots
                .as_ref()
                .is_some_and(|it| it.min_keep.is_some() || it.engine != SnapshotEngine::Auto);
            spec.destination.object_store.is_some() && asked
        },
    },
    RemoteLimit {
        field: "files.delete",
        problem: "does not go with destination.objectStore: a snapshot has what the source has, and no more; remove it",
        cel: "has(self.destination.objectStore) && self.files.delete",
        is_asked: |spec| spec.destination.object_store.is_some() && spec.files.delete,
    },
];
