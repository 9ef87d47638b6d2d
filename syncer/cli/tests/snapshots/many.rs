//! A volume with more snapshots than users keep, and with times from a wrong clock.

use std::str::FromStr as _;

use syncer::snapshot::{Roots, Snapshot, SnapshotId};

use crate::common::prelude::*;
use crate::volume::{Said, Volume};

const MANY: u64 = 10_000;
const HOUR: i64 = 3600;

/// The limit of the program's address space while it handles all of them; a good part of it is in use at its start.
const ADDRESS_SPACE_KIB: u64 = 512 << 10;

fn list_of(volume: &Volume) -> Roots {
    Roots::decode(&fs::read(volume.store("roots")).unwrap()).unwrap()
}

/// Makes a volume with a snapshot for each of the last `count` hours, the oldest first. Each has a pack of its own,
/// with a copy of the first one's root directory, of the version without a record at its end.
fn volume_of(count: u64) -> (Volume, Vec<SnapshotId>) {
    let volume = Volume::new();
    fs::write(volume.path().join("file"), "content").unwrap();
    let first = SnapshotId::from_str(&volume.create(&[])).unwrap();
    let mut roots = list_of(&volume);
    let sample = roots.snapshots[0].clone();
    let mut pack = fs::read(volume.store(&format!("packs/{first}"))).unwrap();
    pack[6] = 1;
    let copies = (1..count).map(|nth| {
        let mut copy = Snapshot { id: SnapshotId(nth), ..sample.clone() };
        copy.tree.place.pack = nth;
        fs::write(volume.store(&format!("packs/{}", copy.id)), &pack).unwrap();
        copy
    });
    let copies: Vec<Snapshot> = copies.collect();
    roots.snapshots.extend(copies);
    for (age, snapshot) in (0..).zip(roots.snapshots.iter_mut().rev()) {
        (snapshot.taken.seconds, snapshot.began.seconds) =
            (sample.taken.seconds - age * HOUR, sample.began.seconds - age * HOUR);
    }
    fs::write(volume.store("roots"), roots.encode()).unwrap();
    (volume, roots.snapshots.iter().map(|snapshot| snapshot.id).collect())
}

fn within_bounds(volume: &Volume, command: &str, args: &[&str]) -> Said {
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$@\"");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script, "sh"])
        .arg(program())
        .args(["snapshot", command])
        .arg(volume.path())
        .args(args);
    let said: Said = shell.output().unwrap().into();
    assert_eq!(said.code, Some(0), "{command} {args:?}: {}", said.stderr);
    said
}

#[test]
fn ten_thousand_snapshots_are_listed_judged_collected_and_checked_in_bounded_memory() {
    let (volume, ids) = volume_of(MANY);
    let newest = ids.last().unwrap().to_string();
    let listed = within_bounds(&volume, "list", &["--json"]).json();
    assert_eq!(listed.as_array().unwrap().len() as u64, MANY);
    let rules =
        ["--keep-hourly", "48", "--keep-daily", "30", "--keep-yearly", "1", "--time-zone", "UTC", "--json"];
    let plan = within_bounds(&volume, "prune", &[&rules[..], &["-n"]].concat()).json();
    let kept = plan["kept"].as_array().unwrap().len() as u64;
    // 48 hours lie on two or three days, and the hourly rule already keeps the last snapshot of each of these days.
    assert!((48 + 27..=48 + 30).contains(&kept), "{kept} kept");
    assert_eq!(plan["removed"].as_array().unwrap().len() as u64, MANY - kept);
    assert_eq!(list_of(&volume).snapshots.len() as u64, MANY, "a dry run");
    let done = within_bounds(&volume, "prune", &rules).json();
    assert_eq!(done["removed"], plan["removed"]);
    let packs = fs::read_dir(volume.store("packs")).unwrap().count() as u64;
    // The content of all of them is in the first one's pack, which stays for its content alone.
    assert_eq!((list_of(&volume).snapshots.len() as u64, packs), (kept, kept + 1));
    assert_eq!(within_bounds(&volume, "cat", &[&newest, "file"]).stdout, "content");
    within_bounds(&volume, "verify", &["--no-heal"]);
}

/// The clock was a year ahead for one snapshot, and right again for the next.
#[test]
fn a_clock_that_was_wrong_for_a_while_costs_no_snapshot_and_latest_is_the_last_that_was_taken() {
    let (volume, ids) = volume_of(5);
    let mut roots = list_of(&volume);
    let ahead = 365 * 24 * HOUR;
    roots.snapshots[2].taken.seconds += ahead;
    roots.snapshots[2].tags.insert("tagged".into());
    roots.snapshots[4].tags.insert("tagged".into());
    fs::write(volume.store("roots"), roots.encode()).unwrap();
    let id_of = |text: &str| volume.run("show", &[text, "--json"]).json()["id"].as_str().unwrap().to_owned();
    assert_eq!([id_of("latest"), id_of("tagged")], [ids[4].to_string(), ids[4].to_string()]);
    volume.ok("prune", &["--keep-last", "2"]);
    let left: Vec<SnapshotId> = list_of(&volume).snapshots.iter().map(|snapshot| snapshot.id).collect();
    assert_eq!(left, ids[2..], "the newest two, and the one from the future");
    // Later, the clock is a year behind all of them: no snapshot counts as old.
    let mut roots = list_of(&volume);
    roots.snapshots.iter_mut().for_each(|snapshot| snapshot.taken.seconds += 2 * ahead);
    fs::write(volume.store("roots"), roots.encode()).unwrap();
    volume.ok("prune", &["--keep-last", "1"]);
    assert_eq!(list_of(&volume).snapshots.len(), 3);
    let before = id_of("latest");
    let next = volume.create(&[]);
    assert_eq!((before, id_of("latest")), (ids[4].to_string(), next));
}
