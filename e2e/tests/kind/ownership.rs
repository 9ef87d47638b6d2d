//! Files of other owners: a run keeps the owners where the namespace lets syncers run as root, and reports that it did
//! not elsewhere.

use crate::prelude::*;

const MIXED: &str = "mkdir -p users/ann users/bob
    echo a > users/ann/private; chown -R 1001:1001 users/ann; chmod 700 users/ann; chmod 600 users/ann/private
    echo b > users/bob/shared; chown -R 1002:2000 users/bob; chmod 2775 users/bob; ln -s shared users/bob/link
    chown -h 1003:1003 users/bob/link; echo r > of-root; chmod 4755 of-root";

#[tokio::test]
async fn owners_are_kept_where_the_namespace_allows_root() {
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let sandbox = Sandbox::with("owners", labels, json!({"volferry.dev/privileged-syncers": "true"})).await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell(MIXED).unwrap();
    sandbox.sync("copy", json!({})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    let source = from.list().unwrap();
    assert_eq!(source.0[&b"users/ann/private"[..]].owner, "1001:1001");
    assert_same(&source, &to.list().unwrap());
    // A note may name files that are so young that they may be in motion.
    assert!(!syncjob::status(&done, "/lastRun/notes").to_string().contains("owner"), "{done:#?}");
}

#[tokio::test]
async fn what_may_not_be_read_or_kept_is_named() {
    let (sandbox, from, to) = Sandbox::with_volumes("foreign").await;
    from.shell(MIXED).unwrap();
    sandbox.sync("copy", json!({"limits": {"retries": 0}})).await.unwrap();
    let partial = |job: &DynamicObject| syncjob::text(job, "/phase") == "PartiallyFailed";
    let partial = sandbox.until("copy", "it has failed in part", partial).await.unwrap();
    assert!(!syncjob::is(&partial, "Ready"));
    assert_eq!(syncjob::status(&partial, "/lastRun/work/filesFailed"), 1);
    assert_eq!(syncjob::text(&partial, "/lastRun/failures/0/path"), "users/ann");
    assert!(syncjob::text(&partial, "/lastRun/failures/0/error").contains("ermission denied"));
    let notes = syncjob::status(&partial, "/lastRun/notes").to_string();
    assert!(notes.contains("6 entries did not keep their owners"), "{notes}");
    assert!(syncjob::message(&partial, "OwnersNotKept").contains("6 entries"), "{partial:#?}");
    assert_eq!(to.shell("cat users/bob/shared of-root; stat -c %u of-root").unwrap(), b"b\nr\n65532\n");
}
