//! The owner of a destination decides, too: the demands of `volferry receive` limit the requests of any source.

use crate::common::prelude::*;

/// The source's flags in each of the runs.
const ASKED: [&str; 3] = ["--delete", "--delete-limit=100", "--force"];

/// Makes a copy of `kept` whose source then changed, with another file that the source does not have.
fn pair() -> Pair {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.source.join("kept"), b"old");
    pair.sync("before");
    tree::file(&pair.source.join("kept"), b"new content");
    tree::file(&pair.source.join("more"), b"more");
    tree::file(&pair.destination.join("extra"), b"extra");
    pair
}

fn run(pair: &Pair, demands: &[&str]) -> (Ended, Ended) {
    let (source, sink) = pair.start_both(&ASKED, demands);
    (source.wait(), sink.wait())
}

#[test]
fn a_guard_of_the_receiving_end_is_not_overridden_by_the_source() {
    let other = format!("--expect-volume={}", "07".repeat(16));
    for (demand, reason) in [("--delete-limit=0", "DeleteLimitExceeded"), (&other, "OtherDestination")] {
        let pair = pair();
        let before = Snapshot::of(&pair.destination);
        let (source, sink) = run(&pair, &[demand]);
        for end in [&source, &sink] {
            end.assert_exit(ExitCode::Guard);
            assert_eq!(end.reason(), reason, "{demand}");
        }
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, demand);
    }
}

#[test]
fn a_dry_run_at_the_receiving_end_changes_nothing_and_both_ends_tell_of_it() {
    let pair = pair();
    let before = Snapshot::of(&pair.destination);
    let (source, sink) = run(&pair, &["-n"]);
    for end in [&source, &sink] {
        end.assert_exit(ExitCode::Done);
        let planned = end.events.iter().filter(|event| matches!(event, Event::Planned(_))).count();
        assert!(planned >= 3, "{:?}", end.events);
        assert!(matches!(end.events.last(), Some(Event::Finished(report)) if report.dry_run));
    }
    Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "-n");
}

#[test]
fn nothing_is_deleted_where_the_receiving_end_forbids_it() {
    let pair = pair();
    let (source, sink) = run(&pair, &["--no-delete"]);
    source.assert_exit(ExitCode::Done);
    sink.assert_exit(ExitCode::Done);
    assert_eq!(fs::read(pair.destination.join("extra")).unwrap(), b"extra");
    assert_eq!(fs::read(pair.destination.join("kept")).unwrap(), b"new content");
}

#[test]
fn what_the_receiving_end_excludes_is_neither_written_nor_deleted() {
    let pair = pair();
    fs::create_dir(pair.source.join("dir")).unwrap();
    tree::file(&pair.source.join("dir/more"), b"more");
    tree::file(&pair.source.join("dir/other"), b"other");
    let (source, sink) = run(&pair, &["--exclude=extra", "--exclude=kept", "--exclude=more"]);
    source.assert_exit(ExitCode::Done);
    sink.assert_exit(ExitCode::Done);
    let read = |name: &str| fs::read(pair.destination.join(name)).ok();
    assert_eq!(read("extra").unwrap(), b"extra");
    assert_eq!(read("kept").unwrap(), b"old");
    assert_eq!(read("dir/other").unwrap(), b"other");
    assert_eq!((read("more"), read("dir/more")), (None, None));
    let (_, again) = run(&pair, &["--exclude=extra", "--exclude=kept", "--exclude=more"]);
    again.assert_exit(ExitCode::Done);
    assert_eq!(read("kept").unwrap(), b"old");
}

#[test]
fn a_source_hears_of_what_the_receiving_end_excludes() {
    let pair = pair();
    let (source, sink) = pair.start_both(&["--verify"], &["--exclude=kept", "--exclude=extra"]);
    let (source, _) = (source.wait(), sink.wait());
    source.assert_exit(ExitCode::Done);
    let notes = &source.report().notes;
    let has = |words: &str| notes.iter().any(|note| note.contains(words));
    assert!(has("1 entry of the source is left out") && has("but for 1 that is excluded here"), "{notes:?}");
}

#[test]
fn a_link_of_a_file_that_the_receiving_end_excludes_is_named_and_not_made() {
    let pair = pair();
    ["linked", "third", "zeroth"]
        .iter()
        .for_each(|name| fs::hard_link(pair.source.join("kept"), pair.source.join(name)).unwrap());
    tree::file(&pair.destination.join("zeroth"), b"theirs");
    fs::hard_link(pair.destination.join("zeroth"), pair.destination.join("third")).unwrap();
    let (source, sink) = run(&pair, &["--exclude=kept"]);
    source.assert_exit(ExitCode::Partial);
    sink.assert_exit(ExitCode::Partial);
    assert_eq!(fs::read(pair.destination.join("kept")).unwrap(), b"old");
    assert!(!pair.destination.join("linked").exists());
    assert_eq!(fs::read(pair.destination.join("third")).unwrap(), b"theirs");
    let Some(Event::Finished(report)) = sink.events.last() else { panic!("no report: {:?}", sink.events) };
    let failed: Vec<_> = report.failures.iter().map(|failure| &*failure.path).collect();
    assert_eq!(failed, ["linked", "third", "zeroth"]);
}

/// Makes the source of a pair anew under its name, with the defaults of its application.
fn made_anew(pair: &Pair) {
    fs::rename(&pair.source, pair.dir().join("lost")).unwrap();
    fs::create_dir(&pair.source).unwrap();
    tree::file(&pair.source.join("kept"), b"default");
}

fn told(pair: &Pair, demands: &[&str]) -> (ExitCode, String) {
    let end = match pair.way {
        Way::Local => pair.start_sync(&[&ASKED, demands].concat()).wait(),
        _ => run(pair, demands).1,
    };
    let report = end.report();
    let code = if report.reason.as_deref() == Some("OtherSource") { ExitCode::Guard } else { ExitCode::Done };
    end.assert_exit(code);
    (code, report.message.clone())
}

#[test]
fn a_copy_of_another_source_is_kept_until_that_source_is_accepted() {
    for way in Way::EACH {
        let mut pair = pair();
        pair.way = way;
        let kept = || fs::read(pair.destination.join("kept")).unwrap();
        assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Done, "no source was remembered");
        made_anew(&pair);
        if fs::metadata(&pair.source).unwrap().created().is_err() {
            assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Done, "it cannot be known");
            continue;
        }
        let (code, message) = told(&pair, &["--other-source=refuse"]);
        assert_eq!(code, ExitCode::Guard);
        let lost = "07".repeat(16);
        assert_eq!(told(&pair, &["--other-source=refuse", "-n"]).0, ExitCode::Guard);
        assert_eq!(told(&pair, &[&format!("--other-source={lost}")]).0, ExitCode::Guard);
        assert_eq!(kept(), b"new content");
        let id = message.split("this one is ").nth(1).and_then(|rest| rest.get(..32)).unwrap();
        assert_eq!(told(&pair, &[&format!("--other-source={id}")]).0, ExitCode::Done, "{message}");
        assert_eq!(kept(), b"default");
        assert_eq!(
            told(&pair, &["--other-source=refuse"]).0,
            ExitCode::Done,
            "the copy is of this source now"
        );
        fs::remove_dir_all(&pair.source).unwrap();
        fs::rename(pair.dir().join("lost"), &pair.source).unwrap();
        assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Guard);
        assert_eq!(told(&pair, &[]).0, ExitCode::Done, "without the flag no source is looked at");
        assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Guard, "nor remembered");
        assert_eq!(told(&pair, &["--other-source=accept"]).0, ExitCode::Done);
        assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Done);
    }
}

#[test]
fn the_source_of_a_copy_is_remembered_when_another_user_makes_the_own_folder_anew() {
    let Some(()) = scratch::needs_root() else { return };
    let mut pair = pair();
    pair.way = Way::Local;
    assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Done, "no source was remembered");
    let own = pair.destination.join(".volferry");
    let of_nobody = || {
        // The mark names its owner.
        let _ = fs::remove_file(own.join("made"));
        scratch::give_to_nobody(&own);
    };
    made_anew(&pair);
    if !own.join("source").exists() {
        eprintln!("skipped: the file system keeps no birth time");
        return;
    }
    for turn in ["by the first run", "by the next"] {
        of_nobody();
        assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Guard, "{turn}");
        assert_eq!(fs::read(pair.destination.join("kept")).unwrap(), b"new content");
    }
    of_nobody();
    assert_eq!(told(&pair, &[]).0, ExitCode::Done, "without the flag no source is looked at");
    assert_eq!(fs::metadata(&own).unwrap().uid(), 0, "it was made anew");
    assert_eq!(told(&pair, &["--other-source=refuse"]).0, ExitCode::Guard, "the copy was of another source");
}
