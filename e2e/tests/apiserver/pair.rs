//! Two namespaces of the API server: that of a SyncJob, and that of a claim which the SyncJob asks for.

use e2e::{kubelet::try_of, scripted::Controller};
use kube::core::{ApiResource, GroupVersionKind};

use crate::prelude::*;

/// The kinds of objects that are made in another namespace.
const MADE: &str = "jobs,pods,serviceaccounts,roles,rolebindings,secrets";

/// A SyncJob's namespace, and the namespace of claims that it asks for.
pub(super) struct Pair {
    /// The SyncJob's namespace.
    pub(super) here: Stage,
    /// The other one.
    pub(super) there: Stage,
    /// The SyncGrants of the other one.
    pub(super) grants: Api<DynamicObject>,
}

impl Pair {
    /// Makes both namespaces, each with the bound claims `from` and `to`.
    pub(super) async fn new(test: &str) -> Self {
        let (here, there) = (
            Stage::new(&format!("{test}-here")).await.unwrap(),
            Stage::new(&format!("{test}-there")).await.unwrap(),
        );
        let kind = GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncGrant");
        let kind = ApiResource::from_gvk_with_plural(&kind, "syncgrants");
        let grants = Api::namespaced_with(there.client.clone(), &there.namespace, &kind);
        Self { here, there, grants }
    }

    /// Makes both namespaces and starts a controller for them.
    pub(super) async fn with_controller(test: &str) -> (Self, Controller) {
        let pair = Self::new(test).await;
        let controller = pair.controller().await;
        (pair, controller)
    }

    /// Starts a controller that watches both namespaces.
    pub(super) async fn controller(&self) -> Controller {
        self.controller_with(&[]).await
    }

    /// Starts a controller that watches both namespaces, with these arguments.
    pub(super) async fn controller_with(&self, more: &[&str]) -> Controller {
        let other = format!("--watch-namespaces={}", self.there.namespace);
        let arguments = [&["--leader-elect=false", &other], more].concat();
        self.here.controller_with(&arguments).await.unwrap()
    }

    /// Starts a controller that watches both namespaces and is killed at the cut.
    pub(super) async fn controller_cut(&self, cut: Cut) -> Controller {
        let other = format!("--watch-namespaces={}", self.there.namespace);
        self.here.controller_cut(cut, &["--leader-elect=false", &other]).await.unwrap()
    }

    /// Creates the SyncJob `web`, which reads the claim `from` of the other namespace, with these fields in its spec.
    pub(super) async fn read_from_there(&self, more: Value) {
        let mut spec = json!({"source": {"persistentVolumeClaim": {"namespace": self.there.namespace}}});
        syncjob::merge(&mut spec, more);
        self.here.sync("web", spec).await.unwrap();
    }

    /// Creates a grant for this SyncJob's namespace to read `from`, with other fields as in `spec`.
    pub(super) async fn grant(&self, name: &str, spec: Value) -> DynamicObject {
        let mut whole = json!({"from": [{"namespace": self.here.namespace}], "claims": [{"name": "from"}], "access": "Read"});
        syncjob::merge(&mut whole, spec);
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncGrant", "metadata": {"name": name},
            "spec": whole});
        self.grants.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await.unwrap()
    }

    /// Patches a grant.
    pub(super) async fn change(&self, grant: &str, patch: Value) {
        self.grants.patch(grant, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Starts the source's pod in the other namespace and the sink's in this one, and returns them.
    pub(super) async fn start(&self, known: &[&Pod]) -> [Pod; 2] {
        let source = self.there.kubelet.new_pod("web", Side::Source, known).await.unwrap();
        let sink = self.here.kubelet.new_pod("web", Side::Sink, known).await.unwrap();
        self.there.kubelet.start(&source).await.unwrap();
        self.here.kubelet.start(&sink).await.unwrap();
        [source, sink]
    }

    /// Ends both pods with success.
    pub(super) async fn succeed(&self, source: &Pod, sink: &Pod) {
        let report = good_report(&try_of(sink));
        self.there.kubelet.succeed_one(Side::Source, source, &report).await.unwrap();
        self.here.kubelet.succeed_one(Side::Sink, sink, &report).await.unwrap();
    }

    /// Returns SyncJob `web` once it is stalled because nobody consents, with these words in the message.
    pub(super) async fn refused(&self, words: &[&str]) -> String {
        let is_refused = |job: &DynamicObject| {
            let message = syncjob::message(job, "Stalled");
            syncjob::has_reason(job, "Stalled", "NotGranted") && words.iter().all(|it| message.contains(it))
        };
        let what = format!("it is refused with {words:?}");
        let job = self.here.until("web", &what, is_refused).await.unwrap();
        syncjob::message(&job, "Stalled").to_string()
    }

    /// Returns the names of what is in the other namespace, without what Kubernetes makes by itself.
    pub(super) fn made(&self) -> Vec<String> {
        let names = self.there.kubectl.run(&["get", MADE, "-o", "name"]).unwrap();
        names.lines().filter(|it| *it != "serviceaccount/default").map(Into::into).collect()
    }

    /// Lets go of the pods that are deleted in the other namespace, until nothing is left there.
    pub(super) async fn until_nothing_is_left(&self) {
        let pods = self.there.api::<Pod>();
        let is_empty = async || {
            self.there.kubelet.finish_deletions().await.unwrap();
            // Asked first, because each question to kubectl starts a process.
            pods.list(&ListParams::default()).await.unwrap().items.is_empty() && self.made().is_empty()
        };
        let emptied = wait::poll("nothing is left in the other namespace", PATIENCE, is_empty).await;
        assert!(emptied.is_ok(), "left in the other namespace: {:?}", self.made());
    }
}
