//! The snapshots of a source that travel along with a run: which ones, what they cost, and what keeps them away.

use contract::HistoryReport;

use crate::common::prelude::*;
use crate::{
    copy::{copy_ok, digests},
    damage::{flip, only_file_below},
    volume::Volume,
};

/// The volumes of the two ends.
fn volumes(pair: &Pair) -> [Volume; 2] {
    [&pair.source, &pair.destination].map(|path| Volume::at(path.clone()))
}

/// Runs once; `demands` are flags of the destination's owner, who takes the history that is asked for.
fn run(pair: &Pair, flags: &[&str], demands: &[&str]) -> Run {
    let asked = flags.iter().copied().filter(|flag| flag.starts_with("--history") && pair.way != Way::Local);
    let demands = &asked.chain(demands.iter().copied()).collect::<Vec<_>>();
    pair.run_with(flags, demands)
}

#[track_caller]
fn done(run: &Run) -> (Report, HistoryReport) {
    run.assert_exit(ExitCode::Done);
    let report = run.report().clone();
    let history = report.history.clone().expect("the report says nothing of snapshots");
    (report, history)
}

/// Makes a file that differs in each round, and takes a snapshot.
fn next(volume: &Volume, round: u8, args: &[&str]) -> String {
    fs::write(volume.path().join("large"), vec![round + 1; 200_000]).unwrap();
    fs::write(volume.path().join("small"), format!("round {round}")).unwrap();
    volume.create(args)
}

fn ids(volume: &Volume) -> Vec<String> {
    digests(volume).into_keys().collect()
}

#[test]
fn the_destination_gets_the_tree_and_its_history_and_later_only_what_is_new() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        tree::many(source.path(), 20, 300);
        for round in 0..3 {
            next(&source, round, &["--tag", &format!("round{round}"), "--note", "a note"]);
        }
        fs::write(source.path().join("small"), "of no snapshot").unwrap();
        let (report, history) = done(&run(&pair, &["--history=all"], &[]));
        assert_eq!((history.copied, history.present, history.failed), (3, 0, 0), "{way:?}");
        assert!(report.timings.snapshot <= report.timings.total, "{way:?}");
        pair.assert_copy("with history");
        assert_eq!(digests(&destination), digests(&source), "{way:?}");
        assert_eq!(destination.list()[1]["note"], "a note");
        assert_eq!(destination.ok("cat", &["round1", "small"]), "round 1");
        destination.ok("verify", &["--no-heal"]);
        let newest = next(&source, 4, &[]);
        let (_, history) = done(&run(&pair, &["--history=all"], &["--snapshot"]));
        assert_eq!((history.copied, history.present), (1, 3), "{way:?}");
        // The snapshot after the run has the large file already.
        assert!(history.bytes < 1000, "{way:?}: {}", history.bytes);
        assert_eq!(ids(&destination).len(), 5, "{way:?}");
        assert_eq!(destination.ok("cat", &[&newest, "small"]), "round 4");
        let (_, history) = done(&run(&pair, &["--history=all"], &[]));
        assert_eq!((history.copied, history.present, history.bytes), (0, 4, 0), "{way:?}");
        destination.ok("forget", &["round0"]);
        destination.ok("prune", &["--forgotten"]);
        let (_, history) = done(&run(&pair, &["--history=all"], &[]));
        assert_eq!((history.copied, history.present, history.forgotten), (0, 3, 1), "{way:?}");
    }
}

#[test]
fn rules_of_the_destination_keep_and_drop_copies_and_nothing_else() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        let own = next(&destination, 9, &[]);
        let taken: Vec<String> = (0..4).map(|round| next(&source, round, &[])).collect();
        let pinned = next(&source, 7, &["--pin"]);
        let last = next(&source, 8, &[]);
        let demands = ["--snapshot", "--snapshot-keep-last=2"];
        let (_, history) = done(&run(&pair, &["--history=kept"], &demands));
        assert_eq!((history.copied, history.dropped), (2, 0), "{way:?}");
        let have = ids(&destination);
        let (_, history) = done(&run(&pair, &["--history=kept"], &demands));
        assert_eq!(
            (history.copied, history.dropped, history.forgotten),
            (0, 0, 0),
            "{way:?}: nothing is new"
        );
        assert!(have.contains(&own) && have.contains(&pinned) && have.contains(&last), "{way:?}: {have:?}");
        assert!(!taken.iter().any(|id| have.contains(id)), "{way:?}: {have:?}");
        let newer: Vec<String> = (10..12).map(|round| next(&source, round, &[])).collect();
        let (_, history) = done(&run(&pair, &["--history=kept"], &demands));
        assert_eq!((history.copied, history.dropped), (2, 1), "{way:?}: the pinned one stays");
        let have = ids(&destination);
        assert!(have.contains(&own) && have.contains(&pinned) && !have.contains(&last), "{way:?}: {have:?}");
        assert!(newer.iter().all(|id| have.contains(id)), "{way:?}: {have:?}");
        // What the source loses stays: only rules drop copies.
        fs::remove_dir_all(source.store("")).unwrap();
        let (_, history) = done(&run(&pair, &["--history=kept"], &demands));
        assert_eq!((history.copied, history.dropped), (0, 0), "{way:?}");
        assert!(newer.iter().all(|id| ids(&destination).contains(id)), "{way:?}");
        destination.ok("verify", &["--no-heal"]);
    }
}

#[test]
fn no_good_copy_goes_for_a_snapshot_that_is_damaged_or_that_was_forgotten_and_later_ones_take_its_place() {
    const KEEP_ONE: [&str; 2] = ["--snapshot", "--snapshot-keep-last=1"];
    for (way, is_damaged) in Way::ALL.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let what = format!("{way:?}, damaged {is_damaged}");
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        let has = |id: &String| ids(&destination).contains(id);
        let one = next(&source, 1, &[]);
        done(&run(&pair, &["--history=kept"], &KEEP_ONE));
        let two = next(&source, 2, &["--engine", "copy"]);
        let arrives_not = || {
            let run = run(&pair, &["--history=kept"], &KEEP_ONE);
            run.assert_exit(if is_damaged { ExitCode::Partial } else { ExitCode::Done });
            let history = run.report().history.clone().unwrap();
            let counts = (history.copied, history.failed, history.forgotten, history.dropped);
            let expected = if is_damaged { (0, 1, 0, 0) } else { (0, 0, 1, 0) };
            assert_eq!(counts, expected, "{what}");
            assert!(has(&one) && !has(&two), "{what}: {:?}", ids(&destination));
        };
        if is_damaged {
            let large = blake3::hash(&vec![3; 200_000]).to_hex().to_string();
            flip(&source.store(&format!("content/{}/{large}", &large[..2])), 1000);
            fs::write(source.path().join("large"), "small now").unwrap();
        } else {
            copy_ok(&source, &destination, &[&two]);
            destination.ok("forget", &[&two]);
            arrives_not();
            destination.ok("prune", &["--forgotten"]);
        }
        (0..2).for_each(|_| arrives_not());
        let three = next(&source, 3, &[]);
        let (_, history) = done(&run(&pair, &["--history=kept"], &KEEP_ONE));
        assert_eq!((history.copied, history.forgotten, history.dropped), (1, 0, 1), "{what}");
        assert!(has(&three) && !has(&one) && !has(&two), "{what}: {:?}", ids(&destination));
        destination.ok("verify", &["--no-heal"]);
    }
}

#[test]
fn a_snapshot_of_the_destination_itself_that_the_source_has_as_well_keeps_no_other_one_away() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        let one = next(&source, 1, &[]);
        let own = next(&destination, 2, &[]);
        copy_ok(&destination, &source, &["--all"]);
        let (_, history) = done(&run(&pair, &["--history=kept"], &["--snapshot", "--snapshot-keep-last=1"]));
        assert_eq!((history.copied, history.present, history.dropped), (1, 1, 0), "{way:?}");
        assert!([&one, &own].iter().all(|id| ids(&destination).contains(id)), "{way:?}");
    }
}

#[test]
fn a_source_without_snapshots_is_no_failure_and_a_dry_run_copies_none() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        fs::write(source.path().join("file"), "content").unwrap();
        let (_, history) = done(&run(&pair, &["--history=all"], &[]));
        assert_eq!(history, HistoryReport::default(), "{way:?}");
        next(&source, 0, &[]);
        let dry = run(&pair, &["--history=all", "--dry-run"], &[]);
        dry.assert_exit(ExitCode::Done);
        assert_eq!(dry.report().history, None, "{way:?}");
        assert_eq!(ids(&destination).len(), 0, "{way:?}");
        let none = run(&pair, &[], &[]);
        none.assert_exit(ExitCode::Done);
        assert_eq!(none.report().history, None, "{way:?}");
    }
}

#[test]
fn a_damaged_snapshot_is_named_and_keeps_neither_files_nor_others_away() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        fs::write(source.path().join("large"), Rng::new(3).bytes(300_000)).unwrap();
        let bad = source.create(&["--engine", "copy"]);
        flip(&only_file_below(&source.store("content")), 1000);
        fs::write(source.path().join("large"), "small now").unwrap();
        let good = source.create(&[]);
        let run = run(&pair, &["--history=all"], &[]);
        run.assert_exit(ExitCode::Partial);
        let report = run.report();
        assert_eq!(report.result, RunResult::PartiallyFailed, "{way:?}");
        assert_eq!(report.reason.as_deref(), Some("HistoryNotWhole"), "{way:?}");
        assert!(report.message.contains(&bad) && report.message.contains("large"), "{}", report.message);
        assert_eq!(ids(&destination), [good], "{way:?}");
        assert_eq!(fs::read_to_string(destination.path().join("large")).unwrap(), "small now");
    }
}

#[test]
fn a_store_that_cannot_be_read_or_written_fails_the_history_and_not_the_files() {
    for way in Way::ALL {
        for is_source in [true, false] {
            let pair = Pair::new(way);
            let [source, destination] = volumes(&pair);
            next(&source, 0, &[]);
            next(&destination, 1, &[]);
            let broken = if is_source { &source } else { &destination };
            for list in ["roots", "roots.copy"] {
                fs::write(broken.store(list), "no list").unwrap();
            }
            let run = run(&pair, &["--history=all"], &[]);
            run.assert_exit(ExitCode::Partial);
            assert_eq!(run.report().reason.as_deref(), Some("HistoryFailed"), "{way:?} {is_source}");
            assert_eq!(fs::read_to_string(destination.path().join("small")).unwrap(), "round 0");
        }
    }
}

#[test]
fn what_leaves_files_out_does_not_go_with_history() {
    let pair = Pair::new(Way::Local);
    let (from, to) = (text(&pair.source), text(&pair.destination));
    for flag in ["--exclude=a", "--include=a", "--ignore-files", "--min-size=1", "--source-snapshot=latest"] {
        let said = pair.output(&["sync", from, to, "--history=all", flag]);
        assert_eq!(said.status.code(), Some(ExitCode::Usage as i32), "{flag}: {said:?}");
        let message = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(message.contains("--history"), "{message}");
    }
    let kept = pair.output(&["sync", from, to, "--history=kept"]);
    let message = String::from_utf8_lossy(&kept.stderr).into_owned();
    assert!(kept.status.code() != Some(0) && message.contains("which has none"), "{message}");
    assert!(!Path::new(to).join(".volferry/snapshots").exists());
}

#[test]
fn the_owner_of_a_destination_who_excludes_files_takes_no_history() {
    for way in Way::NETWORK {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        next(&source, 0, &[]);
        let refused = run(&pair, &["--history=all"], &["--exclude=private"]);
        for end in refused.ends() {
            assert_eq!(end.reason(), "NotAllowed", "{way:?}: {}", end.stderr);
        }
        assert!(!destination.path().join("small").exists() && ids(&destination).is_empty(), "{way:?}");
    }
}

#[test]
fn a_source_brings_no_snapshot_to_a_destination_whose_owner_asks_for_none() {
    for way in Way::NETWORK {
        let pair = Pair::new(way);
        let [source, destination] = volumes(&pair);
        next(&source, 0, &[]);
        let refused = pair.run_with(&["--history=all"], &[]);
        for end in refused.ends() {
            assert_eq!(end.reason(), "NotAllowed", "{way:?}: {}", end.stderr);
        }
        let demanded = pair.run_with(&[], &["--history=all"]);
        demanded.assert_exit(ExitCode::Done);
        assert!(ids(&destination).is_empty(), "{way:?}: the source did not ask");
        let kept = ["--snapshot", "--snapshot-keep-last=1"];
        pair.run_with(&["--history=all"], &[&["--history=all"], &kept[..]].concat())
            .assert_exit(ExitCode::Done);
        (1..4).for_each(|round| drop(next(&source, round, &[])));
        let run = pair.run_with(&["--history=kept"], &[&["--history=all"], &kept[..]].concat());
        let (_, history) = done(&run);
        assert_eq!((history.copied, history.dropped), (1, 0), "{way:?}: a source cannot have copies dropped");
    }
}
