//! An operator that is killed in the middle of a run continues that run after its restart.

use e2e::cluster::OPERATOR_PODS;
use kube::{ResourceExt, api::ListParams};

use crate::prelude::*;

#[tokio::test]
async fn a_run_outlives_the_operator() {
    let sandbox = Sandbox::alone("operator").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::SLOW).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    let running = sandbox.until_data_moves("copy", "copy-1").await.unwrap();
    let children = sandbox.children("copy").await.unwrap();

    let operators = sandbox.operator_pods();
    let pods = operators.list(&ListParams::default().labels(OPERATOR_PODS)).await.unwrap();
    assert!(!pods.items.is_empty(), "no operator runs in the cluster: use `e2e/run`");
    for pod in &pods {
        operators.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    let killed: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
    wait::until_any(&operators, OPERATOR_PODS, "a new operator is ready", PATIENCE, |pod| {
        !killed.contains(&pod.name_any()) && wait::is_ready(pod)
    })
    .await
    .unwrap();

    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&done, "/lastRun/id"), syncjob::text(&running, "/activeRun/id"));
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0);
    assert_eq!(syncjob::status(&done, "/history").as_array().unwrap().len(), 1);
    let names = |jobs: &[k8s_openapi::api::batch::v1::Job]| {
        let mut names: Vec<_> = jobs.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    };
    assert_eq!(children.len(), 2);
    let now = names(&sandbox.children("copy").await.unwrap());
    assert!(now.iter().all(|name| names(&children).contains(name)), "no second set of children: {now:?}");
    assert_same(&from.list().unwrap(), &to.list().unwrap());
}
