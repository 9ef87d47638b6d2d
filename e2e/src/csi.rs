//! Claims of the storage that `e2e/cluster/csi` installs: its volumes have a real limit, and a real resizer.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::{
    core::v1::{
        Node, PersistentVolume, PersistentVolumeClaim, TopologySelectorLabelRequirement, TopologySelectorTerm,
    },
    storage::v1::StorageClass,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams},
};

use crate::{
    cluster::{PATIENCE, Sandbox},
    volume::run_on,
    wait,
};

/// The storage class that allows expansion, to at most 1Gi.
pub const GROWS: &str = "memory";
/// The storage class of the same driver that does not.
pub const FIXED: &str = "memory-fixed";
/// The folder of the driver's node that has one folder for each of its volumes.
const VOLUMES: &str = "/var/lib/kubelet/plugins/memory.test.volferry.dev/volumes";
/// The same for its snapshots, with the volume's name in a file.
const SNAPSHOTS: &str = "/var/lib/kubelet/plugins/memory.test.volferry.dev/snapshots";

impl Sandbox {
    /// Makes a storage class like another one, whose volumes wait for their first pod, which the scheduler sends to a
    /// node that the driver serves. A class of that name with another provisioner, which a test of another program has
    /// left, is replaced.
    pub async fn storage_class(&self, name: &str, like: &str) -> Result<()> {
        let classes = Api::<StorageClass>::all(self.client.clone());
        let mut class = classes.get(like).await.with_context(|| format!("storage class {like}"))?;
        if classes.get_opt(name).await?.is_some_and(|old| old.provisioner != class.provisioner) {
            classes.delete(name, &DeleteParams::default()).await?;
        }
        // The name of the topology is that of the tests' own driver. Other names are no prefix of a label.
        let topology = format!("{}/node", class.provisioner);
        let labelled = ListParams::default().labels(&topology);
        let nodes = if class.provisioner.contains('/') {
            Vec::new()
        } else {
            Api::<Node>::all(self.client.clone()).list(&labelled).await?.items
        };
        let values: Vec<_> = nodes.iter().filter_map(|node| node.labels().get(&topology).cloned()).collect();
        if !values.is_empty() {
            let of_nodes = TopologySelectorLabelRequirement { key: topology, values };
            let term = TopologySelectorTerm { match_label_expressions: Some(vec![of_nodes]) };
            class.allowed_topologies = Some(vec![term]);
        }
        class.metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        class.volume_binding_mode = Some("WaitForFirstConsumer".into());
        classes.patch(name, &PatchParams::apply("volferry-e2e"), &Patch::Apply(class)).await?;
        Ok(())
    }

    /// Returns a claim once its status has a capacity.
    pub async fn until_capacity(&self, claim: &str, capacity: &str) -> Result<PersistentVolumeClaim> {
        let what = format!("the claim has {capacity}");
        let holds = |claim: &PersistentVolumeClaim| {
            let has = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
            has.is_some_and(|has| has.0 == capacity)
        };
        wait::until(&self.api(), claim, &what, PATIENCE, holds).await
    }

    /// Returns the capacity of the volume of a claim, which only the resizer changes.
    pub async fn volume_capacity(&self, claim: &PersistentVolumeClaim) -> Result<String> {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volume = volumes.get(name.context("the claim is not bound")?).await?;
        let capacity = volume.spec.and_then(|spec| spec.capacity?.remove("storage"));
        Ok(capacity.context("a volume has a capacity")?.0)
    }

    /// Returns the MiB of the file system that a pod has at `/data`.
    pub fn file_system_mib(&self, pod: &str) -> Result<u64> {
        let table = self.kubectl.run(&["exec", pod, "--", "df", "-Pm", "/data"])?;
        let Some(size) = table.lines().nth(1).and_then(|line| line.split_whitespace().nth(1)) else {
            bail!("not a table of df: {table}");
        };
        size.parse().with_context(|| table.clone())
    }

    /// Waits until a volume of the driver is gone, and fails if the driver still has its files.
    pub async fn until_freed(&self, volume: &str) -> Result<()> {
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        wait::until_gone(&volumes, volume, PATIENCE).await?;
        self.in_storage(&format!("test ! -e {VOLUMES}/{volume}")).await.context("left in the storage")?;
        Ok(())
    }

    /// Returns the content of a file of a volume of the driver.
    pub async fn read_in_storage(&self, volume: &str, file: &str) -> Result<String> {
        self.in_storage(&format!("cat {VOLUMES}/{volume}/{file}")).await
    }

    /// Returns the snapshots that the driver has of a volume, a line each.
    pub async fn snapshots_in_storage(&self, volume: &str) -> Result<String> {
        self.in_storage(&format!("grep -ls '^{volume} ' {SNAPSHOTS}/*/of || true")).await
    }

    /// Runs a script on the node of the driver.
    async fn in_storage(&self, script: &str) -> Result<String> {
        let nodes = self.nodes().await?;
        let node = nodes.first().context("the cluster has no node")?;
        Ok(String::from_utf8(run_on(node, ["bash", "-c", script], &[])?)?)
    }

    /// Returns the reasons of the events about an object, by its name.
    pub fn events_of(&self, name: &str) -> Result<Vec<String>> {
        let object = format!("involvedObject.name={name}");
        let reasons = "jsonpath={.items[*].reason}";
        let events =
            self.kubectl.run(&["get", "events", "--field-selector", &object, "--output", reasons])?;
        Ok(events.split_whitespace().map(Into::into).collect())
    }
}
