//! A source that was emptied does not empty the destination.

use crate::prelude::*;

#[tokio::test]
async fn an_emptied_source_is_refused_and_the_destination_stays() {
    let sandbox = Sandbox::new("guard").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer("mkdir a; for i in $(seq 20); do echo $i > a/$i; done").unwrap();
    sandbox.sync("copy", json!({"trigger": "one", "files": {"delete": true}})).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    let before = to.list().unwrap();
    assert_eq!(before.0.len(), 21);

    from.shell_as_syncer("rm -r a").unwrap();
    sandbox.patch("copy", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let refused = sandbox.until_is("copy", "Stalled").await.unwrap();

    assert_eq!(to.list().unwrap(), before);
    assert!(!syncjob::is(&refused, "Ready"));
    assert_eq!(syncjob::text(&refused, "/lastRun/result"), "Failed");
    assert_eq!(syncjob::status(&refused, "/lastRun/retries"), 0, "a guard is not tried again");
    let message = syncjob::message(&refused, "Stalled");
    assert!(message.contains("the source is empty and the destination has 21 entries"), "{message}");
    assert!(!message.contains("--force"), "there is no command line here: {message}");

    from.shell_as_syncer("mkdir a; for i in $(seq 5); do echo $i > a/$i; done").unwrap();
    sandbox.patch("copy", json!({"spec": {"trigger": "three"}})).await.unwrap();
    let refused = sandbox.until("copy", "the third run has ended", ended("copy-3")).await.unwrap();
    assert!(syncjob::is(&refused, "Stalled"), "15 of 21 are more than the limit of 50 %");
    assert!(
        syncjob::message(&refused, "Stalled").contains("50"),
        "{}",
        syncjob::message(&refused, "Stalled")
    );
    assert_eq!(to.list().unwrap(), before);

    let raised = json!({"spec": {"files": {"deleteLimit": {"percent": 90}}}});
    sandbox.patch("copy", raised).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(to.list().unwrap().0.len(), 6);
}

fn ended(run: &str) -> impl Fn(&kube::api::DynamicObject) -> bool {
    move |job| syncjob::text(job, "/lastRun/id") == run
}
