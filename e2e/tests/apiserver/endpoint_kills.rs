//! The controller of a SyncEndpoint is killed before each write until the endpoint serves and its pod has lost the
//! right to store a key. Another one takes over, and the endpoint serves with one object of each kind.

use e2e::scripted::Controller;

use crate::{
    endpoints_stage::{Outside, Serving, content},
    prelude::*,
};

/// The number of endpoints that are brought up concurrently.
const AT_ONCE: usize = 4;
/// A Deployment, a Service, a Secret, an account, a role and its binding.
const KINDS: usize = 6;

#[tokio::test]
async fn an_endpoint_serves_with_one_object_of_each_kind_wherever_its_controller_is_killed() {
    let writes = lived(Cut::Never).await;
    assert!(
        writes > KINDS,
        "its objects but for the Secret, its status, and the right: more than {writes} writes"
    );
    cut::each(cuts_before(writes), AT_ONCE, async |cut| Ok(lived(cut).await)).await.unwrap();
}

/// Brings an endpoint up under a controller that is killed at the cut, and sends to it. Returns the number of writes of
/// that controller.
async fn lived(cut: Cut) -> usize {
    let serving = Serving::on(Stage::new("endpoint-kills").await.unwrap());
    let laptop = Outside::new();
    let first = serving.stage.controller(cut).await.unwrap();
    serving
        .create(json!({"peers": [{"name": "laptop", "publicKey": laptop.key.to_string()}],
            "service": {"type": "NodePort"}}))
        .await;
    let mut pod = None;
    let serves = async {
        until_settled(&serving, &mut pod).await;
        anyhow::Ok(())
    };
    first.until_cut_or(serves).await.unwrap();
    let writes = first.writes();
    drop(first);

    let _second = serving.stage.controller(Cut::Never).await.unwrap();
    let ready = until_settled(&serving, &mut pod).await;
    let key = syncjob::text(&ready, "/publicKey").parse().unwrap();
    assert_eq!(syncjob::text(&ready, "/address").rsplit_once("::").unwrap().1, "web", "{cut:?}: {ready:#?}");
    let from = laptop.folder("from", "hello");
    let address = format!("127.0.0.1:{}::web", serving.port);
    let sent = laptop.sync(from.to_str().unwrap(), &address, key).await;
    assert!(sent.status.success(), "{cut:?}: {sent:?}");
    assert_eq!(content(&serving.volume()).as_deref(), Some("hello"));
    let made = serving.made();
    assert_eq!(made.len(), KINDS, "{cut:?}: {made:?}");
    serving.endpoints.delete("web", &DeleteParams::default()).await.unwrap();
    serving.until_nothing_is_left().await;
    writes
}

/// Runs the endpoint's pod, unless it runs, and waits until it serves and may store no key any more.
async fn until_settled(serving: &Serving, pod: &mut Option<Controller>) -> DynamicObject {
    let deployment = serving.until_replicas(1).await;
    if pod.is_none() {
        *pod = Some(serving.run_pod(&deployment).await);
    }
    serving.until_probed().await;
    serving.set_available(&deployment, 1).await;
    let ready = serving.until_reason("Serving").await;
    serving.until_may_store(false).await;
    ready
}
