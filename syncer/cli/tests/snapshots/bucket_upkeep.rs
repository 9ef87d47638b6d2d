//! Damage and prunes of a store in object storage.

use std::{collections::BTreeSet, path::PathBuf};

use crate::common::prelude::*;
use crate::{
    bucket::{URL, assert_comes_back, count, ok, pull, push, run, text},
    common::object_storage::{Bucket, Fault},
    copy::digests,
    volume::Volume,
};

/// Checks that damage is named, and that no copy has it. What an index said is read elsewhere.
#[track_caller]
fn found(bucket: &Bucket, name: &str, is_read: bool) {
    let said = run(bucket, &["verify", URL]);
    assert_eq!(said.code == Some(0), !is_read, "{name}: {said:?}");
    if is_read {
        let (object, told) = (name.trim_start_matches("of/web/"), said.stdout + &said.stderr);
        let named =
            if object.starts_with("volferry") { format!("damaged: {object}: ") } else { object.into() };
        assert!(told.contains(&named), "{name}: {told}");
        let to = Volume::new();
        let said = run(bucket, &["copy", "--all", URL, text(&to)]);
        let is_index = object.starts_with("indexes/");
        let has_copy = object.starts_with("volferry");
        assert_eq!(said.code == Some(0), is_index || has_copy, "{name}: {said:?}");
        assert!(!is_index || said.stderr.contains(object) && digests(&to).len() == 2, "{name}: {said:?}");
    }
}

pub fn flip(path: &std::path::Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at as usize] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Makes a store with two snapshots that share much, and the volume with them.
pub fn with_two() -> (Bucket, Volume, Vec<String>) {
    let (bucket, from) = (Bucket::new(), Volume::new());
    tree::random(from.path(), &mut Rng::new(9), 60, Shape::Unprivileged);
    fs::write(from.path().join("long"), Rng::new(1).bytes(3 << 20)).unwrap();
    let ids = (0..2).map(|nth| {
        fs::write(from.path().join("changed"), vec![nth; 100_000]).unwrap();
        from.create(&[])
    });
    let ids = ids.collect();
    push(&bucket, &from);
    (bucket, from, ids)
}

#[test]
fn a_new_snapshot_that_shares_what_the_store_has_lost_is_whole_there() {
    let (bucket, from, _) = with_two();
    for (name, _) in bucket.objects("of/web/packs").into_iter().filter(|(_, len)| *len > 1 << 20) {
        fs::remove_file(bucket.path(&format!("of/web/packs/{name}"))).unwrap();
    }
    fs::write(from.path().join("changed"), "once more").unwrap();
    let id = from.create(&[]);
    push(&bucket, &from);
    let to = Volume::new();
    ok(&bucket, &["copy", URL, text(&to), &id]);
    assert_eq!(digests(&to).get(&id), digests(&from).get(&id));
    to.ok("verify", &["--no-heal"]);
}

/// Returns the paths of the packs that have contents, or of those that have directories.
fn packs(bucket: &Bucket, of_contents: bool) -> Vec<PathBuf> {
    let packs = bucket.objects("of/web/packs").into_iter();
    let packs = packs.filter(|(_, len)| (*len > 50_000) == of_contents);
    packs.map(|(name, _)| bucket.path("of/web/packs").join(name)).collect()
}

/// Checks that a verify finds damage.
#[track_caller]
fn is_damaged(bucket: &Bucket) {
    run(bucket, &["verify", URL]).exits(3);
}

#[test]
fn what_a_verify_has_found_damaged_is_sent_again_by_the_next_copy() {
    for (of_contents, at_once) in [(true, true), (false, true), (true, false), (false, false)] {
        let (bucket, from, ids) = with_two();
        let damaged = packs(&bucket, of_contents);
        assert!(!damaged.is_empty());
        damaged.iter().for_each(|path| flip(path, 30));
        is_damaged(&bucket);
        let said = if at_once {
            push(&bucket, &from)
        } else {
            let copy = ["copy", "--json", text(&from), URL, &ids[0], &ids[1]];
            ok(&bucket, &copy).json()
        };
        assert_eq!((count(&said, "present"), count(&said, "copied")), (2, 0), "{said}");
        assert!(count(&said, "healed") > 0 && said["bytes"].as_u64() > Some(0), "{said}");
        ok(&bucket, &["verify", URL]);
        assert_eq!(push(&bucket, &from)["bytes"], 0, "nothing is sent once more");
        // What is damaged goes with a prune, and what replaces it stays.
        ok(&bucket, &["prune", "--forgotten", URL]);
        ok(&bucket, &["verify", URL]);
        assert_comes_back(&bucket, &from);
    }
}

#[test]
fn a_pack_that_was_cut_off_is_lost_without_a_verify() {
    let (bucket, from, _) = with_two();
    for path in packs(&bucket, true) {
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    }
    let said = push(&bucket, &from);
    assert!(count(&said, "healed") > 0, "{said}");
    ok(&bucket, &["verify", URL]);
    assert_comes_back(&bucket, &from);
}

#[test]
fn a_verify_that_may_not_write_names_damage_and_says_that_nothing_will_replace_it() {
    let (bucket, from, _) = with_two();
    packs(&bucket, true).iter().for_each(|path| flip(path, 30));
    bucket.fail(|request| match request.method.as_str() {
        "PUT" => Fault::Refuse("AccessDenied"),
        _ => Fault::None,
    });
    let said = run(&bucket, &["verify", URL]).exits(3);
    assert!(
        said.stdout.contains("packs/") && said.stderr.contains("no copy or run will replace"),
        "{said:?}"
    );
    bucket.fail(|_| Fault::None);
    assert_eq!(push(&bucket, &from)["bytes"], 0, "nobody has told it");
    is_damaged(&bucket);
    assert!(count(&push(&bucket, &from), "healed") > 0);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn what_no_volume_has_any_more_stays_damaged_and_nothing_else_is_sent_or_lost_for_it() {
    let (bucket, from, ids) = with_two();
    let other = Volume::new();
    ok(&bucket, &["copy", URL, text(&other), &ids[1]]);
    packs(&bucket, true).iter().for_each(|path| flip(path, 30));
    let whole = packs(&bucket, true).iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
    is_damaged(&bucket);
    fs::write(other.path().join("new"), "new").unwrap();
    other.create(&[]);
    let said = push(&bucket, &other);
    assert_eq!((count(&said, "copied"), count(&said, "present")), (1, 1), "{said}");
    // A verify that reads what is right again says so, and a prune moves nothing that is damaged.
    is_damaged(&bucket);
    assert_eq!(push(&bucket, &other)["bytes"], 0);
    ok(&bucket, &["prune", "--forgotten", URL]);
    assert_eq!(whole, packs(&bucket, true).iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>());
    assert!(count(&push(&bucket, &from), "healed") > 0);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn every_object_that_was_changed_or_cut_off_is_found_and_named() {
    let (bucket, from, _) = with_two();
    assert_eq!(ok(&bucket, &["verify", "--json", URL]).json()["damaged"].as_array().unwrap().len(), 0);
    for (name, len) in bucket.objects("") {
        let path = bucket.path(&name);
        let whole = fs::read(&path).unwrap();
        let is_newest =
            bucket.objects("of/web/lists").keys().next().is_some_and(|first| name.ends_with(first));
        // What a pack has after its blobs is read by a copy that goes on only, and old lists are not read.
        let is_pack = name.contains("/packs/");
        let is_read = is_newest || !name.contains("/lists/");
        let flips = if is_pack { vec![30] } else { vec![0, len / 2, len - 1] };
        for at in flips {
            fs::write(&path, &whole).unwrap();
            flip(&path, at);
            found(&bucket, &name, is_read);
        }
        let kept = if is_pack { 20 } else { len - 1 };
        fs::write(&path, &whole[..kept as usize]).unwrap();
        found(&bucket, &name, is_read);
        fs::write(&path, &whole).unwrap();
    }
    ok(&bucket, &["verify", URL]);
    assert_comes_back(&bucket, &from);
}

#[test]
fn objects_that_were_exchanged_are_found() {
    let (bucket, _, _) = with_two();
    for folder in ["of/web/packs", "of/web/lists", "of/web/indexes"] {
        let names: Vec<_> =
            bucket.objects(folder).into_keys().map(|name| bucket.path(folder).join(name)).collect();
        let [one, other] = [&names[0], &names[1]].map(|path| fs::read(path).unwrap());
        fs::write(&names[0], &other).unwrap();
        fs::write(&names[1], &one).unwrap();
        let said = run(&bucket, &["verify", URL]);
        assert_eq!(said.code, Some(3), "{folder}: {said:?}");
        fs::write(&names[0], &one).unwrap();
        fs::write(&names[1], &other).unwrap();
    }
    ok(&bucket, &["verify", URL]);
}

#[test]
fn a_prune_removes_what_nothing_shares_and_keeps_the_rest_without_reading_it() {
    let (bucket, from, ids) = with_two();
    fs::write(from.path().join("only here"), Rng::new(4).bytes(20 << 20)).unwrap();
    let last = from.create(&[]);
    fs::remove_file(from.path().join("only here")).unwrap();
    let newest = from.create(&[]);
    push(&bucket, &from);
    let before: u64 = bucket.objects("of/web/packs").values().sum();
    ok(&bucket, &["forget", URL, &last]);
    assert_eq!(ok(&bucket, &["list", "--json", URL]).json().as_array().unwrap().len(), 3);
    ok(&bucket, &["forget", "--undo", URL, &last]);
    let plan = ok(&bucket, &["prune", "-n", "--keep-last", "1", "--json", URL]).json();
    assert_eq!(bucket.objects("of/web/packs").values().sum::<u64>(), before, "a dry run");
    bucket.seen();
    let done = ok(&bucket, &["prune", "--keep-last", "1", "--json", URL]).json();
    let removed: BTreeSet<_> = [&ids[0], &ids[1], &last].map(String::as_str).into();
    assert_eq!(
        done["removed"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect::<BTreeSet<_>>(),
        removed
    );
    assert_eq!(plan["removed"], done["removed"]);
    let read = bucket
        .seen()
        .iter()
        .filter(|it| it.method == "GET" && it.path.contains("/packs/") && !it.is_range)
        .count();
    assert_eq!(read, 0, "packs are read by ranges");
    let after: u64 = bucket.objects("of/web/packs").values().sum();
    assert!(before - after > 20 << 20, "{before} before, {after} after");
    ok(&bucket, &["verify", URL]);
    let to = Volume::new();
    assert_eq!(count(&pull(&bucket, &to), "copied"), 1);
    assert_eq!(digests(&to).into_iter().next(), digests(&from).into_iter().find(|(id, _)| *id == newest));
    // What was removed stays away, unless it is named.
    let said = push(&bucket, &from);
    assert_eq!((count(&said, "forgotten"), count(&said, "present")), (3, 1));
    ok(&bucket, &["copy", text(&from), URL, &last]);
    let back = Volume::new();
    assert_eq!(count(&pull(&bucket, &back), "copied"), 2);
    back.ok("verify", &["--no-heal"]);
}

#[test]
fn many_small_packs_are_put_together() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    for nth in 0..12 {
        fs::write(from.path().join(format!("file{nth}")), format!("content {nth}")).unwrap();
        from.create(&[]);
    }
    push(&bucket, &from);
    assert_eq!(bucket.objects("of/web/packs").len(), 24);
    ok(&bucket, &["prune", "--forgotten", URL]);
    assert_eq!(bucket.objects("of/web/packs").len(), 2);
    assert_eq!(bucket.objects("of/web/indexes").len(), 1);
    ok(&bucket, &["verify", URL]);
    assert_comes_back(&bucket, &from);
    let before = bucket.objects("");
    ok(&bucket, &["prune", "--forgotten", URL]);
    assert_eq!(bucket.objects(""), before, "there is nothing left to do");
}
