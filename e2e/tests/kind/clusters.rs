//! Two clusters at once: the pod of a SyncJob in one dials a SyncEndpoint in the other, at a port of its node. Each has
//! an API server and an operator of its own, and only that way is shared, which is of IPv6 where the machine has it.
//! Address and keys are written by hand.

use contract::OwnKey;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};

use crate::{
    endpoint::{LABEL, endpoints, serving},
    prelude::*,
};

const JOB_LABEL: &str = "volferry.dev/syncjob=web";
/// Makes a tree that a run takes many seconds to send at [`RATE`].
const LARGE: &str = "head -c 30000000 /dev/urandom > large";
const RATE: &str = "2Mi";
/// The label by which a drain finds the endpoint's pod, and none of another test.
const DRAINED: &str = "volferry.test/drained";
/// Cuts the endpoint's pod off, in both directions, for as long as a command runs.
const CUT: &str = r"
    case $pod in *:*) tables=ip6tables ;; *) tables=iptables ;; esac
    rules() { for way in -s -d; do $tables -w $1 FORWARD $way $pod -j DROP; done; }
    lost() { $tables -w -nvxL FORWARD | awk -v pod=$pod '$(NF - 1) == pod || $NF == pod {n += $1} END {print n + 0}'; }
";

/// A SyncJob `web` in one cluster and a SyncEndpoint `web` in the other.
pub(super) struct Clusters {
    near: Sandbox,
    far: Sandbox,
    from: Volume,
    pub(super) to: Volume,
    pub(super) endpoints: Api<DynamicObject>,
    /// The number of the last run.
    run: u32,
}

impl Clusters {
    /// Makes both, and waits for the first run.
    pub(super) async fn new(near: Sandbox, test: &str) -> Self {
        let far = Sandbox::far(test).await;
        let last = near.nodes().await.unwrap().len() - 1;
        let (from, to) = (near.volume("from", last).await.unwrap(), far.volume("to", 0).await.unwrap());
        from.shell_as_syncer(tree::VARIED).unwrap();
        let endpoints = endpoints(&far);
        let clusters = Self { near, far, from, to, endpoints, run: 1 };
        let dir = tempfile::tempdir().unwrap();
        let (key, file) = (OwnKey::generate().unwrap(), dir.path().join("identity.key"));
        key.write(&file).unwrap();
        let secret = format!("--from-file={}", file.display());
        clusters.near.kubectl.run(&["create", "secret", "generic", "mine", &secret]).unwrap();

        let service = json!({"type": "NodePort", "hostName": node_address(&clusters.far)});
        let peers = json!([{"name": "near", "publicKey": key.public().to_string()}]);
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncEndpoint",
            "metadata": {"name": "web"}, "spec": {"persistentVolumeClaim": {"claimName": "to"}, "access": "Write",
                "service": service, "peers": peers, "demands": {"bandwidthLimit": RATE},
                "pods": {"labels": {DRAINED: clusters.far.namespace}}}});
        let manifest = serde_json::from_value(manifest).unwrap();
        clusters.endpoints.create(&PostParams::default(), &manifest).await.unwrap();
        let ready = serving(&clusters.endpoints).await;
        let remote = json!({"address": syncjob::text(&ready, "/address"),
            "publicKey": syncjob::text(&ready, "/publicKey"), "identity": {"secretName": "mine"}});
        let spec = json!({"source": {"persistentVolumeClaim": {"claimName": "from"}},
            "destination": {"endpoint": remote}, "files": {"delete": true}});
        let job = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": {"name": "web"},
            "spec": spec});
        syncjob::create(&clusters.near.jobs, job).await.unwrap();
        clusters.ended().await;
        clusters
    }

    async fn pod(&self) -> Pod {
        let pods = self.far.api::<Pod>();
        wait::until_any(&pods, LABEL, "the endpoint's pod is ready", PATIENCE, wait::is_ready).await.unwrap()
    }

    /// Begins a run that has much to send, and returns once some of it is sent.
    async fn moving(&mut self) {
        self.from.shell_as_syncer(LARGE).unwrap();
        self.run += 1;
        let trigger = json!({"spec": {"trigger": self.run.to_string()}});
        self.near.patch("web", trigger).await.unwrap();
        self.near.until_data_moves("web", &format!("web-{}", self.run)).await.unwrap();
    }

    /// Returns the SyncJob once the last run has succeeded and both claims are the same.
    async fn ended(&self) -> DynamicObject {
        let run = format!("web-{}", self.run);
        let is_over =
            |job: &DynamicObject| syncjob::is(job, "Ready") && syncjob::text(job, "/lastRun/id") == run;
        let done = self.near.until("web", "the run is over", is_over).await.unwrap();
        assert_eq!(syncjob::text(&done, "/lastRun/result"), "Succeeded", "{done:#?}");
        let (from, to) = (self.from.list().unwrap(), self.to.list().unwrap());
        assert_same(&from.without_owners(), &to.without_owners());
        assert_eq!(self.to.staged_files().unwrap(), [""; 0], "a finished run leaves nothing half done");
        done
    }

    /// Asserts that the last run went on with what had arrived before it was interrupted.
    async fn ended_after_retry(&self) {
        let done = self.ended().await;
        assert!(syncjob::status(&done, "/lastRun/retries").as_u64() > Some(0), "{done:#?}");
        assert!(syncjob::status(&done, "/lastRun/work/bytesReused").as_u64() > Some(0), "{done:#?}");
    }

    /// Runs a script on the other cluster's node that may cut the endpoint's pod off.
    async fn on_the_way(&self, script: &str) {
        let address = self.pod().await.status.unwrap().pod_ip.unwrap();
        self.to.shell(&format!("pod={address}; {CUT} {script}")).unwrap();
    }

    async fn until_retried(&self) {
        self.near.until_reason("web", "Reconciling", "Retrying").await.unwrap();
    }

    /// Drains the node of the endpoint's pod, and has it back once the run is to be tried again. Meanwhile the pod has
    /// no other node to go to, since its volume is of this one.
    async fn drained(&self) {
        let pod = self.pod().await;
        let node = pod.spec.unwrap().node_name.unwrap();
        let own = format!("--pod-selector={DRAINED}={}", self.far.namespace);
        let drain = ["drain", &node, &own, "--ignore-daemonsets", "--delete-emptydir-data"];
        self.far.kubectl.run(&drain).unwrap();
        self.until_retried().await;
        self.far.kubectl.run(&["uncordon", &node]).unwrap();
    }

    /// Waits until the endpoint's status has a run that came by this link.
    pub(super) async fn until_told(&self, link: &str) {
        let is_told = |it: &DynamicObject| syncjob::text(it, "/lastRun/link").contains(link);
        wait::until(&self.endpoints, "web", "the run is told", PATIENCE, is_told).await.unwrap();
    }

    pub(super) async fn delete(self) {
        self.near.jobs.delete("web", &DeleteParams::default()).await.unwrap();
        self.endpoints.delete("web", &DeleteParams::default()).await.unwrap();
        wait::until_gone(&self.near.jobs, "web", PATIENCE).await.unwrap();
        wait::until_gone(&self.endpoints, "web", PATIENCE).await.unwrap();
        self.near.until_nothing_has(JOB_LABEL).unwrap();
        self.far.until_nothing_has(LABEL).unwrap();
    }
}

/// Returns the address of a cluster's node, if it has one node and one family of addresses.
pub(super) fn node_address(sandbox: &Sandbox) -> String {
    let path = "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
    sandbox.kubectl.run(&["get", "nodes", "-o", path]).unwrap()
}

#[tokio::test]
async fn a_run_between_clusters_outlives_a_way_that_is_cut_and_a_node_that_is_drained() {
    let mut clusters = Clusters::new(Sandbox::new("clusters").await, "clusters-far").await;

    // The way is cut for 2 s, which is shorter than the 8 s after which a peer that is silent counts as lost.
    clusters.moving().await;
    clusters.on_the_way("rules -I; sleep 2; until [ $(lost) -gt 0 ]; do :; done; rules -D").await;
    let done = clusters.ended().await;
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0, "{done:#?}");

    clusters.moving().await;
    clusters.on_the_way("rules -I").await;
    clusters.until_retried().await;
    clusters.on_the_way("rules -D").await;
    clusters.ended_after_retry().await;

    clusters.moving().await;
    let before = clusters.pod().await;
    clusters.drained().await;
    clusters.ended_after_retry().await;
    assert_ne!(clusters.pod().await.uid(), before.uid());

    // The Service keeps its port, as TCP had it before.
    let tcp = Patch::Merge(json!({"spec": {"service": {"protocols": ["TCP"]}}}));
    let params = PatchParams::default();
    clusters.endpoints.patch("web", &params, &tcp).await.unwrap();
    let ready = serving(&clusters.endpoints).await;
    let address = syncjob::text(&ready, "/address");
    clusters.run += 1;
    let remote = json!({"destination": {"endpoint": {"address": address}}, "trigger": "tcp"});
    clusters.near.patch("web", json!({ "spec": remote })).await.unwrap();
    clusters.ended().await;
    clusters.until_told("tcp").await;
    clusters.delete().await;
}

#[tokio::test]
async fn a_run_between_clusters_outlives_both_operators() {
    let mut clusters = Clusters::new(Sandbox::alone("operators").await, "operators-far").await;
    clusters.moving().await;
    let pod = clusters.pod().await;
    clusters.near.kill_operator().await.unwrap();
    clusters.far.kill_operator().await.unwrap();
    let done = clusters.ended().await;
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0, "{done:#?}");
    assert_eq!(clusters.pod().await.uid(), pod.uid(), "the endpoint's pod is left alone");
    let own = ListParams::default().labels(JOB_LABEL);
    let runs = clusters.near.runs.list(&own).await.unwrap().items;
    assert_eq!(runs.len(), 2, "no second run was made: {runs:#?}");
    clusters.delete().await;
}
