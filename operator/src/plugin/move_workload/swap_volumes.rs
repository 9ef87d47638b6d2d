//! Gives the name of a claim to another volume. Both volumes are retained meanwhile, and each step leaves what the next
//! look finds.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::super::{
    await_object::await_condition,
    cluster::{Cluster, failed},
    error::PluginError,
};
use super::{record::MovedClaim, wait_for_objects::Patience};

/// Annotation of a volume that is retained for a move: its policy before.
const ANNOTATION_POLICY: &str = "volferry.dev/reclaim-policy";
const RETAIN: &str = "Retain";

/// The claims and volumes of a move.
pub(super) struct MovedVolumes<'a> {
    cluster: &'a Cluster,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    patience: Patience,
}

/// The volumes that a claim's name goes from and to, and their storage class if it changes.
#[derive(Clone, Copy)]
pub(super) struct VolumeSwap<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) class: Option<&'a str>,
}

impl<'a> MovedVolumes<'a> {
    pub(super) fn new(cluster: &'a Cluster, patience: Patience) -> Self {
        Self {
            claims: Api::namespaced(cluster.client.clone(), &cluster.namespace),
            volumes: Api::all(cluster.client.clone()),
            cluster,
            patience,
        }
    }

    /// Returns the volume of the copy of a claim.
    pub(super) async fn of_copy(&self, claim: &MovedClaim) -> Result<String, PluginError> {
        let copy = self.claim(&claim.copy()).await?;
        let volume = copy.as_ref().and_then(volume_of).map(String::from);
        let missing = || {
            PluginError::blocked(
                format!("claim {} has no volume", claim.copy()),
                "run the command with --back",
            )
        };
        volume.ok_or_else(missing)
    }

    /// Gives the name of a claim to another volume.
    pub(super) async fn swap(
        &self,
        claim: &MovedClaim,
        VolumeSwap { from, to, class }: VolumeSwap<'_>,
    ) -> Result<(), PluginError> {
        let there = self.claim(&claim.name).await?;
        let is_swapped = there.as_ref().is_some_and(|it| volume_of(it) == Some(to));
        if !is_swapped {
            for volume in [from, to] {
                self.retain(claim, volume).await?;
            }
            self.drop_copy(claim, to).await?;
            if let Some(there) = there {
                self.check_is_on(&there, from)?;
                self.patience.delete(&self.claims, &there).await?;
            }
            self.reserve(claim, to).await?;
            let made: PersistentVolumeClaim = serde_json::from_value(manifest(claim, to, class))?;
            let made = self.claims.create(&PostParams::default(), &made).await;
            made.map_err(failed(format!("create {}", self.path(&claim.name))))?;
        }
        let is_bound = |found: Option<&PersistentVolumeClaim>| {
            found.is_some_and(|it| it.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Bound"))
        };
        let bound = await_condition(self.claims.clone(), &claim.name, is_bound);
        self.patience.wait(&format!("claim {} is bound to volume {to}", claim.name), bound).await?;
        self.release(claim, to).await
    }

    /// Deletes the copy of a claim, with its volume unless that has been in use.
    pub(super) async fn discard_copy(&self, claim: &MovedClaim) -> Result<(), PluginError> {
        let Some(copy) = self.claim(&claim.copy()).await? else { return Ok(()) };
        if let Some(volume) = volume_of(&copy) {
            self.release(claim, volume).await?;
        }
        self.patience.delete(&self.claims, &copy).await
    }

    /// Lets go of a volume that is kept. One that is reserved for a claim without a UID was never used in the eyes of
    /// the storage, which would keep it: it gets a UID that no claim has.
    pub(super) async fn give_up(&self, claim: &MovedClaim, name: &str) -> Result<(), PluginError> {
        let Some(volume) = self.volume(name).await? else { return Ok(()) };
        self.check_is_of(claim, &volume)?;
        let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if holder.is_some_and(|holder| holder.uid.is_none()) {
            let metadata = json!({"resourceVersion": volume.metadata.resource_version});
            let spec = json!({"claimRef": {"uid": volume.metadata.uid}});
            self.patch(&volume, json!({"metadata": metadata, "spec": spec})).await?;
        }
        self.release(claim, name).await
    }

    /// Gives a volume its policy again. The storage deletes it if that says so and no claim has it.
    pub(super) async fn release(&self, claim: &MovedClaim, name: &str) -> Result<(), PluginError> {
        let Some(volume) = self.volume(name).await? else { return Ok(()) };
        self.check_is_of(claim, &volume)?;
        let Some(policy) = volume.annotations().get(ANNOTATION_POLICY) else { return Ok(()) };
        self.set_policy(&volume, policy, None).await
    }

    /// Keeps the storage from deleting a volume that has no claim.
    async fn retain(&self, claim: &MovedClaim, name: &str) -> Result<(), PluginError> {
        let gone = || {
            PluginError::blocked(format!("volume {name} is gone"), "the storage's own backups may have it")
        };
        let volume = self.volume(name).await?.ok_or_else(gone)?;
        self.check_is_of(claim, &volume)?;
        let spec = volume.spec.clone().unwrap_or_default();
        let policy = spec.persistent_volume_reclaim_policy.unwrap_or_default();
        if policy == RETAIN && volume.annotations().contains_key(ANNOTATION_POLICY) {
            return Ok(());
        }
        self.set_policy(&volume, RETAIN, Some(&policy)).await
    }

    async fn set_policy(
        &self,
        volume: &PersistentVolume,
        policy: &str,
        before: Option<&str>,
    ) -> Result<(), PluginError> {
        let version = &volume.metadata.resource_version;
        let metadata = json!({"resourceVersion": version, "annotations": {ANNOTATION_POLICY: before}});
        self.patch(volume, json!({"metadata": metadata, "spec": {"persistentVolumeReclaimPolicy": policy}}))
            .await
    }

    /// Deletes the claim of the copy, whose volume goes on without it.
    async fn drop_copy(&self, claim: &MovedClaim, volume: &str) -> Result<(), PluginError> {
        match self.claim(&claim.copy()).await? {
            Some(copy) if volume_of(&copy) == Some(volume) => self.patience.delete(&self.claims, &copy).await,
            _ => Ok(()),
        }
    }

    /// Keeps a volume without a claim for one of that name.
    async fn reserve(&self, claim: &MovedClaim, name: &str) -> Result<(), PluginError> {
        let gone = || PluginError::blocked(format!("volume {name} is gone"), "run the command with --back");
        let volume = self.volume(name).await?.ok_or_else(gone)?;
        self.check_is_of(claim, &volume)?;
        let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
        if holder.name.as_ref() == Some(&claim.name) && holder.uid.is_none() {
            return Ok(());
        }
        let holder = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name,
            "namespace": self.cluster.namespace, "uid": null, "resourceVersion": null});
        let metadata = json!({"resourceVersion": volume.metadata.resource_version});
        self.patch(&volume, json!({"metadata": metadata, "spec": {"claimRef": holder}})).await
    }

    async fn patch(&self, volume: &PersistentVolume, patch: Value) -> Result<(), PluginError> {
        let name = volume.name_any();
        let patched = self.volumes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(failed(format!("change PersistentVolume {name}")))
    }

    /// Refuses volumes of other claims: whoever may write the record may not take them.
    fn check_is_of(&self, claim: &MovedClaim, volume: &PersistentVolume) -> Result<(), PluginError> {
        let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let is_own = holder.is_some_and(|holder| {
            let name = holder.name.as_deref().unwrap_or_default();
            holder.namespace.as_deref() == Some(&*self.cluster.namespace)
                && [claim.name.as_str(), &claim.copy()].contains(&name)
        });
        let why = || format!("volume {} is not of claim {}", volume.name_any(), claim.name);
        if is_own { Ok(()) } else { Err(PluginError::blocked(why(), "see its spec.claimRef")) }
    }

    fn check_is_on(&self, claim: &PersistentVolumeClaim, volume: &str) -> Result<(), PluginError> {
        if volume_of(claim) == Some(volume) {
            return Ok(());
        }
        let why = format!("{} is not on volume {volume} any more", self.path(&claim.name_any()));
        Err(PluginError::blocked(why, "somebody has made it anew meanwhile: see which volume has the files"))
    }

    pub(super) async fn claim(&self, name: &str) -> Result<Option<PersistentVolumeClaim>, PluginError> {
        self.claims.get_opt(name).await.map_err(failed(format!("read {}", self.path(name))))
    }

    pub(super) async fn volume(&self, name: &str) -> Result<Option<PersistentVolume>, PluginError> {
        self.volumes.get_opt(name).await.map_err(failed(format!("read PersistentVolume {name}")))
    }

    fn path(&self, claim: &str) -> String {
        format!("PersistentVolumeClaim {}/{claim}", self.cluster.namespace)
    }
}

pub(super) fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the claim as it was, on another volume.
fn manifest(claim: &MovedClaim, volume: &str, class: Option<&str>) -> Value {
    let mut manifest = claim.manifest.clone();
    manifest["spec"]["volumeName"] = json!(volume);
    if let Some(class) = class {
        manifest["spec"]["storageClassName"] = json!(class);
    }
    manifest
}
