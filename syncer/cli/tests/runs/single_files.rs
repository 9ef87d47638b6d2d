//! A file as SRC is copied as a file of a folder is, and no entry beside it is touched.

use std::{fs::Permissions, os::unix::fs::chown, time::SystemTime};

use crate::common::prelude::*;

/// Makes a pair whose source is one of a folder's two files, with metadata of its own, and whose destination has
/// another file.
fn note(way: Way) -> Pair {
    let mut pair = Pair::new(way);
    tree::file(&pair.source.join("sibling"), b"not to be copied");
    let note = pair.source.join("note.txt");
    tree::file(&note, b"the note");
    fs::set_permissions(&note, Permissions::from_mode(0o640)).unwrap();
    if scratch::is_root() {
        chown(&note, Some(12_345), Some(54_321)).unwrap();
    }
    let modified = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(&note).unwrap().set_modified(modified).unwrap();
    pair.source = note;
    tree::file(&pair.destination.join("other"), b"other");
    pair
}

#[track_caller]
fn assert_is_copy(there: &Path, here: &Path) {
    let look = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        let of = (found.mode(), found.uid(), found.gid(), found.mtime(), found.mtime_nsec());
        (of, fs::read(path).unwrap())
    };
    assert_eq!(look(there), look(here), "{}", there.display());
}

#[test]
fn a_file_goes_into_a_folder_or_onto_a_name_with_all_that_it_has() {
    for way in Way::ALL {
        for (spelled, arrives_at) in [
            ("", "note.txt"),
            ("new.txt", "new.txt"),
            ("other", "other"),
            ("link", "link"),
            ("made/", "made/note.txt"),
        ] {
            let mut pair = note(way);
            let folder = pair.destination.clone();
            symlink("other", folder.join("link")).unwrap();
            pair.destination = format!("{}/{spelled}", text(&folder)).into();
            let before = fs::metadata(&folder).unwrap().permissions();
            let is_taken = ["other", "link"].contains(&spelled);
            pair.done(if is_taken { &["--verify", "--force"] } else { &["--verify"] });
            assert_is_copy(&folder.join(arrives_at), &pair.source);
            assert!(
                !folder.join("sibling").exists() && folder.join(".volferry").exists() != (spelled == "made/")
            );
            assert_eq!(fs::metadata(&folder).unwrap().permissions(), before, "{way:?} {spelled}");
            if spelled != "other" {
                assert_eq!(fs::read(folder.join("other")).unwrap(), b"other", "{way:?} {spelled}");
            }
            let again = pair.run(&[]).report().work;
            assert_eq!((again.files_scanned, again.files_created, again.files_updated), (1, 0, 0), "{way:?}");
        }
    }
}

#[test]
fn a_file_gets_a_second_name_in_its_own_folder_run_after_run() {
    let mut pair = note(Way::Local);
    let folder = pair.source.parent().unwrap().to_path_buf();
    pair.destination = folder.join("copy.txt");
    for content in ["first", "second"] {
        tree::file(&pair.source, content.as_bytes());
        pair.done(&["--force"]);
        assert_is_copy(&pair.destination, &pair.source);
    }
    let output =
        pair.output(&["sync", folder.join("none").to_str().unwrap(), folder.join("c").to_str().unwrap()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("none is not there") && !stderr.contains("make it"), "{stderr}");
}

#[test]
fn a_file_with_another_name_is_replaced_only_by_force() {
    for way in Way::ALL {
        let mut pair = note(way);
        let folder = pair.destination.clone();
        pair.destination = folder.join("other");
        for flags in [&["-n"][..], &[]] {
            let run = pair.run_to(ExitCode::Guard, flags);
            assert_eq!(run.ends().last().unwrap().reason(), "OtherFile");
            assert_eq!(fs::read(folder.join("other")).unwrap(), b"other", "{way:?}");
        }
        pair.done(&["--force"]);
        assert_is_copy(&folder.join("other"), &pair.source);
        pair.done(&[]);
        tree::file(&folder.join("note.txt"), b"an older version");
        pair.destination = folder.join("note.txt");
        pair.done(&[]);
        assert_is_copy(&folder.join("note.txt"), &pair.source);
    }
}

#[test]
fn a_file_below_a_volume_goes_below_another() {
    for way in Way::NETWORK {
        let mut pair = note(way);
        let note = pair.source.clone();
        pair.source = note.parent().unwrap().into();
        let mut sink =
            pair.start_receive(&["--once", "--listen", ANY_PORT, "--destination-path=deep/er/copy.txt"]);
        let address = sink.listening().to_string();
        let source = pair.start_send(&["--connect", &address], &["--source-path=note.txt"]).wait();
        source.assert_exit(ExitCode::Done);
        sink.wait().assert_exit(ExitCode::Done);
        assert_is_copy(&pair.destination.join("deep/er/copy.txt"), &note);
    }
}

#[test]
fn what_a_link_of_the_users_own_leads_to_is_copied_under_the_name_of_the_link() {
    for way in Way::ALL {
        let mut pair = note(way);
        let link = pair.dir().join("link");
        symlink(&pair.source, &link).unwrap();
        let note = std::mem::replace(&mut pair.source, link);
        pair.done(&[]);
        assert_is_copy(&pair.destination.join("link"), &note);
    }
}

#[test]
fn a_dry_run_of_a_file_tells_of_the_file_alone() {
    for way in Way::ALL {
        let pair = note(way);
        let run = pair.done(&["-n"]);
        let source = run.ends().next().unwrap();
        let planned = source.events.iter().filter_map(|event| match event {
            Event::Planned(action) => Some(action.path.as_str()),
            _ => None,
        });
        assert_eq!(planned.collect::<Vec<_>>(), ["note.txt"], "{way:?}");
        assert_eq!(fs::read_dir(&pair.destination).unwrap().count(), 1, "{way:?}");
    }
}

#[test]
fn what_makes_no_sense_for_a_file_is_refused_and_nothing_is_made() {
    for way in Way::ALL {
        for flag in ["--delete", "--exclude=x", "--ignore-files", "--min-size=1", "--no-specials"] {
            let pair = note(way);
            let run = pair.run_to(ExitCode::Usage, &[flag]);
            run.ends().for_each(|end| assert_eq!(end.reason(), "NotForFiles", "{flag}"));
        }
        let mut pair = note(way);
        let missing = pair.dir().join("no");
        pair.destination = missing.join("copy.txt");
        pair.run_to(ExitCode::Failed, &[]);
        assert!(!missing.exists(), "{way:?}");
    }
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let mut pair = note(Way::Local);
    for destination in [pair.source.clone(), pair.source.parent().unwrap().into()] {
        pair.destination = destination;
        let run = pair.run_to(ExitCode::Failed, &[]);
        assert_eq!(run.report().reason.as_deref(), Some("SameTree"));
    }
    assert_eq!(fs::read(&pair.source).unwrap(), b"the note");
}

#[test]
fn an_image_is_asked_for_by_name() {
    for way in Way::ALL {
        let mut pair = note(way);
        pair.destination = pair.destination.join("disk.img");
        pair.is_of_devices = true;
        pair.done(&[]);
        assert_eq!(fs::read(&pair.destination).unwrap(), b"the note");
        assert!(!pair.destination.parent().unwrap().join(".volferry").exists(), "{way:?}");
    }
}
