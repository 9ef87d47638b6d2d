//! Damage of every kind is found and named, repaired where a good copy of the content exists, and never made worse.

use crate::common::prelude::*;
use crate::volume::Volume;

fn volume() -> Volume {
    let volume = Volume::new();
    fs::create_dir(volume.path().join("dir")).unwrap();
    fs::write(volume.path().join("dir/small"), "small content").unwrap();
    fs::write(volume.path().join("large"), (0..300_000_u32).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
    volume.create(&[]);
    volume
}

/// Flips a bit of the byte at `offset`.
pub(crate) fn flip(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

pub(crate) fn only_file_below(dir: &Path) -> PathBuf {
    let mut path = dir.to_path_buf();
    while path.is_dir() {
        path = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    }
    path
}

pub fn position(haystack: &[u8], needle: &[u8]) -> u64 {
    haystack.windows(needle.len()).position(|window| window == needle).unwrap() as u64
}

#[test]
fn damaged_content_is_named_and_healed_from_the_live_tree() {
    for (name, below) in [("large", "content"), ("dir/small", "packs")] {
        let volume = volume();
        let object = only_file_below(&volume.store(below));
        let at = if below == "packs" { position(&fs::read(&object).unwrap(), b"small content") } else { 77 };
        flip(&object, at);
        let said = volume.run("verify", &["--no-heal"]).exits(3);
        assert!(said.stdout.contains(&format!("needed by {name} in ")), "{said:?}");
        let said = volume
            .run("restore", &["latest", "--to", volume.path().parent().unwrap().join("to").to_str().unwrap()])
            .exits(1);
        assert!(said.stderr.contains("nothing was changed"), "{said:?}");
        let said = volume.run("verify", &[]).exits(3);
        assert!(said.stdout.contains(&format!("put right from the volume's own {name}")), "{said:?}");
        volume.ok("verify", &[]);
    }
}

#[test]
fn equal_content_in_two_places_is_checked_in_both() {
    let volume = Volume::new();
    let (packs, content) = (volume.store("packs"), Rng::new(8).bytes(40_000));
    let names =
        |dir: &Path| -> Vec<PathBuf> { fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).collect() };
    fs::write(volume.path().join("first"), &content).unwrap();
    volume.create(&[]);
    let before = names(&packs);
    fs::write(volume.path().join("second"), &content).unwrap();
    volume.create(&[]);
    let added = names(&packs).into_iter().find(|pack| !before.contains(pack)).unwrap();
    flip(&added, position(&fs::read(&added).unwrap(), &content[..64]));
    ["first", "second"].iter().for_each(|name| fs::remove_file(volume.path().join(name)).unwrap());
    let said = volume.run("restore", &["latest", "--no-safety"]).exits(1);
    assert!(said.stderr.contains("nothing was changed"), "{said:?}");
}

#[test]
fn what_cannot_be_healed_is_left_as_it_is_and_heals_when_a_copy_appears() {
    let volume = volume();
    let live = volume.path().join("large");
    let good = fs::read(&live).unwrap();
    let object = only_file_below(&volume.store("content"));
    flip(&object, 5);
    fs::write(&live, "changed").unwrap();
    let damaged = fs::read(&object).unwrap();
    for _ in 0..2 {
        assert_eq!(volume.run("verify", &[]).code, Some(3));
        assert!(fs::read(&object).unwrap() == damaged);
    }
    let before = Snapshot::of(volume.path());
    volume.run("restore", &["latest", "--no-safety"]).exits(1);
    Snapshot::of(volume.path()).assert_like(&before, UNTOUCHED, "a restore that is refused");
    fs::write(&live, good).unwrap();
    assert_eq!(volume.run("verify", &[]).code, Some(3));
    volume.ok("verify", &[]);
}

/// Damage of any byte of a pack is found: a pack consists of contents, directories and its mark.
#[test]
fn every_byte_of_a_pack_counts() {
    let volume = volume();
    let pack = only_file_below(&volume.store("packs"));
    let len = fs::metadata(&pack).unwrap().len();
    for offset in (8..len).step_by(7) {
        flip(&pack, offset);
        assert_eq!(volume.run("verify", &["--no-heal"]).code, Some(3), "byte {offset} of {len}");
        flip(&pack, offset);
    }
    volume.ok("verify", &[]);
}

#[test]
fn a_damaged_list_without_a_copy_names_itself_and_keeps_everything() {
    let volume = volume();
    volume.create(&["--tag", "second"]);
    let roots = volume.store("roots");
    let bytes = fs::read(&roots).unwrap();
    let packs = fs::read_dir(volume.store("packs")).unwrap().count();
    for offset in (28..bytes.len() as u64).step_by(31) {
        flip(&roots, offset);
        let _ = fs::remove_file(volume.store("roots.copy"));
        let said = volume.run("verify", &["--no-heal"]);
        assert_eq!(said.code, Some(3), "byte {offset}");
        assert!(said.stdout.contains("list of snapshots"), "{said:?}");
        let said = volume.run("prune", &["--keep-last", "1"]);
        assert_eq!(said.code, Some(3), "byte {offset}: {said:?}");
        assert!(said.stderr.contains("no room is given back"), "{said:?}");
        assert!(!volume.list().is_empty());
        assert_eq!(fs::read_dir(volume.store("packs")).unwrap().count(), packs);
        fs::write(&roots, &bytes).unwrap();
    }
    let mut newer = bytes[..20].to_vec();
    newer[8] = 9;
    newer.extend_from_slice(&blake3::hash(&newer).as_bytes()[..8]);
    fs::write(&roots, newer).unwrap();
    for command in ["list", "create", "verify", "repair"] {
        let said = volume.run(command, &[]);
        assert!(said.code == Some(1) && said.stderr.contains("format version 9"), "{said:?}");
    }
    fs::write(&roots, bytes).unwrap();
    volume.ok("verify", &[]);
}

#[test]
fn a_changed_log_is_found_and_a_torn_line_is_cut_off() {
    let volume = volume();
    volume.create(&[]);
    let audit = volume.store("audit");
    let whole = fs::read(&audit).unwrap();
    fs::write(&audit, [&whole, &b"torn"[..]].concat()).unwrap();
    volume.ok("verify", &[]);
    volume.create(&[]);
    assert_eq!(volume.run("log", &["--json"]).json().as_array().unwrap().len(), 3);
    flip(&audit, 40);
    let said = volume.run("verify", &[]);
    assert!(said.code == Some(3) && said.stdout.contains("audit log from line 1"), "{said:?}");
}

#[test]
fn parts_together_check_everything() {
    let volume = Volume::new();
    crate::common::tree::many(volume.path(), 100, 40);
    volume.create(&[]);
    let pack = only_file_below(&volume.store("packs"));
    let content = fs::read(volume.path().join("d0000/f000042")).unwrap();
    flip(&pack, position(&fs::read(&pack).unwrap(), &content));
    let parts =
        ["1/4", "2/4", "3/4", "4/4"].map(|part| volume.run("verify", &["--part", part, "--no-heal"]).code);
    assert_eq!(parts.iter().filter(|code| **code == Some(3)).count(), 1, "{parts:?}");
    assert!(parts.iter().all(|code| matches!(code, Some(0 | 3))), "{parts:?}");
}

/// The parts of several calls cover the whole store, even after an interrupted call.
#[test]
fn calls_in_turn_read_all_parts_and_one_that_was_cut_off_is_done_again() {
    let volume = Volume::new();
    for nth in 0..40_u8 {
        std::fs::write(volume.path().join(format!("f{nth}")), vec![nth; 70_000]).unwrap();
    }
    volume.create(&[]);
    let all = volume.run("verify", &["--json"]).json()["bytes"].as_u64().unwrap();
    let folder = all - 40 * 70_000;
    let turn = |more: &[&str]| volume.run("verify", &[&["--in-turn", "4", "--json"], more].concat());
    let mut read = 0;
    for nth in [1, 2, 3, 4] {
        let said = turn(&[]).json();
        assert_eq!(said["part"], format!("{nth}/4"));
        read += said["bytes"].as_u64().unwrap() - folder;
    }
    assert_eq!(read, 40 * 70_000);
    assert_eq!(turn(&[]).json()["part"], "1/4", "from the start again");
    let mut slow = volume.command("verify", &["--in-turn", "4", "--bandwidth-limit", "1k"]);
    let mut slow = slow.stdout(std::process::Stdio::null()).spawn().unwrap();
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert_eq!(turn(&[]).json()["part"], "2/4");
    assert_eq!(volume.run("verify", &["--in-turn", "3", "--json"]).json()["part"], "1/3", "other parts");
    std::fs::write(volume.store("checked"), "9/3\n").unwrap();
    assert_eq!(volume.run("verify", &["--in-turn", "3", "--json"]).json()["part"], "1/3", "a damaged file");
    volume.run("verify", &["--in-turn", "0"]).exits(2);
}

/// A directory of an unchanged tree is not read again, so a new snapshot refers to the same object as the last one,
/// until a check finds that object damaged.
#[test]
fn a_snapshot_after_a_check_does_without_what_the_check_found_damaged() {
    let volume = Volume::new();
    fs::create_dir_all(volume.path().join("above/dir")).unwrap();
    fs::write(volume.path().join("above/dir/name-of-file"), "content of file").unwrap();
    let packs = || fs::read_dir(volume.store("packs")).unwrap().count();
    let publishes_nothing = || {
        let before = packs();
        volume.create(&[]);
        packs() == before
    };
    volume.let_stamps_settle();
    volume.create(&[]);
    assert!(publishes_nothing(), "nothing has changed");
    volume.ok("prune", &["--keep-last", "1"]);
    for pack in fs::read_dir(volume.store("packs")).unwrap().map(|pack| pack.unwrap().path()) {
        let bytes = fs::read(&pack).unwrap();
        let has = bytes.windows(12).any(|window| window == b"name-of-file");
        has.then(|| flip(&pack, position(&bytes, b"name-of-file")));
    }
    assert!(publishes_nothing(), "the directory is not read");
    let unread = volume.create(&[]);
    let found = volume.run("verify", &["--json", "--no-heal", "--in-turn", "1"]).json();
    assert_eq!(found["damaged"][0]["files"][0]["path"], "above/dir", "{found}");
    assert_eq!(volume.run("ls", &[&unread, "above/dir"]).code, Some(1));
    volume.create(&["--tag", "after"]);
    assert_eq!(volume.ok("cat", &["after", "above/dir/name-of-file"]), "content of file");
    volume.run("verify", &[]);
    volume.ok("prune", &["--keep-last", "1"]);
    volume.ok("verify", &[]);
    assert!(publishes_nothing(), "no damage is known any more");
}
