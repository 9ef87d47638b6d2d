//! A snapshot → a tree: a run whose source is a store.

use contract::{Phase, Report, RunParams, Side};

use crate::{
    hash::TreeDigest,
    owners::Owners,
    path::RelPath,
    report::{Failures, Stopwatch},
    root::Root,
    session::{
        local::stored_tree::{Restore, StoredTree, check_all, needed},
        plan::{
            planned::Compared,
            subject::{Subject, scan_tree},
        },
        reading::source_file::Origin,
        run::local_run::{AtHand, Found, bring},
        session_error::SessionError,
        sink::open::Target,
    },
    snapshot::{Snapshot, SnapshotError, browse},
    tree::{Tree, dir::Totals},
    wire::{SourceDone, TreeHead},
};

/// Patterns that leave out of a run everything but a path, what is below it, and the folders on the way to it.
///
/// # Errors
/// When the path is not UTF-8, as patterns are.
pub fn all_but(path: &RelPath) -> Result<Vec<String>, SnapshotError> {
    let mut patterns = Vec::new();
    let mut at = String::new();
    for name in path.names() {
        let name = std::str::from_utf8(name).map_err(|_| {
            SnapshotError::Invalid(format!("{path} is not UTF-8: restore the folder that it is in"))
        })?;
        patterns.push(format!("{at}/*"));
        at.push('/');
        name.chars().for_each(|c| {
            if matches!(c, '\\' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '#' | ' ') {
                at.push('\\');
            }
            at.push(c);
        });
        patterns.push(format!("!{at}"));
    }
    Ok(patterns)
}

impl Restore<'_> {
    pub(crate) fn run(&self, params: &RunParams, watch: &mut Stopwatch<'_>) -> Result<Report, SessionError> {
        watch.enter(Phase::Scan);
        let (target, notes) = Target::open(&self.to, params, None)?;
        let failures = Failures::default();
        let subject = Subject::of_tree(&self.to);
        let sink = match target.root() {
            Some(root) => {
                let doubt = target.doubtful_since();
                scan_tree(&subject, root, params, Side::Sink, doubt, &failures, watch.monitor())?
            }
            None => Tree::empty(),
        };
        let tree = StoredTree::new(self, &sink);
        let head = self.head(&sink)?;
        let ready = |compared: &Compared, root: Option<&Root>| self.check(&tree, compared, root);
        let source = AtHand { tree: &tree, head, origin: Origin::Stored(&tree), ready: &ready };
        bring(source, Found { target, sink, subject: &subject, notes }, params, &failures, watch)
    }

    /// Where only a path is restored, the root stays as it is.
    fn head(&self, sink: &Tree) -> Result<TreeHead, SnapshotError> {
        let Snapshot { root_meta, root_attrs, entries, bytes, tree, id, .. } = self.snapshot;
        let totals = Totals { entries: *entries, bytes: *bytes, ..Totals::default() };
        let (source, owners) = (SourceDone::default(), Owners::default());
        if self.path.is_root() {
            let (root_meta, root_attrs) = (*root_meta, root_attrs.clone());
            let digest = tree.digest;
            return Ok(TreeHead { root_meta, root_attrs, digest, totals, last_run: None, owners, source });
        }
        if browse::at(self.store, self.snapshot, &self.path)?.is_none() {
            return Err(SnapshotError::NoPath { id: *id, path: self.path.to_string() });
        }
        let (root_meta, root_attrs) = (sink.root_meta, sink.root_attrs.clone());
        let digest = TreeDigest::default();
        Ok(TreeHead { root_meta, root_attrs, digest, totals, last_run: None, owners, source })
    }

    /// Checks every object that is needed, so that nothing is changed for a snapshot that is not whole. Returns a note that says how much is to be written.
    fn check(
        &self,
        tree: &StoredTree<'_>,
        compared: &Compared,
        root: Option<&Root>,
    ) -> Result<Option<String>, SessionError> {
        let needed = needed(tree, compared);
        let bytes: u64 = needed.iter().map(|object| object.len).sum();
        check_all(self.store, self.snapshot, &needed)?;
        let free = root.and_then(|root| rustix::fs::fstatvfs(root).ok()).map(|at| at.f_bavail * at.f_frsize);
        Ok(free.map(|free| {
            format!("{bytes} bytes come from the snapshot; {free} bytes are free at the destination")
        }))
    }
}
