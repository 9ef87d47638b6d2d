//! Attributes that the destination has no room for: all else arrives.

use std::io::Write as _;

use crate::common::prelude::*;

/// ext4 takes 4 kB of attributes for an entry, where XFS takes 64 kB for each.
#[test]
fn an_attribute_that_does_not_fit_is_named_and_keeps_nothing_else_back() {
    let (Some(from), Some(to)) = (FileSystem::Xfs.mount(), FileSystem::Ext4.mount()) else { return };
    for (way, write) in
        Way::ALL.into_iter().flat_map(|way| [(way, "--write=atomic"), (way, "--write=in-place")])
    {
        let (mut pair, other) = (Pair::in_dir(to.folder(), way), from.folder());
        pair.source = other.path().join("source");
        tree::files(&pair.source, &["file", "folder/file", "gone"], "content");
        tree::file(&pair.source.join("file"), &Rng::new(1).bytes(8 << 20));
        pair.sync("before");
        fs::remove_file(pair.source.join("gone")).unwrap();
        for name in ["file", "folder", "new"] {
            let path = pair.source.join(name);
            if name != "folder" {
                fs::File::options()
                    .create(true)
                    .append(true)
                    .open(&path)
                    .unwrap()
                    .write_all(b"more")
                    .unwrap();
            }
            tree::set_attr(&path, "user.large", &[7; 20_000]);
            tree::set_attr(&path, "user.small", b"small");
        }
        tree::set_mode(&pair.source.join("folder"), 0o751);
        for turn in ["first", "second"] {
            let run = pair.run_to(ExitCode::Partial, &["--delete", write]);
            let what = format!("{way:?} {write}, {turn} run");
            let failures = &run.report().failures;
            assert_eq!(failures.len(), 3, "{what}: {failures:?}");
            let is_named = |it: &contract::Failure| {
                it.operation == "set metadata" && it.error.starts_with("attribute user.large: ")
            };
            assert!(failures.iter().all(is_named), "{what}: {failures:?}");
            assert!(!pair.destination.join("gone").exists(), "{what}");
            let (copy, original) = (Snapshot::of(&pair.destination), Snapshot::of(&pair.source));
            copy.assert_like(&original, Aspects { attrs: false, ..COPY }, &what);
            let mut value = [0; 8];
            let len =
                rustix::fs::getxattr(pair.destination.join("new"), "user.small", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"small");
        }
    }
}
