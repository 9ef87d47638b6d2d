//! A move whose destination is its source, in part or in whole, removes nothing: what would be removed is the only
//! copy.

use crate::common::prelude::*;

const MOVES: &str = "--remove-source-files";

#[track_caller]
fn assert_refused(pair: &Pair, flags: &[&str]) {
    let run = pair.run(flags);
    run.assert_exit(ExitCode::Failed);
    let Pair { way, source, destination, .. } = pair;
    run.ends().for_each(|end| {
        assert_eq!(
            end.reason(),
            "SameTree",
            "{way:?} {flags:?} {} {}",
            source.display(),
            destination.display()
        );
    });
}

/// Makes a pair whose source is a file of this name in the folder `source`.
fn file_pair(way: Way, name: &str) -> (Pair, PathBuf) {
    let mut pair = Pair::new(way);
    let folder = std::mem::replace(&mut pair.source, PathBuf::new());
    tree::closed_file(&folder.join(name), b"precious");
    pair.source = folder.join(name);
    (pair, folder)
}

#[track_caller]
fn assert_stays(file: &Path) {
    assert_eq!(fs::read(file).unwrap(), b"precious", "{}", file.display());
}

#[test]
fn a_file_is_not_moved_onto_itself() {
    for way in Way::ALL {
        let (mut pair, folder) = file_pair(way, "file");
        symlink(&pair.source, pair.dir().join("link")).unwrap();
        let links = [pair.source.clone(), pair.dir().join("link")];
        for (source, destination) in
            links.iter().flat_map(|link| [(link, folder.join("file")), (link, folder.join("./file"))])
        {
            (pair.source, pair.destination) = (source.clone(), destination);
            [&[MOVES][..], &[], &["-n"]].iter().for_each(|flags| assert_refused(&pair, flags));
            assert_stays(&folder.join("file"));
        }
    }
}

#[test]
fn a_file_is_not_moved_onto_itself_through_a_mount() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let (mut pair, folder) = file_pair(way, "file");
        let source = pair.source.clone();
        let other = scratch::dir(pair.dir(), "other");
        let mount = Mount::bind(&folder, &other);
        pair.destination = other.join("file");
        assert_refused(&pair, &[MOVES]);
        assert_stays(&source);
        drop(mount);
        tree::file(&pair.destination, b"");
        let _mount = Mount::bind(&source, &pair.destination);
        assert_refused(&pair, &[MOVES]);
        assert_stays(&source);
    }
}

#[test]
fn several_files_are_not_moved_onto_themselves_through_a_mount() {
    if !scratch::is_root() {
        return;
    }
    let (pair, folder) = file_pair(Way::Local, "one");
    tree::closed_file(&folder.join("two"), b"precious");
    let _mount = Mount::bind(&folder, &pair.destination);
    let files = ["one", "two"].map(|name| folder.join(name));
    let [one, two] = files.each_ref().map(|file| text(file));
    let into = format!("{}/", pair.destination.display());
    let run = pair.output(&["sync", MOVES, one, two, &into]);
    assert_eq!(run.status.code(), Some(ExitCode::Failed as i32));
    files.iter().for_each(|file| assert_stays(file));
}

#[test]
fn a_file_can_be_moved_onto_another_name_of_it_in_another_folder() {
    for way in Way::ALL {
        let (mut pair, _folder) = file_pair(way, "file");
        let name = pair.destination.join("name");
        fs::hard_link(&pair.source, &name).unwrap();
        pair.destination = name;
        pair.run(&[MOVES]).assert_exit(ExitCode::Done);
        assert!(!pair.source.exists(), "{way:?}");
        assert_stays(&pair.destination);
    }
}

/// Nothing that an end knows of its own folder tells that an overlay shows it to the other end.
#[test]
fn a_tree_that_is_the_destination_by_an_overlay_stays() {
    for (way, from, to, file) in Way::ALL.into_iter().filter(|_| scratch::is_root()).flat_map(|way| {
        [
            (way, "upper", "merged", "file"),
            (way, "merged", "upper", "file"),
            (way, "upper/sub", "merged", "sub/file"),
            (way, "merged/sub", "upper", "sub/file"),
            (way, "upper", "merged/sub", "file"),
            (way, "merged", "upper/sub", "file"),
            (way, "upper/file", "merged/file", "file"),
            (way, "merged/file", "upper/file", "file"),
        ]
    }) {
        let mut pair = Pair::new(way);
        let [upper, merged] = ["upper", "merged"].map(|name| scratch::dir(pair.dir(), name));
        scratch::dir(&upper, "sub");
        tree::closed_file(&upper.join(file), b"precious");
        let _mount = Mount::overlay(&upper, &merged, pair.dir());
        (pair.source, pair.destination) = (pair.dir().join(from), pair.dir().join(to));
        assert_refused(&pair, &[MOVES]);
        assert_stays(&upper.join(file));
        assert_stays(&merged.join(file));
    }
}

#[test]
fn a_destination_on_another_file_system_in_the_source_is_none_of_it_where_those_are_left_out() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = Pair::new(way);
        let _disk = Mount::tmpfs(&pair.destination, "8m");
        tree::closed_file(&pair.source.join("file"), b"precious");
        let _bound = Mount::bind(&pair.destination, &scratch::dir(&pair.source, "bound"));
        pair.run(&[MOVES, "--one-file-system"]).assert_exit(ExitCode::Done);
        assert!(!pair.source.join("file").exists(), "{way:?}");
        assert_stays(&pair.destination.join("file"));
    }
}
