//! Claims on one node's disk, whose files the tests make and read through the node itself. So the tests need no pod of
//! their own, and can make and read files that a syncer may not read.

use std::{
    ffi::OsStr,
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{
    cluster::{PATIENCE, Sandbox},
    tree::Listing,
    wait,
};

/// The user and group that syncer pods run as by default.
pub const SYNCER_USER: u32 = 65532;

/// A bound claim of 1Gi of the local-path provisioner.
#[derive(Debug, Clone)]
pub struct Volume {
    /// The claim's name.
    pub claim: String,
    /// The node of the claim's volume.
    pub node: String,
    /// The volume's path on the node.
    pub path: String,
}

impl Sandbox {
    /// Makes a namespace as [`Sandbox::new`] does, with the volumes of two claims: `from` on the first node, and `to`
    /// on the second one.
    ///
    /// # Panics
    /// There is no cluster of two nodes, or a volume cannot be made.
    pub async fn with_volumes(test: &str) -> (Self, Volume, Volume) {
        let sandbox = Self::new(test).await;
        let made = async |claim, at| {
            sandbox.volume(claim, at).await.unwrap_or_else(|error| panic!("the claim {claim}: {error:#}"))
        };
        let (from, to) = (made("from", 0).await, made("to", 1).await);
        (sandbox, from, to)
    }

    /// Makes a bound claim on the `at`th node.
    pub async fn volume(&self, claim: &str, at: usize) -> Result<Volume> {
        let nodes = self.nodes().await?;
        Volume::create(self, claim, nodes.get(at).context("the cluster has too few nodes")?).await
    }

    /// Kills every process of the pod of one end at once, as a failure of its node would; the pod runs on the node of
    /// `volume`.
    pub async fn kill_syncer(&self, syncjob: &str, volume: &Volume, side: &str) -> Result<()> {
        let pod = self.running_pod(syncjob, side).await?;
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let id = statuses.first().and_then(|status| status.container_id.as_deref());
        let id = id.context("a container has an id")?.trim_start_matches("containerd://");
        volume.shell(&format!("ctr --namespace k8s.io task kill --signal SIGKILL --all {id}"))?;
        Ok(())
    }
}

impl Volume {
    /// Makes a claim on that node and waits until it is bound. The provisioner waits for the first consumer; the
    /// annotation that names its node binds the claim without one.
    pub async fn create(sandbox: &Sandbox, claim: &str, node: &str) -> Result<Self> {
        let claims: Api<PersistentVolumeClaim> = sandbox.api();
        let manifest = json!({
            "metadata": {"name": claim, "annotations": {"volume.kubernetes.io/selected-node": node}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        claims.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
        Self::of(sandbox, claim).await
    }

    /// Waits until a claim is bound, and returns its volume.
    pub async fn of(sandbox: &Sandbox, claim: &str) -> Result<Self> {
        let claims: Api<PersistentVolumeClaim> = sandbox.api();
        let bound = wait::until(&claims, claim, "the claim is bound", PATIENCE, is_bound).await?;
        let node = bound.annotations().get("volume.kubernetes.io/selected-node");
        let node = node.context("no node was chosen for the claim")?.clone();
        let name = bound.spec.and_then(|spec| spec.volume_name).context("a bound claim has a volume")?;
        let volume = Api::<PersistentVolume>::all(sandbox.client.clone()).get(&name).await?;
        let source = volume.spec.context("a volume has a spec")?;
        let path = source.host_path.map(|it| it.path).or(source.local.map(|it| it.path));
        let path = path.context("the claim's volume is not a folder of a node")?;
        Ok(Self { claim: claim.into(), node, path })
    }

    /// Makes a claim of a `local` volume on that node; the kubelet changes the group of its files to a pod's `fsGroup`,
    /// which it does not do for the provisioner's volumes. [`delete_local`](Self::delete_local) removes the volume.
    pub async fn create_local(sandbox: &Sandbox, claim: &str, node: &str) -> Result<Self> {
        Self::create_local_with(sandbox, claim, node, "ReadWriteOnce").await
    }

    /// Makes a claim as [`Self::create_local`] does, with the access mode `mode`.
    pub async fn create_local_with(sandbox: &Sandbox, claim: &str, node: &str, mode: &str) -> Result<Self> {
        let name = local_name(sandbox, claim);
        let path = format!("/var/lib/{name}");
        run_on(node, ["mkdir", "-p", &path], &[])?;
        let storage = json!({"storage": "1Gi"});
        let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let volume = json!({"metadata": {"name": name}, "spec": {
            "capacity": storage, "accessModes": [mode], "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "", "local": {"path": path},
            "claimRef": {"namespace": sandbox.namespace, "name": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        }});
        let volumes = Api::<PersistentVolume>::all(sandbox.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let manifest = json!({"metadata": {"name": claim}, "spec": {"accessModes": [mode],
            "storageClassName": "", "volumeName": name, "resources": {"requests": storage}}});
        let claims: Api<PersistentVolumeClaim> = sandbox.api();
        claims.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
        wait::until(&claims, claim, "the claim is bound", PATIENCE, is_bound).await?;
        Ok(Self { claim: claim.into(), node: node.into(), path })
    }

    /// Removes the volume of a claim that [`create_local`](Self::create_local) made; the claim goes with its namespace.
    pub async fn delete_local(sandbox: &Sandbox, claim: &str) -> Result<()> {
        let volumes = Api::<PersistentVolume>::all(sandbox.client.clone());
        volumes.delete(&local_name(sandbox, claim), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Runs a script on the node, in the volume's folder.
    pub fn shell(&self, script: &str) -> Result<Vec<u8>> {
        self.feed(script, &[])
    }

    /// Runs a script on the node, in the volume's folder, with `input` on its standard input.
    pub fn feed(&self, script: &str, input: &[u8]) -> Result<Vec<u8>> {
        let script = format!("set -e; cd '{}'; {script}", self.path);
        run_on(&self.node, ["bash", "-c", &script], input)
            .with_context(|| format!("on {}: {script}", self.node))
    }

    /// Runs a script as the user that syncer pods run as, so the files that it makes belong to that user.
    pub fn shell_as_syncer(&self, script: &str) -> Result<Vec<u8>> {
        let user = format!("setpriv --reuid={SYNCER_USER} --regid={SYNCER_USER} --clear-groups bash -es");
        self.feed(&user, script.as_bytes())
    }

    /// Lists the volume's entries, without Volferry's own folder.
    pub fn list(&self) -> Result<Listing> {
        let entries = self.shell(Listing::FIND)?;
        let hashes = self.shell(Listing::HASH)?;
        Listing::parse(&entries, &hashes)
    }

    /// Returns the names of the staging files, which a run has begun to write and not finished.
    pub fn staged_files(&self) -> Result<Vec<String>> {
        let names =
            self.shell("[ ! -d .volferry/staging ] || find .volferry/staging -mindepth 1 ! -name '*.blocks' -printf '%P\\n'")?;
        Ok(String::from_utf8_lossy(&names).lines().map(Into::into).collect())
    }
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

fn local_name(sandbox: &Sandbox, claim: &str) -> String {
    format!("{}-{claim}", sandbox.namespace)
}

/// Runs a command on a node, with `input` on its standard input, and returns its output.
pub(crate) fn run_on<const N: usize>(
    node: &str,
    command: [impl AsRef<OsStr>; N],
    input: &[u8],
) -> Result<Vec<u8>> {
    let mut child = Command::new("docker")
        .args(["exec", "-i", node])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run docker")?;
    let mut stdin = child.stdin.take().context("docker has no standard input")?;
    stdin.write_all(input).context("the node does not read its input")?;
    drop(stdin);
    let output = child.wait_with_output().context("cannot wait for docker")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}
