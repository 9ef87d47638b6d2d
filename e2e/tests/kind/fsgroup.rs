//! A destination whose group the kubelet changes to a pod's `fsGroup`: every run works, a run closes its folder to the
//! group again, and another user's error names the folder's owner.

use crate::prelude::*;

const TREE: &str =
    "mkdir data; for i in 1 2 3; do echo $i > data/$i; done; head -c 3000000 /dev/urandom > large
    chmod -R a+rX .";

/// A script that changes a volume as the kubelet changes most kinds whenever a pod with an `fsGroup` mounts them. It
/// changes a `local` volume, as used here, at the first mount only.
const OPEN_TO_GROUP: &str = "chgrp -R 2000 .; chmod -R ug+rwX .; find . -type d -exec chmod g+s {} +";

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
        to.shell(OPEN_TO_GROUP).unwrap();
        assert_ne!(modes(&to) & 0o070, 0, "the folder is open to the group");
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

/// Returns the permission bits of Volferry's folders, combined.
fn modes(volume: &Volume) -> u32 {
    let modes = volume.shell("stat -c %a .volferry .volferry/staging .volferry/journal").unwrap();
    let text = String::from_utf8(modes).unwrap();
    text.lines().map(|mode| u32::from_str_radix(mode, 8).unwrap()).fold(0, |all, mode| all | mode)
}

fn content(volume: &Volume) -> String {
    let script = "find . -path ./.volferry -prune -o -type f -print0 | sort -z | xargs -0 sha256sum";
    String::from_utf8(volume.shell(script).unwrap()).unwrap()
}
