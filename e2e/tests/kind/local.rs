//! A SyncJob whose volumes one pod mounts.

use crate::prelude::*;

#[tokio::test]
async fn two_volumes_of_a_node_are_synced_by_one_pod() {
    let sandbox = Sandbox::new("local").await;
    let from = sandbox.volume("from", 1).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::VARIED).unwrap();
    let local = json!({"transfer": {"placement": "Local"}, "trigger": "one", "files": {"delete": true}});
    sandbox.sync("copy", local).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    let source = from.list().unwrap();
    assert_same(&source, &to.list().unwrap());
    let work: Work = syncjob::part(&done, "/lastRun/work").unwrap();
    assert_eq!((work.files_created, work.bytes_on_wire), (source.0.len() as u64, 0));

    from.shell_as_syncer("rm -r site/img; echo new > site/new.html").unwrap();
    sandbox.run_again("copy", "two").await.unwrap();
    assert_same(&from.list().unwrap(), &to.list().unwrap());
    assert_eq!(to.staged_files().unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_folder_of_a_volume_is_synced_into_another_by_one_pod() {
    let sandbox = Sandbox::new("local-one").await;
    let one = sandbox.volume("one", 0).await.unwrap();
    one.shell_as_syncer("mkdir a; echo content > a/file").unwrap();
    let claim = |path: &str| json!({"persistentVolumeClaim": {"claimName": "one"}, "path": path});
    sandbox.sync("copy", json!({"source": claim("/a"), "destination": claim("/b")})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(one.shell("cat b/file").unwrap(), b"content\n");
    let work: Work = syncjob::part(&done, "/lastRun/work").unwrap();
    assert_eq!((work.bytes_changed, work.bytes_on_wire), (8, 0));
}
