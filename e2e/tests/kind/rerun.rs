//! Runs after the first move changed entries only.

use crate::prelude::*;

#[tokio::test]
async fn later_runs_move_only_what_has_changed() {
    let (sandbox, from, to) = Sandbox::with_volumes("rerun").await;
    from.shell_as_syncer(tree::VARIED).unwrap();
    sandbox.sync("copy", json!({"trigger": "one", "files": {"delete": true}})).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    let first = to.list().unwrap();

    let unchanged = sandbox.run_again("copy", "two").await.unwrap();
    let work: Work = syncjob::part(&unchanged, "/lastRun/work").unwrap();
    assert_eq!(
        (work.files_created, work.files_updated, work.files_deleted, work.bytes_changed),
        (0, 0, 0, 0)
    );
    // The bytes of the handshake, the digests, and the search for the largest packet size.
    assert!(work.bytes_on_wire < 65_536, "an unchanged tree costs a round trip: {work:?}");
    assert_eq!(to.list().unwrap(), first);

    // Three new entries, four updates (two of them of the directories whose times change; the root is not counted),
    // three deletions.
    from.shell_as_syncer(
        "echo new > site/img/deep/new.txt; mkdir fresh; ln -s page-1.html site/link
         echo longer than before > site/page-7.html; chmod 700 site/run.sh
         rm site/page-8.html site/page-9.html dangling",
    )
    .unwrap();
    let changed = sandbox.run_again("copy", "three").await.unwrap();
    let work: Work = syncjob::part(&changed, "/lastRun/work").unwrap();
    assert_eq!((work.files_created, work.files_deleted, work.files_failed), (3, 3, 0), "{work:?}");
    assert_eq!(work.files_updated, 4, "page-7.html, run.sh, site and site/img/deep: {work:?}");
    assert_eq!(work.bytes_changed, "new\nlonger than before\n".len() as u64);
    assert_same(&from.list().unwrap(), &to.list().unwrap());

    let drifted = "rm site/page-1.html; echo astray > site/page-2.html; echo extra > extra";
    to.shell_as_syncer(drifted).unwrap();
    sandbox.run_again("copy", "four").await.unwrap();
    assert_same(&from.list().unwrap(), &to.list().unwrap());

    let history = sandbox.jobs.get("copy").await.unwrap();
    let ids: Vec<_> =
        syncjob::status(&history, "/history").as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!(ids, ["copy-4", "copy-3", "copy-2", "copy-1"]);
}
