//! What a run has to count: worked out from the two trees as the oracle sees them, before the run.

use contract::Work;

use super::oracle::{Kind, Node, Snapshot};

/// What a run that makes `after` of `before`, deletes included, should say that it did. What depends on the network and on
/// reuse is left 0.
pub fn work(before: &Snapshot, after: &Snapshot) -> Work {
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
            Some(old) if content_is_moved(old, node) => {
                work.files_updated += 1;
                work.bytes_changed += len;
            }
            Some(old) => work.files_updated += u64::from(!is_same(old, node)),
        }
    }
    work.files_deleted = before.entries().filter(|(path, _)| after.at(path).is_none()).count() as u64;
    work
}

/// The counts of a report that [`work`] can foretell.
pub fn foretold(work: &Work) -> Work {
    Work { bytes_on_wire: 0, bytes_reused: 0, ..*work }
}

fn bytes(node: &Node) -> u64 {
    match &node.kind {
        Kind::File(content) => content.len() as u64,
        _ => 0,
    }
}

/// A file's content moves where size or time differ: that is what a run looks at.
fn content_is_moved(old: &Node, new: &Node) -> bool {
    match (&old.kind, &new.kind) {
        (Kind::File(a), Kind::File(b)) => a.len() != b.len() || old.mtime != new.mtime,
        (_, Kind::File(_)) => true,
        _ => false,
    }
}

fn is_same(old: &Node, new: &Node) -> bool {
    let same_mode = old.mode == new.mode || matches!(new.kind, Kind::Symlink(_));
    old.kind == new.kind
        && same_mode
        && old.owner == new.owner
        && old.mtime == new.mtime
        && old.attrs == new.attrs
}
