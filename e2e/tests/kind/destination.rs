//! A destination's claim that now stands for another volume.

use crate::prelude::*;

#[tokio::test]
async fn another_volume_behind_the_claim_is_refused_until_a_person_accepts_it() {
    let (sandbox, from, to) = Sandbox::with_volumes("destination").await;
    from.shell_as_syncer("echo content > file").unwrap();
    sandbox.sync("copy", json!({"trigger": "one", "files": {"delete": true}})).await.unwrap();
    let first = sandbox.until_is("copy", "Ready").await.unwrap();
    let id = String::from_utf8(to.shell("cat .volferry/volume").unwrap()).unwrap();
    assert_eq!(syncjob::text(&first, "/destination/volume"), id.trim());
    sandbox.run_again("copy", "two").await.unwrap();

    to.shell("rm -r .volferry file; echo of another owner > other").unwrap();
    sandbox.patch("copy", json!({"spec": {"trigger": "three"}})).await.unwrap();
    let refused = sandbox.until_is("copy", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&refused, "Stalled", "OtherDestination"), "{refused:#?}");
    assert!(syncjob::message(&refused, "Stalled").contains("volferry.dev/accept-volume"), "{refused:#?}");
    assert_eq!(syncjob::status(&refused, "/lastRun/retries"), 0, "a guard is not tried again");
    let there = to.list().unwrap();
    assert_eq!(there.0.keys().collect::<Vec<_>>(), [b"other"], "nothing is changed");

    let annotations = json!({"volferry.dev/accept-volume": syncjob::text(&refused, "/lastRun/id")});
    let limit = json!({"files": {"deleteLimit": {"percent": 100}}});
    sandbox.patch("copy", json!({"metadata": {"annotations": annotations}, "spec": limit})).await.unwrap();
    let accepted = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(to.list().unwrap().0.keys().collect::<Vec<_>>(), [b"file"]);
    let other = syncjob::text(&accepted, "/destination/volume");
    assert!(!other.is_empty() && other != id.trim(), "the other volume is the known one now: {other}");
}
