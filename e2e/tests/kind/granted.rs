//! A claim of another namespace is read, or written to, by a SyncGrant there. When the grant goes, its run ends, and
//! nothing stays.

use k8s_openapi::{
    api::core::v1::Pod,
    jiff::{SignedDuration, Timestamp},
};

use crate::prelude::*;

const LABEL: &str = "volferry.dev/syncjob";

/// Lets SyncJobs of namespace `here` use a claim of `there`.
fn grant(here: &Sandbox, there: &Sandbox, name: &str, (claim, access): (&str, &str)) {
    let grant = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncGrant", "metadata": {"name": name},
        "spec": {"from": [{"namespace": here.namespace}], "claims": [{"name": claim}], "access": access}});
    there.kubectl.apply(&grant.to_string()).unwrap();
}

/// Returns the `source` or `destination` of a SyncJob whose claim is in that namespace.
fn end(of: &str, there: &Sandbox) -> Value {
    json!({of: {"persistentVolumeClaim": {"namespace": there.namespace}}})
}

/// Returns when the syncer of a pod ended, by the kubelet.
fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
}

/// Deletes the SyncJob, and waits until both namespaces have nothing of it.
async fn assert_nothing_stays(here: &Sandbox, there: &Sandbox) {
    here.jobs.delete("copy", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&here.jobs, "copy", PATIENCE).await.unwrap();
    [here, there].into_iter().for_each(|sandbox| sandbox.until_nothing_has(LABEL).unwrap());
}

#[tokio::test]
async fn a_tree_arrives_from_another_namespace_and_nothing_stays_in_either() {
    let here = Sandbox::new("granted-here").await;
    let there = here.beside("granted-there").await;
    let from = there.volume("from", 0).await.unwrap();
    let to = here.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::VARIED).unwrap();
    grant(&here, &there, "lent", ("from", "Read"));
    here.sync("copy", end("source", &there)).await.unwrap();
    here.until_is("copy", "Synced").await.unwrap();
    assert_same(&from.list().unwrap(), &to.list().unwrap());

    let said = printed(plugin(&here, &["logs", "copy"]));
    for end in ["[source] ", "[sink] "] {
        assert!(said.lines().any(|line| line.starts_with(end)), "the {end} said nothing: {said}");
    }

    assert_nothing_stays(&here, &there).await;
}

#[tokio::test]
async fn a_grant_that_is_withdrawn_in_the_middle_of_a_run_ends_it_and_one_that_is_given_again_completes_it() {
    let here = Sandbox::new("withdrawn-here").await;
    let there = here.beside("withdrawn-there").await;
    let from = here.volume("from", 0).await.unwrap();
    let to = there.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::ONE_LARGE_FILE).unwrap();
    grant(&here, &there, "lent", ("to", "Write"));
    let mut spec = end("destination", &there);
    syncjob::merge(&mut spec, tree::slowly());
    here.sync("copy", spec).await.unwrap();
    here.until_data_moves("copy", "copy-1").await.unwrap();

    // By the clock of the node, which is this machine's.
    let withdrawn = Timestamp::now();
    let pods = there.api::<Pod>();
    let ended = wait::until_any(&pods, LABEL, "the pod has ended", PATIENCE, |pod| ended_at(pod).is_some());
    let delete = async {
        // The watch has begun once the pod that runs is listed.
        wait::until_any(&pods, LABEL, "the pod runs", PATIENCE, |pod| ended_at(pod).is_none()).await.unwrap();
        there.kubectl.run(&["delete", "syncgrant", "lent", "--wait=false"]).unwrap();
    };
    let ended = ended_at(&tokio::join!(ended, delete).0.unwrap()).unwrap();
    assert!(
        ended <= withdrawn + SignedDuration::from_secs(10),
        "it ended at {ended}, withdrawn at {withdrawn}"
    );
    there.until_nothing_has(LABEL).unwrap();
    let gone = ["wait", "--for=delete", "pods", "-l", LABEL, "--timeout=60s"];
    here.kubectl.run(&gone).unwrap();
    let lent = format!("{}/lent", there.namespace);
    let is_stalled = |job: &DynamicObject| {
        syncjob::has_reason(job, "Stalled", "NotGranted") && syncjob::message(job, "Stalled").contains(&lent)
    };
    here.until("copy", "it is stalled by the grant's name", is_stalled).await.unwrap();

    here.patch("copy", json!({"spec": {"pods": null}})).await.unwrap();
    grant(&here, &there, "again", ("to", "Write"));
    here.until_is("copy", "Synced").await.unwrap();
    assert_same(&from.list().unwrap(), &to.list().unwrap());
    assert_nothing_stays(&here, &there).await;
}
