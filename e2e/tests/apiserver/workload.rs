//! Syncer pods that take their `fsGroup` from the workload that uses the claim.

use crate::prelude::*;

fn group(pod: &Pod) -> (Option<i64>, String) {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    (security.fs_group, security.fs_group_change_policy.unwrap_or_default())
}

#[tokio::test]
async fn a_sink_has_the_group_of_the_workload_also_when_that_has_no_pods_any_more() {
    let (stage, _controller) = Stage::with_controller("workload").await.unwrap();
    let pods = stage.api::<Pod>();
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "to"}});
    let app = json!({"metadata": {"name": "app"}, "spec": {
        "automountServiceAccountToken": false, "volumes": [volume],
        "securityContext": {"fsGroup": 2000}, "containers": [{"name": "app", "image": "app"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(app).unwrap()).await.unwrap();

    let own = json!({"securityContext": {"fsGroupFrom": "Workload"}});
    stage.sync("web", json!({"pods": own, "trigger": "one"})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    assert_eq!(group(&sink), (Some(2000), "OnRootMismatch".into()));
    assert_eq!(group(&source).0, Some(65_532), "no workload uses its claim");
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::status(&done, "/fsGroups"), &json!({"destination": 2000}));

    pods.delete("app", &DeleteParams::default().grace_period(0)).await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    assert_eq!(group(&sink).0, Some(2000), "as it was seen last");
    stage.kubelet.succeed(&source, &sink, &good_report("web-2")).await.unwrap();

    let none = json!({"spec": {"pods": {"securityContext": null}, "trigger": "three"}});
    stage
        .until("web", "it is done", |job: &DynamicObject| syncjob::text(job, "/lastRun/id") == "web-2")
        .await
        .unwrap();
    stage.patch("web", none).await.unwrap();
    let [_, sink] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    assert_eq!(group(&sink).0, Some(65_532));
    let forgotten = |job: &DynamicObject| syncjob::status(job, "/fsGroups").is_null();
    stage.until("web", "the group is forgotten", forgotten).await.unwrap();
}
