//! Of several replicas of the controller one works, and another takes over when that one ends.

use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::RoleBinding};

use crate::prelude::*;

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

/// As in a rolling upgrade: the next version takes over the run with the pods of the version before.
#[tokio::test]
async fn a_run_goes_on_with_the_next_replica_when_the_leader_is_told_to_stop() {
    let stage = Stage::new("upgrade").await.unwrap();
    allow_leases(&stage).await.unwrap();
    let leader = stage.replica("old").await.unwrap();
    until_held_by(&stage, "old").await;
    let next = stage.replica("new").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    assert_eq!(next.writes(), 0, "who waits does not write");

    leader.stop().await.unwrap();
    until_held_by(&stage, "new").await;
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    let done = stage.until("web", "the run is over", is_done("web-1")).await.unwrap();
    assert_eq!(*syncjob::status(&done, "/lastRun/retries"), 0, "{done:#?}");
    let image = sink.spec.as_ref().unwrap().containers[0].image.as_deref();
    assert_eq!(image, Some("volferry.test/volferry:old"));

    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let again = stage.kubelet.new_pod("web", contract::Side::Sink, &[&sink]).await.unwrap();
    let image = again.spec.as_ref().unwrap().containers[0].image.as_deref();
    assert_eq!(image, Some("volferry.test/volferry:new"), "no pod was made in between");
}

/// Each would take the other's Jobs for leftovers.
#[tokio::test]
async fn of_two_releases_that_watch_a_namespace_one_works_there_and_the_other_once_it_is_handed_over() {
    let stage = Stage::new("releases").await.unwrap();
    let release = async |name| stage.controller_with(&["--leader-elect=false", "--lease-name", name]).await;
    let (one, two) = (release("one").await.unwrap(), release("two").await.unwrap());
    let script = async {
        stage.sync("web", json!({"trigger": "one"})).await.unwrap();
        stage.until("web", "the first run is over", is_done("web-1")).await.unwrap();
        let (holder, other) = if one.writes() == 0 { (two, one) } else { (one, two) };
        assert!(holder.writes() > 0);
        assert_eq!(other.writes(), 0, "it is not its namespace");
        drop(holder);
        let leases = stage.api::<Lease>();
        leases.delete("volferry.dev", &DeleteParams::default()).await.unwrap();
        stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
        stage.until("web", "the second run is over", is_done("web-2")).await.unwrap();
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
    let leases = stage.api::<Lease>();
    let what = format!("{holder} leads");
    let held = wait::until(&leases, "volferry-operator", &what, PATIENCE, |lease| {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(holder)
    });
    held.await.map(drop).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Gives the operator the right to a Lease in the test's namespace; it has that right in its own namespace only.
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
    let bindings = stage.api::<RoleBinding>();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}
