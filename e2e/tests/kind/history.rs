//! Snapshots of a claim that travel with a SyncJob to another claim, as `docs/src/howto/offsite-history.md` has its
//! reader apply it, and from there into a new one.

use contract::HistoryReport;
use syncer::snapshot::Roots;

use crate::{page, prelude::*};

/// Returns the ids of the snapshots that a volume has, the oldest first.
fn snapshots(volume: &Volume) -> Vec<String> {
    let roots = Roots::decode(&volume.shell("cat .volferry/snapshots/roots").unwrap()).unwrap();
    roots.snapshots.iter().map(|it| it.id.to_string()).collect()
}

#[tokio::test]
async fn the_history_of_a_claim_travels_and_a_new_claim_comes_up_with_an_older_state_of_it() {
    let sandbox = Sandbox::new("history").await;
    let web = sandbox.volume("web", 0).await.unwrap();
    let copy = sandbox.volume("web-copy", 1).await.unwrap();
    let offsite = sandbox.volume("web-offsite", 0).await.unwrap();
    web.shell_as_syncer(tree::VARIED).unwrap();
    let first = web.list().unwrap();
    let spec = json!({"trigger": "one", "files": {"delete": true}, "snapshots": {"retain": {"last": 3}}});
    syncjob::create(&sandbox.jobs, syncjob::manifest("copy", "web", "web-copy", spec)).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    web.shell_as_syncer("rm -r site/img; echo new page > site/new.html").unwrap();
    sandbox.run_again("copy", "two").await.unwrap();
    let changed = web.list().unwrap();
    let both = snapshots(&copy);
    assert_eq!(both.len(), 2, "{both:?}");

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
