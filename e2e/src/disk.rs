//! Claims with `volumeMode: Block`: loop devices of a node, as local volumes.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::{
    cluster::{PATIENCE, Sandbox},
    kubectl::Kubectl,
    volume::run_on,
    wait,
};

/// The group that devices belong to on the nodes, which are Debian's.
pub const DISK_GROUP: u32 = 6;

/// A bound claim for a device of a node.
#[derive(Debug)]
pub struct Disk {
    /// The claim's name.
    pub claim: String,
    node: String,
    device: String,
    volume: String,
    kubectl: Kubectl,
}

impl Disk {
    /// Makes a device of `mib` MiB on a node, which [`DISK_GROUP`] may read and write, and a claim for it. Tries again
    /// where another program has taken the free device first.
    pub async fn create(sandbox: &Sandbox, claim: &str, node: &str, mib: u32) -> Result<Self> {
        let script = format!(
            "set -e; image=$(mktemp); truncate -s {mib}M $image; left=20; \
             attach() {{ device=$(losetup --find); [ -b $device ] || mknod $device b 7 ${{device#/dev/loop}}; \
             losetup $device $image; }}; until attach; do left=$((left - 1)); [ $left -gt 0 ]; done; rm $image; \
             chgrp {DISK_GROUP} $device; chmod 660 $device; echo $device"
        );
        let device = run_on(node, ["bash", "-c", &script], &[]).context("making a loop device")?;
        let disk = Self {
            claim: claim.into(),
            node: node.into(),
            device: String::from_utf8(device)?.trim().into(),
            volume: format!("{}-{claim}", sandbox.namespace),
            kubectl: sandbox.kubectl.clone(),
        };
        disk.bind(sandbox, mib).await?;
        Ok(disk)
    }

    async fn bind(&self, sandbox: &Sandbox, mib: u32) -> Result<()> {
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]});
        let volume = json!({
            "metadata": {"name": self.volume},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": format!("{mib}Mi")},
                "volumeMode": "Block",
                "storageClassName": "",
                "local": {"path": self.device},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
                "claimRef": {"namespace": sandbox.namespace, "name": self.claim},
            },
        });
        let volumes = Api::<PersistentVolume>::all(sandbox.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let claim = json!({
            "metadata": {"name": self.claim},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": format!("{mib}Mi")}},
                "volumeMode": "Block",
                "storageClassName": "",
                "volumeName": self.volume,
            },
        });
        let claims: Api<PersistentVolumeClaim> = sandbox.api();
        claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        wait::until(&claims, &self.claim, "the claim is bound", PATIENCE, |claim| {
            claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        })
        .await?;
        Ok(())
    }

    /// Runs a script on the node, with the device as `$1`.
    pub fn shell(&self, script: &str) -> Result<Vec<u8>> {
        run_on(&self.node, ["bash", "-ec", script, "bash", &self.device], &[])
            .with_context(|| format!("on {}: {script}", self.node))
    }

    /// Returns the SHA-256 of the device's first `bytes` bytes, in hexadecimal.
    pub fn hash(&self, bytes: u64) -> Result<String> {
        let hash = self.shell(&format!("head -c {bytes} $1 | sha256sum"))?;
        Ok(String::from_utf8_lossy(&hash).split_whitespace().next().unwrap_or_default().to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A device that a pod still uses goes away with the pod.
        for result in [
            self.kubectl.run(&["delete", "persistentvolume", &self.volume, "--wait=false"]).map(drop),
            self.shell("losetup --detach $1").map(drop),
        ] {
            result.unwrap_or_else(|error| eprintln!("{error:#}"));
        }
    }
}
