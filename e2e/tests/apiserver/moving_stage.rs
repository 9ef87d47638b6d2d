//! A StatefulSet to be moved, with a simulated storage, a simulated StatefulSet controller, and the runs of the move's
//! SyncJobs.

use std::{cell::Cell, path::Path, pin::pin};

use anyhow::{Context as _, Result, bail, ensure};
use contract::Work;
use e2e::{
    apiserver::{ApiServer, User},
    cut::CutLine,
    kubelet::try_of,
};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolume, Secret},
};
use kube::{
    Client,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::process::Command;

use crate::prelude::*;

/// More lives than a move has writes.
const MAX_LIVES: usize = 60;
pub(crate) const CLAIM: &str = "data-db-0";
/// The runs of a move, of which the first that compares content finds a difference.
pub(crate) const RUNS: [&str; 4] = ["copy", "rest", "verify-1", "verify-2"];
/// All that a move needs: groups, resources and verbs. The last one is of its survey alone.
const RIGHTS: [(&str, &str, &[&str]); 8] = [
    ("", "secrets", &["get", "create", "update", "delete"]),
    ("", "persistentvolumeclaims", &["get", "list", "watch", "create", "delete"]),
    ("", "persistentvolumes", &["get", "patch"]),
    ("", "pods", &["list", "watch"]),
    ("apps", "statefulsets", &["get", "list", "watch", "patch", "delete", "create"]),
    ("volferry.dev", "syncjobs", &["get", "list", "watch", "create", "patch", "delete"]),
    ("volferry.dev", "syncendpoints", &["list"]),
    ("storage.k8s.io", "storageclasses", &["get"]),
];

/// A namespace with a StatefulSet, whose claim has a volume of the class `slow`.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    sets: Api<StatefulSet>,
    pub(crate) pods: Api<Pod>,
    secrets: Api<Secret>,
    /// The number of runs that have been played.
    pub(crate) played: Cell<usize>,
}

impl Scene {
    pub(crate) async fn new(stage: Stage) -> Result<Self> {
        let client = || stage.client.clone();
        let scene = Self {
            claims: Api::namespaced(client(), &stage.namespace),
            volumes: Api::all(client()),
            sets: Api::namespaced(client(), &stage.namespace),
            pods: Api::namespaced(client(), &stage.namespace),
            secrets: Api::namespaced(client(), &stage.namespace),
            played: Cell::new(0),
            stage,
        };
        for (class, mode) in [("moved-to", "Immediate"), ("moved-lazily", "WaitForFirstConsumer")] {
            let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
                "provisioner": "test", "volumeBindingMode": mode});
            scene.stage.kubectl.pipe(&["apply", "--server-side", "-f", "-"], &class.to_string())?;
        }
        scene.stage.claim_of(CLAIM, "Pending", json!({"storageClassName": "slow"})).await?;
        let template = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "slow",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let pod = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db"}]}});
        let set = json!({"metadata": {"name": "db", "annotations": {"team": "web"}}, "spec": {"replicas": 1,
            "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": pod,
            "volumeClaimTemplates": [template]}});
        scene.sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        Ok(scene)
    }

    /// Makes an account with the rights that a move needs.
    async fn mover(&self) -> Result<Client> {
        let (namespace, name) = (&self.stage.namespace, "mover");
        let rules = RIGHTS.map(
            |(group, resource, verbs)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}),
        );
        let of_rbac = "rbac.authorization.k8s.io";
        let role = format!("{name}-{namespace}");
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
            {"apiVersion": format!("{of_rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules},
            {"apiVersion": format!("{of_rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role},
                "roleRef": {"apiGroup": of_rbac, "kind": "ClusterRole", "name": role}, "subjects": [account]},
        ]});
        self.stage.kubectl.apply(&objects.to_string())?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.stage.until_may(&user, "patch", "persistentvolumes").await?;
        self.stage.kubelet.client_as(name).await
    }

    /// Makes the StatefulSet's pods and its status, as its controller and a kubelet do. Returns only with an error.
    async fn play_workload(&self) -> Result<()> {
        let mut changes = pin!(watcher(self.sets.clone(), watcher::Config::default()).applied_objects());
        while let Some(set) = changes.next().await {
            let set = set.context("watching StatefulSets")?;
            let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            let seen = set.status.as_ref().and_then(|status| status.observed_generation);
            if set.metadata.deletion_timestamp.is_some() || seen == set.metadata.generation {
                continue;
            }
            if wanted == 0 {
                drop(self.pods.delete("db-0", &DeleteParams::default().grace_period(0)).await);
            } else if self.pods.get_opt("db-0").await?.is_none() {
                let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": set.uid(), "controller": true});
                self.pod("db-0", &json!([owner])).await?;
            }
            let status = json!({"observedGeneration": set.metadata.generation, "replicas": wanted, "readyReplicas": wanted});
            let status = Patch::Merge(json!({"status": status}));
            self.sets.patch_status("db", &PatchParams::default(), &status).await?;
        }
        bail!("the watch ended")
    }

    /// Makes a pod that uses the claim.
    pub(crate) async fn pod(&self, name: &str, owners: &Value) -> Result<()> {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}});
        let pod = json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": {"nodeName": "node-1",
            "automountServiceAccountToken": false, "volumes": [volume], "containers": [{"name": "db", "image": "db"}]}});
        let made = self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await;
        made.map(drop).context("a pod")
    }

    /// Makes volumes for claims and binds them, and deletes volumes without a claim unless they are retained. Returns
    /// only with an error.
    pub(crate) async fn play_storage(&self) -> Result<()> {
        let mut changes = pin!(watcher(self.claims.clone(), watcher::Config::default()).applied_objects());
        while let Some(claim) = changes.next().await {
            // The watch may be late, so the claim's present state counts.
            let name = claim.context("watching claims")?.name_any();
            let Some(claim) = self.claims.get_opt(&name).await? else { continue };
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            if claim.metadata.deletion_timestamp.is_some() {
                self.let_go(&claim).await?;
            } else if phase == Some("Pending") {
                self.bind(&claim).await?;
            }
        }
        bail!("the watch ended")
    }

    async fn let_go(&self, claim: &PersistentVolumeClaim) -> Result<()> {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        match self.claims.patch(&claim.name_any(), &PatchParams::default(), &free).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => drop(done?),
        }
        let Some(volume) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) else {
            return Ok(());
        };
        if self.policy(&volume).await? == "Delete" {
            self.volumes.delete(&volume, &DeleteParams::default()).await?;
            self.volumes.patch(&volume, &PatchParams::default(), &free).await?;
        }
        Ok(())
    }

    async fn bind(&self, claim: &PersistentVolumeClaim) -> Result<()> {
        let (name, uid, change) = (claim.name_any(), claim.uid(), PatchParams::default());
        let holder = json!({"namespace": self.stage.namespace, "name": name, "uid": uid});
        match claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) {
            Some(volume) => {
                let there =
                    self.volumes.get(&volume).await?.spec.and_then(|spec| spec.claim_ref).unwrap_or_default();
                ensure!(
                    there.name.as_ref() == Some(&name) && (there.uid.is_none() || there.uid == uid),
                    "{volume} is of {there:?}"
                );
                self.volumes
                    .patch(&volume, &change, &Patch::Merge(json!({"spec": {"claimRef": holder}})))
                    .await?;
            }
            None => {
                let volume = format!("pv-{}", uid.unwrap_or_default());
                let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": holder,
                    "storageClassName": claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
                    "hostPath": {"path": "/data"}, "persistentVolumeReclaimPolicy": "Delete"});
                let made = json!({"metadata": {"name": volume}, "spec": spec});
                self.volumes.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
                self.claims
                    .patch(&name, &change, &Patch::Merge(json!({"spec": {"volumeName": volume}})))
                    .await?;
            }
        }
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        self.claims.patch_status(&name, &change, &bound).await?;
        Ok(())
    }

    /// Plays these runs of a move. Then no run is left.
    async fn play_runs(&self, job: &str, runs: &[&str]) -> Result<()> {
        let mut known: Vec<Pod> = Vec::new();
        for run in runs {
            let [source, sink] =
                self.stage.kubelet.start_both(job, &known.iter().collect::<Vec<_>>()).await?;
            let trigger = self.stage.jobs.get(job).await?.data["spec"]["trigger"].clone();
            let word = trigger.as_str().and_then(|trigger| trigger.split('@').next());
            ensure!(word == Some(run), "{trigger} in place of {run}");
            let is_equal = *run == "verify-2";
            let work =
                if is_equal { Work { files_scanned: 3, ..Work::default() } } else { good_report("").work };
            let report = Report { work, ..good_report(&try_of(&sink)) };
            self.stage.kubelet.succeed(&source, &sink, &report).await?;
            self.played.set(self.played.get() + 1);
            known.extend([source, sink]);
        }
        let forever: std::convert::Infallible = std::future::pending().await;
        match forever {}
    }

    /// Simulates all but the command, with these runs.
    pub(crate) async fn play(&self, runs: &[&str]) -> Result<()> {
        let played = async {
            let job = wait::until_any(&self.stage.jobs, "", "a SyncJob copies", PATIENCE, |_| true)
                .await?
                .name_any();
            tokio::try_join!(
                self.play_runs(&job, runs).boxed_local(),
                self.stage.kubelet.release(&job).boxed_local()
            )
            .map(drop)
        };
        tokio::try_join!(
            self.play_workload().boxed_local(),
            self.play_storage().boxed_local(),
            played.boxed_local()
        )
        .map(drop)
    }

    /// Simulates a storage and a StatefulSet's controller.
    pub(crate) async fn play_others(&self) -> Result<()> {
        tokio::try_join!(self.play_workload().boxed_local(), self.play_storage().boxed_local()).map(drop)
    }

    pub(crate) async fn policy(&self, volume: &str) -> Result<String> {
        let spec = self.volumes.get(volume).await.with_context(|| format!("volume {volume}"))?.spec;
        Ok(spec.and_then(|spec| spec.persistent_volume_reclaim_policy).unwrap_or_default())
    }

    /// Returns the volume of the claim.
    pub(crate) async fn volume(&self) -> String {
        let bound = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        };
        let claim = wait::until(&self.claims, CLAIM, "it is bound", PATIENCE, bound).await.unwrap();
        claim.spec.unwrap().volume_name.unwrap()
    }

    pub(crate) async fn class_and_replicas(&self) -> (String, i32) {
        let set = self.sets.get("db").await.unwrap();
        assert_eq!(
            set.annotations().get("team").map(String::as_str),
            Some("web"),
            "it is the same otherwise"
        );
        let spec = set.spec.unwrap();
        let template = spec.volume_claim_templates.unwrap().remove(0).spec.unwrap();
        (template.storage_class_name.unwrap(), spec.replicas.unwrap())
    }

    /// Returns the Secret of the move, and the stage in it.
    pub(crate) async fn record(&self) -> Option<(String, Value)> {
        let of_moves = ListParams::default().labels("app.kubernetes.io/managed-by=kubectl-volferry");
        let found = self.secrets.list(&of_moves).await.unwrap().items.pop()?;
        let record: Value = serde_json::from_slice(&found.data.as_ref()?["move.json"].0).unwrap();
        Some((found.name_any(), record["stage"].clone()))
    }

    /// Starts the workload behind the command's back; it may write to its claim.
    pub(crate) async fn start_again(&self) {
        let scaled = Patch::Merge(json!({"spec": {"replicas": 1}}));
        self.sets.patch("db", &PatchParams::default(), &scaled).await.unwrap();
        wait::until(&self.pods, "db-0", "it runs again", PATIENCE, |_| true).await.unwrap();
    }

    /// Returns the volume that waits for the claim of that name to be made.
    pub(crate) async fn reserved(&self) -> Option<String> {
        let volumes = self.volumes.list(&ListParams::default()).await.unwrap();
        let is_reserved = |volume: &&PersistentVolume| {
            let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
            let is_own = holder.namespace.as_ref() == Some(&self.stage.namespace);
            is_own && holder.name.as_deref() == Some(CLAIM) && holder.uid.is_none()
        };
        volumes.items.iter().find(is_reserved).map(kube::ResourceExt::name_any)
    }

    /// Runs the command while another one writes the record: it stops before it swaps a claim.
    pub(crate) async fn run_beside_another(&self, more: &[&str]) -> String {
        let jobs = &self.stage.jobs;
        let job = jobs.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
        let held = |by: Value| Patch::Merge(json!({"metadata": {"finalizers": by}}));
        let change = PatchParams::default();
        jobs.patch(&job, &change, &held(json!(["test.volferry.dev/hold"]))).await.unwrap();
        let another = async {
            let is_deleted = |job: &DynamicObject| job.metadata.deletion_timestamp.is_some();
            wait::until(jobs, &job, "it is being deleted", PATIENCE, is_deleted).await.unwrap();
            let (secret, _) = self.record().await.unwrap();
            let written = Patch::Merge(json!({"metadata": {"annotations": {"by": "another"}}}));
            self.secrets.patch(&secret, &change, &written).await.unwrap();
            jobs.patch(&job, &change, &held(Value::Null)).await.unwrap();
        };
        tokio::join!(self.run(more, 1), another).0
    }

    /// Returns the names of what a move makes.
    pub(crate) fn made(&self) -> String {
        let found = self.stage.kubectl.run(&["get", "syncjobs,secrets,pvc", "-o", "name"]).unwrap();
        found.lines().filter(|name| name.contains("vf-move")).collect::<Vec<_>>().join(" ")
    }

    fn command(&self, kubeconfig: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(programs::of_workspace("kubectl-volferry").unwrap());
        command.args(["move", "sts/db", "-n", &self.stage.namespace]).args(more);
        command.env("KUBECONFIG", kubeconfig).kill_on_drop(true);
        command
    }

    /// Runs the command to its end; returns what it printed.
    pub(crate) async fn run(&self, more: &[&str], status: i32) -> String {
        let admin = ApiServer::shared().kubeconfig(User::Admin);
        let done = self.command(&admin, more).output().await.unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(status), "{said}");
        said
    }

    /// Runs the command again and again, each time killed after one write whose answer it does not get, until one life
    /// has nothing left to write, or `is_there` is true between two lives. Returns the number of lives. It has the
    /// rights that a move needs, and no others.
    pub(crate) async fn run_in_lives(
        &self,
        more: &[&str],
        is_there: impl AsyncFn() -> bool,
    ) -> Result<usize> {
        let client = self.mover().boxed_local().await?;
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        for life in 1..MAX_LIVES {
            let line = CutLine::new(client.clone(), Cut::After(0)).boxed_local().await?;
            let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test",
                "clusters": [{"name": "test", "cluster": {"server": line.url()}}],
                "users": [{"name": "test", "user": {}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]});
            std::fs::write(&kubeconfig, config.to_string())?;
            let mut child = self.command(&kubeconfig, more).spawn()?;
            let limit = tokio::time::timeout(PATIENCE, async {
                tokio::select! {
                    ended = child.wait() => Some(ended),
                    () = line.reached() => None,
                }
            });
            match limit.await.context("a life takes too long")? {
                None => {
                    child.kill().await?;
                    if is_there().await {
                        return Ok(life);
                    }
                }
                Some(ended) => {
                    ensure!(ended?.success(), "life {life} failed");
                    return Ok(life);
                }
            }
        }
        bail!("it does not come to an end")
    }
}

/// Runs a step while all else is simulated.
pub(crate) async fn during<T>(played: impl Future<Output = Result<()>>, step: impl Future<Output = T>) -> T {
    // Futures of this size would overflow the stack of a test.
    let (played, step) = (Box::pin(played), Box::pin(step));
    tokio::select! {
        done = step => done,
        error = played => panic!("{error:?}"),
    }
}
