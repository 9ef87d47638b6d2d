//! `--one-file-system` makes the tree that rsync's makes, and deletes nothing that is mounted.

use crate::common::oracle::Kind;
use crate::common::prelude::*;

fn mount(at: &Path) -> Mount {
    fs::create_dir_all(at).unwrap();
    Mount::tmpfs(at, "1m")
}

/// Makes a source with a mount in it.
fn fill_source(source: &Path) -> Mount {
    let mounted = mount(&source.join("mounted"));
    tree::files(source, &["plain/file", "both/new", "mounted/inside", "mounted/sub/inside"], "source");
    mounted
}

/// Makes a destination that has files below the source's mount, and mounts of its own: at a folder of the source, at a
/// path that the source does not have, and below a folder that it does not have.
fn fill_destination(root: &Path) -> [Mount; 3] {
    let mounts = ["both", "gone_mount", "gone/deep/mount"].map(|path| mount(&root.join(path)));
    tree::files(
        root,
        &["mounted/theirs", "mounted/sub/theirs", "both/theirs", "both/sub/theirs"],
        "destination",
    );
    tree::files(
        root,
        &["gone_mount/theirs", "gone/file", "gone/deep/mount/theirs", "extra", "plain/extra"],
        "destination",
    );
    mounts
}

/// Returns the paths of a tree, with the kind of each entry.
fn entries(root: &Path) -> Vec<(String, Kind)> {
    Snapshot::of(root).entries().map(|(path, node)| (show(path), node.kind.clone())).collect()
}

fn names(entries: &[(String, Kind)]) -> Vec<&str> {
    entries.iter().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn a_run_of_one_file_system_makes_the_tree_that_rsyncs_makes() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = Pair::new(way);
        let _source = [fill_source(&pair.source), mount(&pair.source.join("new"))];
        tree::files(&pair.source, &["new/inside"], "source");
        let _destination = fill_destination(&pair.destination);
        let peer = scratch::dir(pair.dir(), "rsync");
        let _peer = fill_destination(&peer);
        let ends = [format!("{}/", text(&pair.source)), text(&peer).into()];
        let rsync = Command::new("rsync").args(["-aHAXSx", "--delete"]).args(&ends).output().unwrap();
        assert!(rsync.status.success(), "{}", String::from_utf8_lossy(&rsync.stderr));
        for turn in ["first", "second"] {
            let run = pair.done(&["-x", "--delete", "--delete-limit=100"]);
            let (ours, theirs) = (entries(&pair.destination), entries(&peer));
            assert_eq!(names(&ours), names(&theirs), "{way:?}, {turn} run");
            assert!(ours == theirs, "{way:?}, {turn} run");
            let note = "2 other file systems are mounted inside the source, the first at mounted: its entries were left out";
            assert_eq!(run.report().notes[0], note, "{way:?}, {turn} run");
            let work = run.report().work;
            let expected = if turn == "first" { (3, 3) } else { (0, 0) };
            assert_eq!((work.files_created, work.files_deleted), expected, "{way:?}, {turn} run");
        }
    }
}

#[test]
fn a_mount_inside_the_source_is_told_of_once_and_belongs_to_the_run() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = Pair::new(way);
        let _first = fill_source(&pair.source);
        let _below = mount(&pair.source.join("mounted/below"));
        let _second = mount(&pair.source.join("also"));
        let run = pair.done(&[]);
        pair.assert_copy("with what is mounted");
        let note = "2 other file systems are mounted inside the source, the first at also: what is in it belongs to the run; \
                    --one-file-system leaves it out";
        assert_eq!(run.report().notes, [note], "{way:?}");
    }
}

#[test]
fn a_mount_does_not_give_way_to_a_file_of_the_source() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = Pair::new(way);
        tree::files(&pair.source, &["both", "gone", "other"], "source");
        let _mounts = fill_destination(&pair.destination);
        let run = pair.run_to(ExitCode::Partial, &["--one-file-system", "--delete", "--delete-limit=100"]);
        let failed: Vec<_> = run.report().failures.iter().map(|failure| failure.path.as_str()).collect();
        assert_eq!(failed, ["both", "gone"], "{way:?}");
        for path in ["both/theirs", "both/sub/theirs", "gone_mount/theirs", "gone/deep/mount/theirs"] {
            assert_eq!(
                fs::read_to_string(pair.destination.join(path)).unwrap(),
                "destination",
                "{way:?}: {path}"
            );
        }
        assert!(pair.destination.join("other").exists(), "{way:?}");
    }
}
