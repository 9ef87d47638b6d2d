//! A source that is another job's destination is not read while a run writes to it.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

use crate::common::prelude::*;

/// Makes a pair whose source is the destination of an earlier run.
fn chained(way: Way) -> Pair {
    let pair = Pair::new(way);
    let first = scratch::dir(pair.dir(), "first");
    tree::file(&first.join("file"), b"content");
    pair.start(&["sync", text(&first), text(&pair.source)]).wait().assert_exit(ExitCode::Done);
    pair
}

#[test]
fn a_source_that_a_run_writes_to_is_refused_until_the_run_is_over() {
    for way in Way::ALL {
        let pair = chained(way);
        let shards = pair.source.join(".volferry/shards");
        fs::create_dir(&shards).unwrap();
        let seat = shards.join("seat-1");
        fs::write(&seat, "").unwrap();
        for held in [&pair.source.join(".volferry/lock"), &seat] {
            let writer = File::open(held).unwrap();
            flock(&writer, FlockOperation::NonBlockingLockExclusive).unwrap();
            let run = pair.run_to(ExitCode::Failed, &[]);
            run.ends().for_each(|end| assert_eq!(end.reason(), "SourceBusy", "{way:?}"));
            assert!(!pair.destination.join("file").exists(), "{way:?}");
            // Unlocked and not closed: a process that another test is about to start holds a copy of the descriptor
            // until it runs its program.
            flock(&writer, FlockOperation::Unlock).unwrap();
        }
        pair.done(&[]);
        assert_eq!(fs::read(pair.destination.join("file")).unwrap(), b"content", "{way:?}");
    }
}

#[test]
fn a_check_beforehand_finds_what_a_run_would_find_and_changes_nothing() {
    let pair = chained(Way::Local);
    let check = |args: &[&str]| pair.start(args).wait();
    let (source, destination) = (text(&pair.source), text(&pair.destination));
    let ends: [&[&str]; 3] = [
        &["sync", "--check-free", "--progress=json", source, destination],
        &["send", "--check-free", "--progress=json", source, "--exchange=j"],
        &[
            "receive",
            "--check-free",
            "--progress=json",
            source,
            "--once",
            "--exchange=j",
            "--listen=127.0.0.1:0",
        ],
    ];
    for end in ends {
        let run = check(end);
        run.assert_exit(ExitCode::Done);
        assert!(run.events.is_empty(), "{end:?}: {:?}", run.events);
    }
    assert!(!pair.destination.join("file").exists() && !pair.destination.join(".volferry").exists());
    let other = File::open(pair.source.join(".volferry/lock")).unwrap();
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    for (end, expected) in ends.into_iter().zip([None, None, Some("DestinationBusy")]) {
        let run = check(end);
        let reason = run.events.iter().any(|event| matches!(event, Event::Finished(_))).then(|| run.reason());
        assert_eq!(reason, expected, "{end:?} beside a reader");
    }
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    for (end, expected) in ends.into_iter().zip(["SourceBusy", "SourceBusy", "DestinationBusy"]) {
        let run = check(end);
        run.assert_exit(ExitCode::Failed);
        assert_eq!(run.reason(), expected, "{end:?} beside a writer");
    }
}

#[test]
fn readers_of_one_source_do_not_wait_for_each_other() {
    let pair = chained(Way::Local);
    let reader = File::open(pair.source.join(".volferry/lock")).unwrap();
    flock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
    pair.done(&[]);
}

#[test]
fn a_lock_that_may_not_be_opened_is_noted_and_the_run_goes_on() {
    for pair in Pair::each_unprivileged().filter(|pair| pair.way == Way::Local) {
        let first = scratch::dir(pair.dir(), "first");
        tree::file(&first.join("file"), b"content");
        let as_root = Pair::new(Way::Local);
        as_root.start(&["sync", text(&first), text(&pair.source)]).wait().assert_exit(ExitCode::Done);
        scratch::open_to_all(&pair.source);
        let run = pair.done(&["--ownership=never"]);
        let notes = &run.report().notes;
        assert!(notes.iter().any(|note| note.contains(".volferry/lock")), "{notes:?}");
    }
}
