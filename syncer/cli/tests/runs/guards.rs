//! A run that would empty a volume is refused before anything is touched.

use crate::common::prelude::*;

/// Makes a pair in step, with ten files `0` to `9`.
fn ten_files(way: Way) -> Pair {
    let pair = Pair::new(way);
    (0..10).for_each(|i| tree::file(&pair.source.join(i.to_string()), b"content"));
    pair.sync("before");
    pair
}

#[test]
fn more_deletes_than_the_limit_are_refused_and_as_many_are_not() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..6).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        tree::file(&pair.source.join("9"), b"changed");
        tree::file(&pair.source.join("new"), b"new");
        let run = pair.refuse(&["--delete"], ExitCode::Guard, "DeleteLimitExceeded");
        let message = &run.ends().next().unwrap().report().message;
        for part in ["6 of 10", "50 %"] {
            assert!(message.contains(part), "{message}");
        }
        pair.refuse(&["--delete", "--delete-limit=59"], ExitCode::Guard, "DeleteLimitExceeded");
        let run = pair.done(&["--delete", "--delete-limit=60"]);
        assert_eq!(run.report().work.files_deleted, 6);
        pair.assert_copy("after a run within the limit");
    }
}

#[test]
fn more_deletes_than_a_number_are_refused_and_as_many_are_not() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..4).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        let run = pair.refuse(&["--delete", "--max-delete=3"], ExitCode::Guard, "DeleteLimitExceeded");
        let message = &run.ends().next().unwrap().report().message;
        assert!(message.contains("4 entries, more than the 3"), "{message}");
        pair.done(&["--delete", "--max-delete=4"]);
        pair.assert_copy("after a run within the number");
    }
}

#[test]
fn a_line_of_rsync_does_what_it_does_there() {
    let pair = ten_files(Way::Local);
    fs::remove_file(pair.source.join("0")).unwrap();
    let [from, to] = [text(&pair.source), text(&pair.destination)];
    let output =
        pair.output(&["sync", "-aHAXSzvP", "--numeric-ids", "--delete-after", "--bwlimit=100000", from, to]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    pair.assert_copy("after a line of rsync");
    for (flag, named) in
        [("-aL", "no link is followed"), ("--link-dest=x", "--snapshot"), ("--inplaze", "--inplaze")]
    {
        let output = pair.output(&["sync", flag, from, to]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(named), "{stderr}");
    }
}

/// Makes a folder that no run has written to, with an entry of the source's and some of its own.
fn never_written(way: Way) -> Pair {
    let pair = Pair::new(way);
    for (root, names) in
        [(&pair.source, &["a", "b"][..]), (&pair.destination, &["a", "photos/1", "photos/2", "z"])]
    {
        fs::create_dir_all(root.join("photos")).unwrap();
        names.iter().for_each(|name| tree::file(&root.join(name), b"content"));
    }
    fs::remove_dir(pair.source.join("photos")).unwrap();
    pair
}

#[test]
fn a_first_run_does_not_delete_what_no_run_has_put_there() {
    let pair = never_written(Way::Local);
    let deletes = ["sync", text(&pair.source), text(&pair.destination), "--delete", "--delete-limit=100"];
    let tries = [&["--dry-run"][..], &[], &[], &["--force", "--dry-run"]];
    for (flags, code) in tries.into_iter().zip([4, 4, 4, 0]) {
        let output = pair.output(&[&deletes[..], flags].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {stderr}");
        assert!(stderr.contains("delete 4 of its 5 entries: photos/, z"), "{flags:?}: {stderr}");
        assert!(code == 0 || stderr.contains("\nhint: ") && stderr.contains("--adopt"), "{stderr}");
        assert!(pair.destination.join("photos/1").exists());
    }
    let output = pair.output(&[&deletes[..], &["--adopt"]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && stderr.contains("deletes 4 of 5 entries that it had: photos/, z"),
        "{stderr}"
    );
    tree::file(&pair.destination.join("new"), b"content");
    assert!(pair.output(&deletes).status.success(), "the folder is known");
    pair.assert_copy("after the first run and the next");
}

#[test]
fn a_first_run_names_what_it_would_delete_before_it_measures_how_much_that_is() {
    let pair = never_written(Way::Local);
    let deletes = ["sync", text(&pair.source), text(&pair.destination), "--delete"];
    for (flags, expected) in [
        (&[][..], &["delete 4 of its 5 entries: photos/, z", "--adopt together with --delete-limit=100"][..]),
        (&["--adopt"], &["delete 4 of 5 entries, more than the limit of 50 %"]),
    ] {
        let output = pair.output(&[&deletes[..], flags].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{flags:?}: {stderr}");
        assert!(expected.iter().all(|part| stderr.contains(part)), "{flags:?}: {stderr}");
    }
    assert!(pair.output(&[&deletes[..], &["--adopt", "--delete-limit=100"]].concat()).status.success());
    pair.assert_copy("after a run with both flags");
}

#[test]
fn a_first_run_that_deletes_nothing_makes_the_folder_known() {
    let pair = never_written(Way::Local);
    let run = ["sync", text(&pair.source), text(&pair.destination)];
    assert!(pair.output(&run).status.success());
    assert!(pair.output(&[&run[..], &["--delete", "--delete-limit=100"]].concat()).status.success());
    pair.assert_copy("after a run without deletes and one with");
}

#[test]
fn force_overrides_the_limit() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..9).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        let run = pair.done(&["--delete", "--delete-limit=0", "--force"]);
        let notes = &run.report().notes;
        assert!(
            notes.iter().any(|note| note.contains("overrode a guard") && note.contains("9 of 10")),
            "{notes:?}"
        );
        pair.assert_copy("after a forced run");
    }
}

#[test]
fn an_emptied_source_is_refused_whatever_the_limit_and_force_overrides() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..10).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        let run = pair.refuse(&["--delete", "--delete-limit=100"], ExitCode::Guard, "SourceEmpty");
        assert!(run.ends().all(|end| end.report().message.contains("10 entries")), "{run:?}");
        pair.done(&["--delete", "--force"]);
        pair.assert_copy("after a forced run");
    }
}

#[test]
fn a_destination_that_is_not_the_one_of_last_time_is_refused_and_force_overrides() {
    for way in Way::ALL {
        let pair = ten_files(way);
        let volume = pair.run(&[]).report().volume.unwrap().to_string();
        let expect = format!("--expect-volume={volume}");
        tree::file(&pair.source.join("new"), b"new");
        pair.done(&["--delete", &expect]);
        fs::remove_dir_all(&pair.destination).unwrap();
        fs::create_dir(&pair.destination).unwrap();
        let run = pair.refuse(&["--delete", &expect], ExitCode::Guard, "OtherDestination");
        assert!(run.ends().all(|end| end.report().message.contains(&volume)), "{run:?}");
        assert_eq!(
            fs::read_dir(&pair.destination).unwrap().count(),
            0,
            "a refused destination has nothing new"
        );
        let run = pair.done(&["--delete", &expect, "--force"]);
        let report = run.report();
        assert!(report.notes.iter().any(|note| note.contains(&volume)), "{:?}", report.notes);
        let other = report.volume.unwrap().to_string();
        assert_ne!(other, volume);
        pair.assert_copy("after a forced run");
        tree::file(&pair.source.join("newer"), b"newer");
        pair.refuse(&["--delete", &expect], ExitCode::Guard, "OtherDestination");
        pair.done(&["--delete", &format!("--expect-volume={other}")]);
        pair.assert_copy("after a run that expected the new destination");
    }
}

#[test]
fn an_empty_source_without_delete_is_no_danger() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..10).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        let run = pair.done(&[]);
        assert_eq!(run.report().work.files_deleted, 0);
        assert!((0..10).all(|i| pair.destination.join(i.to_string()).exists()));
    }
}

#[test]
fn what_is_below_a_directory_that_becomes_a_file_counts() {
    for pair in Pair::each(Way::ALL) {
        fs::create_dir(pair.source.join("dir")).unwrap();
        (0..8).for_each(|i| tree::file(&pair.source.join(format!("dir/{i}")), b"content"));
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("before");
        fs::remove_dir_all(pair.source.join("dir")).unwrap();
        tree::file(&pair.source.join("dir"), b"a file now");
        pair.refuse(&["--delete"], ExitCode::Guard, "DeleteLimitExceeded");
        pair.done(&["--delete", "--force"]);
        pair.assert_copy("after a forced run");
    }
}

#[test]
fn a_folder_that_another_job_writes_to_is_not_deleted_or_replaced() {
    for way in Way::ALL {
        let pair = ten_files(way);
        fs::create_dir_all(pair.destination.join("theirs/deep/.volferry")).unwrap();
        tree::file(&pair.destination.join("theirs/deep/file"), b"content");
        let refused = |what| {
            let run = pair.refuse(&["--delete"], ExitCode::Guard, "OtherJobsDestination");
            let message = &run.ends().next().unwrap().report().message;
            assert!(message.contains("theirs"), "{way:?}, {what}: {message}");
        };
        refused("the folder goes");
        tree::file(&pair.source.join("theirs"), b"a file here");
        refused("a file replaces the folder");
        fs::remove_file(pair.source.join("theirs")).unwrap();
        fs::create_dir_all(pair.source.join("theirs/deep")).unwrap();
        refused("the folder stays without what Volferry keeps in it");
        pair.done(&[]);
        let run = pair.done(&["--delete", "--force"]);
        assert!(
            run.report().notes.iter().any(|note| note.contains("another job")),
            "{:?}",
            run.report().notes
        );
        pair.assert_copy("after a forced run");
    }
}

#[test]
fn what_another_volume_keeps_below_the_destination_is_not_replaced() {
    for way in Way::ALL {
        let pair = ten_files(way);
        let volume = |at: &Path| {
            tree::file(&at.join("file"), b"content");
            let created = Command::new(program()).args(["snapshot", "create", text(at)]).output().unwrap();
            assert!(created.status.success(), "{created:?}");
        };
        fs::create_dir(pair.source.join("volume")).unwrap();
        volume(&pair.source.join("volume"));
        pair.done(&[]);
        volume(&pair.source.join("volume"));
        pair.done(&["--delete"]);
        pair.assert_copy("no run has used the copy, so it follows");

        let theirs = pair.destination.join("volume");
        fs::remove_file(theirs.join(".volferry/made")).unwrap();
        volume(&theirs);
        let list = fs::read(theirs.join(".volferry/snapshots/roots")).unwrap();
        for flags in ["--delete", "--update", "--size-only", "--checksum"] {
            let run = pair.refuse(&[flags], ExitCode::Guard, "OtherJobsDestination");
            let message = &run.ends().next().unwrap().report().message;
            assert!(message.contains("volume/.volferry"), "{way:?}: {message}");
        }
        assert!(fs::read(theirs.join(".volferry/snapshots/roots")).unwrap() == list);
        pair.refuse(&["-n"], ExitCode::Guard, "OtherJobsDestination");
        pair.done(&["--exclude", "/volume/.volferry", "--delete"]);
        assert!(fs::read(theirs.join(".volferry/snapshots/roots")).unwrap() == list);
    }
}

#[test]
fn a_source_that_only_had_a_snapshot_taken_is_no_destination_of_runs() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("a"), b"content");
    let created = Command::new(program()).args(["snapshot", "create", text(&pair.source)]).output().unwrap();
    assert!(created.status.success(), "{created:?}");
    let run = pair.done(&["--delete"]);
    assert_eq!(run.report().notes, [""; 0]);
}

#[test]
fn a_copy_is_not_synced_back_onto_newer_files() {
    for way in Way::ALL {
        let mut pair = ten_files(way);
        pair.sync("once more");
        let third = pair.dir().join("third");
        std::mem::swap(&mut pair.source, &mut pair.destination);
        let theirs = pair.destination.clone();
        let noted =
            |report: &contract::Report| report.notes.iter().any(|note| note.contains("itself a destination"));
        // A copy of a copy has no file that is newer than its source's, whatever is deleted.
        pair.destination = third;
        assert!(noted(pair.run(&["--delete"]).report()), "{way:?}");
        fs::remove_file(pair.source.join("9")).unwrap();
        let run = pair.done(&["--delete"]);
        assert_eq!(run.report().work.files_deleted, 1, "{way:?}");
        // A file that a killed run has changed counts by its own time.
        fs::File::create(pair.destination.join(".volferry/dirty-0")).unwrap();
        let doubtful = pair.destination.join("8");
        fs::File::open(&doubtful)
            .unwrap()
            .set_modified(doubtful.metadata().unwrap().modified().unwrap())
            .unwrap();
        fs::remove_file(pair.source.join("8")).unwrap();
        let run = pair.done(&["--delete"]);
        assert_eq!(run.report().work.files_deleted, 1, "{way:?}");
        // Here the source and the destination are mixed up.
        pair.destination = theirs;
        tree::file(&pair.destination.join("newer"), b"made since");
        tree::file(&pair.destination.join("5"), b"changed since");
        let run = pair.refuse(&["--delete", "--dry-run"], ExitCode::Guard, "WrongDirection");
        assert!(run.ends().all(|end| end.report().message.contains("2 files")), "{run:?}");
        let run = pair.run_to(ExitCode::Guard, &["--delete"]);
        assert!(run.ends().all(|end| end.reason() == "WrongDirection"), "{run:?}");
        assert!(pair.destination.join("newer").exists());
        pair.done(&["--delete", "--force"]);
        assert!(!pair.destination.join("newer").exists());
    }
}

#[test]
fn a_missing_destination_that_is_not_the_expected_one_is_not_made() {
    for way in Way::ALL {
        let mut pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        pair.destination = pair.dir().join("missing");
        pair.run_to(ExitCode::Guard, &["--expect-volume=00000000000000000000000000000001"]);
        assert!(!pair.destination.exists(), "{way:?}");
    }
}
