//! Raw block volumes, in pods under the restricted PodSecurity standard.

use e2e::disk::{DISK_GROUP, Disk};

use crate::prelude::*;

const MIB: u64 = 1 << 20;

/// A script that fills a part of a device; the rest stays zeros.
const FILL: &str = "head -c 20M /dev/urandom | dd of=$1 bs=1M seek=3 conv=fsync status=none";

fn in_disk_group(mut others: Value) -> Value {
    syncjob::merge(
        &mut others,
        json!({"pods": {"securityContext": {"supplementalGroups": [DISK_GROUP]}}, "trigger": "one"}),
    );
    others
}

#[tokio::test]
async fn a_device_is_copied_to_another_node_and_kept_as_an_image_and_restored() {
    let sandbox = Sandbox::new("devices").await;
    let nodes = sandbox.nodes().await.unwrap();
    let from = Disk::create(&sandbox, "from", &nodes[0], 40).await.unwrap();
    let to = Disk::create(&sandbox, "to", &nodes[1], 48).await.unwrap();
    from.shell(FILL).unwrap();
    sandbox.sync("copy", in_disk_group(json!({}))).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(from.hash(40 * MIB).unwrap(), to.hash(40 * MIB).unwrap());

    from.shell("head -c 64K /dev/urandom | dd of=$1 bs=1M seek=30 conv=fsync,notrunc status=none").unwrap();
    let done = sandbox.run_again("copy", "two").await.unwrap();
    assert_eq!(from.hash(40 * MIB).unwrap(), to.hash(40 * MIB).unwrap());
    let work: Work = syncjob::part(&done, "/lastRun/work").unwrap();
    assert!(work.bytes_on_wire < MIB, "only what differs crosses: {work:?}");

    let backups = sandbox.volume("backups", 1).await.unwrap();
    let image = json!({"persistentVolumeClaim": {"claimName": "backups"}, "path": "/disk.img"});
    sandbox.sync("backup", in_disk_group(json!({"destination": image}))).await.unwrap();
    sandbox.until_is("backup", "Ready").await.unwrap();
    let hash = String::from_utf8(backups.shell("sha256sum disk.img").unwrap()).unwrap();
    assert!(hash.starts_with(&from.hash(40 * MIB).unwrap()), "{hash}");

    to.shell("dd if=/dev/urandom of=$1 bs=1M count=40 conv=fsync status=none").unwrap();
    sandbox.sync("restore", in_disk_group(json!({"source": image}))).await.unwrap();
    sandbox.until_is("restore", "Ready").await.unwrap();
    assert_eq!(from.hash(40 * MIB).unwrap(), to.hash(40 * MIB).unwrap());
}

#[tokio::test]
async fn a_device_that_pods_may_not_open_is_named() {
    let sandbox = Sandbox::new("device-denied").await;
    let nodes = sandbox.nodes().await.unwrap();
    let _from = Disk::create(&sandbox, "from", &nodes[0], 4).await.unwrap();
    let _to = Disk::create(&sandbox, "to", &nodes[1], 4).await.unwrap();
    sandbox.sync("copy", json!({"limits": {"retries": 0}})).await.unwrap();
    let failed = sandbox.until_is("copy", "Stalled").await.unwrap();
    let message = syncjob::message(&failed, "Stalled");
    assert!(message.contains("/dev/volferry-") && message.contains("ermission denied"), "{message}");
}
