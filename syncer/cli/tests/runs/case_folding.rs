//! Destinations where names that differ only in case are the same.

use crate::common::prelude::*;

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
        tree::file(&pair.source.join("folder/a"), b"of one");
        tree::file(&pair.source.join("FOLDER/b"), b"of the other");
        for turn in ["first", "second"] {
            let what = format!("{way:?} {flags}, {turn} run");
            let run = pair.run_to(ExitCode::Partial, &["--delete", flags]);
            let failures = &run.report().failures;
            let messages: Vec<_> = failures.iter().map(|it| it.error.as_str()).collect();
            let of_case = messages.iter().filter(|it| it.contains("name differs only in case")).count();
            assert!(of_case >= 3, "{what}: {failures:?}");
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
