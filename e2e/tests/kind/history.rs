//! Snapshots of a claim that travel with a SyncJob to another claim, as `docs/src/howto/offsite-history.md` has its
//! reader apply it, and from there into a new one.

use contract::HistoryReport;
use kube::api::{Patch, PatchParams};
use syncer::snapshot::Roots;

use crate::{
    endpoint::endpoints,
    page,
    prelude::*,
    push::{IMAGE, Laptop},
};

/// Returns the ids of the snapshots that a volume has, the oldest first.
fn snapshots(volume: &Volume) -> Vec<String> {
    let roots = Roots::decode(&volume.shell("cat .volferry/snapshots/roots").unwrap()).unwrap();
    roots.snapshots.iter().map(|it| it.id.to_string()).collect()
}

/// Syncs `web` to `web-copy` twice, each time with a snapshot. Returns what `web` had first, and the ids.
async fn two_snapshots(sandbox: &Sandbox, web: &Volume, copy: &Volume) -> (tree::Listing, Vec<String>) {
    web.shell_as_syncer(tree::VARIED).unwrap();
    let first = web.list().unwrap();
    let spec = json!({"trigger": "one", "files": {"delete": true}, "snapshots": {"retain": {"last": 3}}});
    syncjob::create(&sandbox.jobs, syncjob::manifest("copy", "web", "web-copy", spec)).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    web.shell_as_syncer("rm -r site/img; echo new page > site/new.html").unwrap();
    sandbox.run_again("copy", "two").await.unwrap();
    let both = snapshots(copy);
    assert_eq!(both.len(), 2, "{both:?}");
    (first, both)
}

#[tokio::test]
async fn the_history_of_a_claim_travels_and_a_new_claim_comes_up_with_an_older_state_of_it() {
    let sandbox = Sandbox::new("history").await;
    let web = sandbox.volume("web", 0).await.unwrap();
    let copy = sandbox.volume("web-copy", 1).await.unwrap();
    let offsite = sandbox.volume("web-offsite", 0).await.unwrap();
    let (first, both) = two_snapshots(&sandbox, &web, &copy).await;
    let changed = web.list().unwrap();

    let mut job = page::manifest("howto/offsite-history", "SyncJob");
    syncjob::merge(&mut job, json!({"spec": {"schedule": null, "trigger": "one"}}));
    syncjob::create(&sandbox.jobs, job).await.unwrap();
    let kept = sandbox.until_is("web-offsite", "Ready").await.unwrap();
    let report: HistoryReport = syncjob::part(&kept, "/lastRun/history").unwrap();
    assert!(report.copied >= 1 && report.failed == 0, "{report:?}");
    assert_same(&changed, &offsite.list().unwrap());
    assert!(snapshots(&offsite).contains(&both[1]), "the newest of a day is kept");

    let all = json!({"spec": {"trigger": "all", "source": {"history": "All"}}});
    sandbox.patch("web-offsite", all).await.unwrap();
    let all = sandbox.until_is("web-offsite", "Ready").await.unwrap();
    let report: HistoryReport = syncjob::part(&all, "/lastRun/history").unwrap();
    assert_eq!((report.copied + report.present, report.failed), (2, 0), "{report:?}");
    let there = snapshots(&offsite);
    assert!(both.iter().all(|id| there.contains(id)), "{there:?}");

    let restored = sandbox.volume("restored", 1).await.unwrap();
    let source = json!({"source": {"snapshot": both[0]}});
    syncjob::create(&sandbox.jobs, syncjob::manifest("restore", "web-offsite", "restored", source))
        .await
        .unwrap();
    sandbox.until_is("restore", "Ready").await.unwrap();
    assert_same(&first, &restored.list().unwrap());
}

#[tokio::test]
async fn the_history_of_a_claim_goes_to_another_cluster_and_another_claim_gets_an_older_state_there() {
    let (near, far) = (Sandbox::new("history-near").await, Sandbox::far("history-far").await);
    let [web, copy] = [near.volume("web", 0).await.unwrap(), near.volume("web-copy", 0).await.unwrap()];
    let offsite = far.volume("offsite", 0).await.unwrap();
    let (first, both) = two_snapshots(&near, &web, &copy).await;
    let laptop = Laptop::of_two_clusters();
    let from = format!("--from={}/{}/web-copy", laptop.context, near.namespace);
    let to = format!("--to=the/far/{}/offsite", far.namespace);
    laptop.run(&["pair", &from, &to, "--apply", "--service=node-port", IMAGE]);

    // The endpoint's owner takes the history that the SyncJob of the other cluster sends.
    let patch = |spec: Value| Patch::Merge(json!({ "spec": spec }));
    let (endpoints, params) = (endpoints(&far), PatchParams::default());
    let takes = patch(json!({"demands": {"history": "All"}}));
    endpoints.patch("web-copy", &params, &takes).await.unwrap();
    near.patch("web-copy", json!({"spec": {"source": {"history": "All"}}})).await.unwrap();
    let done = near.run_again("web-copy", "with-history").await.unwrap();
    let report: HistoryReport = syncjob::part(&done, "/lastRun/history").unwrap();
    assert_eq!((report.copied + report.present, report.failed), (2, 0), "{report:?}");
    assert_eq!(snapshots(&offsite), both);

    endpoints.patch("web-copy", &params, &patch(json!({"suspend": true}))).await.unwrap();
    let restored = far.volume("restored", 0).await.unwrap();
    let source = json!({"source": {"snapshot": both[0]}});
    let restore = syncjob::manifest("restore", "offsite", "restored", source);
    syncjob::create(&far.jobs, restore).await.unwrap();
    far.until_is("restore", "Ready").await.unwrap();
    assert_same(&first.without_owners(), &restored.list().unwrap().without_owners());
}
