//! A destination that the kubelet gives to a pod's `fsGroup`: run after run works, what the kubelet opens to the group is closed
//! again, and another user is told whose the folder is.

use e2e::{
    cluster::{PATIENCE, Sandbox},
    syncjob,
    volume::Volume,
    wait,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

const TREE: &str =
    "mkdir data; for i in 1 2 3; do echo $i > data/$i; done; head -c 3000000 /dev/urandom > large
    chmod -R a+rX .";

#[tokio::test]
async fn a_volume_of_a_group_is_synced_run_after_run_and_stays_the_syncers() {
    let sandbox = Sandbox::new("fsgroup").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = Volume::create_local(&sandbox, "to", &sandbox.nodes().await.unwrap()[1]).await.unwrap();
    from.shell(TREE).unwrap();
    let files = json!({"delete": true, "deleteLimit": {"percent": 100}, "write": "InPlace"});
    let spec = json!({"files": files, "pods": as_user(1000), "limits": {"retries": 0}, "trigger": "one"});
    sandbox.sync("copy", spec).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();

    for (trigger, change) in
        [("two", "rm data/1; echo more >> data/2"), ("three", "rm data/3; echo new > data/4")]
    {
        mount_with_group(&sandbox, &format!("other-{trigger}"), "to").await;
        assert_eq!(to.shell("stat -c %G .volferry | wc -l").unwrap(), b"1\n");
        assert_ne!(modes(&to) & 0o070, 0, "the kubelet opened the folder to the group");
        from.shell(&format!("{change}; printf {trigger} | dd of=large conv=notrunc bs=1 seek=1000000"))
            .unwrap();
        sandbox.run_again("copy", trigger).await.unwrap();
        assert_eq!(modes(&to) & 0o077, 0, "nobody else may use the folder");
        assert_eq!(content(&to), content(&from));
    }

    let other = json!({"spec": {"pods": as_user(1001), "trigger": "four"}});
    sandbox.patch("copy", other).await.unwrap();
    let refused = |job: &DynamicObject| syncjob::message(job, "Stalled").contains("belongs to user 1000");
    sandbox.until("copy", "another user is refused", refused).await.unwrap();
    Volume::delete_local(&sandbox, "to").await.unwrap();
}

fn as_user(user: u32) -> Value {
    json!({"securityContext": {"runAsUser": user, "runAsGroup": user, "fsGroup": 2000}})
}

/// All permission bits that any of Volferry's folders has.
fn modes(volume: &Volume) -> u32 {
    let modes = volume.shell("stat -c %a .volferry .volferry/staging .volferry/journal").unwrap();
    let text = String::from_utf8(modes).unwrap();
    text.lines().map(|mode| u32::from_str_radix(mode, 8).unwrap()).fold(0, |all, mode| all | mode)
}

fn content(volume: &Volume) -> String {
    let script = "find . -path ./.volferry -prune -o -type f -print0 | sort -z | xargs -0 sha256sum";
    String::from_utf8(volume.shell(script).unwrap()).unwrap()
}

/// Runs another program's pod that mounts the claim for a group, so that the kubelet opens all of the volume to that group.
async fn mount_with_group(sandbox: &Sandbox, name: &str, claim: &str) {
    let container = json!({
        "name": "other",
        "image": "volferry/volferry:e2e",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/volferry", "--version"],
        "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    let security = json!({"runAsUser": 3000, "runAsNonRoot": true, "fsGroup": 2000,
        "fsGroupChangePolicy": "Always", "seccompProfile": {"type": "RuntimeDefault"}});
    let pod = json!({"metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "containers": [container], "securityContext": security,
        "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}],
    }});
    let pods = sandbox.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let over =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
    wait::until(&pods, name, "the other pod is over", PATIENCE, over).await.unwrap();
}
