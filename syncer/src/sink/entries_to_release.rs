//! Decides which entries of the source a move may remove: those that the destination, read back, has with all that they
//! are.

use std::collections::HashSet;

use crate::{
    compare_entries::{Policy, step},
    entry::{Entry, Kind},
    kept_xattrs::Classes,
    measure::failures::Failures,
    plan::planned::{Compared, PlannedDir, PlannedRef, path_in},
    tree::{Tree, seek::seek},
    wire::FileGroup,
};

/// A destination that was read back and compared with the source.
pub(crate) struct ReadBack<'a> {
    pub compared: &'a Compared,
    /// The destination's tree.
    pub sink: &'a Tree,
    pub policy: Policy,
    /// The files whose content was not found equal.
    pub unlike: &'a HashSet<PlannedRef>,
    /// The kinds of attributes that the run would keep and the destination cannot.
    pub lost: Classes,
}

impl ReadBack<'_> {
    /// Returns the source's entries, apart from directories, of which the destination has everything. An equal entry
    /// with attributes that are lost there stays, and is a failure.
    pub(crate) fn to_release(&self, failures: &Failures) -> Vec<FileGroup> {
        let leaders = self.whole_leaders();
        let mut groups = Vec::new();
        for (nth, dir) in self.compared.dirs.iter().enumerate() {
            let mut indices = Vec::new();
            self.each_equal(nth, dir, |index, entry| {
                let lost = self.lost_of(entry);
                if !lost.is_empty() {
                    failures.add(&path_in(&dir.path, entry.name), "remove at the source", &stays(lost));
                } else if !matches!(entry.kind, Kind::HardLink { to } if !leaders.contains(to)) {
                    indices.push(index);
                }
            });
            if !indices.is_empty() {
                groups.push(FileGroup { dir: dir.source, indices });
            }
        }
        groups
    }

    /// Returns the paths of the files with further names of which the destination has everything. A further name leads
    /// to that content.
    fn whole_leaders(&self) -> HashSet<Box<[u8]>> {
        let mut named = HashSet::new();
        for entry in self.compared.dirs.iter().flat_map(|dir| &dir.listing) {
            if let Kind::HardLink { to } = entry.kind {
                named.insert(to);
            }
        }
        let mut whole = HashSet::new();
        if named.is_empty() {
            return whole;
        }
        for (nth, dir) in self.compared.dirs.iter().enumerate() {
            self.each_equal(nth, dir, |_, entry| {
                let is_whole = !matches!(entry.kind, Kind::HardLink { .. }) && self.lost_of(entry).is_empty();
                let path = dir.path.join(entry.name).ok().filter(|_| is_whole);
                whole.extend(
                    path.filter(|path| named.contains(path.as_bytes())).map(|path| path.as_bytes().into()),
                );
            });
        }
        whole
    }

    /// Calls `look` with the entries of a directory that are equal at the destination, apart from directories, and with
    /// their indices. Of a further name, only the link is equal.
    fn each_equal(&self, nth: usize, dir: &PlannedDir, mut look: impl FnMut(u32, &Entry<'_>)) {
        // A further name of the destination's file has no metadata of its own. Without a step, the file has the
        // source's, unless it was left alone.
        let is_settled = |copy: &Entry<'_>| matches!(copy.kind, Kind::HardLink { .. }) && !self.policy.update;
        let policy = Policy { update: false, ..self.policy };
        let there = dir.sink.map(|id| &self.sink.dirs[id as usize]).filter(|_| dir.is_asked());
        let Some(mut there) = there.map(|there| there.listing.iter().peekable()) else { return };
        for (index, entry) in (0..).zip(&dir.listing) {
            let Some(copy) = seek(&mut there, entry.name, |copy| copy.name) else { continue };
            let is_equal = match entry.kind {
                Kind::Dir => false,
                Kind::HardLink { .. } => true,
                Kind::File { .. } => {
                    let is_compared = dir.plan.checks.binary_search(&index).is_ok();
                    let is_alike = is_settled(&copy) || step(&entry, &copy, policy).is_none();
                    is_compared && !self.unlike.contains(&PlannedRef { dir: nth, index }) && is_alike
                }
                _ => step(&entry, &copy, policy).is_none(),
            };
            if is_equal && dir.plan.step(index).is_none() && !dir.plan.clashes.contains(&index) {
                look(index, &entry);
            }
        }
    }

    fn lost_of(&self, entry: &Entry<'_>) -> Classes {
        if self.lost.is_empty() { Classes::NONE } else { entry.attrs.classes().and(self.lost) }
    }
}

/// Says why an entry with attributes that are lost stays.
fn stays(lost: Classes) -> String {
    let (what, flags) = match (lost.contains(Classes::ACL), lost == Classes::ACL) {
        (true, true) => ("access control list", "--no-acls moves"),
        (true, false) => ("extended attributes and access control list", "--no-xattrs and --no-acls move"),
        (false, _) => ("extended attributes", "--no-xattrs moves"),
    };
    format!("the destination does not take its {what}, and it stays: {flags} it without")
}
