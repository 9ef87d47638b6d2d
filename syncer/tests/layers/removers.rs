//! Old versions of entries leave a destination by one file.

use std::collections::BTreeMap;

use crate::{
    imports::{find_files, uses_of, without_tests},
    is_in, is_test, repository,
};

/// The modules that remove or rename directory entries, and those entries; no other module of the engine does so.
const REMOVERS: [(&str, &str); 17] = [
    ("destination::state::own_file", "what has the name of a new file in .volferry"),
    ("destination::state::made_mark", "the name under which a mark is written"),
    ("destination::remove_old_versions", "entries of the destination"),
    ("destination::backup_dir", "empty folders that old versions take the names of"),
    ("destination::state::made_beside", "directories that a run has made beside their places"),
    ("destination::state::dirty_mark", ".volferry/dirty-N"),
    ("destination::in_place::write_by_journal", ".volferry/journal"),
    ("destination::state::leftovers", ".volferry/staging"),
    ("destination::state::motion_notes", ".volferry/in-motion-N"),
    ("destination::state::private_dir", ".volferry of another user"),
    ("destination::staging::staged_dir", "new folders in staging, and files in them"),
    ("destination::state::state_dir", ".volferry/staging"),
    ("destination::state::state_names", ".volferry/staging"),
    ("destination::metadata::probe_file", "a file in staging that metadata is tried on"),
    ("destination::state::volume_id", ".volferry/volume"),
    ("source::remove_source_files", "entries of the source that a run moves"),
    ("snapshot", ".volferry/snapshots"),
];

/// The calls that remove or rename a directory entry, by any import.
const REMOVING: [&str; 9] = [
    "renameat",
    "renameat_with",
    "unlinkat",
    "unlink",
    "rmdir",
    "rename",
    "remove_file",
    "remove_dir",
    "remove_dir_all",
];

#[test]
fn old_versions_of_entries_leave_by_one_file() {
    let mut files = BTreeMap::new();
    find_files(&repository().join("syncer/src"), &mut Vec::new(), &mut files);
    let removing = |text: &str| {
        let text = without_tests(text);
        REMOVING.into_iter().find(|call| calls(&text, call))
    };
    let is_allowed = |module: &str| is_test(module) || REMOVERS.iter().any(|(of, _)| is_in(module, of));
    for (module, text) in files.iter().filter(|(module, _)| !is_allowed(module)) {
        if let Some(call) = removing(text) {
            panic!(
                "syncer/src: {module} calls {call}: old versions of entries leave by destination::remove_old_versions only"
            );
        }
    }
    for (of, what) in REMOVERS {
        let mut inside = files.iter().filter(|(module, _)| is_in(module, of));
        assert!(inside.any(|(_, text)| removing(text).is_some()), "{of} does not remove {what} any more");
    }
    for text in [
        "rustix::fs::unlinkat(dir, name)",
        "use rustix::fs::unlinkat;",
        "fs::rename(a, b)",
        "std::fs::remove_file(a)",
    ] {
        assert!(removing(text).is_some(), "{text}");
    }
    for text in
        ["destination.remove_file(dir, name)", "fn unlink(&self)", "renamed(listing)", "// fs::rename(a, b)"]
    {
        assert!(removing(text).is_none(), "{text}");
    }
}

/// Returns whether a file imports a function of a module `fs`, or calls it by its path.
fn calls(text: &str, function: &str) -> bool {
    let imported = uses_of(text).0.into_iter().any(|path| {
        path.rsplit_once("::").is_some_and(|(module, name)| name == function && module.ends_with("fs"))
    });
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let path = format!("fs::{function}");
    imported || text.match_indices(&path).any(|(at, _)| !text[at + path.len()..].starts_with(is_part))
}
