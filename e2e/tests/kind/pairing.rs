//! `kubectl volferry pair`, `rotate` and `unpair` with two clusters.

use e2e::{
    cluster::{PATIENCE, Sandbox},
    tree::{VARIED, assert_same},
    wait,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

use crate::push::{IMAGE, Laptop, errors};

#[tokio::test]
async fn two_clusters_are_paired_a_key_is_rotated_and_unpair_leaves_nothing_behind() {
    let near = Sandbox::new("pairing").await;
    let far = Sandbox::far("pairing-to").await;
    let (from, to) = (near.volume("from", 0).await.unwrap(), far.volume("to", 0).await.unwrap());
    from.shell_as_syncer(VARIED).unwrap();
    let laptop = Laptop::of_two_clusters();
    let from_place = format!("--from={}/{}/from", laptop.context, near.namespace);
    let to_place = format!("--to=the/far/{}/to", far.namespace);
    let places = [from_place.as_str(), &to_place];

    let said = laptop.run(&[&["pair"][..], &places, &["--apply", "--service=node-port", IMAGE]].concat());
    for words in ["answers over UDP", "key is among the endpoint's peers", "the first run has succeeded"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_same(&from.list().unwrap().without_owners(), &to.list().unwrap().without_owners());
    wait::until_none(&near.api::<Job>(), "volferry.dev/one-off=from", PATIENCE).await.unwrap();
    wait::until_none(&near.api::<Pod>(), "volferry.dev/one-off=from", PATIENCE).await.unwrap();

    // The pod that tries the way finds that another endpoint has that address.
    let served =
        far.kubectl.run(&["get", "syncendpoint", "from", "-o", "jsonpath={.status.address}"]).unwrap();
    let (host, port) = served.trim_end_matches("::from").rsplit_once(':').unwrap();
    let host = host.trim_matches(['[', ']']);
    let wrong = ["--name=wrong", "--service=cluster-ip", "--host-name", host, "--port", port];
    let wrong = [&["pair"][..], &places, &["--apply", IMAGE], &wrong].concat();
    let wrong = laptop.command(&wrong).output().unwrap();
    assert!(errors(&wrong).contains("another key than the SyncEndpoint's is shown"), "{}", errors(&wrong));
    let gone = [&["unpair"][..], &places, &["--name=wrong"]].concat();
    laptop.run(&gone);

    from.shell_as_syncer("rm -r site/img; echo more > more").unwrap();
    let said = laptop.run(&[&["rotate"][..], &places].concat());
    assert!(said.contains("the old one is taken out"), "{said}");
    to.shell("test \"$(cat more)\" = more").unwrap();

    let said = laptop.run(&[&["rotate"][..], &places, &["--endpoint"]].concat());
    assert!(said.contains("a run has met the endpoint with its new key"), "{said}");

    laptop.run(&[&["unpair"][..], &places].concat());
    near.until_nothing_has("volferry.dev/syncjob=from").unwrap();
    far.until_nothing_has("volferry.dev/syncendpoint=from").unwrap();
}
