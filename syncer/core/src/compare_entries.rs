//! Compares two listings of one directory and plans the steps for it. Pure: no file system, no network, no clock.

mod count_as_equal;
mod left_alone;
mod new_rights;

use std::cmp::Ordering;

use contract::Difference;

pub use count_as_equal::{Content, Policy};
pub use left_alone::Spared;

use crate::tree::{
    entry::{Entry, Kind, Meta},
    kept_xattrs::Classes,
    listing::Listing,
};

/// One action on an entry of the source's listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The sink has no entry of this name.
    Create,
    /// The sink has an entry of another kind, or a symbolic link or device that differs.
    Replace {
        /// Whether the sink's entry is a directory.
        was_dir: bool,
    },
    /// A regular file at both ends whose content may differ.
    Update,
    /// Only metadata differs.
    Meta,
}

/// A directory at both ends, to be compared in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirPair {
    /// The source's directory, as an index among the directories of its listing.
    pub source: u32,
    /// The sink's directory; `None` if the run will create it.
    pub sink: Option<u32>,
    /// The entry's index in the source's listing.
    pub index: u32,
}

/// The actions in one directory. Indices refer to the listings, and ascend.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DirPlan {
    /// Entries of the source's listing with an action.
    pub steps: Vec<(u32, Step)>,
    /// Entries of the sink's listing that the source does not have.
    pub deletes: Vec<u32>,
    /// Entries of `deletes` that are moved to another directory instead.
    pub moved: Vec<u32>,
    /// Directories to compare in turn.
    pub pairs: Vec<DirPair>,
    /// Files of the source's listing whose contents have to be compared before an action is chosen.
    pub checks: Vec<u32>,
    /// Entries of the source's listing that are not made, because an entry of another kind has to stay in their places.
    pub clashes: Vec<u32>,
}

impl DirPlan {
    /// Sets the action for an entry of the source's listing.
    pub fn set_step(&mut self, index: u32, step: Option<Step>) {
        let found = self.steps.binary_search_by_key(&index, |(at, _)| *at);
        match (found, step) {
            (Ok(at), Some(step)) => self.steps[at].1 = step,
            (Ok(at), None) => drop(self.steps.remove(at)),
            (Err(at), Some(step)) => self.steps.insert(at, (index, step)),
            (Err(_), None) => {}
        }
    }

    /// Returns the action for the source's entry at this index.
    pub fn step(&self, index: u32) -> Option<Step> {
        let at = self.steps.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        Some(self.steps[at].1)
    }

    /// Returns whether the directory's own entries change, and so its modification time.
    pub fn changes_entries(&self) -> bool {
        !(self.deletes.is_empty() && self.moved.is_empty())
            || self.steps.iter().any(|(_, step)| *step != Step::Meta)
    }
}

/// Compares the two listings of one directory.
///
/// A file of the source outside the size limits protects the sink's entry of that name. If the source's listing is
/// incomplete, entries that are missing in it are not deleted.
///
/// # Errors
/// The errors of `go_on`, which is called at every entry, so a run can be stopped while it compares a large directory.
pub fn plan_dir<E>(
    source: &Listing,
    sink: &Listing,
    policy: Policy,
    spared: Spared<'_>,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<DirPlan, E> {
    let delete = policy.delete && source.is_complete();
    let mut plan = DirPlan::default();
    let mut here = Counted::new(source);
    let mut there = Counted::new(sink);
    loop {
        go_on()?;
        let order = match (&here.entry, &there.entry) {
            (None, None) => return Ok(plan),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.name.cmp(b.name),
        };
        match order {
            Ordering::Less | Ordering::Equal if here.is_excluded(policy) || here.is_forbidden(spared) => {}
            Ordering::Less if policy.existing => {}
            Ordering::Less => plan.create(&here),
            Ordering::Equal => plan.compare(&here, &there, policy, spared),
            Ordering::Greater if delete && !there.is_spared(spared) => plan.deletes.push(there.index),
            Ordering::Greater => {}
        }
        if order.is_le() {
            here.advance();
        }
        if order.is_ge() {
            there.advance();
        }
    }
}

impl DirPlan {
    fn create(&mut self, here: &Counted<'_>) {
        self.steps.push((here.index, Step::Create));
        self.descend(here, None);
    }

    fn compare(&mut self, here: &Counted<'_>, there: &Counted<'_>, policy: Policy, spared: Spared<'_>) {
        let (Some(a), Some(b)) = (here.entry, there.entry) else { return };
        let (is_noted, b) = (b.meta.mtime.is_marked(), unmarked(b));
        if policy.spares_existing(&a, &b) || policy.spares_newer(&a, &b) {
            return;
        }
        if !a.kind.same_kind(&b.kind) && spared.holds(&b) {
            // The rules exclude a directory but not the file of its name, or the reverse.
            return self.clashes.push(here.index);
        }
        let step = step(&a, &b, policy);
        if let Some(step) = step {
            self.steps.push((here.index, step));
        }
        let compares = match policy.content {
            Content::Trusted | Content::BySize => is_noted && step != Some(Step::Update),
            Content::Compared => step != Some(Step::Update),
            Content::Verified => true,
        };
        if compares && matches!((a.kind, b.kind), (Kind::File { .. }, Kind::File { .. })) {
            self.checks.push(here.index);
        }
        self.descend(here, (b.kind == Kind::Dir).then_some(there.dirs));
    }

    fn descend(&mut self, here: &Counted<'_>, sink: Option<u32>) {
        if here.entry.is_some_and(|entry| entry.kind == Kind::Dir) {
            self.pairs.push(DirPair { source: here.dirs, sink, index: here.index });
        }
    }
}

/// Returns the action that makes the sink's entry equal to the source's, if one is needed.
pub fn step(source: &Entry<'_>, sink: &Entry<'_>, policy: Policy) -> Option<Step> {
    let replace = Step::Replace { was_dir: sink.kind == Kind::Dir };
    if policy.spares_newer(source, sink) {
        return None;
    }
    let same_mtime = policy.same_time(source, sink);
    match (source.kind, sink.kind) {
        (a, b) if !a.same_kind(&b) => return Some(replace),
        (Kind::File { size: a }, Kind::File { size: b })
            if a != b || !same_mtime && policy.content == Content::Trusted =>
        {
            return Some(Step::Update);
        }
        (Kind::File { .. }, _) => {}
        (a, b) if a != b => return Some(replace),
        _ => {}
    }
    let same_mode = policy.same_mode(source, sink);
    let same_owner = source.meta.owner == sink.meta.owner || !policy.owners;
    let same_attrs = source.attrs.same(&sink.attrs, policy.attrs);
    if same_mode && same_owner && same_attrs && (same_mtime || !policy.times) {
        None
    } else if policy.vouches(source, sink) {
        Some(Step::Update)
    } else {
        Some(Step::Meta)
    }
}

/// Returns the differences between two entries of one name, as far as the policy keeps them. Contents of equal size
/// count as different if `step` replaces them although metadata does not decide.
pub fn differences(source: &Entry<'_>, sink: &Entry<'_>, step: Step, policy: Policy) -> Vec<Difference> {
    let (is_noted, sink) = (sink.meta.mtime.is_marked(), unmarked(*sink));
    let content = match (source.kind, sink.kind) {
        (Kind::File { size: a }, Kind::File { size: b }) => {
            a == b
                && step == Step::Update
                && (is_noted || matches!(policy.content, Content::Compared | Content::Verified))
        }
        (a, b) => a != b,
    };
    let size = matches!((source.kind, sink.kind), (Kind::File { size: a }, Kind::File { size: b }) if a != b);
    let (from, to) = (source.meta.owner, sink.meta.owner);
    let differs_in = |classes| !source.attrs.same(&sink.attrs, policy.attrs.and(classes));
    let found = [
        (Difference::Content, content),
        (Difference::Size, size),
        (Difference::Time, policy.times && !policy.same_time(source, &sink)),
        (Difference::Mode, !policy.same_mode(source, &sink)),
        (Difference::Owner, policy.owners && from.uid != to.uid),
        (Difference::Group, policy.owners && from.gid != to.gid),
        (Difference::Acl, differs_in(Classes::ACL)),
        (Difference::Xattr, differs_in(Classes::ALL.without(Classes::ACL))),
    ];
    found.into_iter().filter(|(_, differs)| *differs).map(|(difference, _)| difference).collect()
}

/// Returns an entry of the sink with its own time.
fn unmarked(entry: Entry<'_>) -> Entry<'_> {
    Entry { meta: Meta { mtime: entry.meta.mtime.unmarked(), ..entry.meta }, ..entry }
}

/// Walks a listing, counting entries and the directories among them.
struct Counted<'a> {
    entries: crate::tree::listing::Entries<'a>,
    entry: Option<Entry<'a>>,
    index: u32,
    dirs: u32,
}

impl<'a> Counted<'a> {
    fn new(listing: &'a Listing) -> Self {
        let mut entries = listing.iter();
        let entry = entries.next();
        Self { entries, entry, index: 0, dirs: 0 }
    }

    fn is_excluded(&self, policy: Policy) -> bool {
        self.entry.is_some_and(|entry| policy.sizes.exclude(entry.kind))
    }

    fn is_forbidden(&self, spared: Spared<'_>) -> bool {
        self.entry.is_some_and(|entry| spared.forbids(&entry))
    }

    fn is_spared(&self, spared: Spared<'_>) -> bool {
        self.entry.is_some_and(|entry| spared.holds(&entry))
    }

    fn advance(&mut self) {
        self.index += 1;
        self.dirs += u32::from(self.entry.is_some_and(|entry| entry.kind == Kind::Dir));
        self.entry = self.entries.next();
    }
}

#[cfg(test)]
mod entry_tests;
