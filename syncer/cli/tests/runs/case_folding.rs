//! Destinations where names that differ only in case are the same.

use crate::common::prelude::*;
use crate::common::service::Served;

/// The files of a folder, each with its content.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_name_that_differs_only_in_case_replaces_no_other_and_is_named() {
    let Some(to) = FileSystem::ExFat.mount() else { return };
    for (way, flags) in
        Way::ALL.into_iter().flat_map(|way| [(way, "--write=atomic"), (way, "--write=in-place")])
    {
        let (mut pair, folder) = (Pair::new(way), to.folder());
        pair.destination = scratch::dir(folder.path(), "destination");
        let (small, large) = ("a small file".to_owned(), "a large file".repeat(200_000));
        ["sub", "folder", "FOLDER"].iter().for_each(|name| drop(scratch::dir(&pair.source, name)));
        for (name, content) in
            [("readme", &small), ("README", &large), ("sub/readme", &small), ("sub/Readme", &small)]
        {
            tree::file(&pair.source.join(name), content.as_bytes());
        }
        for (folder, content) in [("folder", "of one"), ("FOLDER", "of the other")] {
            let names: Vec<String> = (0..6).map(|nth| format!("{folder}/{nth}")).collect();
            tree::files(&pair.source, &names.iter().map(String::as_str).collect::<Vec<_>>(), content);
            tree::files(&pair.source, &[&format!("{folder}/below/file")], content);
        }
        for turn in ["first", "second"] {
            let what = format!("{way:?} {flags}, {turn} run");
            let run = pair.run_to(ExitCode::Partial, &["--delete", flags]);
            let failures = &run.report().failures;
            let messages: Vec<_> = failures.iter().map(|it| it.error.as_str()).collect();
            let of_case = messages.iter().filter(|it| it.contains("name differs only in case")).count();
            assert!(of_case >= 3, "{what}: {failures:?}");
            let whole = fs::read_dir(&pair.destination).unwrap().map(|entry| entry.unwrap().file_name());
            let whole: Vec<_> = whole.filter(|name| name.eq_ignore_ascii_case("folder")).collect();
            let [name] = &whole[..] else { panic!("{what}: {whole:?}") };
            for dir in ["", "below"] {
                let [from, to] =
                    [&pair.source, &pair.destination].map(|root| files(&root.join(name).join(dir)));
                assert_eq!(from, to, "{what}: {dir}");
            }
            for dir in ["", "sub"] {
                let there = files(&pair.destination.join(dir));
                let [(name, content)] = &there[..] else { panic!("{what}: {there:?}") };
                assert_eq!(*content, fs::read_to_string(pair.source.join(dir).join(name)).unwrap(), "{what}");
            }
        }
    }
}

#[test]
fn an_entry_whose_name_changed_in_case_gets_it_once_the_old_one_is_deleted() {
    let Some(to) = FileSystem::ExFat.mount() else { return };
    for way in Way::ALL {
        let (mut pair, folder) = (Pair::new(way), to.folder());
        pair.destination = scratch::dir(folder.path(), "destination");
        tree::files(&pair.source, &["Readme", "other"], "content");
        pair.run_to(ExitCode::Done, &[]);
        fs::rename(pair.source.join("Readme"), pair.source.join("README")).unwrap();
        pair.run_to(ExitCode::Partial, &["--delete"]);
        assert_eq!(files(&pair.destination)[0], ("Readme".into(), "content".into()), "{way:?}");
        pair.run_to(ExitCode::Done, &["--delete=before"]);
        assert_eq!(files(&pair.destination)[0], ("README".into(), "content".into()), "{way:?}");
    }
}

#[test]
fn another_spelling_reaches_neither_what_an_owner_excludes_nor_the_folders_own_state() {
    let Some(disk) = FileSystem::ExFat.mount() else { return };
    let folder = disk.folder();
    let photos = scratch::dir(folder.path(), "photos");
    tree::files(&photos, &["private/secret", "open/file"], "of the owner");
    let mut served = Served::prepare(&format!(
        "[folders.photos]\npath = {photos:?}\nread = [\"*\"]\nwrite = [\"*\"]\nexclude = [\"private\", \"*.key\"]\n"
    ));
    let (user, source, got) = (served.user("laptop"), served.folder("source"), served.path("got"));
    tree::files(&source, &["file"], "of the peer");
    served.start();
    let [whole, open] = ["photos", "photos/open"].map(|name| served.place(name));
    served.sync(&user, [text(&source), &open], &[]).assert_exit(ExitCode::Done);
    served.sync(&user, [text(&source), &whole], &[]).assert_exit(ExitCode::Done);
    tree::files(&photos, &["own.key"], "of the owner");

    for name in ["PRIVATE", "Private/secret", "Own.Key", ".VOLFERRY", "open/.Volferry/snapshots"] {
        let place = served.place(&format!("photos/{name}"));
        for ends in [[&*place, text(&got)], [text(&source), &place]] {
            let ended = served.sync(&user, ends, &[]);
            assert_ne!(ended.exit, Some(ExitCode::Done), "{ends:?}: {}", ended.stderr);
        }
    }
    let list = served.path("list");
    fs::write(&list, "PRIVATE/secret\nOWN.KEY\n.VOLFERRY/epoch\nfile\n").unwrap();
    served.sync(&user, [&whole, text(&got)], &[&format!("--files-from={}", list.display())]);
    assert_eq!(files(&got), [("file".to_owned(), "of the peer".to_owned())]);
    assert_eq!(fs::read_dir(&got).unwrap().count(), 2, "the file, and the state of the copy");
    assert_eq!(files(&photos.join("private")), [("secret".to_owned(), "of the owner".to_owned())]);
    assert_eq!(fs::read_to_string(photos.join("own.key")).unwrap(), "of the owner");
}
