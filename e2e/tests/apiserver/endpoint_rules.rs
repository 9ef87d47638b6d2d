//! What the owner of a SyncEndpoint decides holds for its peers: the key of each endpoint, demands, and how many
//! snapshots are kept; and the pod goes where its volume is.

use k8s_openapi::api::apps::v1::Deployment;

use crate::{
    endpoints_stage::{Outside, Serving, content},
    prelude::*,
    remote_more::volferry,
};

fn peer(machine: &Outside) -> Value {
    json!([{"name": "laptop", "publicKey": machine.key.to_string()}])
}

#[tokio::test]
async fn a_peer_of_one_endpoint_gets_nothing_at_another_with_its_own_key_or_with_that_endpoints() {
    let ((one, _first), (other, _second)) = tokio::join!(Serving::new("one"), Serving::new("other"));
    let (laptop, stranger) = (Outside::new(), Outside::new());
    one.create(json!({"peers": peer(&laptop)})).await;
    other.create(json!({"peers": peer(&stranger)})).await;
    let ((_one_pod, _, one_key), (_other_pod, address, other_key)) = tokio::join!(one.up(), other.up());
    let from = laptop.folder("from", "hello");
    // It is no peer there; and one that knows the wrong key for an address does not go on.
    for (machine, key) in [(&laptop, other_key), (&laptop, one_key), (&stranger, one_key)] {
        let refused = machine.sync(from.to_str().unwrap(), &address, key).await;
        assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    }
    assert_eq!(content(&other.volume()), None);
    let sent = stranger.sync(from.to_str().unwrap(), &address, other_key).await;
    assert!(sent.status.success(), "{sent:?}");
}

#[tokio::test]
async fn demands_of_an_endpoint_hold_for_its_peers_and_its_old_snapshots_go() {
    let (serving, _controller) = Serving::new("demands").await;
    let laptop = Outside::new();
    let demands = json!({"exclude": ["*.tmp"], "deleteLimit": {"percent": 10}});
    let snapshots = json!({"retain": {"last": 1}});
    serving.create(json!({"peers": peer(&laptop), "demands": demands, "snapshots": snapshots})).await;
    let (_pod, address, key) = serving.up().await;
    let from = laptop.folder("from", "first");
    let (old, temporary) = (from.join("old"), from.join("scratch.tmp"));
    for file in [&old, &temporary] {
        std::fs::write(file, "old").unwrap();
    }
    let send =
        async || laptop.sync_with(&["--delete", "--force"], from.to_str().unwrap(), &address, key).await;
    let kept = || {
        let list = volferry(&["snapshot", "list"], &serving.volume());
        list.split_whitespace().filter(|word| word.len() == 16).map(Into::into).collect::<Vec<String>>()
    };
    let sent = send().await;
    assert!(sent.status.success(), "{sent:?}");
    let arrived = serving.volume();
    assert!(arrived.join("old").exists() && !arrived.join("scratch.tmp").exists());
    let first = kept();
    assert_eq!(first.len(), 1);

    // A third would be deleted, and the peer's own flag does not help.
    std::fs::remove_file(&old).unwrap();
    std::fs::write(from.join("file"), "second").unwrap();
    let refused = send().await;
    assert!(!refused.status.success(), "{refused:?}");
    assert!(arrived.join("old").exists());
    assert_eq!((content(&arrived).as_deref(), kept()), (Some("first"), first.clone()));
    let told = |it: &DynamicObject| syncjob::text(it, "/lastRun/result") == "Failed";
    serving.until("the refusal is told", told).await;

    // Nothing tells from outside when other demands are in force.
    serving.change(json!({"spec": {"demands": {"deleteLimit": null, "noDelete": true}}})).await;
    let is_taken = async || send().await.status.success();
    wait::poll("it is taken without deletions", PATIENCE, is_taken).await.unwrap();
    assert!(arrived.join("old").exists() && !arrived.join("scratch.tmp").exists());
    let second = kept();
    assert!(second.len() == 1 && second != first, "{first:?}, and then {second:?}");
    assert_eq!(content(&arrived).as_deref(), Some("second"));
}

#[tokio::test]
async fn an_endpoint_starts_at_the_node_where_another_pod_uses_its_claim() {
    let (serving, _controller) = Serving::new("pinned").await;
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "to"}});
    let app = json!({"metadata": {"name": "app"}, "spec": {"nodeName": "n1", "volumes": [volume],
        "automountServiceAccountToken": false, "containers": [{"name": "app", "image": "app"}]}});
    let app = serde_json::from_value(app).unwrap();
    serving.api::<Pod>().create(&PostParams::default(), &app).await.unwrap();
    serving.create(json!({})).await;
    let deployment = json!(serving.until_replicas(1).await);
    let of_node = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
                   nodeSelectorTerms/0/matchFields/0/values";
    assert_eq!(deployment.pointer(of_node), Some(&json!(["n1"])), "{deployment:#}");

    // One that is ready stays where it is, whoever comes and goes.
    let (_pod, _, _) = serving.up().await;
    serving.api::<Pod>().delete("app", &DeleteParams::default().grace_period(0)).await.unwrap();
    serving.change(json!({"spec": {"pods": {"labels": {"a": "b"}}}})).await;
    let has_label = |it: &Deployment| json!(it).pointer("/spec/template/metadata/labels/a").is_some();
    let labels = "volferry.dev/syncendpoint=web";
    let after = wait::until_any(&serving.api(), labels, "it is changed", PATIENCE, has_label).await.unwrap();
    assert_eq!(json!(after).pointer(of_node), Some(&json!(["n1"])));
}
