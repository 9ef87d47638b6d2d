//! SyncJobs with a claim of another namespace: its grant is asked for, lets the end's pod run there, and owns what is
//! made there.

use e2e::kubelet::try_of;
use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    jiff::{SignedDuration, Timestamp},
};

use crate::pair::Pair;
use crate::prelude::*;

#[tokio::test]
async fn a_claim_of_another_namespace_is_asked_for_with_the_manifest_that_grants_it_and_synced_by_it() {
    let (pair, _controller) = Pair::with_controller("asked").await;
    pair.read_from_there(json!({})).await;
    let message = pair.refused(&["no SyncGrant there lets SyncJobs of namespace"]).await;
    assert!(pair.made().is_empty(), "{:?}", pair.made());
    let manifest = message.split_once("\n\n").unwrap().1;
    pair.there.kubectl.apply(manifest).unwrap();

    let [source, sink] = pair.start(&[]).await;
    let owners = source.owner_references();
    assert_eq!(owners[0].kind, "Job");
    let job = pair.there.kubectl.run(&[
        "get",
        "job",
        &owners[0].name,
        "-o",
        "jsonpath={.metadata.ownerReferences[*].kind}",
    ]);
    assert_eq!(job.unwrap(), "SyncGrant");
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
    let run = pair.here.runs.get("web-1").await.unwrap();
    assert_eq!(run.data["spec"]["source"]["namespace"], pair.there.namespace);
    assert!(run.data["spec"]["source"]["grant"].is_string(), "{run:#?}");

    pair.here.jobs.delete("web", &DeleteParams::default()).await.unwrap();
    pair.until_nothing_is_left().await;
}

/// How a grant that is in use is withdrawn.
#[derive(Debug, Clone, Copy)]
enum Withdrawal {
    Deleted,
    Expired,
    OtherClaim,
    OtherNamespace,
    Unlabelled,
    NamespaceUnlabelled,
}

#[tokio::test]
async fn a_grant_that_is_withdrawn_ends_its_run_and_stalls_the_job_by_name_until_it_is_granted_again() {
    let ways = [
        (Withdrawal::Deleted, "is withdrawn"),
        (Withdrawal::Expired, "ended at"),
        (Withdrawal::OtherClaim, "is withdrawn"),
        (Withdrawal::OtherNamespace, "is withdrawn"),
        (Withdrawal::Unlabelled, "is withdrawn"),
        (Withdrawal::NamespaceUnlabelled, "is withdrawn"),
    ];
    join_all(ways.map(|(way, words)| withdrawn(way, words))).await;
}

async fn withdrawn(way: Withdrawal, words: &str) {
    let (pair, _controller) = Pair::with_controller("withdrawn").await;
    let claims = pair.there.api::<PersistentVolumeClaim>();
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"sync": value}}}));
        claims.patch("from", &PatchParams::default(), &patch).await.unwrap();
    };
    let namespaces = Api::<Namespace>::all(pair.here.client.clone());
    let label_namespace = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": value}}}));
        namespaces.patch(&pair.here.namespace, &PatchParams::default(), &patch).await.unwrap();
    };
    label(json!("yes")).await;
    label_namespace(json!("web")).await;
    let from = match way {
        Withdrawal::NamespaceUnlabelled => json!({"namespaceSelector": {"matchLabels": {"team": "web"}}}),
        _ => json!({"namespace": pair.here.namespace}),
    };
    let claim = json!({"selector": {"matchLabels": {"sync": "yes"}}});
    pair.grant("lent", json!({"from": [from], "claims": [claim]})).await;
    pair.read_from_there(json!({})).await;
    let [source, _] = pair.start(&[]).await;
    let withdrawn = Timestamp::now();
    match way {
        Withdrawal::Deleted => drop(pair.grants.delete("lent", &DeleteParams::default()).await.unwrap()),
        Withdrawal::Expired => pair.change("lent", json!({"spec": {"until": "2020-01-01T00:00:00Z"}})).await,
        Withdrawal::OtherClaim => pair.change("lent", json!({"spec": {"claims": [{"name": "to"}]}})).await,
        Withdrawal::OtherNamespace => {
            pair.change("lent", json!({"spec": {"from": [{"namespace": "elsewhere"}]}})).await;
        }
        Withdrawal::Unlabelled => label(json!(null)).await,
        Withdrawal::NamespaceUnlabelled => label_namespace(json!(null)).await,
    }
    let gone = pair.there.kubelet.deleted_pod("web", Side::Source).await.unwrap();
    assert_eq!(gone.uid(), source.uid(), "{way:?}");
    // Then it is killed: after 10 s, and 2 s more if this machine is busy.
    let killed = gone.metadata.deletion_timestamp.unwrap().0;
    assert!(
        killed <= withdrawn + SignedDuration::from_secs(12),
        "{way:?}: {killed}, withdrawn at {withdrawn}"
    );
    tokio::join!(pair.until_nothing_is_left(), async {
        let here = pair.here.kubelet.deleted_pod("web", Side::Sink).await.unwrap();
        pair.here.kubelet.end(&here, 143, "").await.unwrap();
    });
    let message = pair.refused(&[words, &format!("{}/lent", pair.there.namespace)]).await;
    assert!(message.contains("kind: SyncGrant"), "{message}");
    let job = pair.here.jobs.get("web").await.unwrap();
    assert_eq!(syncjob::text(&job, "/lastRun/reason"), "NotGranted", "{way:?}: {job:#?}");

    pair.grant("again", json!({})).await;
    let [source, sink] = pair.start(&[]).await;
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
}

#[tokio::test]
async fn pods_that_wait_for_a_hook_are_gone_with_the_grant_however_long_the_hook_takes() {
    let (pair, _controller) = Pair::with_controller("hooked").await;
    pair.here.may_run_hooks().await.unwrap();
    pair.grant("lent", json!({})).await;
    // It waits for a pod that never comes.
    let hook = json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sync"], "timeout": "1h"});
    pair.read_from_there(json!({"hooks": {"before": hook}})).await;
    let [source, _] = pair.start(&[]).await;
    let begun = |run: &DynamicObject| syncjob::status(run, "/hooks/before/startTime").is_string();
    pair.here.run("web-1", "the hook has begun", begun).await.unwrap();
    pair.change("lent", json!({"spec": {"claims": [{"name": "to"}]}})).await;
    let gone = pair.there.kubelet.deleted_pod("web", Side::Source).await.unwrap();
    assert_eq!(gone.uid(), source.uid());
    pair.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_grant_ends_by_itself_at_its_time() {
    let (pair, _controller) = Pair::with_controller("until").await;
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    pair.start(&[]).await;
    // Set only now, because on a busy machine the pods may take any time to start.
    pair.change("lent", json!({"spec": {"until": in_3_s()}})).await;
    pair.there.kubelet.deleted_pod("web", Side::Source).await.unwrap();
    pair.refused(&["ended at", "/lent"]).await;
}

#[tokio::test]
async fn a_run_whose_job_names_other_claims_meanwhile_still_ends_with_its_grant() {
    let (pair, _controller) = Pair::with_controller("meanwhile").await;
    let claims = pair.there.api::<PersistentVolumeClaim>();
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"sync": value}}}));
        claims.patch("from", &PatchParams::default(), &patch).await.unwrap();
    };
    label(json!("yes")).await;
    pair.grant("lent", json!({"claims": [{"selector": {"matchLabels": {"sync": "yes"}}}]})).await;
    for way in [Withdrawal::Unlabelled, Withdrawal::Expired] {
        pair.read_from_there(json!({})).await;
        let [source, sink] = pair.start(&[]).await;
        let own = json!({"spec": {"source": {"persistentVolumeClaim": {"namespace": null}}}});
        pair.here.patch("web", own).await.unwrap();
        // The operator has seen the change once it has dealt with a later SyncJob.
        let later = format!("{way:?}").to_lowercase();
        pair.here.sync(&later, json!({"suspend": true})).await.unwrap();
        pair.here.until_is(&later, "Ready").await.unwrap();
        match way {
            Withdrawal::Unlabelled => label(json!(null)).await,
            _ => pair.change("lent", json!({"spec": {"until": in_3_s()}})).await,
        }
        let gone = pair.there.kubelet.deleted_pod("web", Side::Source).await.unwrap();
        assert_eq!(gone.uid(), source.uid(), "{way:?}");
        tokio::join!(pair.until_nothing_is_left(), async {
            pair.here.kubelet.end(&sink, 143, "").await.unwrap();
        });
        let is_told = |job: &DynamicObject| syncjob::text(job, "/lastRun/reason") == "NotGranted";
        pair.here.until("web", "its run is ended", is_told).await.unwrap();
        pair.here.jobs.delete("web", &DeleteParams::default()).await.unwrap();
        label(json!("yes")).await;
    }
}

/// Returns the time in 3 s, as a manifest has it.
fn in_3_s() -> String {
    (Timestamp::now() + SignedDuration::from_secs(3)).to_string()
}

#[tokio::test]
async fn nothing_is_made_in_a_namespace_that_did_not_grant_just_this() {
    let (pair, _controller) = Pair::with_controller("around").await;
    let there = pair.there.namespace.as_str();
    let label = json!({"metadata": {"labels": {"team": "web"}}});
    pair.grant("other-claim", json!({"claims": [{"name": "to"}]})).await;
    pair.grant("other-namespace", json!({"from": [{"namespace": "elsewhere"}]})).await;
    let labelled = json!([{"namespaceSelector": {"matchLabels": {"team": "web"}}}]);
    pair.grant("by-label", json!({"from": labelled})).await;
    pair.read_from_there(json!({})).await;
    // The labels of a SyncJob and of its claims are not those of their namespace.
    pair.here.patch("web", label.clone()).await.unwrap();
    pair.refused(&["no SyncGrant there lets"]).await;

    // What is granted to be read is not written, and a benchmark writes to its source.
    let onto = json!({"destination": {"persistentVolumeClaim": {"namespace": there}}});
    pair.here.sync("onto", onto).await.unwrap();
    let reads_only =
        |job: &DynamicObject| syncjob::message(job, "Stalled").contains("be read, and not written");
    pair.here.until("onto", "it may only read", reads_only).await.unwrap();

    // SyncRuns say what a run of a SyncJob is to do, and never which claims it uses.
    let own = pair.here.sync("own", json!({"suspend": true})).await.unwrap();
    let forged = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": "own-1",
        "ownerReferences": [{"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "name": "own", "uid": own.uid()}]},
        "spec": {"syncJob": {"name": "own", "uid": own.uid(), "generation": 2}, "number": 1, "local": false,
            "job": {"source": {"persistentVolumeClaim": {"claimName": "from", "namespace": there}},
                "destination": {"persistentVolumeClaim": {"claimName": "to"}}},
            "source": {"claimName": "from", "namespace": there, "grant": "other-claim", "path": "/"},
            "destination": {"claimName": "to", "path": "/"}}});
    let runs = &pair.here.runs;
    runs.create(&PostParams::default(), &serde_json::from_value(forged).unwrap()).await.unwrap();
    pair.here.patch("own", json!({"spec": {"suspend": false}})).await.unwrap();
    pair.here.kubelet.complete("own", &[]).await.unwrap();
    pair.here.until_is("own", "Ready").await.unwrap();
    assert!(pair.made().is_empty(), "{:?}", pair.made());
}

#[tokio::test]
async fn a_job_that_was_granted_one_claim_gets_no_other_and_a_claim_that_is_made_anew_is_another() {
    let (pair, _controller) = Pair::with_controller("changed").await;
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    let [source, sink] = pair.start(&[]).await;
    let named = |claim: &str| json!({"spec": {"source": {"persistentVolumeClaim": {"claimName": claim}}}});
    pair.here.patch("web", named("to")).await.unwrap();
    pair.succeed(&source, &sink).await;
    pair.refused(&["no SyncGrant there lets", "- name: to"]).await;

    pair.here.patch("web", named("from")).await.unwrap();
    pair.here.patch("web", json!({"spec": {"trigger": "back"}})).await.unwrap();
    let [source, sink] = pair.start(&[&source, &sink]).await;
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
    pair.there.lose_claim("from").await.unwrap();
    pair.there.claim("from", "Bound").await.unwrap();
    pair.here.patch("web", json!({"spec": {"trigger": "again"}})).await.unwrap();
    pair.here.until_reason("web", "Stalled", "OtherSource").await.unwrap();
}

#[tokio::test]
async fn a_namespace_that_is_made_anew_under_its_name_has_no_grants_of_the_one_before() {
    let (pair, _controller) = Pair::with_controller("reborn").await;
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    let [source, sink] = pair.start(&[]).await;
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();

    let (here, namespaces) = (&pair.here.namespace, Api::<Namespace>::all(pair.here.client.clone()));
    namespaces.delete(here, &DeleteParams::default()).await.unwrap();
    let claims = Api::<PersistentVolumeClaim>::namespaced(pair.here.client.clone(), here);
    let is_gone = async || {
        pair.here.kubelet.finish_deletions().await.unwrap();
        for claim in claims.list(&ListParams::default()).await.unwrap().items {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            drop(claims.patch(&claim.name_any(), &PatchParams::default(), &free).await);
        }
        namespaces.get_opt(here).await.unwrap().is_none()
    };
    wait::poll("the namespace is gone", PATIENCE, is_gone).await.unwrap();
    let anew = json!({"metadata": {"name": here}});
    namespaces.create(&PostParams::default(), &serde_json::from_value(anew).unwrap()).await.unwrap();
    for claim in ["from", "to"] {
        pair.here.claim(claim, "Bound").await.unwrap();
    }
    pair.until_nothing_is_left().await;
    pair.read_from_there(json!({})).await;
    pair.refused(&["was used by another namespace", "/lent"]).await;
    assert!(pair.made().is_empty(), "{:?}", pair.made());

    pair.change("lent", json!({"spec": {"claims": [{"name": "from"}, {"name": "to"}]}})).await;
    let [source, sink] = pair.start(&[]).await;
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
}

#[tokio::test]
async fn two_operators_make_one_end_in_the_other_namespace_and_none_after_the_grant() {
    let pair = Pair::new("two").await;
    let _controllers = (pair.controller().await, pair.controller().await);
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    let [source, _] = pair.start(&[]).await;
    let jobs = || pair.made().into_iter().filter(|it| it.starts_with("job")).count();
    assert_eq!(jobs(), 1, "{:?}", pair.made());
    pair.grants.delete("lent", &DeleteParams::default()).await.unwrap();
    let gone = pair.there.kubelet.deleted_pod("web", Side::Source).await.unwrap();
    assert_eq!(gone.uid(), source.uid());
    pair.refused(&["is withdrawn"]).await;
    pair.until_nothing_is_left().await;
}

#[tokio::test]
async fn an_operator_that_does_not_watch_the_other_namespace_says_so() {
    let pair = Pair::new("outside").await;
    let _controller = pair.here.controller_with(&["--leader-elect=false"]).await.unwrap();
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    let job = pair.here.until_reason("web", "Stalled", "NamespaceNotWatched").await.unwrap();
    let message = syncjob::message(&job, "Stalled");
    assert!(
        message.contains(&format!("Add {} to the operator's --watch-namespaces", pair.there.namespace)),
        "{message}"
    );
    assert!(pair.made().is_empty(), "{:?}", pair.made());
}

#[tokio::test]
async fn an_end_in_another_namespace_may_tell_of_its_run_and_do_nothing_else() {
    let (pair, _controller) = Pair::with_controller("token").await;
    pair.grant("lent", json!({})).await;
    let labels = json!({"pods": {"labels": {"app": "theirs"}, "serviceAccountName": "default",
        "imagePullSecrets": [{"name": "theirs"}]}});
    pair.read_from_there(labels).await;
    pair.here
        .runs
        .create(&PostParams::default(), &serde_json::from_value(syncjob::run_now("next", "web")).unwrap())
        .await
        .unwrap();
    let [source, _] = pair.start(&[]).await;
    let spec = source.spec.clone().unwrap();
    assert_eq!((source.labels().get("app"), spec.image_pull_secrets), (None, None));
    assert_ne!(spec.service_account_name.as_deref(), Some("default"));

    let token = pair.there.kubelet.client_of(&source).await.unwrap();
    let runs = syncjob::runs(&token, &pair.here.namespace);
    let (own, other) = if try_of(&source) == "next" { ("next", "web-1") } else { ("web-1", "next") };
    runs.get(own).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"retries": 0}}));
    runs.patch_status(own, &PatchParams::default(), &patch).await.unwrap();
    let refused = |error: kube::Error| matches!(error, kube::Error::Api(status) if status.is_forbidden());
    assert!(runs.patch_status(other, &PatchParams::default(), &patch).await.is_err_and(refused));
    assert!(runs.list(&ListParams::default()).await.is_err_and(refused));
    for namespace in [&pair.here.namespace, &pair.there.namespace] {
        let secrets = Api::<Secret>::namespaced(token.clone(), namespace);
        assert!(secrets.list(&ListParams::default()).await.is_err_and(refused), "{namespace}");
        let pods = Api::<Pod>::namespaced(token.clone(), namespace);
        assert!(pods.list(&ListParams::default()).await.is_err_and(refused), "{namespace}");
    }
}

#[tokio::test]
async fn runs_of_two_namespaces_that_use_one_claim_follow_each_other() {
    let (pair, _controller) = Pair::with_controller("rivals").await;
    pair.grant("lent", json!({})).await;
    // It writes the claim that the other one reads.
    let back = json!({"source": {"persistentVolumeClaim": {"claimName": "to"}},
        "destination": {"persistentVolumeClaim": {"claimName": "from"}}});
    pair.there.sync("back", back).await.unwrap();
    let [source, sink] = pair.there.kubelet.start_both("back", &[]).await.unwrap();
    pair.read_from_there(json!({})).await;
    let job = pair.here.until_reason("web", "Reconciling", "WaitingForRun").await.unwrap();
    let named = format!("run back-1 of SyncJob {}/back", pair.there.namespace);
    assert!(syncjob::message(&job, "Reconciling").contains(&named), "{job:#?}");
    pair.there.kubelet.succeed(&source, &sink, &good_report("back-1")).await.unwrap();
    let [source, sink] = pair.start(&[]).await;
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
}
