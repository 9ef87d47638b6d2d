//! A store in object storage that has lost indexes: what their packs say of themselves is read, and the rest is sent
//! again.

use std::{collections::BTreeSet, path::PathBuf};

use crate::common::prelude::*;
use crate::{
    bucket::{URL, command, count, ok, pull, push, run, text},
    bucket_lists::damage,
    bucket_upkeep::{flip, with_two},
    common::object_storage::Bucket,
    copy::digests,
    volume::{Said, Volume},
};

fn objects(bucket: &Bucket, folder: &str) -> BTreeSet<String> {
    bucket.objects("of/web").into_keys().filter(|name| name.starts_with(folder)).collect()
}

/// Makes a store with three snapshots, and the volume with them. Returns the ids, and the index and the packs that the
/// last one has added.
fn with_three() -> (Bucket, Volume, Vec<String>, String, Vec<PathBuf>) {
    let (bucket, from, mut ids) = with_two();
    let (packs, indexes) = (objects(&bucket, "packs/"), objects(&bucket, "indexes/"));
    fs::write(from.path().join("only here"), Rng::new(3).bytes(70_000)).unwrap();
    ids.push(from.create(&[]));
    push(&bucket, &from);
    let index = objects(&bucket, "indexes/").difference(&indexes).next().unwrap().clone();
    let added =
        objects(&bucket, "packs/").difference(&packs).map(|name| bucket.path("of/web").join(name)).collect();
    (bucket, from, ids, index, added)
}

/// Damages what a pack says of itself at its end.
fn damage_end(pack: &Path) {
    flip(pack, pack.metadata().unwrap().len() - 6);
}

/// Checks that a verify names the index, and that a prune names one and changes nothing.
#[track_caller]
fn is_lost(bucket: &Bucket, index: &str) -> Said {
    let said = run(bucket, &["verify", URL]);
    assert!(said.code == Some(3) && said.stdout.contains(index), "{said:?}");
    assert!(said.stderr.contains("volferry snapshot repair"), "{said:?}");
    let before = bucket.objects("");
    let pruned = run(bucket, &["prune", URL, "--keep-last", "1"]);
    assert!(pruned.code == Some(3) && pruned.stderr.contains("indexes/"), "{pruned:?}");
    assert_eq!(bucket.objects(""), before);
    said
}

/// Checks that all of the volume's snapshots come back, and that a prune keeps them.
#[track_caller]
fn is_whole(bucket: &Bucket, from: &Volume) {
    ok(bucket, &["verify", URL]);
    ok(bucket, &["prune", "--forgotten", URL]);
    ok(bucket, &["verify", URL]);
    let to = Volume::new();
    pull(bucket, &to);
    assert_eq!(digests(&to), digests(from));
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn a_lost_index_is_made_up_by_what_packs_say_of_themselves() {
    for is_removed in [true, false] {
        let (bucket, from, _, _, _) = with_three();
        let indexes = objects(&bucket, "indexes/");
        for index in &indexes {
            let path = bucket.path("of/web").join(index);
            if is_removed { fs::remove_file(path).unwrap() } else { damage(&bucket, index) }
        }
        let index = indexes.first().unwrap();
        is_lost(&bucket, index);
        let to = Volume::new();
        let back = ok(&bucket, &["copy", "--all", URL, text(&to)]);
        assert!(back.stderr.contains("warning: ") && back.stderr.contains(index), "{back:?}");
        assert_eq!(digests(&to), digests(&from));
        // Whoever copies next writes an index anew, whatever it sends.
        let said = ok(&bucket, &["copy", "--all", "--json", text(&from), URL]);
        assert!(said.stderr.contains("a new one replaces it"), "{said:?}");
        assert_eq!((count(&said.json(), "present"), said.json()["bytes"].as_u64()), (3, Some(0)));
        is_whole(&bucket, &from);
    }
}

#[test]
fn what_neither_an_index_nor_a_pack_says_is_sent_again() {
    let (bucket, from, ids, index, packs) = with_three();
    damage(&bucket, &index);
    packs.iter().for_each(|pack| damage_end(pack));
    let said = is_lost(&bucket, &index);
    assert!(said.stdout.contains(&format!("snapshot {} is not whole", ids[2])), "{said:?}");
    assert!(ids[..2].iter().all(|id| !said.stdout.contains(id)), "{said:?}");
    let to = Volume::new();
    let back = run(&bucket, &["copy", "--all", "--json", URL, text(&to)]);
    assert_eq!((back.code, count(&back.json(), "copied")), (Some(3), 2), "{back:?}");
    // A volume without the last snapshot mends nothing of it, and undoes nothing.
    let said = ok(&bucket, &["copy", "--all", "--json", text(&to), URL]);
    assert_eq!(count(&said.json(), "present"), 2, "{said:?}");
    is_lost(&bucket, &index);
    let said = push(&bucket, &from);
    assert_eq!(said["healed"], serde_json::json!([ids[2]]), "{said}");
    assert_eq!(push(&bucket, &from)["bytes"], 0, "nothing is sent once more");
    is_whole(&bucket, &from);
}

#[test]
fn a_run_into_a_store_with_a_lost_index_mends_it() {
    let (bucket, from, _, index, _) = with_three();
    fs::remove_file(bucket.path("of/web").join(&index)).unwrap();
    let mut sync = Command::new(program());
    sync.args(["sync", text(&from), URL]);
    for (name, value) in command(&bucket, &[]).get_envs() {
        sync.env(name, value.unwrap());
    }
    let said = Said::from(sync.output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    ok(&bucket, &["verify", URL]);
    let to = Volume::new();
    assert_eq!(count(&pull(&bucket, &to), "copied"), 4);
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn a_repair_goes_on_without_what_no_volume_has_any_more_and_nothing_is_built_on_it() {
    for is_copied_again in [false, true] {
        let (bucket, from, ids, index, packs) = with_three();
        fs::remove_file(bucket.path("of/web").join(&index)).unwrap();
        packs.iter().for_each(|pack| damage_end(pack));
        let before = bucket.objects("");
        let plan = run(&bucket, &["repair", "--json", URL]);
        assert_eq!(plan.code, Some(3), "{plan:?}");
        let steps: Vec<_> =
            plan.json()["steps"].as_array().unwrap().iter().map(|it| it["step"].clone()).collect();
        assert_eq!(steps, ["writeIndexes", "notWhole"], "{plan:?}");
        assert_eq!(bucket.objects(""), before, "a plan");
        ok(&bucket, &["repair", "--apply", URL]);
        assert!(ok(&bucket, &["repair", URL]).stdout.contains("Nothing needs a repair"));
        let found = run(&bucket, &["verify", URL]);
        assert!(found.code == Some(3) && !found.stdout.contains(&index), "{found:?}");
        assert!(found.stdout.contains(&format!("snapshot {} is not whole", ids[2])), "{found:?}");
        if is_copied_again {
            assert_eq!(push(&bucket, &from)["healed"], serde_json::json!([ids[2]]));
            is_whole(&bucket, &from);
            continue;
        }
        ok(&bucket, &["forget", URL, &ids[2]]);
        ok(&bucket, &["prune", "--forgotten", URL]);
        ok(&bucket, &["verify", URL]);
        let to = Volume::new();
        pull(&bucket, &to);
        assert_eq!(digests(&to).keys().collect::<BTreeSet<_>>(), ids[..2].iter().collect());
        to.ok("verify", &["--no-heal"]);
    }
}
