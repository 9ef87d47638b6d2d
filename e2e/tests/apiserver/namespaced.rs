//! A release of the chart that is confined to two namespaces: its own account and rights are enough there, and reach no
//! further.

use e2e::scripted::Release;

use crate::prelude::*;

#[tokio::test]
async fn a_release_that_is_confined_to_namespaces_runs_their_syncjobs_and_no_others() {
    let (stage, second) = (Stage::new("team").await.unwrap(), Stage::new("team").await.unwrap());
    let other = Stage::new("others").await.unwrap();
    other.sync("web", json!({})).await.unwrap();
    let Release { operator: _operator, account } = stage.release("team-a", &second).await.unwrap();
    for stage in [&stage, &second] {
        stage.sync("web", json!({})).await.unwrap();
        tokio::select! {
            done = stage.until_done("web") => done.unwrap(),
            error = stage.kubelet.play("web", Play::Succeeds) => panic!("{error:?}"),
        }
    }

    let ignored = other.jobs.get("web").await.unwrap();
    assert_eq!(syncjob::status(&ignored, "").clone(), json!({"observedGeneration": -1}));
    assert!(other.runs.list(&ListParams::default()).await.unwrap().items.is_empty());
    for (verb, resource) in [("list", "syncjobs"), ("patch", "syncjobs/status"), ("create", "jobs.batch")] {
        let may = |namespace: &str| {
            let user = format!("--as={account}");
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let subresource = format!("--subresource={subresource}");
            let question = ["auth", "can-i", verb, resource, &subresource, &user, namespace];
            stage.kubectl.run(&question).is_ok()
        };
        for stage in [&stage, &second] {
            assert!(may(&format!("--namespace={}", stage.namespace)), "{verb} {resource}");
        }
        assert!(!may(&format!("--namespace={}", other.namespace)), "{verb} {resource} of others");
        assert!(!may("--all-namespaces"), "{verb} {resource} everywhere");
    }
}
