//! `kubectl volferry browse` and `get` against real pods: what they print is what the volume has, byte for byte.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

use crate::prelude::*;

#[tokio::test]
async fn a_file_of_a_snapshot_comes_out_of_the_cluster_as_it_is_and_no_pod_stays() {
    let (sandbox, from, _) = Sandbox::with_volumes("browse").await;
    // 8 MiB of all bytes, which no log would carry.
    let script =
        "mkdir -p 'a folder'; head -c 8388608 /dev/urandom > 'a folder/bytes'; echo text > note; : > empty";
    from.shell_as_syncer(script).unwrap();
    let bytes = from.shell("cat 'a folder/bytes'").unwrap();
    let spec = json!({"trigger": "one", "snapshots": {"retain": {"last": 2}}});
    sandbox.sync("copy", spec).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    from.shell_as_syncer("rm -r 'a folder'").unwrap();
    sandbox.run_again("copy", "two").await.unwrap();

    let list = printed(plugin(&sandbox, &["browse", "copy"]));
    let ids: Vec<&str> = list.split_whitespace().filter(|word| word.len() == 16).collect();
    assert_eq!(ids.len(), 2, "{list}");
    let has_folder = |id: &str| {
        let top = printed(plugin(&sandbox, &["browse", "copy", id]));
        assert!(top.contains("note"), "{top}");
        top.contains("a folder")
    };
    let old = ids.iter().find(|id| has_folder(id)).expect("one has the folder");
    let below = printed(plugin(&sandbox, &["browse", "copy", old, "/a folder"]));
    assert!(below.contains("bytes"), "{below}");
    let got = plugin(&sandbox, &["get", "copy", old, "/a folder/bytes"]);
    assert!(got.status.success() && got.stdout == bytes, "{:?}", got.status);
    assert_eq!(printed(plugin(&sandbox, &["get", "copy", "latest", "note"])), "text\n");
    assert_eq!(printed(plugin(&sandbox, &["get", "copy", "latest", "empty"])), "");

    let missing = plugin(&sandbox, &["get", "copy", "latest", "/a folder/none"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(1) && missing.stdout.is_empty(), "{missing:?}");
    assert!(said.contains("has no a folder/none") && said.contains("failed with status"), "{said}");

    const LABEL: &str = "volferry.dev/browse=copy";
    wait::until_none(&sandbox.api::<Job>(), LABEL, PATIENCE).await.unwrap();
    wait::until_none(&sandbox.api::<Pod>(), LABEL, PATIENCE).await.unwrap();
}
