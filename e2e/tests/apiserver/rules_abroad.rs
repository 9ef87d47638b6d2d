//! The pod of an end in another namespace obeys that namespace's rules: its PodSecurity, its quota, its limits and its
//! annotation for root. A SyncJob whose pod they refuse names that namespace and what to do there.

use e2e::kubelet::try_of;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};

use crate::pair::Pair;
use crate::prelude::*;

const STANDARD: &str = "pod-security.kubernetes.io/enforce";
const ROOT: &str = "volferry.dev/privileged-syncers";

impl Pair {
    /// Changes labels or annotations of the other namespace.
    async fn mark(&self, metadata: Value) {
        let namespaces = Api::<Namespace>::all(self.there.client.clone());
        let patch = Patch::Merge(json!({"metadata": metadata}));
        namespaces.patch(&self.there.namespace, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until SyncJob `web` has a condition with that reason, these words, and the other namespace's name.
    async fn tells(&self, condition: &str, reason: &str, words: &[&str]) {
        let is_told = |job: &DynamicObject| {
            let message = syncjob::message(job, condition);
            syncjob::has_reason(job, condition, reason)
                && message.contains(&self.there.namespace)
                && words.iter().all(|it| message.contains(it))
        };
        self.here.until("web", &format!("it tells {reason} with {words:?}"), is_told).await.unwrap();
    }
}

fn user(pod: &Pod) -> Option<i64> {
    pod.spec.as_ref()?.security_context.as_ref()?.run_as_user
}

#[tokio::test]
async fn a_restricted_namespace_gets_no_root_and_a_baseline_one_only_by_its_own_annotation() {
    let (pair, _controller) = Pair::with_controller("standard").await;
    pair.mark(json!({"labels": {STANDARD: "restricted"}})).await;
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    let [source, sink] = pair.start(&[]).await;
    assert_eq!((user(&source), user(&sink)), (Some(65_532), Some(65_532)));
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();

    pair.mark(json!({"annotations": {ROOT: "true"}})).await;
    pair.here.patch("web", json!({"spec": {"trigger": "as root"}})).await.unwrap();
    let remedies = ["source pod", "violates PodSecurity \"restricted", "remove its annotation", ROOT];
    pair.tells("Reconciling", "PodPending", &remedies).await;

    pair.mark(json!({"labels": {STANDARD: "baseline"}})).await;
    let known = [&source, &sink];
    let [source, sink] = pair.start(&known).await;
    assert_eq!(
        (user(&source), user(&sink)),
        (Some(0), Some(65_532)),
        "each namespace decides for its own pod"
    );
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
}

#[tokio::test]
async fn owners_that_have_to_be_kept_take_root_in_both_namespaces_and_the_lacking_one_is_named() {
    let (pair, _controller) = Pair::with_controller("owners").await;
    let namespaces = Api::<Namespace>::all(pair.here.client.clone());
    let own = Patch::Merge(json!({"metadata": {"annotations": {ROOT: "true"}}}));
    namespaces.patch(&pair.here.namespace, &PatchParams::default(), &own).await.unwrap();
    pair.mark(json!({"annotations": {ROOT: "yes"}})).await;
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({"files": {"preserve": {"ownership": "Always"}}})).await;
    pair.tells("Stalled", "InvalidAnnotation", &["privileged-syncers is \"yes\""]).await;

    pair.mark(json!({"annotations": {ROOT: "false"}})).await;
    pair.here.patch("web", json!({"spec": {"trigger": "false"}})).await.unwrap();
    pair.tells("Stalled", "RootNotAllowed", &["does not let syncers run as root", ROOT]).await;
    assert!(pair.made().is_empty(), "{:?}", pair.made());

    pair.mark(json!({"annotations": {ROOT: "true"}})).await;
    pair.here.patch("web", json!({"spec": {"trigger": "true"}})).await.unwrap();
    let [source, sink] = pair.start(&[]).await;
    assert_eq!((user(&source), user(&sink)), (Some(0), Some(0)));
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
}

#[tokio::test]
async fn a_quota_that_is_used_up_in_the_other_namespace_is_named_and_the_run_goes_on_with_room() {
    for (resource, condition, words) in
        [("pods", "PodPending", "Raise that ResourceQuota"), ("count/jobs.batch", "ChildRefused", "quota")]
    {
        let (pair, _controller) = Pair::with_controller("quota").await;
        let quotas = pair.there.api::<ResourceQuota>();
        let hard = json!({resource: "0"});
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": hard}});
        pair.there.kubectl.apply(&quota.to_string()).unwrap();
        // The quota controller, which would write this, is not among those of the tests.
        let counted = Patch::Merge(json!({"status": {"hard": hard, "used": hard}}));
        quotas.patch_status("full", &PatchParams::default(), &counted).await.unwrap();
        pair.grant("lent", json!({})).await;
        pair.read_from_there(json!({})).await;
        pair.tells("Reconciling", condition, &["exceeded quota: full", words]).await;

        pair.there.kubectl.run(&["delete", "resourcequota", "full"]).unwrap();
        let [source, sink] = pair.start(&[]).await;
        pair.succeed(&source, &sink).await;
        pair.here.until_done("web").await.unwrap();
    }
}

#[tokio::test]
async fn a_limit_range_of_the_other_namespace_that_makes_the_pod_invalid_is_named() {
    let (pair, _controller) = Pair::with_controller("range").await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]}});
    pair.there.kubectl.apply(&range.to_string()).unwrap();
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({"pods": {"resources": {"requests": {"cpu": "1"}}}})).await;
    pair.tells("Reconciling", "PodPending", &["source pod", "cpu limit", "LimitRange"]).await;
}

#[tokio::test]
async fn a_run_counts_for_the_limit_of_the_namespace_that_it_reads_from() {
    let pair = Pair::new("limit").await;
    let _controller = pair.controller_with(&["--max-runs-per-namespace=1"]).await;
    pair.there.sync("theirs", json!({})).await.unwrap();
    let [their_source, their_sink] = pair.there.kubelet.start_both("theirs", &[]).await.unwrap();
    // Another claim, so that only the limit is in the way, and not the other run's use of the claim.
    pair.there.claim("other", "Bound").await.unwrap();
    pair.grant("lent", json!({"claims": [{"name": "other"}]})).await;
    pair.read_from_there(json!({"source": {"persistentVolumeClaim": {"claimName": "other"}}})).await;
    pair.tells("Reconciling", "Queued", &["may have 1 under way at a time"]).await;
    pair.there.kubelet.succeed(&their_source, &their_sink, &good_report(&try_of(&their_sink))).await.unwrap();
    let [source, sink] = pair.start(&[]).await;

    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
}
