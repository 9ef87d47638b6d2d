//! Commands that are killed at any moment: the store is as before or as after the command, and the next command works
//! without repair.

use std::{collections::BTreeMap, process::Stdio, time::Instant};

use crate::common::prelude::*;
use crate::{
    damage::{flip, only_file_below},
    volume::Volume,
};

/// The length of the file whose content is damaged before a check that is killed.
const LARGE: usize = 200_000;

/// The number of commands to kill. `VOLFERRY_KILLS` sets another number.
const KILLS: usize = 500;

/// Runs a command and kills it after a part of its usual time: the moment of a kill is what is tried. Returns true if
/// it had ended before.
pub fn kill(mut command: Command, after: Duration) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap().code().is_some()
}

/// Returns the digest of each snapshot's tree, by the snapshot's id.
fn listed(volume: &Volume) -> BTreeMap<String, String> {
    let list = volume.run("list", &["--all", "--json"]).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(|one| (text(&one["id"]), text(&one["digest"]))).collect()
}

/// Returns what is killed in a round.
fn nth_command(round: usize, newest: &str) -> (&'static str, Vec<&str>) {
    match round % 6 {
        0 | 1 => ("create", vec![]),
        2 => ("restore", vec!["first", "--no-safety"]),
        3 => ("forget", vec![newest]),
        4 => ("prune", vec!["--keep-last", "3"]),
        _ => ("verify", vec![]),
    }
}

/// Asserts that no snapshot has another tree than before, and that only what the command may do was done.
#[track_caller]
fn assert_changed_as_asked(
    round: usize,
    command: &str,
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) {
    for (id, digest) in now {
        assert!(before.get(id).is_none_or(|other| other == digest), "round {round}, {command}: {id}");
    }
    let new = now.keys().filter(|id| !before.contains_key(*id)).count();
    let gone = before.keys().filter(|id| !now.contains_key(*id)).count();
    let (may_add, may_remove) =
        (usize::from(command == "create"), if command == "prune" { before.len() } else { 0 });
    assert!(new <= may_add && gone <= may_remove, "round {round}, {command}: {new} new, {gone} gone");
}

#[test]
fn the_store_is_complete_or_unchanged_after_every_kill() {
    let kills = std::env::var("VOLFERRY_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let volume = Volume::new();
    tree::many(volume.path(), 60, 300);
    fs::write(volume.path().join("large"), vec![3; LARGE]).unwrap();
    volume.create(&["--tag", "first", "--pin"]);
    let object = only_file_below(&volume.store("content"));
    let mut rng = Rng::new(17);
    let mut cut_off = 0;
    let mut usual: BTreeMap<&str, Duration> = BTreeMap::new();
    for round in 0..kills {
        let number = rng.below(60);
        let content = rng.bytes(100 + (round % 7) * 40_000);
        fs::write(volume.path().join(format!("d0000/f{number:06}")), content).unwrap();
        let before = listed(&volume);
        let newest = volume.list().last().unwrap()["id"].as_str().unwrap().to_owned();
        let (command, args) = nth_command(round, &newest);
        let args = &args[..];
        let usual = usual.entry(command).or_insert_with(|| {
            let began = Instant::now();
            let copy = if command == "forget" { ("list", &[][..]) } else { (command, args) };
            volume.run(copy.0, copy.1);
            began.elapsed()
        });
        let before = if before.len() == listed(&volume).len() { before } else { listed(&volume) };
        let after = usual.mul_f64(rng.below(1100) as f64 / 1000.0);
        if command == "verify" {
            flip(&object, rng.below(LARGE as u64));
        }
        let ended = kill(volume.command(command, args), after);
        cut_off += usize::from(!ended);
        // The machine's load varies: the moments stay within the time that the command takes.
        *usual = usual.mul_f64(if ended { 0.9 } else { 1.1 });
        if command == "verify" && volume.run("verify", &[]).code != Some(0) {
            volume.ok("verify", &[]);
        }
        assert_changed_as_asked(round, command, &before, &listed(&volume));
        if round % 10 == 0 {
            volume.ok("verify", &["--no-heal"]);
        }
    }
    assert!(cut_off > kills / 4, "only {cut_off} of {kills} commands were cut off");
    volume.ok("verify", &["--no-heal"]);
    volume.create(&[]);
    for name in ["new", "trash"] {
        assert_eq!(fs::read_dir(volume.store(name)).unwrap().count(), 0, "{name}");
    }
    volume.ok("prune", &["--keep-last", "1"]);
    volume.ok("restore", &["first", "--no-safety", "--compare", "content"]);
    let restored = Snapshot::of(volume.path());
    let other = volume.path().parent().unwrap().join("other");
    volume.ok("restore", &["first", "--to", other.to_str().unwrap()]);
    Snapshot::of(&other).assert_like(&restored, COPY, "the first snapshot");
}
