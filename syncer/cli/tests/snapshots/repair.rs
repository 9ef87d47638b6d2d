//! A damaged or lost list of snapshots is never taken for an empty one; it comes back from its copy and from packs.

use std::{collections::BTreeMap, process::Stdio};

use crate::common::prelude::*;
use crate::{
    damage::{flip, only_file_below},
    volume::Volume,
};

/// Makes a volume with two snapshots of different content, the first of them pinned. Returns their ids, too.
fn volume() -> (Volume, [String; 2]) {
    let volume = Volume::new();
    fs::create_dir(volume.path().join("dir")).unwrap();
    fs::write(volume.path().join("dir/small"), "first content").unwrap();
    fs::write(volume.path().join("large"), vec![7; 200_000]).unwrap();
    let first = volume.create(&["--tag", "first", "--pin"]);
    fs::write(volume.path().join("dir/small"), "second content").unwrap();
    let second = volume.create(&[]);
    (volume, [first, second])
}

fn ids(volume: &Volume) -> Vec<String> {
    volume.list().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// Returns the content of every file of the store, except for the file that readers lock.
pub(crate) fn store_of(volume: &Volume) -> BTreeMap<String, Vec<u8>> {
    fn add(dir: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                add(&entry, into);
            } else {
                drop(into.insert(entry.display().to_string(), fs::read(&entry).unwrap()));
            }
        }
    }
    let mut files = BTreeMap::new();
    add(&volume.store(""), &mut files);
    files.remove(&volume.store("readers").display().to_string());
    files
}

#[test]
fn a_lost_list_is_damage_nothing_is_written_and_all_snapshots_come_back() {
    for lost in [&["roots"][..], &["roots", "roots.copy"]] {
        for is_emptied in [false, true] {
            let (volume, expected) = volume();
            for name in lost {
                if is_emptied {
                    fs::write(volume.store(name), "").unwrap();
                } else {
                    fs::remove_file(volume.store(name)).unwrap();
                }
            }
            let before = store_of(&volume);
            let commands: &[(&str, &[&str])] =
                &[("create", &[]), ("prune", &["--keep-last", "1"]), ("forget", &["first"]), ("verify", &[])];
            for (command, args) in commands {
                let said = volume.run(command, args);
                assert_eq!(said.code, Some(3), "{command}: {said:?}");
                assert!(said.stderr.contains("volferry snapshot repair"), "{command}: {said:?}");
            }
            let said = volume.run("list", &[]);
            assert_eq!(said.code, Some(if lost.len() == 1 { 0 } else { 3 }), "{said:?}");
            assert!(said.stderr.contains("volferry snapshot repair"), "{said:?}");
            let empty = volume.path().parent().unwrap().join("empty");
            fs::create_dir_all(&empty).unwrap();
            let doctor =
                Command::new(program()).arg("doctor").args([&empty, volume.path()]).output().unwrap();
            assert!(!doctor.status.success());
            assert!(
                String::from_utf8_lossy(&doctor.stdout).contains("volferry snapshot repair"),
                "{doctor:?}"
            );
            let shown = volume.run("repair", &[]).exits(3);
            assert!(
                expected.iter().all(|id| shown.stdout.contains(&format!("bring back {id}"))),
                "{shown:?}"
            );
            assert!(store_of(&volume) == before, "nothing is written before --apply");
            volume.ok("repair", &["--apply"]);
            assert_eq!(ids(&volume), expected);
            assert_eq!(
                (&volume.list()[0]["pinned"], &volume.list()[0]["tags"][0]),
                (&true.into(), &"first".into())
            );
            assert_eq!(volume.ok("cat", &["first", "dir/small"]), "first content");
            volume.ok("verify", &["--no-heal"]);
            volume.ok("prune", &["--keep-last", "1"]);
            volume.ok("restore", &["first", "--no-safety", "--compare", "content"]);
            assert_eq!(fs::read_to_string(volume.path().join("dir/small")).unwrap(), "first content");
        }
    }
}

#[test]
fn a_run_onto_a_volume_whose_list_is_lost_copies_its_files_and_fails_to_take_a_snapshot() {
    let (volume, _) = volume();
    ["roots", "roots.copy"].iter().for_each(|name| fs::remove_file(volume.store(name)).unwrap());
    let source = volume.path().parent().unwrap().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("new"), "new").unwrap();
    let before = store_of(&volume);
    let run =
        Command::new(program()).args(["sync", "--snapshot"]).args([&source, volume.path()]).output().unwrap();
    assert_eq!(run.status.code(), Some(3), "{run:?}");
    assert_eq!(fs::read_to_string(volume.path().join("new")).unwrap(), "new");
    assert!(store_of(&volume) == before);
}

#[test]
fn any_flipped_byte_of_the_list_loses_nothing_and_the_next_change_mends_it() {
    let (volume, expected) = volume();
    let roots = volume.store("roots");
    let bytes = fs::read(&roots).unwrap();
    for offset in (0..28).chain((28..bytes.len() as u64).step_by(41)) {
        flip(&roots, offset);
        assert_eq!(ids(&volume), expected, "byte {offset}");
        let said = volume.run("verify", &["--no-heal"]);
        assert!(said.code == Some(3) && said.stdout.contains("list of snapshots"), "byte {offset}: {said:?}");
        if offset % 2 == 0 {
            volume.ok("prune", &["--keep-last", "2"]);
            volume.ok("untag", &["first", "none"]);
        } else {
            assert_eq!(volume.run("verify", &[]).code, Some(3), "byte {offset}");
        }
        volume.ok("verify", &["--no-heal"]);
        fs::write(&roots, &bytes).unwrap();
        fs::write(volume.store("roots.copy"), &bytes).unwrap();
    }
    flip(&volume.store("roots.copy"), 60);
    assert_eq!(volume.run("verify", &[]).code, Some(3), "the copy is checked, too");
    volume.ok("verify", &["--no-heal"]);
}

/// Finds the offset of the record of a snapshot in the list.
fn record_of(list: &[u8], id: &str) -> u64 {
    let id = u64::from_str_radix(id, 16).unwrap().to_le_bytes();
    list.windows(8).position(|window| window == id).unwrap() as u64
}

#[test]
fn damage_of_one_record_concerns_its_snapshot_only() {
    let (volume, [first, second]) = volume();
    fs::write(volume.path().join("dir/small"), "third content").unwrap();
    let third = volume.create(&[]);
    let roots = volume.store("roots");
    flip(&roots, record_of(&fs::read(&roots).unwrap(), &second) + 20);
    fs::remove_file(volume.store("roots.copy")).unwrap();
    assert_eq!(ids(&volume), [first.clone(), third.clone()]);
    volume.ok("unpin", &["first"]);
    volume.run("prune", &["--keep-last", "1"]).exits(3);
    assert_eq!(ids(&volume), std::slice::from_ref(&third), "other snapshots are judged");
    assert!(
        volume.store("packs").join(&first).exists(),
        "no room is given back, because {second} may need it"
    );
    let shown = volume.run("repair", &[]);
    assert!(shown.stdout.contains(&format!("bring back {second} from the record in its pack")), "{shown:?}");
    let stays_away = format!("leave out {first}: the log says that it was collected");
    assert!(shown.stdout.contains(&stays_away), "{shown:?}");
    volume.ok("repair", &["--apply"]);
    assert_eq!(ids(&volume), [second.clone(), third]);
    assert_eq!(volume.ok("cat", &[&second, "dir/small"]), "second content");
    volume.ok("prune", &["--keep-last", "2"]);
    assert!(!volume.store("packs").join(&first).exists());
    volume.ok("verify", &["--no-heal"]);
}

/// Makes a volume with three snapshots, each with a large file of its own, of which a prune that was killed after its
/// line in the log, and before the list, would have kept the last.
fn killed_prune() -> (Volume, Vec<String>) {
    let volume = Volume::new();
    let take = |nth: u64| {
        fs::write(volume.path().join("small"), format!("{nth}")).unwrap();
        fs::write(volume.path().join("large"), Rng::new(nth).bytes(100_000)).unwrap();
        volume.create(&["--engine", "copy"])
    };
    let ids = (0..3).map(take).collect();
    let before = store_of(&volume);
    volume.ok("prune", &["--keep-last", "1"]);
    let log = fs::read(volume.store("audit")).unwrap();
    for (path, bytes) in before {
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(volume.store("audit"), log).unwrap();
    (volume, ids)
}

#[test]
fn what_a_killed_prune_would_have_collected_comes_back_when_the_list_is_lost_later() {
    for is_followed in [false, true] {
        let (volume, mut expected) = killed_prune();
        assert_eq!(ids(&volume), expected);
        if is_followed {
            fs::write(volume.path().join("small"), "last").unwrap();
            expected.push(volume.create(&[]));
            let log = volume.run("log", &["--json"]).json();
            let last = log.as_array().unwrap().iter().rev().nth(1).unwrap();
            assert_eq!((&last["action"], &last["snapshots"]), (&"uncollect".into(), &expected[..2].into()));
        }
        ["roots", "roots.copy"].iter().for_each(|name| fs::remove_file(volume.store(name)).unwrap());
        volume.ok("repair", &["--apply"]);
        assert_eq!(ids(&volume), expected);
        volume.ok("verify", &["--no-heal"]);
        let pruned = volume.run("prune", &["--keep-last", "9", "--json"]).json();
        assert_eq!(
            (&pruned["removed"], &pruned["freedBytes"]),
            (&serde_json::json!([]), &0.into()),
            "{pruned}"
        );
    }
}

#[test]
fn what_a_prune_has_collected_stays_away_when_the_list_is_lost_and_is_named() {
    let (volume, ids_before) = killed_prune();
    let before = store_of(&volume);
    volume.ok("prune", &["--keep-last", "1"]);
    ["roots", "roots.copy"].iter().for_each(|name| fs::remove_file(volume.store(name)).unwrap());
    // Packs of which later snapshots need a part stay, and with them the records at their ends.
    for (path, bytes) in before.iter().filter(|(path, _)| path.contains("/packs/")) {
        fs::write(path, bytes).unwrap();
    }
    let shown = volume.run("repair", &[]);
    for id in &ids_before[..2] {
        let left_out = format!("leave out {id}: the log says that it was collected");
        assert!(shown.stdout.contains(&left_out), "{shown:?}");
    }
    volume.ok("repair", &["--apply"]);
    assert_eq!(ids(&volume), ids_before[2..]);
    volume.ok("verify", &["--no-heal"]);
}

#[test]
fn what_nothing_has_is_named_and_forgotten() {
    let (volume, [first, second]) = volume();
    let roots = volume.store("roots");
    let bytes = fs::read(&roots).unwrap();
    flip(&roots, record_of(&bytes, &second) + 20);
    fs::remove_file(volume.store("roots.copy")).unwrap();
    fs::remove_file(volume.store("packs").join(&second)).unwrap();
    let shown = volume.run("repair", &[]);
    assert!(shown.code == Some(3) && shown.stdout.contains(&format!("leave out {second}")), "{shown:?}");
    flip(&roots, record_of(&bytes, &second) - 2);
    let shown = volume.run("repair", &[]);
    assert!(shown.code == Some(3) && shown.stdout.contains(&format!("forget {second}")), "{shown:?}");
    volume.ok("repair", &["--apply"]);
    assert_eq!(ids(&volume), [first]);
    assert!(fs::read(volume.store("roots.before-repair")).unwrap().len() == bytes.len());
    volume.ok("verify", &["--no-heal"]);
    assert_eq!(volume.run("repair", &[]).code, Some(0));
}

/// The list is lost, and a record of its copy is damaged. Snapshots without new objects have no pack.
#[test]
fn whole_records_of_a_damaged_copy_are_used_and_what_only_the_log_has_is_named() {
    let (volume, [first, second]) = volume();
    let pinned = volume.create(&["--pin", "--note", "keep"]);
    let last = volume.create(&[]);
    fs::remove_file(volume.store("roots")).unwrap();
    let copy = volume.store("roots.copy");
    let bytes = fs::read(&copy).unwrap();
    flip(&copy, record_of(&bytes, &last) - 2);
    let shown = volume.run("repair", &["--apply"]);
    assert!(shown.stdout.contains(&format!("forget {last}: ")), "{shown:?}");
    assert_eq!(ids(&volume), [first, second, pinned]);
    assert!(volume.list()[2]["pinned"] == true && volume.list()[2]["note"] == "keep", "{:?}", volume.list());
    assert_eq!(fs::read(volume.store("roots.copy.before-repair")).unwrap().len(), bytes.len());
    volume.ok("verify", &["--no-heal"]);
}

#[test]
fn what_a_restore_has_pushed_out_stays_away_when_the_list_is_lost() {
    let volume = Volume::new();
    tree::file(&volume.path().join("file"), b"first");
    let first = volume.create(&[]);
    for round in 0..5 {
        fs::write(volume.path().join("file"), format!("before restore {round}")).unwrap();
        volume.ok("restore", &[&first]);
    }
    volume.ok("prune", &["--forgotten"]);
    let left = ids(&volume);
    fs::remove_file(volume.store("roots")).unwrap();
    fs::remove_file(volume.store("roots.copy")).unwrap();
    volume.ok("repair", &["--apply"]);
    assert_eq!(ids(&volume), left);
    volume.ok("verify", &["--no-heal"]);
}

#[test]
fn a_damaged_log_is_put_aside_and_a_new_one_begins() {
    let (volume, expected) = volume();
    flip(&volume.store("audit"), 40);
    let said = volume.run("verify", &[]);
    assert!(said.code == Some(3) && said.stderr.contains("volferry snapshot repair"), "{said:?}");
    let shown = volume.run("repair", &[]);
    assert!(shown.code == Some(3) && shown.stdout.contains("begin a new one"), "{shown:?}");
    volume.ok("repair", &["--apply"]);
    volume.ok("verify", &["--no-heal"]);
    let log = volume.run("log", &["--json"]).json();
    assert_eq!((&log[0]["action"], log.as_array().unwrap().len()), (&"repair".into(), 1));
    assert!(log[0]["note"].as_str().unwrap().contains("audit.1"), "{log}");
    assert!(volume.store("audit.1").exists());
    assert_eq!(ids(&volume), expected);
}

#[test]
fn a_repair_that_is_killed_is_done_again() {
    let mut rng = Rng::new(29);
    let (volume, expected) = volume();
    for round in 0..30 {
        fs::remove_file(volume.store("roots")).unwrap();
        if round % 2 == 0 {
            fs::remove_file(volume.store("roots.copy")).unwrap();
        }
        let mut child = volume.command("repair", &["--apply"]);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(std::time::Duration::from_micros(rng.below(30_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        volume.ok("repair", &["--apply"]);
        assert_eq!(ids(&volume), expected, "round {round}");
        volume.ok("verify", &["--no-heal"]);
    }
}

/// The packs and contents of a store, each in turn, are removed. The check goes on and names what needs them, and heals
/// what the live tree has.
#[test]
fn a_check_of_a_store_that_lacks_an_object_names_all_that_need_it_and_heals_what_has_a_copy() {
    let (volume, [first, second]) = volume();
    let mut objects: Vec<_> =
        fs::read_dir(volume.store("packs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    objects.push(only_file_below(&volume.store("content")));
    assert_eq!(objects.len(), 3);
    for object in &objects {
        let bytes = fs::read(object).unwrap();
        fs::remove_file(object).unwrap();
        let said = volume.run("verify", &["--no-heal", "--json"]).exits(3);
        let found = said.json();
        let needs = |id: &&String| object.ends_with(id) || object.starts_with(volume.store("content"));
        let expected: Vec<&String> = [&first, &second].into_iter().filter(needs).collect();
        assert_eq!(found["snapshots"], serde_json::json!(expected), "{}: {found}", object.display());
        assert!(!found["damaged"][0]["files"].as_array().unwrap().is_empty(), "{found}");
        assert!(fs::read_to_string(volume.store("damaged")).is_err(), "--no-heal writes nothing down");
        volume.run("verify", &["--json"]).exits(3);
        // Content that came to light in healed directories is found by the next check.
        let said = volume.run("verify", &["--json"]);
        if object.ends_with(&first) {
            let left = volume.run("verify", &["--json"]).json();
            assert_eq!(
                left["snapshots"],
                serde_json::json!([first]),
                "only the live tree has copies: {left}"
            );
            assert!(fs::read_to_string(volume.store("damaged")).unwrap().contains("directories"));
            assert_eq!(volume.ok("cat", &[&second, "dir/small"]), "second content");
            assert_eq!(volume.run("cat", &[&second, "large"]).code, Some(0));
        } else {
            assert_eq!(volume.run("verify", &["--no-heal"]).code, Some(0), "{}: {said:?}", object.display());
            assert_eq!(volume.ok("cat", &[&first, "dir/small"]), "first content");
            assert_eq!(volume.ok("cat", &[&second, "dir/small"]), "second content");
        }
        fs::write(object, &bytes).unwrap();
        volume.run("verify", &[]);
        volume.ok("verify", &["--no-heal"]);
        let _ = fs::remove_file(volume.store("damaged"));
    }
}
