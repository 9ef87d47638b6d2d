//! Compares two listings of one directory and plans the steps for it. Pure: no file system, no network, no clock.

use std::cmp::Ordering;

use contract::Difference;

use crate::{
    hash::TreeDigest,
    tree::{
        dir::Beyond,
        entry::{Entry, Kind, Meta, Owner, SET_IDS, Time, kept_mode},
        filter::{Filter, SizeLimits},
        kept_times::KeptTimes,
        kept_xattrs::Classes,
        listing::Listing,
        path::RelPath,
        rules::Rules,
    },
};

/// The rules by which two entries count as equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// Whether to remove entries that the source does not have.
    pub delete: bool,
    /// Whether entries on other file systems than the sink's root stay.
    pub one_file_system: bool,
    /// Whether sockets stay, and folders below the root that have a folder `.volferry`, with everything in them.
    pub spares_foreign: bool,
    /// Whether deletes cross into other mounts than the one of the sink's root.
    pub cross_mounts: bool,
    /// Whether owner and group are compared.
    pub owners: bool,
    /// The user of the process that writes. A file that another user can write to gets an owner, set-id bits or
    /// capabilities only with new content.
    pub user: Owner,
    /// Whether modes are compared.
    pub permissions: bool,
    /// Whether modification times are kept. If not, only a file's time is compared, because it shows whether the
    /// content may differ.
    pub times: bool,
    /// The times that the sink's file system can keep.
    pub kept_times: KeptTimes,
    /// The kinds of extended attributes that are compared.
    pub attrs: Classes,
    /// The sizes of files that take part.
    pub sizes: SizeLimits,
    /// Whether files that are newer at the sink are left alone.
    pub update: bool,
    /// Whether no new entries are made.
    pub existing: bool,
    /// Whether entries that the sink has are left alone, apart from directories.
    pub ignore_existing: bool,
    /// How far metadata decides that contents are equal.
    pub content: Content,
}

/// How far equal metadata proves that contents are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Equal size and modification time mean equal content.
    #[default]
    Trusted,
    /// Equal size means equal content.
    BySize,
    /// Different sizes mean different content; with equal sizes, contents are compared.
    Compared,
    /// Contents are compared regardless of the metadata.
    Verified,
}

impl Policy {
    /// Returns whether the entries of a sink's directory stay, because of where it is.
    pub fn spares(&self, beyond: Beyond) -> bool {
        beyond.mount && !self.cross_mounts || beyond.file_system && self.one_file_system
    }

    /// Returns whether two directories are equal with everything below them.
    pub fn same(&self, a: &TreeDigest, b: &TreeDigest) -> bool {
        // Digests do not cover contents. They differ where the sink's file system does not keep a time; the listings
        // then decide.
        matches!(self.content, Content::Trusted | Content::BySize)
            && a.entries == b.entries
            && (!self.owners || a.owners == b.owners)
            // If some kinds of attributes cannot be set, their digests may differ for ever. The listings then decide.
            && (self.attrs.is_empty() || a.attrs == b.attrs)
    }
}

impl Policy {
    /// Returns whether the sink's file is left alone because it is newer. The scan turns around the time of a file in
    /// doubt.
    pub fn spares_newer(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        let are_files = matches!((source.kind, sink.kind), (Kind::File { .. }, Kind::File { .. }));
        let Time { seconds, nanos } = sink.meta.mtime.unmarked().0;
        let newest = Time { seconds: seconds.max(!seconds), nanos };
        self.update && are_files && newest > self.kept_times.kept(source.meta.mtime)
    }

    /// Returns whether the sink's entry has the source's time, as far as the sink's file system keeps it.
    fn same_time(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        source.meta.mtime == sink.meta.mtime || self.kept_times.kept(source.meta.mtime) == sink.meta.mtime
    }

    /// Returns whether the sink's mode may stay. Where owners are not kept, set-id bits may stay on a file that has the
    /// source's owner nevertheless: an equal directory is not looked into.
    fn same_mode(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        // A link's mode is always 0777, and is not compared.
        matches!(source.kind, Kind::Symlink { .. })
            || self.mode_of(source) == sink.meta.mode
            || source.meta.mode == sink.meta.mode && source.meta.owner == sink.meta.owner
    }

    /// Returns the mode that an entry gets.
    fn mode_of(&self, entry: &Entry<'_>) -> u16 {
        kept_mode(entry.kind, &entry.meta, self.owners || entry.meta.owner == self.user)
    }

    /// Returns whether the sink's file would get the source's owner, set-id bits or capabilities although another user
    /// could have written its content.
    fn vouches(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        let is_anothers =
            sink.meta.owner.uid != self.user.uid || sink.meta.mode & 0o022 != 0 || !self.permissions;
        is_anothers && self.grants(source, sink)
    }

    /// Returns whether the sink's file would get another owner, set-id bits or capabilities.
    pub fn grants(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        if !matches!((source.kind, sink.kind), (Kind::File { .. }, Kind::File { .. })) {
            return false;
        }
        let owner = self.owners && source.meta.owner != sink.meta.owner;
        let set_ids = self.mode_of(source) & SET_IDS & !sink.meta.mode != 0;
        let capabilities = source.attrs.classes().and(self.attrs).contains(Classes::CAPABILITY);
        owner || set_ids || capabilities
    }
}

/// The entries of one of the sink's directories that the run must leave alone.
#[derive(Debug, Clone, Copy)]
pub struct Spared<'a> {
    /// The directory.
    pub dir: &'a RelPath,
    /// The source's rules for it.
    pub rules: Option<&'a Rules>,
    /// The sizes of files that take part.
    pub sizes: SizeLimits,
    /// Patterns that the owner of the sink's tree excludes.
    pub owner: &'a Filter,
}

impl Spared<'_> {
    /// Returns whether an entry of the source must not be written: its name, or the file that it links to, is excluded
    /// here.
    pub fn forbids(&self, entry: &Entry<'_>) -> bool {
        self.owner.excludes(self.dir, entry.name, entry.kind == Kind::Dir) || self.forbids_target(entry)
    }

    /// Returns whether an entry of the source is a hard link to a file that is excluded here.
    pub fn forbids_target(&self, entry: &Entry<'_>) -> bool {
        let Kind::HardLink { to } = entry.kind else { return false };
        !self.owner.is_empty() && RelPath::parse(to).is_ok_and(|path| self.owner.excludes_path(&path))
    }

    /// Returns whether these rules spare no entry.
    pub fn is_nothing(&self) -> bool {
        self.rules.is_none() && self.sizes == SizeLimits::default()
    }

    /// Returns whether an entry of the sink that the source does not have stays.
    pub fn holds(&self, entry: &Entry<'_>) -> bool {
        self.sizes.exclude(entry.kind) || self.by_rules(entry)
    }

    fn by_rules(&self, entry: &Entry<'_>) -> bool {
        let Some(rules) = self.rules else { return false };
        self.dir.join(entry.name).is_ok_and(|path| rules.excludes(&path, entry.kind == Kind::Dir))
    }
}

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
        let (b, is_noted) = unmarked(b);
        if !a.kind.same_kind(&b.kind) && spared.by_rules(&b) {
            // The rules exclude a directory but not the file of its name, or the reverse. It stays, and an entry that
            // cannot be made beside it is a failure that names it.
            return self.create(here);
        }
        let is_ignored = policy.ignore_existing && (a.kind, b.kind) != (Kind::Dir, Kind::Dir);
        if is_ignored || policy.spares_newer(&a, &b) {
            return;
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
    let (sink, is_noted) = unmarked(*sink);
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

/// Returns an entry of the sink with its own time, and whether its content is to be compared.
fn unmarked(entry: Entry<'_>) -> (Entry<'_>, bool) {
    let (mtime, is_noted) = entry.meta.mtime.unmarked();
    (Entry { meta: Meta { mtime, ..entry.meta }, ..entry }, is_noted)
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
