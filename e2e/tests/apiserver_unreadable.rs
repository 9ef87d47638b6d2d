//! A SyncJob of a newer API, left by an operator that was rolled back: other SyncJobs are not affected.

use std::time::Duration;

use e2e::{scripted::Stage, syncjob};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;

#[tokio::test]
async fn a_job_that_cannot_be_read_says_so_and_holds_up_no_other() {
    let stage = Stage::new("unreadable").await.unwrap();
    let_in_the_future(&stage.client).await.unwrap();
    syncjob_of_the_future(&stage).await;
    let _controller = stage.controller(e2e::cut::Cut::Never).await.unwrap();

    let stalled = stage.until_is("odd", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "InvalidSpec"), "{stalled:#?}");
    assert!(syncjob::message(&stalled, "Stalled").contains("Future"), "{stalled:#?}");
    stage.sync("web", json!({"suspend": true})).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();

    let uid = stalled.metadata.uid.unwrap();
    stage.jobs.delete("odd", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(stage.jobs.clone(), "odd", is_deleted(&uid));
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
}

/// Makes the CRD accept a policy that this operator does not know.
async fn let_in_the_future(client: &Client) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let policies =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/concurrencyPolicy/enum/-";
    let patch = serde_json::from_value(json!([{"op": "add", "path": policies, "value": "Future"}]))?;
    let patch = Patch::<()>::Json(patch);
    crds.patch("syncjobs.volferry.dev", &PatchParams::default(), &patch).await?;
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
