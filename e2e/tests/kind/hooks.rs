//! Hooks in an application's pod, which mounts the source: what `before` writes there is synced, and `after` removes
//! it.

use e2e::{cluster::Sandbox, syncjob, wait};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

/// A pod of an application with claim `from` at `/data`, once it is ready.
async fn application(sandbox: &Sandbox) {
    let security = json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"}});
    let container = json!({"name": "db", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "trap exit TERM; while :; do sleep 1; done"],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let pod = json!({"metadata": {"name": "db-0", "labels": {"app": "db"}}, "spec": {"securityContext": security,
        "containers": [container], "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "from"}}]}});
    let pods = sandbox.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    wait::until(&pods, "db-0", "the application is ready", e2e::cluster::PATIENCE, wait::is_ready)
        .await
        .unwrap();
}

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
    let sandbox = Sandbox::new("hooks").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer("echo 1 > file").unwrap();
    application(&sandbox).await;

    let hooks = json!({"before": hook("echo quiesced > /data/mark"), "after": hook("rm /data/mark")});
    sandbox.sync("copy", json!({"trigger": "one", "hooks": hooks})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert!(has(&to, "mark") && !has(&from, "mark"), "{done:#?}");
    for point in ["before", "after"] {
        let ended = syncjob::status(&done, &format!("/lastRun/hooks/{point}/completionTime"));
        assert!(ended.is_string() && failure(&done, point).is_empty(), "{done:#?}");
    }

    // It fails, and what it printed is told.
    let fails = hook("printf 'tables are \\033[31mlocked' >&2; exit 7");
    let hooks = json!({"before": fails, "after": hook("echo resumed > /data/resumed")});
    sandbox.patch("copy", json!({"spec": {"trigger": "two", "hooks": hooks}})).await.unwrap();
    let failed = sandbox.until_is("copy", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&failed, "Ready", "HookFailed"), "{failed:#?}");
    let words = "db-0: exit code 7; it printed last: tables are \\u{1b}[31mlocked";
    assert!(failure(&failed, "before").contains(words), "{failed:#?}");
    assert!(syncjob::status(&failed, "/lastRun/hooks/after/failure").is_null(), "{failed:#?}");
    assert!(has(&from, "resumed") && !has(&to, "resumed"), "no pods were to start");
    let jobs = sandbox.children("copy").await.unwrap();
    let runs: Vec<_> = jobs.iter().filter_map(|job| job.labels().get("volferry.dev/run")).collect();
    assert!(!runs.iter().any(|run| *run == "copy-2"), "{runs:?}");

    let mut slow = hook("sleep 600");
    slow["timeout"] = "1s".into();
    slow["onFailure"] = "Continue".into();
    let hooks = json!({"before": slow, "after": null});
    sandbox.patch("copy", json!({"spec": {"trigger": "three", "hooks": hooks}})).await.unwrap();
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert!(failure(&done, "before").contains("no end within 1.0s"), "{done:#?}");
    assert!(has(&to, "resumed"), "{done:#?}");
}
