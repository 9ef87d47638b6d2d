//! A SyncJob and a SyncRun of a newer API, left by an operator that was rolled back: other SyncJobs are not affected.

use std::time::Duration;

use e2e::{kubelet::Play, scripted::Stage, syncjob};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;

#[tokio::test]
async fn what_cannot_be_read_says_so_and_holds_up_no_other() {
    let stage = Stage::with_own_server("unreadable").await.unwrap();
    let_in_the_future(&stage.client).await.unwrap();
    syncjob_of_the_future(&stage).await;
    let restored = json!({"type": "Restored", "status": "True", "reason": "Restored", "message": "It waits.",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let restored = Patch::Merge(json!({"status": {"conditions": [restored]}}));
    stage.jobs.patch_status("odd", &PatchParams::default(), &restored).await.unwrap();
    syncrun_of_the_future(&stage).await.unwrap();
    let _controller = stage.controller(e2e::cut::Cut::Never).await.unwrap();

    let stalled = stage.until_is("odd", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "InvalidSpec"), "{stalled:#?}");
    assert!(syncjob::message(&stalled, "Stalled").contains("Future"), "{stalled:#?}");
    assert!(syncjob::is(&stalled, "Restored"), "what holds runs back after a restore: {stalled:#?}");
    let run = stage.run("odd-run", "it is stalled", |run| syncjob::is(run, "Stalled")).await.unwrap();
    assert!(syncjob::has_reason(&run, "Stalled", "InvalidSpec"), "{run:#?}");
    assert!(syncjob::message(&run, "Stalled").contains("Future"), "{run:#?}");
    stage.sync("web", json!({})).await.unwrap();
    tokio::select! {
        done = stage.until_done("web") => done.unwrap(),
        error = stage.kubelet.play("web", Play::Succeeds) => panic!("{error:?}"),
    }

    let uid = stalled.metadata.uid.unwrap();
    stage.jobs.delete("odd", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(stage.jobs.clone(), "odd", is_deleted(&uid));
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
}

/// Makes the CRD of SyncJobs accept a policy that this operator does not know. That of SyncRuns takes any copy.
async fn let_in_the_future(client: &Client) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let policies =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/concurrencyPolicy/enum/-";
    let patch = serde_json::from_value(json!([{"op": "add", "path": policies, "value": "Future"}]))?;
    crds.patch("syncjobs.volferry.dev", &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    Ok(())
}

/// Creates a job with that policy, once the API server accepts it.
async fn syncjob_of_the_future(stage: &Stage) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while let Err(error) = stage.sync("odd", json!({"concurrencyPolicy": "Future"})).await {
        assert!(tokio::time::Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Creates a run of a job with that policy.
async fn syncrun_of_the_future(stage: &Stage) -> anyhow::Result<()> {
    let end = |claim: &str| json!({"persistentVolumeClaim": {"claimName": claim}});
    let job = json!({"source": end("a"), "destination": end("b"), "concurrencyPolicy": "Future"});
    let run: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": "odd-run"},
        "spec": {"syncJob": {"name": "web"}, "number": 7, "job": job},
    }))?;
    syncjob::runs(&stage.client, &stage.namespace).create(&PostParams::default(), &run).await?;
    Ok(())
}
