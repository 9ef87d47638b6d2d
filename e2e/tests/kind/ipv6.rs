//! A cluster in which nothing has an address of IPv4: the second one that `e2e/run` makes.

use kube::api::{Patch, PatchParams};

use crate::{
    clusters::{Clusters, node_address},
    endpoint::{Outside, made},
    prelude::*,
    push::{IMAGE, Laptop, list, shell},
};

/// Makes a namespace of that cluster; `None` on a machine without IPv6.
async fn sandbox(test: &str) -> Option<Sandbox> {
    let sandbox = Sandbox::far(test).await;
    let has_ipv6 = node_address(&sandbox).contains(':');
    if !has_ipv6 {
        eprintln!("not tested, since this machine has no IPv6");
    }
    has_ipv6.then_some(sandbox)
}

#[tokio::test]
async fn claims_are_synced_pushed_to_and_pulled_from_by_ipv6() {
    let Some(sandbox) = sandbox("ipv6").await else { return };
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 0).await.unwrap();
    from.shell_as_syncer(tree::VARIED).unwrap();
    sandbox.sync("copy", json!({})).await.unwrap();
    let done = sandbox.until_is("copy", "Synced").await.unwrap();
    let work: Work = syncjob::part(&done, "/lastRun/work").unwrap();
    assert!(work.bytes_on_wire > 20_000_000, "20 MB of the tree are random: {work:?}");
    assert_same(&from.list().unwrap(), &to.list().unwrap());

    let laptop = Laptop::of_two_clusters();
    let here = laptop.folder("here");
    shell(&here, "mkdir a; head -c 3000000 /dev/urandom > a/large; echo small > small");
    let place = ["--context=the/far", "-n", &sandbox.namespace, IMAGE];
    laptop.run(&[&["push", "here", "to"][..], &place, &["--", "--delete", "--force"]].concat());
    assert_same(&list(&here), &to.list().unwrap().without_owners());
    laptop.run(&[&["pull", "to", "back"][..], &place].concat());
    assert_same(&list(&here), &list(&laptop.folder("back")));
    sandbox.jobs.delete("copy", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&sandbox.jobs, "copy", PATIENCE).await.unwrap();
    for label in ["volferry.dev/syncjob=copy", "volferry.dev/one-off=to"] {
        sandbox.until_nothing_has(label).unwrap();
    }
}

#[tokio::test]
async fn an_endpoint_is_reached_by_ipv6_from_another_namespace_and_from_outside_over_udp_and_tcp() {
    let Some(job) = sandbox("ipv6-job").await else { return };
    let clusters = Clusters::new(job, "ipv6-endpoint").await;
    let ready = clusters.endpoints.get("web").await.unwrap();
    let (address, key) = (syncjob::text(&ready, "/address"), syncjob::text(&ready, "/publicKey"));
    assert!(address.starts_with('['), "{address}");
    let laptop = Outside::new();
    let peers = Patch::Merge(json!({"spec": {"peers": [laptop.peer("laptop")]}}));
    clusters.endpoints.patch("web", &PatchParams::default(), &peers).await.unwrap();
    for link in ["udp", "tcp"] {
        let from = laptop.dir.path().join(link);
        made(&from);
        let flags = ["--delete", "--force", &format!("--link={link}")];
        // Nothing tells from outside when the endpoint knows the new peer.
        let is_sent = async || {
            let sent = laptop.sync(from.to_str().unwrap(), address, key, &flags);
            assert!(matches!(sent.status.code(), Some(0 | 6)), "{link}: {sent:?}");
            sent.status.success()
        };
        wait::poll(&format!("the new peer may come by {link}"), PATIENCE, is_sent).await.unwrap();
        clusters.until_told(link).await;
        assert_same(&list(&from), &clusters.to.list().unwrap().without_owners());
    }
    clusters.delete().await;
}
