//! The service accounts of agents: what they may do, and which runs they serve.

use k8s_openapi::api::core::v1::Secret;
use kube::api::WatchParams;

use crate::{prelude::*, runs::is_done};

#[tokio::test]
async fn an_agent_may_read_its_own_run_and_write_its_status_and_do_nothing_else() {
    let (stage, _controller) = Stage::with_controller("rights").await.unwrap();
    stage.claim("other-to", "Bound").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    stage
        .sync("other", json!({"destination": {"persistentVolumeClaim": {"claimName": "other-to"}}}))
        .await
        .unwrap();
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    let agent = stage.kubelet.client_of(&sink).await.unwrap();
    let jobs = syncjob::api(&agent, &stage.namespace);
    let runs = syncjob::runs(&agent, &stage.namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"status": {"progress": null}})));

    runs.patch_status("web-1", &params, &patch).await.unwrap();
    let got = runs.get("web-1").await.unwrap();
    let only = |name: &str| WatchParams::default().fields(&format!("metadata.name={name}"));
    drop(runs.watch(&only("web-1"), &got.resource_version().unwrap()).await.unwrap());
    let spec = Patch::Merge(json!({"spec": {"trigger": "x"}}));
    let refused = [
        runs.patch_status("other-1", &params, &patch).await.err(),
        runs.get("other-1").await.err(),
        runs.watch(&only("other-1"), "0").await.err(),
        runs.watch(&WatchParams::default(), "0").await.err(),
        runs.patch("web-1", &params, &spec).await.err(),
        runs.list(&ListParams::default()).await.err(),
        jobs.patch_status("web", &params, &patch).await.err(),
        jobs.patch("web", &params, &spec).await.err(),
        jobs.get("web").await.err(),
        jobs.list(&ListParams::default()).await.err(),
        Api::<Secret>::namespaced(agent.clone(), &stage.namespace).get("any").await.err(),
        Api::<Secret>::namespaced(agent.clone(), &stage.namespace).list(&ListParams::default()).await.err(),
        Api::<Pod>::namespaced(agent, &stage.namespace).list(&ListParams::default()).await.err(),
    ];
    for (number, error) in refused.into_iter().enumerate() {
        match error {
            Some(kube::Error::Api(status)) if status.is_forbidden() => {}
            other => panic!("request {number} was not forbidden: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_account_serves_the_next_run_once_the_pods_that_had_it_are_gone() {
    let (stage, _controller) = Stage::with_controller("accounts").await.unwrap();
    let account = |pod: &Pod| pod.spec.as_ref().unwrap().service_account_name.clone().unwrap();
    stage.sync("web", json!({"trigger": "1"})).await.unwrap();
    let (mut known, mut accounts) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let [source, sink] = stage.kubelet.start_any(&known).await.unwrap();
        accounts.push(account(&sink));
        assert_eq!(account(&source), account(&sink));
        let run = format!("web-{number}");
        stage.kubelet.succeed(&source, &sink, &good_report(&run)).await.unwrap();
        stage.until("web", "it is done", is_done(&run)).await.unwrap();
        known.extend([source, sink]);
        if number == 2 {
            // A ServiceAccount that a user has deleted is made again.
            stage.kubectl.run(&["delete", "serviceaccount", &accounts[0]]).unwrap();
        }
        if number < 3 {
            let trigger = (number + 1).to_string();
            stage.patch("web", json!({"spec": {"trigger": trigger}})).await.unwrap();
        }
    }
    assert!(accounts[0] == accounts[2] && accounts[0] != accounts[1], "{accounts:?}");
    let [_, _, _, second, ..] = &known[..] else { panic!() };
    let runs = syncjob::runs(&stage.kubelet.client_of(second).await.unwrap(), &stage.namespace);
    runs.get("web-2").await.unwrap();
    for other in ["web-1", "web-3"] {
        let refused = runs.get(other).await.unwrap_err();
        assert!(
            matches!(&refused, kube::Error::Api(status) if status.is_forbidden()),
            "{other}: {refused:?}"
        );
    }
}
