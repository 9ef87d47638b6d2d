//! Of several replicas of the controller one works, and another takes over when it is gone.

use e2e::{
    kubelet::Play,
    scripted::{PATIENCE, Stage},
    syncjob, wait,
};
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::RoleBinding};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use serde_json::json;

#[tokio::test]
async fn another_replica_takes_over_when_the_leader_is_gone() {
    let stage = Stage::new("lease").await.unwrap();
    allow_leases(&stage).await.unwrap();
    let leader = stage.replica("first").await.unwrap();
    until_held_by(&stage, "first").await;
    let second = stage.replica("second").await.unwrap();
    stage.sync("web", json!({"trigger": "one"})).await.unwrap();

    let script = async {
        stage.until("web", "the first run is over", is_done("web-1")).await.unwrap();
        assert_eq!(second.writes(), 0, "who waits does not write");
        drop(leader);
        stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
        stage.until("web", "the second run is over", is_done("web-2")).await.unwrap();
        until_held_by(&stage, "second").await;
    };
    tokio::select! {
        () = script => {}
        error = stage.kubelet.play("web", Play::Succeeds) => panic!("{error:?}"),
    }
}

fn is_done(run: &str) -> impl Fn(&DynamicObject) -> bool {
    move |job| syncjob::text(job, "/lastRun/id") == run
}

async fn until_held_by(stage: &Stage, holder: &str) {
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let what = format!("{holder} leads");
    let held = wait::until(&leases, "volferry-operator", &what, PATIENCE, |lease| {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(holder)
    });
    held.await.map(drop).unwrap_or_else(|error| panic!("{error:#}"));
}

/// The operator's right to a Lease is for its own namespace; here each test has one in its own.
async fn allow_leases(stage: &Stage) -> anyhow::Result<()> {
    let role = stage.kubectl.run(&[
        "get",
        "role",
        "volferry-operator-leader",
        "-n",
        "volferry-system",
        "-o",
        "json",
    ])?;
    let role: serde_json::Value = serde_json::from_str(&role)?;
    let copy = json!({"apiVersion": role["apiVersion"], "kind": "Role", "rules": role["rules"],
        "metadata": {"name": "volferry-operator-leader"}});
    stage.kubectl.apply(&copy.to_string())?;
    let binding = json!({"metadata": {"name": "volferry-operator-leader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "volferry-operator-leader"},
        "subjects": [{"kind": "ServiceAccount", "name": "volferry-operator", "namespace": "volferry-system"}]});
    let bindings: Api<RoleBinding> = Api::namespaced(stage.client.clone(), &stage.namespace);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}
