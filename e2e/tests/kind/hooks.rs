//! Hooks in an application's pod, which mounts the source: a run copies the file that `before` writes there, and
//! `after` removes it.

use crate::prelude::*;

fn hook(script: &str) -> Value {
    json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sh", "-c", script]})
}

fn failure(job: &DynamicObject, point: &str) -> String {
    syncjob::text(job, &format!("/lastRun/hooks/{point}/failure")).into()
}

fn has(volume: &e2e::volume::Volume, name: &str) -> bool {
    volume.shell(&format!("test -e {name} && echo yes || true")).unwrap() == b"yes\n"
}

#[tokio::test]
async fn hooks_run_in_the_applications_pod_around_each_run() {
    let (sandbox, from, to) = Sandbox::with_volumes("hooks").await;
    from.shell_as_syncer("echo 1 > file").unwrap();
    sandbox.application("db", "from").await.unwrap();

    let hooks = json!({"before": hook("echo quiesced > /data/mark"), "after": hook("rm /data/mark")});
    sandbox.sync("copy", json!({"trigger": "one", "hooks": hooks})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert!(has(&to, "mark") && !has(&from, "mark"), "{done:#?}");
    for point in ["before", "after"] {
        let ended = syncjob::status(&done, &format!("/lastRun/hooks/{point}/completionTime"));
        assert!(ended.is_string() && failure(&done, point).is_empty(), "{done:#?}");
    }

    // The hook fails, and the status has its output.
    let fails = hook("printf 'tables are \\033[31mlocked' >&2; exit 7");
    let hooks = json!({"before": fails, "after": hook("echo resumed > /data/resumed")});
    sandbox.patch("copy", json!({"spec": {"trigger": "two", "hooks": hooks}})).await.unwrap();
    let failed = sandbox.until_is("copy", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&failed, "Ready", "HookFailed"), "{failed:#?}");
    let words = "db-0: exit code 7; it printed last: tables are \\u{1b}[31mlocked";
    assert!(failure(&failed, "before").contains(words), "{failed:#?}");
    assert!(syncjob::status(&failed, "/lastRun/hooks/after/failure").is_null(), "{failed:#?}");
    assert!(has(&from, "resumed") && !has(&to, "resumed"), "nothing was to be copied");

    let mut slow = hook("sleep 600");
    slow["timeout"] = "1s".into();
    slow["onFailure"] = "Continue".into();
    let hooks = json!({"before": slow, "after": null});
    sandbox.patch("copy", json!({"spec": {"trigger": "three", "hooks": hooks}})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert!(failure(&done, "before").contains("no end within 1.0s"), "{done:#?}");
    assert!(has(&to, "resumed"), "{done:#?}");
}
