//! Runs that cannot begin: they change nothing, and both ends give the reason.

use crate::common::{
    deaf_peer::{ATTEMPTS_IN_A_SECOND, DeafPeer},
    prelude::*,
};

fn in_step(way: Way) -> Pair {
    let pair = Pair::new(way);
    tree::file(&pair.source.join("file"), b"content");
    pair.sync("before");
    pair
}

#[test]
fn a_source_that_is_no_directory_is_named() {
    for way in Way::ALL {
        let mut pair = in_step(way);
        let missing = pair.dir().join("missing");
        for source in [missing, "/dev/null".into()] {
            pair.source = source;
            let run = pair.refuse(&["--delete"], ExitCode::Failed, "TreeUnreadable");
            for end in run.ends() {
                let message = &end.report().message;
                assert!(message.contains(text(&pair.source)), "{message}");
            }
        }
    }
}

#[test]
fn a_destination_that_cannot_be_a_directory_is_named() {
    for way in Way::ALL {
        let mut pair = in_step(way);
        let missing = pair.dir().join("missing");
        let device = PathBuf::from("/dev/null");
        for (destination, named) in [(missing.join("below"), &missing), (device.clone(), &device)] {
            pair.destination = destination;
            let run = pair.run_to(ExitCode::Failed, &["--delete"]);
            for end in run.ends() {
                let is_missing = named == &missing;
                let reason = if is_missing { "DestinationMissing" } else { "DestinationUnusable" };
                assert_eq!(end.reason(), reason);
                assert_eq!(end.stderr.contains("hint: make it first"), is_missing, "{}", end.stderr);
                assert!(end.report().message.contains(text(named)), "{}", end.report().message);
            }
        }
        assert!(!pair.dir().join("missing").exists());
    }
}

#[test]
fn a_destination_that_another_run_holds_is_refused_as_busy() {
    for way in Way::ALL {
        let pair = in_step(way);
        tree::file(&pair.source.join("new"), b"new");
        let lock = fs::File::open(pair.destination.join(".volferry/lock")).unwrap();
        lock.lock().unwrap();
        pair.refuse(&["--delete"], ExitCode::Failed, "DestinationBusy");
        // Unlocked and not closed: a process that another test is about to start holds a copy of the descriptor until
        // it runs its program.
        lock.unlock().unwrap();
        pair.sync("once the other is gone");
    }
}

#[test]
fn a_tree_is_not_synced_onto_itself_nor_into_itself() {
    let mut pair = in_step(Way::Local);
    let below = pair.source.join("below");
    fs::create_dir(&below).unwrap();
    let link = pair.dir().join("link");
    std::os::unix::fs::symlink(&pair.source, &link).unwrap();
    let source = pair.source.clone();
    let before = Snapshot::of(&source);
    let overlaps =
        [(&source, &source), (&source, &below), (&below, &source), (&source, &link), (&link, &below)];
    for (from, to) in overlaps {
        (pair.source, pair.destination) = (from.clone(), to.clone());
        let run = pair.run_to(ExitCode::Failed, &["--delete", "--force"]);
        assert!(run.ends().all(|end| end.reason() == "SameTree"), "{run:?}");
        Snapshot::of(&source).assert_like(&before, UNTOUCHED, "a tree that was to be synced onto itself");
        assert!(!to.join(".volferry").exists());
    }
}

#[test]
fn a_tree_is_not_synced_into_itself_through_a_bind_mount() {
    let Some(()) = scratch::needs_root() else { return };
    let mut pair = in_step(Way::Local);
    let tree = pair.source.clone();
    fs::create_dir_all(tree.join("below/deep")).unwrap();
    let seen = scratch::dir(pair.dir(), "seen");
    let _mount = Mount::bind(&tree.join("below"), &seen);
    let before = Snapshot::of(&tree);
    for (from, to) in
        [(&tree, &seen), (&seen, &tree), (&tree, &seen.join("deep")), (&tree, &seen.join("new"))]
    {
        (pair.source, pair.destination) = (from.clone(), to.clone());
        for flags in [&["--force"][..], &["--dry-run"]] {
            let run = pair.run_to(ExitCode::Failed, flags);
            assert!(run.ends().all(|end| end.reason() == "SameTree"), "{from:?} {to:?}: {run:?}");
            Snapshot::of(&tree).assert_like(&before, UNTOUCHED, "a tree that was to be synced into itself");
        }
    }
    let beside = scratch::dir(pair.dir(), "beside");
    (pair.source, pair.destination) = (seen, beside);
    pair.sync("a bind mount onto another folder");
}

#[test]
fn an_address_that_cannot_be_used_is_named() {
    let pair = in_step(Way::SinkListens);
    let end = pair.start_receive(&["--once", "--listen", "192.0.2.1:7400"]).wait();
    end.assert_exit(ExitCode::Failed);
    assert_eq!(end.reason(), "AddressUnusable");
    assert!(end.report().message.contains("192.0.2.1:7400"), "{}", end.report().message);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_when_the_time_is_over() {
    let pair = in_step(Way::SinkListens);
    let deaf = DeafPeer::bind();
    let address = deaf.address();
    let source = pair.start_send(&["--connect", &address, "--connect-timeout=1"], &[]);
    let sink = pair.start_receive(&["--once", "--connect", &address, "--connect-timeout=1"]);
    for end in [source.wait(), sink.wait()] {
        end.assert_exit(ExitCode::PeerLost);
        assert_eq!(end.reason(), "PeerLost");
        let said = format!("no answer from {address}");
        assert!(end.report().message.starts_with(&said), "{}", end.report().message);
    }
    let attempts = deaf.attempts();
    assert!((2..=2 * ATTEMPTS_IN_A_SECOND).contains(&attempts), "{attempts} attempts of two ends");
}

#[test]
fn a_report_that_cannot_be_written_is_no_success() {
    let pair = in_step(Way::Local);
    tree::file(&pair.source.join("file"), b"other content");
    pair.run_to(ExitCode::Failed, &["--report=/dev/full"]);
    pair.assert_copy("although the report is lost");
}

#[test]
fn a_file_beyond_the_limit_on_sizes_fails_and_the_run_goes_on() {
    let pair = in_step(Way::Local);
    tree::file(&pair.source.join("large"), &vec![7; 2 << 20]);
    tree::file(&pair.source.join("small"), b"content");
    let limited = "ulimit -f 1024 && exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited]).arg(program()).args(["sync", text(&pair.source), text(&pair.destination)]);
    let run = command.output().unwrap();
    assert_eq!(run.status.code(), Some(ExitCode::Partial as i32), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("File too large"), "{run:?}");
    assert!(pair.destination.join("small").exists() && !pair.destination.join("large").exists());
}
