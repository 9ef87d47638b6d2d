//! The counts that a run has to report, computed from the two trees as the oracle reads them before the run.

use contract::Work;

use super::oracle::{Kind, Node, Snapshot};

/// Returns the counts of a run of `user` that makes `after` of `before`, deletes included. Counts that depend on the
/// network and on reuse are 0.
pub fn work(before: &Snapshot, after: &Snapshot, user: u32) -> Work {
    let mut work = Work::default();
    for (path, node) in after.entries() {
        let len = bytes(node);
        work.files_scanned += 1;
        work.bytes_total += len;
        match before.at(path) {
            None => {
                work.files_created += 1;
                work.bytes_changed += len;
            }
            Some(old) if content_is_moved(old, node, user) => {
                work.files_updated += 1;
                work.bytes_changed += len;
            }
            Some(old) => work.files_updated += u64::from(!is_same(old, node)),
        }
    }
    work.files_deleted = before.entries().filter(|(path, _)| after.at(path).is_none()).count() as u64;
    work
}

/// Returns only the counts of a report that [`work`] predicts.
pub fn foretold(work: &Work) -> Work {
    Work { bytes_on_wire: 0, bytes_reused: 0, ..*work }
}

fn bytes(node: &Node) -> u64 {
    match &node.kind {
        Kind::File(content) => content.len() as u64,
        _ => 0,
    }
}

/// Returns whether a file's content moves: if its size or time differ, as a run compares these. It also does if another
/// user could have written the file that would get an owner, set-id bits or capabilities.
fn content_is_moved(old: &Node, new: &Node, user: u32) -> bool {
    let is_anothers = old.owner.0 != user || old.mode & 0o022 != 0;
    let grants = old.owner != new.owner || new.mode & 0o6000 & !old.mode != 0;
    match (&old.kind, &new.kind) {
        (Kind::File(_), Kind::File(_))
            if is_anothers && (grants || has_capability(new)) && !is_same(old, new) =>
        {
            true
        }
        (Kind::File(a), Kind::File(b)) => a.len() != b.len() || old.mtime != new.mtime,
        (_, Kind::File(_)) => true,
        _ => false,
    }
}

fn has_capability(node: &Node) -> bool {
    node.attrs.iter().any(|(name, _)| *name == *b"security.capability")
}

fn is_same(old: &Node, new: &Node) -> bool {
    let same_mode = old.mode == new.mode || matches!(new.kind, Kind::Symlink(_));
    old.kind == new.kind
        && same_mode
        && old.owner == new.owner
        && old.mtime == new.mtime
        && old.attrs == new.attrs
}
