//! An operator that is killed in the middle of a run continues that run after its restart.

use kube::ResourceExt;

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

    sandbox.kill_operator().await.unwrap();

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
