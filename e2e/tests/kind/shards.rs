//! A tree that several pods per side sync concurrently.

use crate::prelude::*;

const COUNT: u64 = 3;

#[tokio::test]
async fn three_pods_a_side_copy_a_tree_between_two_nodes() {
    let (sandbox, from, to) = Sandbox::with_volumes("shards").await;
    assert_ne!(from.node, to.node);
    from.shell_as_syncer(tree::VARIED).unwrap();

    sandbox
        .sync("copy", json!({"parallelism": COUNT, "trigger": "one", "files": {"delete": true}}))
        .await
        .unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    let source = from.list().unwrap();
    assert_same(&source, &to.list().unwrap());
    let board = to.shell("od -An -tu4 -j32 -N4 .volferry/shards/board").unwrap();
    assert_eq!(String::from_utf8_lossy(&board).trim(), COUNT.to_string(), "the run was not shared");
    assert_eq!(to.staged_files().unwrap(), [""; 0]);
    let work: Work = syncjob::part(&done, "/lastRun/work").unwrap();
    let entries = source.0.len() as u64;
    assert_eq!((work.files_scanned, work.files_created, work.files_failed), (entries, entries, 0));
    assert_eq!((work.bytes_total, work.bytes_changed), (source.bytes(), source.bytes()));

    from.shell_as_syncer("rm -r site/img; echo new > site/new.html").unwrap();
    sandbox.run_again("copy", "two").await.unwrap();
    assert_same(&from.list().unwrap(), &to.list().unwrap());
}

#[tokio::test]
async fn a_killed_shard_has_all_of_them_tried_again() {
    let (sandbox, from, to) = Sandbox::with_volumes("shard-killed").await;
    from.shell_as_syncer(tree::SLOW).unwrap();
    let mut others = tree::slowly();
    others["parallelism"] = json!(2);
    sandbox.sync("copy", others).await.unwrap();
    sandbox.until_data_moves("copy", "copy-1").await.unwrap();
    sandbox.kill_syncer("copy", &to, "sink").await.unwrap();

    let retried = sandbox.until_reason("copy", "Reconciling", "Retrying").await.unwrap();
    let message = syncjob::message(&retried, "Reconciling");
    assert!(message.contains("of 2: The sink ended with status 137"), "{message}");
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(
        (syncjob::text(&done, "/lastRun/id"), syncjob::status(&done, "/lastRun/retries")),
        ("copy-1", &json!(1))
    );
    assert_same(&from.list().unwrap(), &to.list().unwrap());
    assert_eq!(to.staged_files().unwrap(), [""; 0], "a finished run leaves nothing half done");
}
