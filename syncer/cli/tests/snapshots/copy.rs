//! Snapshots that are copied to another store: what arrives, what stays away, what heals, and what a cut or a full disk
//! leaves.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    time::Instant,
};

use serde_json::Value;

use crate::common::prelude::*;
use crate::{
    crash::kill,
    damage::{flip, only_file_below},
    volume::{Said, Volume},
};

/// The number of copies to kill. `VOLFERRY_KILLS` sets another number.
const KILLS: usize = 60;

fn path(volume: &Volume) -> &str {
    volume.path().to_str().unwrap()
}

pub fn copy(from: &Volume, to: &Volume, args: &[&str]) -> Said {
    from.run("copy", &[&[path(to)], args].concat())
}

#[track_caller]
pub fn copy_ok(from: &Volume, to: &Volume, args: &[&str]) -> Value {
    let said = copy(from, to, &[&["--json"], args].concat()).exits(0);
    said.json()
}

/// Returns the digests of the snapshots by their ids.
pub fn digests(volume: &Volume) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    volume.list().iter().map(|one| (text(&one["id"]), text(&one["digest"]))).collect()
}

/// Makes a volume with `count` snapshots that differ.
fn with_snapshots(count: u8) -> (Volume, Vec<String>) {
    let (volume, mut rng) = (Volume::new(), Rng::new(5));
    tree::random(volume.path(), &mut rng, 40, Shape::Unprivileged);
    let ids = (0..count).map(|nth| {
        fs::create_dir_all(volume.path().join("some/dir")).unwrap();
        fs::write(volume.path().join("some/dir/large"), vec![nth + 1; 200_000]).unwrap();
        fs::write(volume.path().join("some/dir/small"), format!("content {nth}")).unwrap();
        volume.create(&["--tag", &format!("tag{nth}"), "--note", "a note"])
    });
    let ids = ids.collect();
    (volume, ids)
}

fn ids(said: &Value, field: &str) -> Vec<String> {
    said[field].as_array().unwrap().iter().map(|id| id.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_copy_of_all_to_a_volume_with_a_damaged_log_brings_back_nothing_that_was_removed_there() {
    let (from, to) = (Volume::new(), Volume::new());
    let gone = from.create(&[]);
    from.create(&[]);
    let target = to.path().to_str().unwrap();
    from.ok("copy", &[target, "--all"]);
    to.ok("forget", &[&gone]);
    to.ok("prune", &["--forgotten"]);
    crate::damage::flip(&to.store("audit"), 40);
    let said = from.run("copy", &[target, "--all"]).exits(3);
    assert!(said.stderr.contains("log") && said.stderr.contains("snapshot repair"), "{said:?}");
    assert_eq!(to.list().len(), 1);
    from.ok("copy", &[target, &gone]);
}

#[test]
fn a_copy_of_no_named_snapshot_names_the_flag_for_all() {
    let (from, to) = (Volume::new(), Volume::new());
    let said = from.run("copy", &[to.path().to_str().unwrap()]).exits(2);
    assert!(said.stderr.contains("--all") && said.stderr.contains("--since"), "{said:?}");
}

#[test]
fn snapshots_keep_their_ids_times_labels_and_origin_and_come_back_from_the_copy() {
    let (from, all) = with_snapshots(3);
    from.ok("pin", &[&all[1]]);
    let to = Volume::new();
    let said = copy_ok(&from, &to, &["--all"]);
    assert_eq!(said["copied"].as_array().unwrap().len(), 3, "{said}");
    let origin = fs::read_to_string(from.path().join(".volferry/volume.new"))
        .or_else(|_| fs::read_to_string(from.path().join(".volferry/volume")))
        .unwrap();
    for (here, there) in from.list().iter().zip(to.list()) {
        for field in ["id", "digest", "began", "taken", "entries", "bytes", "user", "note", "tags", "pinned"]
        {
            assert_eq!(here[field], there[field], "{field}");
        }
        assert_eq!((&here["origin"], there["origin"].as_str()), (&Value::Null, Some(origin.trim())));
    }
    to.ok("verify", &["--no-heal"]);
    assert!(fs::read_dir(to.path()).unwrap().count() == 1, "no file but the store");
    let expected = Snapshot::of(from.path());
    let other = from.path().with_file_name("restored");
    to.ok("restore", &["tag2", "--to", other.to_str().unwrap()]);
    Snapshot::of(&other).assert_like(&expected, COPY, "the last snapshot");
    assert_eq!(to.ok("cat", &["tag0", "some/dir/small"]), "content 0");
    let again = copy_ok(&from, &to, &["--all"]);
    assert_eq!((ids(&again, "present"), again["bytes"].as_u64()), (all.clone(), Some(0)));
    let back = copy_ok(&to, &from, &["--all"]);
    assert_eq!((ids(&back, "present"), back["bytes"].as_u64()), (all, Some(0)));
    let home = Volume::new();
    copy_ok(&to, &home, &["--all"]);
    assert_eq!(
        home.list()[0]["origin"].as_str(),
        Some(origin.trim()),
        "the origin is that of the first copy"
    );
    fs::remove_dir_all(from.store("")).unwrap();
    copy_ok(&home, &from, &["--all"]);
    assert_eq!(from.list()[0]["origin"], Value::Null, "it came home");
    from.ok("verify", &["--no-heal"]);
}

#[test]
fn only_what_is_named_or_later_is_copied_and_only_what_is_missing_crosses() {
    let (from, all) = with_snapshots(4);
    let to = Volume::new();
    assert_eq!(copy(&from, &to, &[]).code, Some(2), "nothing is selected");
    copy_ok(&from, &to, &["tag1"]);
    assert_eq!(digests(&to).into_keys().collect::<Vec<_>>(), [all[1].clone()]);
    let said = copy_ok(&from, &to, &["--since", &all[1]]);
    assert_eq!(said["copied"].as_array().unwrap().len(), 2, "{said}");
    let new = "content 2".len() as u64 + "content 3".len() as u64 + 2 * 200_000;
    assert_eq!(said["bytes"].as_u64(), Some(new), "two files of each of two snapshots");
    copy_ok(&from, &to, &["--all"]);
    let order = |volume: &Volume| -> Vec<_> { volume.list().iter().map(|one| one["id"].clone()).collect() };
    assert_eq!(order(&to), order(&from), "an older one that comes later has its place");
    assert_eq!(digests(&to), digests(&from));
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn what_was_forgotten_stays_away_unless_it_is_named() {
    let (from, all) = with_snapshots(3);
    let to = Volume::new();
    copy_ok(&from, &to, &["--all"]);
    to.ok("forget", &[&all[0], &all[1]]);
    let said = copy_ok(&from, &to, &["--all"]);
    assert_eq!((ids(&said, "forgotten"), ids(&said, "present")), (all[..2].to_vec(), all[2..].to_vec()));
    assert_eq!(digests(&to).len(), 1);
    to.ok("prune", &["--forgotten"]);
    let said = copy_ok(&from, &to, &["--all"]);
    assert_eq!((ids(&said, "forgotten"), ids(&said, "copied").len()), (all[..2].to_vec(), 0));
    copy_ok(&from, &to, &[&all[0]]);
    assert_eq!(digests(&to).len(), 2);
    let said = copy_ok(&from, &to, &["--all"]);
    assert_eq!(ids(&said, "forgotten"), all[1..2], "what was brought back is no longer forgotten");
    to.ok("verify", &["--no-heal"]);
    to.ok("prune", &["--keep-last", "1"]);
    to.ok("verify", &["--no-heal"]);
    assert_eq!(from.list().len(), 3, "each side has its own rules");
}

#[test]
fn a_snapshot_that_was_forgotten_and_not_yet_collected_comes_back_when_it_is_named() {
    let (from, all) = with_snapshots(3);
    let to = Volume::new();
    copy_ok(&from, &to, &["--all"]);
    to.ok("tag", &[&all[0], "of-the-copy"]);
    to.ok("forget", &[&all[0], &all[1]]);
    let said = copy_ok(&from, &to, &[&all[0], &all[2]]);
    assert_eq!(said["copied"][0]["id"].as_str(), Some(&*all[0]), "{said}");
    assert_eq!((ids(&said, "present"), ids(&said, "forgotten")), (all[2..].to_vec(), vec![]));
    assert_eq!((said["copied"].as_array().unwrap().len(), said["bytes"].as_u64()), (1, Some(0)));
    let log = to.ok("log", &["--json"]);
    assert!(log.contains("unforget"), "{log}");
    to.ok("prune", &["--forgotten"]);
    assert_eq!(digests(&to).into_keys().collect::<BTreeSet<_>>(), [all[0].clone(), all[2].clone()].into());
    assert!(to.list()[0]["tags"].to_string().contains("of-the-copy"), "it is the one that was forgotten");
    to.ok("verify", &["--no-heal"]);
    let said = copy_ok(&from, &to, &["--all"]);
    assert_eq!((ids(&said, "present").len(), ids(&said, "forgotten")), (2, all[1..2].to_vec()));
}

#[test]
fn a_forgotten_snapshot_with_damage_is_whole_when_it_comes_back() {
    let (from, all) = with_snapshots(2);
    let to = Volume::new();
    copy_ok(&from, &to, &["--all"]);
    let name = blake3::hash(&vec![1; 200_000]).to_hex().to_string();
    flip(&to.store(&format!("content/{}/{name}", &name[..2])), 70_000);
    assert_eq!(to.run("verify", &[]).code, Some(3));
    to.ok("forget", &[&all[0]]);
    let said = copy_ok(&from, &to, &[&all[0]]);
    assert_eq!((ids(&said, "healed"), said["copied"].as_array().unwrap().len()), (all[..1].to_vec(), 1));
    to.ok("verify", &[]);
    assert_eq!(digests(&to), digests(&from));
}

#[test]
fn a_copy_serves_beside_a_live_tree_and_its_own_snapshots() {
    let (from, _) = with_snapshots(3);
    let (to, _) = with_snapshots(2);
    fs::write(to.path().join("own"), "own").unwrap();
    let own = to.create(&["--tag", "own"]);
    let live = Snapshot::of(to.path());
    copy_ok(&from, &to, &["--all"]);
    assert_eq!(to.list().len(), 6);
    Snapshot::of(to.path()).assert_like(&live, UNTOUCHED, "the live tree");
    to.ok("verify", &["--no-heal"]);
    fs::write(to.path().join("own"), "changed").unwrap();
    to.create(&["--tag", "next"]);
    to.ok("restore", &[&own, "--no-safety"]);
    Snapshot::of(to.path()).assert_like(&live, COPY, "the own snapshot");
    to.ok("prune", &["--keep-tag", "own", "--keep-tag", "tag1"]);
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn a_replica_heals_its_origin() {
    for what in ["packed content", "large content", "directory"] {
        let (from, all) = with_snapshots(1);
        let to = Volume::new();
        copy_ok(&from, &to, &["--all"]);
        let pack = only_file_below(&from.store("packs"));
        let bytes = fs::read(&pack).unwrap();
        let find = |text: &[u8]| bytes.windows(text.len()).position(|window| window == text).unwrap() as u64;
        match what {
            "packed content" => flip(&pack, find(b"content 0")),
            "large content" => {
                let name = blake3::hash(&vec![1; 200_000]).to_hex().to_string();
                flip(&from.store(&format!("content/{}/{name}", &name[..2])), 70_000);
            }
            _ => flip(&pack, find(b"small")),
        }
        fs::remove_dir_all(from.path().join("some")).unwrap();
        assert_eq!(from.run("verify", &[]).code, Some(3), "{what}: the live tree has no copy");
        let said = copy_ok(&to, &from, &["--all"]);
        assert_eq!(ids(&said, "healed"), all, "{what}: {said}");
        from.run("verify", &[]);
        from.ok("verify", &[]);
        assert_eq!(from.ok("cat", &[&all[0], "some/dir/small"]), "content 0", "{what}");
        assert_eq!(digests(&from), digests(&to), "{what}");
    }
}

#[test]
fn a_snapshot_that_is_damaged_there_is_not_copied_and_others_are() {
    let (from, all) = with_snapshots(3);
    let name = blake3::hash(&vec![2; 200_000]).to_hex().to_string();
    flip(&from.store(&format!("content/{}/{name}", &name[..2])), 70_000);
    let to = Volume::new();
    let said = copy(&from, &to, &["--all", "--json"]).exits(3);
    let failed = &said.json()["failed"][0];
    assert_eq!(failed["id"].as_str(), Some(&*all[1]));
    assert!(failed["error"].as_str().unwrap().contains("some/dir/large"), "{failed}");
    assert_eq!(digests(&to).into_keys().filter(|id| *id == all[1]).count(), 0);
    assert_eq!(to.list().len(), 2);
    to.ok("verify", &["--no-heal"]);
    assert_eq!(fs::read_dir(to.store("new")).unwrap().count(), 0);
}

#[test]
fn whatever_bit_is_wrong_there_nothing_wrong_becomes_visible_here() {
    let (from, all) = with_snapshots(2);
    let mut rng = Rng::new(9);
    let mut refused = 0;
    let packs: Vec<_> = fs::read_dir(from.store("packs")).unwrap().map(|pack| pack.unwrap().path()).collect();
    for round in 0..30 {
        let pack = rng.pick(&packs).unwrap();
        let at = 8 + rng.below(pack.metadata().unwrap().len() - 8);
        flip(pack, at);
        let to = Volume::new();
        let said = copy(&from, &to, &["--all"]);
        refused += u32::from(said.code == Some(3));
        assert!([Some(0), Some(3)].contains(&said.code), "round {round}: {said:?}");
        if to.list().len() < all.len() {
            assert_eq!(said.code, Some(3), "round {round}: {said:?}");
        }
        to.run("verify", &["--no-heal"]).assert_undamaged();
        flip(pack, at);
    }
    assert!(refused > 5, "only {refused} flips were noticed");
}

#[test]
fn a_copy_that_is_killed_at_any_moment_leaves_whole_snapshots_and_is_continued() {
    let kills = std::env::var("VOLFERRY_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let from = Volume::new();
    tree::many(from.path(), 60, 300);
    for nth in 0..4_u8 {
        fs::write(from.path().join("d0000/large"), vec![nth + 1; 3_000_000]).unwrap();
        fs::write(from.path().join("d0000/small"), vec![nth; 100]).unwrap();
        from.create(&[]);
    }
    let expected = digests(&from);
    let mut within = {
        let (to, began) = (Volume::new(), Instant::now());
        copy_ok(&from, &to, &["--all"]);
        began.elapsed()
    };
    let (mut rng, mut cut_off, mut to) = (Rng::new(23), 0, Volume::new());
    for round in 0..kills {
        let copy = from.command("copy", &[path(&to), "--all"]);
        let ended = kill(copy, within.mul_f64(rng.below(1000) as f64 / 1000.0));
        cut_off += usize::from(!ended);
        // The machine's load varies: the moments stay within the time that a copy takes.
        within = within.mul_f64(if ended { 0.9 } else { 1.1 });
        if to.store("roots").exists() {
            let now = digests(&to);
            assert!(now.iter().all(|(id, digest)| expected.get(id) == Some(digest)), "round {round}");
            to.run("verify", &["--no-heal"]).assert_undamaged();
        }
        if round % 3 == 2 {
            copy_ok(&from, &to, &["--all"]);
            assert_eq!(digests(&to), expected, "round {round}");
            to.run("verify", &["--no-heal"]).assert_undamaged();
            assert_eq!(fs::read_dir(to.store("new")).unwrap().count(), 0, "round {round}");
            to = Volume::new();
        }
    }
    assert!(cut_off > kills / 4, "only {cut_off} of {kills} copies were cut off");
}

#[test]
fn large_contents_that_have_arrived_before_a_cut_do_not_cross_again() {
    let (from, to) = (Volume::new(), Volume::new());
    for nth in 0..40_u8 {
        fs::write(from.path().join(format!("file{nth:02}")), vec![nth + 1; 2_000_000]).unwrap();
    }
    from.create(&[]);
    let mut child = from.command("copy", &[path(&to), "--all"]).stderr(Stdio::null()).spawn().unwrap();
    let arrived = || fs::read_dir(to.store("content")).map_or(0, Iterator::count);
    // Of these folders for contents, the last ones may be empty still.
    while arrived() < 5 && child.try_wait().unwrap().is_none() {}
    child.kill().unwrap();
    let had_ended = child.wait().unwrap().code().is_some();
    let said = copy_ok(&from, &to, &["--all"]);
    let crossed = said["bytes"].as_u64().unwrap();
    assert!(crossed <= 37 * 2_000_000, "{crossed} bytes have crossed");
    assert!(had_ended || said["copied"].as_array().unwrap().len() == 1);
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn a_copy_without_room_changes_nothing() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("8m") else { return };
    let (from, to) = (Volume::new(), Volume::in_dir(mounted.folder()));
    fs::write(from.path().join("fits"), vec![1; 3_000_000]).unwrap();
    let first = from.create(&[]);
    copy_ok(&from, &to, &["--all"]);
    let before = (digests(&to), to.allocated());
    tree::many(from.path(), 2000, 3000);
    from.create(&[]);
    let said = copy(&from, &to, &["--all"]).exits(1);
    assert!(said.stderr.contains(" are to be copied to") && said.stderr.contains("hint: "), "{said:?}");
    assert_eq!((digests(&to), to.allocated()), before);
    // What looks as if it fitted, and does not: inodes and names take room as well.
    let free = rustix::fs::statvfs(to.path()).map(|stat| stat.f_bavail * stat.f_frsize).unwrap();
    fs::remove_dir_all(from.path().join("d0000")).unwrap();
    fs::write(from.path().join("more"), vec![7; free as usize - 20_000]).unwrap();
    let last = from.create(&[]);
    copy(&from, &to, &[&last]).exits(1);
    assert_eq!(digests(&to).into_keys().collect::<Vec<_>>(), [first]);
    assert_eq!(to.allocated(), before.1, "the room that it took is given back");
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn two_stores_that_copy_from_each_other_do_what_two_maps_in_memory_do() {
    for seed in 1..4 {
        let mut rng = Rng::new(seed);
        let volumes = [Volume::new(), Volume::new()];
        let mut models: [BTreeMap<String, Snapshot>; 2] = Default::default();
        let mut gone: [Vec<String>; 2] = Default::default();
        for volume in &volumes {
            tree::random(volume.path(), &mut rng, 30, Shape::Unprivileged);
        }
        for step in 0..40 {
            let what = format!("seed {seed}, step {step}");
            let here = rng.below(2) as usize;
            let (volume, other) = (&volumes[here], &volumes[1 - here]);
            match rng.below(7) {
                0..=2 => {
                    (0..4).for_each(|_| drop(rng.pick(&Edit::ALL).unwrap().apply(volume.path(), &mut rng)));
                    models[here].insert(volume.create(&[]), Snapshot::of(volume.path()));
                }
                3 if models[here].len() > 2 => {
                    let id = models[here].keys().nth(rng.below(2) as usize).unwrap().clone();
                    volume.ok("forget", &[&id]);
                    volume.ok("prune", &["--forgotten"]);
                    models[here].remove(&id);
                    gone[here].push(id);
                }
                4 | 5 if !models[here].is_empty() => {
                    copy_ok(volume, other, &["--all"]);
                    for (id, snapshot) in models[here].clone() {
                        if !gone[1 - here].contains(&id) {
                            models[1 - here].insert(id, snapshot);
                        }
                    }
                }
                _ if !models[here].is_empty() => {
                    let nth = rng.below(models[here].len() as u64) as usize;
                    let (id, expected) = models[here].iter().nth(nth).unwrap();
                    volume.ok("restore", &[id, "--no-safety", "--compare", "content"]);
                    Snapshot::of(volume.path()).assert_like(expected, COPY, &what);
                }
                _ => {}
            }
            let listed = digests(volume).into_keys().collect::<Vec<_>>();
            assert_eq!(listed, models[here].keys().cloned().collect::<Vec<_>>(), "{what}");
        }
        volumes.iter().for_each(|volume| drop(volume.ok("verify", &["--no-heal"])));
    }
}
