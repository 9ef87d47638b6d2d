//! A snapshot of a volume on one machine, restored onto a volume on another one.

use crate::common::prelude::*;
use crate::damage::{flip, only_file_below, position};

const RESTORE: [&str; 3] = ["--delete", "--delete-limit=100", "--force"];

fn snapshot(command: &str, dir: &Path, args: &[&str]) {
    let said = Command::new(program()).args(["snapshot", command]).arg(dir).args(args).output().unwrap();
    assert!(said.status.success(), "{command} {args:?}: {said:?}");
}

fn from(id: &str) -> Vec<String> {
    let own = format!("--source-snapshot={id}");
    RESTORE.iter().map(ToString::to_string).chain([own]).collect()
}

fn restore(pair: &Pair, id: &str) -> crate::common::pair::Run {
    let flags = from(id);
    pair.run(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Makes large files whose snapshots share most blocks, one with holes, and many small ones.
fn fill(dir: &Path, rng: &mut Rng) {
    fs::write(dir.join(".READY"), "an ordinary file").unwrap();
    fs::write(dir.join("large"), rng.bytes(3 << 20)).unwrap();
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 20 << 20).unwrap();
    (0..300).for_each(|nth| fs::write(dir.join(format!("small{nth}")), rng.bytes(nth * 40)).unwrap());
}

#[test]
fn everything_that_a_tree_can_hold_comes_back_over_the_network() {
    for way in Way::NETWORK {
        let pair = Pair::new(way);
        let mut rng = Rng::new(way as u64 + 40);
        tree::gallery(&pair.source, Shape::Everything);
        fill(&pair.source, &mut rng);
        let mut taken = Vec::new();
        for round in 0..3 {
            snapshot("create", &pair.source, &["--tag", &format!("round{round}")]);
            taken.push(Snapshot::of(&pair.source));
            for _ in 0..20 {
                rng.pick(&Edit::ALL).unwrap().apply(&pair.source, &mut rng);
            }
        }
        for nth in [1, 0, 2] {
            let run = restore(&pair, &format!("round{nth}"));
            run.assert_exit(ExitCode::Done);
            let note = &run.report().notes[0];
            assert!(note.starts_with("the source is snapshot "), "{note}");
            let what = format!("{way:?}, snapshot {nth}");
            Snapshot::of(&pair.destination).assert_like(&taken[nth], COPY, &what);
        }
        let again = restore(&pair, "latest");
        assert_eq!(again.report().work.changed(), 0, "{:?}", again.report().work);
    }
}

#[test]
fn a_damaged_object_is_found_before_anything_is_changed() {
    for (below, len) in [("content", 300_000), ("packs", 900)] {
        let pair = Pair::new(Way::SinkListens);
        fs::write(pair.source.join("one"), vec![7; len]).unwrap();
        fs::write(pair.source.join("other"), "of the first snapshot").unwrap();
        snapshot("create", &pair.source, &["--tag", "first", "--engine", "copy"]);
        fs::write(pair.destination.join("astray"), "stays").unwrap();
        let object = only_file_below(&pair.source.join(".volferry/snapshots").join(below));
        flip(&object, 100);
        let run = restore(&pair, "first");
        run.assert_exit(ExitCode::Failed);
        let message = format!("{run:?}");
        assert!(message.contains("damaged or missing, the first for one"), "{message}");
        let there = ["one", "other", "astray"].map(|name| pair.destination.join(name).exists());
        assert_eq!(there, [false, false, true], "{below}");
        snapshot_heals(&pair.source);
        restore(&pair, "first").assert_exit(ExitCode::Done);
    }
}

/// Flips a byte of one object, and of the first bytes of a pack that hold this text.
fn damage_text(pack: &Path, text: &[u8]) {
    let bytes = fs::read(pack).unwrap();
    flip(pack, position(&bytes, text));
}

#[test]
fn all_that_is_whole_of_a_damaged_snapshot_comes_when_the_run_keeps_going() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for dir in ["bad", "good", "lost"] {
            fs::create_dir(pair.source.join(dir)).unwrap();
            fs::write(pair.source.join(dir).join("file"), format!("small, in {dir}")).unwrap();
            fs::create_dir(pair.destination.join(dir)).unwrap();
            fs::write(pair.destination.join(dir).join("astray"), "old").unwrap();
        }
        fs::rename(pair.source.join("lost/file"), pair.source.join("lost/a name of its own")).unwrap();
        fs::write(pair.destination.join("bad/file"), "old").unwrap();
        fs::write(pair.source.join("large"), vec![7; 100_000]).unwrap();
        snapshot("create", &pair.source, &["--tag", "mine", "--engine", "copy"]);
        flip(&only_file_below(&pair.source.join(".volferry/snapshots/content")), 5);
        let pack = only_file_below(&pair.source.join(".volferry/snapshots/packs"));
        damage_text(&pack, b"small, in bad");
        damage_text(&pack, b"a name of its own");
        let run = restore(&pair, "mine");
        run.assert_exit(ExitCode::Failed);
        assert!(format!("{run:?}").contains("--keep-going"), "{run:?}");
        let flags = [&RESTORE[..], &["--source-snapshot=mine", "--keep-going"]].concat();
        let run = pair.run_to(ExitCode::Partial, &flags);
        let report = run.report();
        let failed: Vec<_> = report.failures.iter().map(|it| it.path.as_str()).collect();
        assert_eq!((report.work.files_failed, failed.len()), (3, 3), "{way:?}: {failed:?}");
        ["bad/file", "large", "lost"].iter().for_each(|path| assert!(failed.contains(path), "{failed:?}"));
        let there = |path: &str| fs::read_to_string(pair.destination.join(path)).ok();
        assert_eq!(there("bad/file").as_deref(), Some("old"), "{way:?}");
        assert_eq!(there("good/file").as_deref(), Some("small, in good"), "{way:?}");
        assert_eq!(there("large"), None, "{way:?}");
        assert_eq!(there("lost/astray").as_deref(), Some("old"), "a folder that cannot be read, {way:?}");
        assert_eq!(
            [there("good/astray"), there("bad/astray")],
            [None, None],
            "known to be too many, {way:?}"
        );
    }
}

fn snapshot_heals(dir: &Path) {
    let verify = || Command::new(program()).args(["snapshot", "verify"]).arg(dir).status().unwrap().code();
    assert_eq!([verify(), verify()], [Some(3), Some(0)]);
}

#[test]
fn a_snapshot_that_is_not_there_fails_at_both_ends_and_changes_nothing() {
    let pair = Pair::new(Way::SinkListens);
    fs::write(pair.source.join("file"), "content").unwrap();
    fs::write(pair.destination.join("astray"), "stays").unwrap();
    for (wanted, error) in [("first", "has no snapshots"), ("other", "there is no snapshot other")] {
        let run = restore(&pair, wanted);
        run.assert_exit(ExitCode::Failed);
        assert!(format!("{run:?}").contains(error), "{run:?}");
        snapshot("create", &pair.source, &["--tag", "first"]);
    }
    assert_eq!(fs::read_to_string(pair.destination.join("astray")).unwrap(), "stays");
}

/// Either end is killed at any moment, and the live tree of the source changes meanwhile. A later run completes the
/// restore.
#[test]
fn a_restore_that_is_killed_at_either_end_is_done_by_a_later_run() {
    let pair = Pair::new(Way::SinkListens);
    let mut rng = Rng::new(77);
    fill(&pair.source, &mut rng);
    snapshot("create", &pair.source, &["--tag", "first"]);
    let expected = Snapshot::of(&pair.source);
    for round in 0..40 {
        let astray = pair.destination.join(format!("astray{}", round % 5));
        fs::write(astray, rng.bytes(1000)).unwrap();
        let _ = fs::remove_file(pair.destination.join("large"));
        fs::write(pair.source.join("small7"), rng.bytes(500)).unwrap();
        let flags = from("first");
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (source, sink) = pair.start_both(&flags, &[]);
        thread::sleep(Duration::from_millis(rng.below(200)));
        let (first, second) = if round % 2 == 0 { (source, sink) } else { (sink, source) };
        first.kill();
        first.wait();
        thread::sleep(Duration::from_millis(rng.below(20)));
        second.kill();
        second.wait();
    }
    restore(&pair, "first").assert_exit(ExitCode::Done);
    Snapshot::of(&pair.destination).assert_like(&expected, COPY, "after the kills");
    snapshot("verify", &pair.source, &["--no-heal"]);
}

/// Blocks of a snapshot's file that are noted at the sink do not cross again, whatever the live tree has by then.
#[test]
fn what_has_arrived_of_a_snapshot_does_not_cross_again() {
    const LEN: usize = 200 << 20;
    const CROSSED: u64 = 150 << 20;
    const NOTED: u64 = 96 << 20;
    let pair = Pair::new(Way::SinkListens);
    fs::write(pair.source.join("large"), Rng::new(5).bytes(LEN)).unwrap();
    snapshot("create", &pair.source, &["--tag", "first"]);
    let expected = Snapshot::of(&pair.source);
    fs::write(pair.source.join("large"), "the live file is another one").unwrap();
    let flags = from("first");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (source, sink, relay) = pair.start_over(CROSSED, &flags);
    pair.wait_for_notes(NOTED);
    [&source, &sink].iter().for_each(|end| end.kill());
    drop([source.wait(), sink.wait()]);
    drop(relay);
    let (source, sink, relay) = pair.start_over(1 << 20, &flags);
    relay.release();
    [source, sink].into_iter().for_each(|end| end.wait().assert_exit(ExitCode::Done));
    let crossed = relay.crossed();
    assert!(crossed < LEN as u64 - NOTED + (8 << 20), "{crossed} bytes crossed in the second run");
    Snapshot::of(&pair.destination).assert_like(&expected, COPY, "after two runs");
    pair.assert_staging_empty();
}

/// The sink has the links of an earlier restore, and its scan lists them all the same.
#[test]
fn names_of_one_file_in_a_snapshot_become_files_of_their_own_where_links_are_not_kept() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fs::write(pair.source.join("one"), "content").unwrap();
        fs::hard_link(pair.source.join("one"), pair.source.join("other")).unwrap();
        run(Command::new("mkfifo").arg(pair.source.join("pipe"))).unwrap();
        fs::hard_link(pair.source.join("pipe"), pair.source.join("second pipe")).unwrap();
        snapshot("create", &pair.source, &["--tag", "mine"]);
        let inode = |name: &str| fs::symlink_metadata(pair.destination.join(name)).unwrap().ino();
        let restore = |flags: &[&str]| {
            let all = [&RESTORE[..], &["--source-snapshot=mine", "--no-specials"], flags].concat();
            pair.run_to(ExitCode::Done, &all).report().work.changed()
        };
        restore(&[]);
        assert_eq!(inode("one"), inode("other"), "{way:?}");
        assert!(!pair.destination.join("second pipe").exists(), "{way:?}: both names of a pipe are left out");
        restore(&["--no-hard-links"]);
        assert_ne!(inode("one"), inode("other"), "{way:?}");
        assert_eq!(restore(&["--no-hard-links"]), 0, "{way:?}");
    }
}
