//! Compares both trees of a run: their listings, and then contents where metadata is not enough.

use std::collections::HashMap;

use rustix::fs::{AtFlags, Stat};

use crate::{
    compare_entries::{Content, Policy, Step},
    destination::Settings,
    entry::Kind,
    measure::monitor::Monitor,
    path::RelPath,
    plan::{
        clashes::{leave_out_clashes, leave_out_links},
        compare_contents::{SourceHashes, checker},
        compare_params::{of_same_root, policy},
        compare_trees::compare,
        moved_dirs::may_move,
        planned::{Checked, Compared, PlannedDir, path_in},
        run_state::Run,
        single_file::Subject,
        source_tree::SourceTree,
    },
    session_error::{SessionError, go_on},
    source::source_file::Origin,
    sys::root::Root,
    tree::Tree,
    wire::TreeHead,
};

/// The destination of a run, or of a dry run, as the comparison sees it.
pub(crate) struct Onto<'a> {
    /// The root; `None` if the destination does not exist.
    pub root: Option<&'a Root>,
    pub settings: Settings,
    pub subject: &'a Subject,
    pub run: &'a Run<'a>,
}

impl Onto<'_> {
    /// Removes the parts of the source's head that do not concern the destination.
    pub(crate) fn adapt(&self, head: TreeHead, sink: &Tree) -> TreeHead {
        if self.subject.keeps_root(self.run.params) { of_same_root(head, sink) } else { head }
    }

    /// Compares the listings of both trees, and counts links and other entries that cannot be made as failures.
    pub(crate) fn compare(
        &self,
        source: &mut impl SourceTree,
        head: &TreeHead,
        sink: &Tree,
    ) -> Result<Compared, SessionError> {
        let Run { params, failures, monitor, restores_in_place, .. } = self.run;
        let policy = Policy { spares_foreign: *restores_in_place, ..policy(params, self.settings) };
        let mut compared = compare(source, head, sink, policy, may_move(params)?, params, monitor)?;
        if let Some(root) = self.root {
            leave_out_clashes(&mut compared, sink, root);
        }
        // Each process of a shared run finds the same.
        if params.shard.is_none_or(|shard| shard.index == 0) {
            let why = "an excluded entry of another kind has its name at the destination: change the pattern or the \
                       size limit, or remove that entry";
            compared.clashes.iter().for_each(|path| failures.add(path, "make", &why));
        }
        Ok(compared)
    }

    /// Compares the contents of files whose metadata is not trusted, and then settles hard links.
    pub(crate) fn compare_contents(
        &self,
        compared: &mut Compared,
        sink: &Tree,
        source: &mut impl SourceHashes,
    ) -> Result<Checked, SessionError> {
        let Run { params, failures, monitor, .. } = self.run;
        let checked = match self.root {
            Some(root) => checker(Origin::Tree(root), failures, monitor).check(
                &mut compared.dirs,
                source,
                Some(Step::Update),
            )?,
            None => Checked::default(),
        };
        if let Some(root) = self.root.filter(|_| self.run.restores_paths) {
            write_shared_anew(&mut compared.dirs, sink, root, monitor)?;
        }
        let mut policy = policy(params, self.settings);
        // Contents are compared by now, so settling may take no further file for equal.
        if policy.content == Content::Verified {
            policy.content = Content::Compared;
        }
        compared.settle(sink, policy, monitor)?;
        leave_out_links(compared);
        let why = "it is a hard link of a file that is excluded at the destination, or has no place there";
        compared.unlinked.iter().for_each(|path| failures.add(path, "link", &why));
        Ok(checked)
    }
}

/// Plans to write files anew that would get other metadata and have names that the run leaves out, so that those keep
/// theirs.
fn write_shared_anew(
    dirs: &mut [PlannedDir],
    sink: &Tree,
    root: &Root,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    let names: HashMap<&RelPath, usize> =
        sink.groups.iter().map(|group| (&group.leader, group.members.len())).collect();
    for dir in dirs.iter_mut().filter(|dir| dir.sink.is_some()) {
        let (mut shared, held) = (Vec::new(), root.dir(&dir.path).ok());
        for (index, entry) in (0..).zip(&dir.listing) {
            go_on(monitor)?;
            if dir.plan.step(index) == Some(Step::Meta) && matches!(entry.kind, Kind::File { .. }) {
                let known = names.get(&path_in(&dir.path, entry.name)).copied().unwrap_or(1);
                let stat = |held| rustix::fs::statat(held, entry.name, AtFlags::SYMLINK_NOFOLLOW).ok();
                let has_more = |stat: &Stat| stat.st_nlink as usize > known;
                shared.extend(held.as_ref().and_then(stat).filter(has_more).map(|_| index));
            }
        }
        shared.into_iter().for_each(|index| dir.plan.set_step(index, Some(Step::Update)));
    }
    Ok(())
}
