//! Ways around a SyncGrant, and what is left behind: forged objects, and operators that see one side alone.

use k8s_openapi::api::{batch::v1::Job, coordination::v1::Lease};

use crate::pair::Pair;
use crate::prelude::*;

#[tokio::test]
async fn a_status_that_somebody_forged_makes_nothing_in_a_namespace_that_did_not_grant_it() {
    for end in ["source", "destination"] {
        let (pair, controller) = Pair::with_controller("forged").await;
        let there = pair.there.namespace.as_str();
        pair.here.sync("web", json!({})).await.unwrap();
        let [source, sink] = pair.here.kubelet.start_both("web", &[]).await.unwrap();
        drop(controller);
        let folder = json!({"claimName": "from", "namespace": there, "grant": "lent", "path": "/"});
        let forged = Patch::Merge(json!({"status": {"activeRun": {end: folder}}}));
        pair.here.jobs.patch_status("web", &PatchParams::default(), &forged).await.unwrap();
        let _controller = pair.controller().await;

        let is_ended = |job: &DynamicObject| syncjob::text(job, "/lastRun/reason") == "NotGranted";
        let (ended, _, _) = tokio::join!(
            pair.here.until("web", "its run is ended", is_ended),
            pair.here.kubelet.end(&source, 143, ""),
            pair.here.kubelet.end(&sink, 143, ""),
        );
        let words = syncjob::text(&ended.unwrap(), "/lastRun/message").to_string();
        assert!(words.contains(there), "{words}");
        // The spec names no claim of the other namespace, so the next run is as it should be.
        pair.here.kubelet.finish_deletions().await.unwrap();
        pair.here.kubelet.complete("web", &[&source, &sink]).await.unwrap();
        pair.here.until_done("web").await.unwrap();
        assert!(pair.made().is_empty(), "{end}: {:?}", pair.made());
    }
}

#[tokio::test]
async fn what_a_job_left_in_another_namespace_while_no_operator_ran_is_removed_by_the_next_one() {
    let (pair, controller) = Pair::with_controller("orphan").await;
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    pair.start(&[]).await;
    drop(controller);
    pair.here.jobs.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(!pair.made().is_empty());
    let _controller = pair.controller().await;
    pair.until_nothing_is_left().await;
}

#[tokio::test]
async fn an_operator_of_the_claims_side_alone_leaves_alone_what_another_one_makes_there() {
    let (pair, _controller) = Pair::with_controller("side").await;
    let _other = pair.there.controller_with(&["--leader-elect=false"]).await.unwrap();
    pair.grant("lent", json!({})).await;
    pair.read_from_there(json!({})).await;
    let [source, sink] = pair.start(&[]).await;
    // Both have seen the Jobs by the time that the other one has dealt with a SyncJob of its own.
    pair.there.sync("own", json!({"suspend": true})).await.unwrap();
    pair.there.until_is("own", "Ready").await.unwrap();
    pair.succeed(&source, &sink).await;
    pair.here.until_done("web").await.unwrap();
    let job = pair.here.jobs.get("web").await.unwrap();
    assert_eq!(syncjob::status(&job, "/lastRun/retries"), 0, "{job:#?}");
}

#[tokio::test]
async fn a_job_that_names_a_namespace_which_the_operator_does_not_watch_makes_it_take_nothing_there() {
    let pair = Pair::new("lease").await;
    let here = pair.here.namespace.as_str();
    let _controller = pair.there.controller_with(&["--leader-elect=false"]).await.unwrap();
    let names = json!({"volferry.dev/syncjob-name": "web", "volferry.dev/syncjob-namespace": here,
        "volferry.dev/syncjob-uid": "b6f2a4de-0000-4000-8000-000000000001"});
    let forged = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forged", "annotations": names,
            "labels": {"volferry.dev/syncjob": "web", "volferry.dev/try": "x", "volferry.dev/side": "source",
                "app.kubernetes.io/managed-by": "volferry-operator"}},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "syncer", "image": "volferry.test/volferry:1"}]}}}});
    let jobs = pair.there.api::<Job>();
    let made = jobs.create(&PostParams::default(), &serde_json::from_value(forged).unwrap()).await.unwrap();
    for name in ["one", "two"] {
        pair.there.sync(name, json!({"suspend": true})).await.unwrap();
        pair.there.until_is(name, "Ready").await.unwrap();
    }
    let leases = Api::<Lease>::namespaced(pair.here.client.clone(), here);
    assert!(leases.get_opt("volferry.dev").await.unwrap().is_none(), "the operator holds {here}");
    assert_eq!(jobs.get("forged").await.unwrap().uid(), made.uid());
}
