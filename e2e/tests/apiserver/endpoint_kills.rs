//! The controller of a SyncEndpoint is killed before each write until its pod is asked for. Another one takes over, and
//! the endpoint serves with one object of each kind.

use futures::{StreamExt as _, stream};

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
    assert!(writes >= KINDS, "its objects but for the Secret, and its status: more than {writes} writes");
    stream::iter((0..writes).map(Cut::Before)).map(lived).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
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
    let asked = async {
        serving.until_reason("PodPending").await;
        anyhow::Ok(())
    };
    first.until_cut_or(asked).await.unwrap();
    let writes = first.writes();
    drop(first);

    let _second = serving.stage.controller(Cut::Never).await.unwrap();
    let (_pod, _, key) = serving.up().await;
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
