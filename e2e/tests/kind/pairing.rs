//! `kubectl volferry pair`, `rotate` and `unpair` with real pods. Both clusters are this one, under two names.

use e2e::{
    cluster::{PATIENCE, Sandbox},
    tree::{VARIED, assert_same},
    wait,
};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

use crate::push::{IMAGE, Laptop, errors};

/// What is made for a SyncJob and a SyncEndpoint.
const KINDS: &str = "syncjobs,syncruns,syncendpoints,deployments,jobs,pods,services,secrets,serviceaccounts,roles,rolebindings";

#[tokio::test]
async fn two_clusters_are_paired_a_key_is_rotated_and_unpair_leaves_nothing_behind() {
    let near = Sandbox::new("pairing").await;
    let far = near.beside("pairing-to").await;
    let (from, to) = (near.volume("from", 0).await.unwrap(), far.volume("to", 1).await.unwrap());
    from.shell_as_syncer(VARIED).unwrap();
    let laptop = Laptop::new();
    let from_place = format!("--from={}/{}/from", laptop.context, near.namespace);
    let to_place = format!("--to=the/far/{}/to", far.namespace);
    let places = [from_place.as_str(), &to_place];

    let said = laptop.run(&pair(places, &[]));
    for words in ["answers over UDP", "key is among the endpoint's peers", "the first run has succeeded"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_same(&from.list().unwrap().without_owners(), &to.list().unwrap().without_owners());
    wait::until_none(&near.api::<Job>(), "volferry.dev/one-off=from", PATIENCE).await.unwrap();
    wait::until_none(&near.api::<Pod>(), "volferry.dev/one-off=from", PATIENCE).await.unwrap();

    // The pod that tries the way finds that another endpoint has that address.
    let service = service_of(&far, "from");
    let wrong = pair(places, &["--name=wrong", "--host-name", &service]);
    let wrong = laptop.command(&wrong).output().unwrap();
    assert!(errors(&wrong).contains("another key than the SyncEndpoint's is shown"), "{}", errors(&wrong));
    let gone = [&["unpair"][..], &places, &["--name=wrong"]].concat();
    laptop.run(&gone);

    from.shell_as_syncer("rm -r site/img; echo more > more").unwrap();
    let said = laptop.run(&[&["rotate"][..], &places].concat());
    assert!(said.contains("the old one is taken out"), "{said}");
    to.shell("test \"$(cat more)\" = more").unwrap();

    laptop.run(&[&["unpair"][..], &places].concat());
    for (sandbox, label) in [(&near, "volferry.dev/syncjob=from"), (&far, "volferry.dev/syncendpoint=from")] {
        for kind in KINDS.split(',') {
            sandbox.kubectl.run(&["wait", "--for=delete", kind, "-l", label, "--timeout=90s"]).unwrap();
        }
        let left = sandbox.kubectl.run(&["get", KINDS, "-l", label, "-o", "name"]).unwrap();
        assert_eq!(left, "");
    }
}

/// Returns the command that makes a pair.
fn pair<'a>(places: [&'a str; 2], more: &[&'a str]) -> Vec<&'a str> {
    [&["pair"][..], &places, &["--apply", "--service=cluster-ip", IMAGE], more].concat()
}

/// Returns the name of an endpoint's Service inside the cluster.
fn service_of(sandbox: &Sandbox, endpoint: &str) -> String {
    let label = format!("volferry.dev/syncendpoint={endpoint}");
    let name = ["get", "service", "-l", &label, "-o", "jsonpath={.items[0].metadata.name}"];
    format!("{}.{}.svc", sandbox.kubectl.run(&name).unwrap(), sandbox.namespace)
}
