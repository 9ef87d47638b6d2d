//! Compares two listings of one directory and decides what to do. Pure: no file system, no network, no clock.

use std::cmp::Ordering;

use contract::Difference;

use crate::{
    hash::TreeDigest,
    tree::{
        attrs::Classes,
        entry::{Entry, Kind, Owner, SET_IDS, Time, kept_mode},
        filter::{Filter, SizeLimits},
        listing::Listing,
        path::RelPath,
        rules::Rules,
    },
};

/// The rules by which two entries count as equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy {
    /// Remove entries that the source does not have.
    pub delete: bool,
    /// Remove none of other file systems than the root of the sink.
    pub one_file_system: bool,
    /// Owner and group are compared.
    pub owners: bool,
    /// The user of the process that writes. A file that another user can write to gets an owner, set-id bits or
    /// capabilities only with new content.
    pub user: Owner,
    /// Modes are compared.
    pub permissions: bool,
    /// Modification times are kept. If not, only a file's time is compared, because it shows whether the content may
    /// differ.
    pub times: bool,
    /// Extended attributes of these kinds are compared.
    pub attrs: Classes,
    /// The sizes of files that take part.
    pub sizes: SizeLimits,
    /// Files that are newer at the sink are left alone.
    pub update: bool,
    /// How far metadata decides that contents are equal.
    pub content: Content,
}

/// Says how far a file's metadata decides that contents are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Content {
    /// Equal size and modification time mean equal content.
    #[default]
    Trusted,
    /// Another size means another content; with equal sizes, contents are compared.
    Compared,
    /// Contents are compared whatever the metadata says.
    Verified,
}

impl Policy {
    /// Whether two directories are equal with everything below them.
    pub fn same(&self, a: &TreeDigest, b: &TreeDigest) -> bool {
        // Digests do not cover contents.
        self.content == Content::Trusted
            && a.entries == b.entries
            && (!self.owners || a.owners == b.owners)
            // If some kinds of attributes cannot be set, their digests may differ for ever. The listings then decide.
            && (self.attrs.is_empty() || a.attrs == b.attrs)
    }
}

impl Policy {
    /// Whether the sink's file is left alone because it is newer. The scan turns around the time of a file in doubt.
    fn spares_newer(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        let are_files = matches!((source.kind, sink.kind), (Kind::File { .. }, Kind::File { .. }));
        let Time { seconds, nanos } = sink.meta.mtime;
        let newest = Time { seconds: seconds.max(!seconds), nanos };
        self.update && are_files && newest > source.meta.mtime
    }

    /// Returns the mode that an entry gets.
    fn mode_of(&self, entry: &Entry<'_>) -> u16 {
        kept_mode(entry.kind, &entry.meta, self.owners || entry.meta.owner == self.user)
    }

    /// Whether the sink's file would get the source's owner, set-id bits or capabilities although another user could
    /// have written its content.
    fn vouches(&self, source: &Entry<'_>, sink: &Entry<'_>) -> bool {
        if !matches!((source.kind, sink.kind), (Kind::File { .. }, Kind::File { .. })) {
            return false;
        }
        let owner = self.owners && source.meta.owner != sink.meta.owner;
        let set_ids = self.mode_of(source) & SET_IDS & !sink.meta.mode != 0;
        let capabilities = source.attrs.classes().and(self.attrs).contains(Classes::CAPABILITY);
        let is_anothers =
            sink.meta.owner.uid != self.user.uid || sink.meta.mode & 0o022 != 0 || !self.permissions;
        (owner || set_ids || capabilities) && is_anothers
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
    /// Whether an entry of the source must not be written: its name, or the file that it links to, is excluded here.
    pub fn forbids(&self, entry: &Entry<'_>) -> bool {
        self.owner.excludes(self.dir, entry.name, entry.kind == Kind::Dir) || self.forbids_target(entry)
    }

    /// Whether an entry of the source is a hard link to a file that is excluded here.
    pub fn forbids_target(&self, entry: &Entry<'_>) -> bool {
        let Kind::HardLink { to } = entry.kind else { return false };
        !self.owner.is_empty() && RelPath::parse(to).is_ok_and(|path| self.owner.excludes_path(&path))
    }

    /// Whether these rules spare no entry.
    pub fn is_nothing(&self) -> bool {
        self.rules.is_none() && self.sizes == SizeLimits::default()
    }

    /// Whether an entry of the sink that the source does not have stays.
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
        /// The sink's entry is a directory.
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

    /// Whether the directory's own entries change, and so its modification time.
    pub fn changes_entries(&self) -> bool {
        !(self.deletes.is_empty() && self.moved.is_empty())
            || self.steps.iter().any(|(_, step)| *step != Step::Meta)
    }
}

/// Compares the two listings of one directory.
///
/// A file of the source outside the size limits protects the sink's entry of that name. Nothing is deleted for missing
/// in an incomplete listing of the source.
///
/// # Errors
/// What `go_on` returns, which is called at every entry, so that a run can be stopped while it compares a large
/// directory.
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
        if !a.kind.same_kind(&b.kind) && spared.by_rules(&b) {
            // The rules exclude a directory but not the file of its name, or the reverse. It stays, and an entry that
            // cannot be made beside it is a failure that names it.
            return self.create(here);
        }
        if policy.spares_newer(&a, &b) {
            return;
        }
        let step = step(&a, &b, policy);
        if let Some(step) = step {
            self.steps.push((here.index, step));
        }
        let compares = match policy.content {
            Content::Trusted => false,
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
    let same_mtime = source.meta.mtime == sink.meta.mtime;
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
    // A link's mode is always 0777 and says nothing.
    let same_mode = policy.mode_of(source) == sink.meta.mode || matches!(source.kind, Kind::Symlink { .. });
    let same_owner = source.meta.owner == sink.meta.owner || !policy.owners;
    let same_attrs = source.attrs.same(&sink.attrs, policy.attrs);
    match same_mode && same_owner && same_attrs && (same_mtime || !policy.times) {
        true => None,
        false if policy.vouches(source, sink) => Some(Step::Update),
        false => Some(Step::Meta),
    }
}

/// Returns what differs between two entries of one name, as far as the policy keeps it. Contents of equal size differ
/// if `step` replaces them although metadata does not decide.
pub fn differences(source: &Entry<'_>, sink: &Entry<'_>, step: Step, policy: Policy) -> Vec<Difference> {
    let is_link = matches!(source.kind, Kind::Symlink { .. });
    let content = match (source.kind, sink.kind) {
        (Kind::File { size: a }, Kind::File { size: b }) => {
            a == b && step == Step::Update && policy.content != Content::Trusted
        }
        (a, b) => a != b,
    };
    let size = matches!((source.kind, sink.kind), (Kind::File { size: a }, Kind::File { size: b }) if a != b);
    let (from, to) = (source.meta.owner, sink.meta.owner);
    let differs_in = |classes| !source.attrs.same(&sink.attrs, policy.attrs.and(classes));
    let found = [
        (Difference::Content, content),
        (Difference::Size, size),
        (Difference::Time, policy.times && source.meta.mtime != sink.meta.mtime),
        (Difference::Mode, !is_link && policy.mode_of(source) != sink.meta.mode),
        (Difference::Owner, policy.owners && from.uid != to.uid),
        (Difference::Group, policy.owners && from.gid != to.gid),
        (Difference::Acl, differs_in(Classes::ACL)),
        (Difference::Xattr, differs_in(Classes::ALL.without(Classes::ACL))),
    ];
    found.into_iter().filter(|(_, differs)| *differs).map(|(difference, _)| difference).collect()
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
mod tests {
    use super::*;
    use crate::tree::{
        attrs::{Attrs, put_attr},
        entry::{Meta, Time},
        listing::ListingBuilder,
        rules::InUse,
    };

    const DELETE: Policy = Policy {
        delete: true,
        one_file_system: false,
        owners: true,
        user: Owner { uid: 9, gid: 9 },
        permissions: true,
        times: true,
        attrs: Classes::ALL,
        sizes: SizeLimits { min: 0, max: u64::MAX },
        update: false,
        content: Content::Trusted,
    };

    fn plan_dir(source: &Listing, sink: &Listing, policy: Policy) -> DirPlan {
        plan_with(source, sink, policy, None)
    }

    fn plan_with(source: &Listing, sink: &Listing, policy: Policy, rules: Option<&Rules>) -> DirPlan {
        let dir = RelPath::root();
        let owner = &Filter::default();
        let spared = Spared { dir: &dir, rules, sizes: policy.sizes, owner };
        super::plan_dir(source, sink, policy, spared, || Ok::<_, ()>(())).unwrap()
    }

    fn meta(seconds: i64) -> Meta {
        Meta { mode: 0o644, mtime: Time { seconds, nanos: 5 }, owner: Owner { uid: 1, gid: 1 } }
    }

    fn file(name: &str, size: u64, seconds: i64) -> Entry<'_> {
        Entry {
            name: name.as_bytes(),
            kind: Kind::File { size },
            meta: meta(seconds),
            attrs: Attrs::default(),
        }
    }

    fn dir(name: &str) -> Entry<'_> {
        Entry { name: name.as_bytes(), kind: Kind::Dir, meta: meta(0), attrs: Attrs::default() }
    }

    fn listing(entries: &[Entry<'_>]) -> Listing {
        let mut builder = ListingBuilder::default();
        entries.iter().for_each(|entry| builder.push(entry));
        builder.finish()
    }

    #[test]
    fn a_newer_file_of_the_sink_stays_also_where_its_time_is_in_doubt() {
        let policy = Policy { update: true, ..DELETE };
        let at = |seconds| Meta { mtime: Time { seconds, nanos: 0 }, ..Meta::default() };
        let file =
            |size, meta| Entry { name: b"a", kind: Kind::File { size }, meta, attrs: Attrs::default() };
        let source = file(1, at(100));
        for (seconds, expected) in [(99, Some(Step::Update)), (100, Some(Step::Update)), (101, None)] {
            for doubtful in [seconds, !seconds] {
                assert_eq!(step(&source, &file(2, at(doubtful)), policy), expected, "{doubtful}");
            }
        }
        let link = Entry { kind: Kind::Symlink { target: b"x" }, ..file(2, at(101)) };
        assert_eq!(step(&source, &link, policy), Some(Step::Replace { was_dir: false }));
    }

    #[test]
    fn equal_listings_need_nothing_but_a_look_into_directories() {
        let both = listing(&[file("a", 1, 1), dir("d"), file("e", 2, 2)]);
        let plan = plan_dir(&both, &both, DELETE);
        assert_eq!(plan.steps, []);
        assert!(plan.deletes.is_empty());
        assert_eq!(plan.pairs, [DirPair { source: 0, sink: Some(0), index: 1 }]);
        assert!(!plan.changes_entries());
    }

    #[test]
    fn every_difference_has_its_step() {
        let source = listing(&[
            file("content", 5, 9),
            file("created", 1, 1),
            file("kind", 1, 1),
            Entry { meta: Meta { mode: 0o600, ..meta(1) }, ..file("mode", 1, 1) },
            file("time", 3, 2),
        ]);
        let sink = listing(&[
            file("content", 6, 9),
            file("gone", 1, 1),
            dir("kind"),
            file("mode", 1, 1),
            file("time", 3, 1),
        ]);
        let plan = plan_dir(&source, &sink, DELETE);
        let replace = Step::Replace { was_dir: true };
        let expected =
            [(0, Step::Update), (1, Step::Create), (2, replace), (3, Step::Meta), (4, Step::Update)];
        assert_eq!(plan.steps, expected);
        assert_eq!(plan.deletes, [1]);
    }

    #[test]
    fn without_delete_nothing_is_deleted() {
        let plan = plan_dir(&listing(&[]), &listing(&[file("a", 1, 1)]), Policy::default());
        assert_eq!(plan, DirPlan::default());
    }

    #[test]
    fn what_an_incomplete_source_does_not_list_stays() {
        let mut source = ListingBuilder::default();
        source.mark_incomplete();
        let plan = plan_dir(&source.finish(), &listing(&[file("a", 1, 1)]), DELETE);
        assert_eq!(plan, DirPlan::default());
    }

    #[test]
    fn owners_matter_only_where_they_can_be_set() {
        let other = Entry { meta: Meta { owner: Owner { uid: 9, gid: 9 }, ..meta(1) }, ..file("a", 1, 1) };
        let (source, sink) = (listing(&[other]), listing(&[file("a", 1, 1)]));
        let own = Policy { user: meta(1).owner, ..DELETE };
        assert_eq!(plan_dir(&source, &sink, own).steps, [(0, Step::Meta)]);
        assert_eq!(plan_dir(&source, &sink, Policy { owners: false, ..DELETE }).steps, []);
    }

    #[test]
    fn what_another_user_can_write_to_gets_no_owner_or_set_id_bits_without_new_content() {
        let with = |uid, mode| Entry {
            meta: Meta { mode, owner: Owner { uid, gid: uid }, ..meta(1) },
            ..file("a", 1, 1)
        };
        let root = Policy { user: Owner::default(), ..DELETE };
        for (source, sink, expected) in [
            (with(1000, 0o644), with(0, 0o644), Step::Meta),
            (with(0, 0o644), with(1000, 0o644), Step::Update),
            (with(1000, 0o644), with(0, 0o664), Step::Update),
            (with(0, 0o4755), with(0, 0o755), Step::Meta),
            (with(0, 0o4755), with(0, 0o757), Step::Update),
            (with(1000, 0o4755), with(1000, 0o755), Step::Update),
            (with(1000, 0o600), with(1000, 0o4755), Step::Meta),
        ] {
            let plan = plan_dir(&listing(&[source]), &listing(&[sink]), root);
            assert_eq!(plan.steps, [(0, expected)], "{:?} {:?}", source.meta, sink.meta);
        }
    }

    #[test]
    fn set_id_bits_are_dropped_with_the_owner_and_are_no_difference_then() {
        let with = |mode| Entry { meta: Meta { mode, ..meta(1) }, ..file("a", 1, 1) };
        let policy = Policy { owners: false, ..DELETE };
        let steps = |source, sink| plan_dir(&listing(&[with(source)]), &listing(&[with(sink)]), policy).steps;
        assert_eq!(steps(0o4755, 0o755), []);
        assert_eq!(steps(0o4755, 0o4755), [(0, Step::Meta)]);
        let own = Policy { user: meta(1).owner, ..policy };
        let both = [listing(&[with(0o4755)]), listing(&[with(0o755)])];
        assert_eq!(plan_dir(&both[0], &both[1], own).steps, [(0, Step::Meta)], "the owner is the same");
    }

    #[test]
    fn attributes_matter_only_where_they_can_be_set() {
        let mut attrs = Vec::new();
        put_attr(&mut attrs, b"trusted.t", b"value");
        let source = listing(&[Entry { attrs: Attrs::trusted(&attrs), ..file("a", 1, 1) }, file("b", 1, 1)]);
        let sink = listing(&[file("a", 1, 1), Entry { attrs: Attrs::trusted(&attrs), ..file("b", 1, 1) }]);
        assert_eq!(plan_dir(&source, &sink, DELETE).steps, [(0, Step::Meta), (1, Step::Meta)]);
        let may_not = Policy { attrs: Classes::ALL.without(Classes::TRUSTED), ..DELETE };
        assert_eq!(plan_dir(&source, &sink, may_not).steps, []);
    }

    #[test]
    fn times_that_are_not_kept_matter_to_content_only() {
        let source = listing(&[dir("d"), file("f", 1, 1)]);
        let sink = listing(&[Entry { meta: Meta { mode: 0o644, ..meta(9) }, ..dir("d") }, file("f", 1, 9)]);
        assert_eq!(plan_dir(&source, &sink, DELETE).steps, [(0, Step::Meta), (1, Step::Update)]);
        assert_eq!(plan_dir(&source, &sink, Policy { times: false, ..DELETE }).steps, [(1, Step::Update)]);
    }

    #[test]
    fn directories_are_paired_by_their_count_among_directories() {
        let source = listing(&[file("a", 1, 1), dir("m"), dir("n")]);
        let sink = listing(&[dir("b"), dir("n")]);
        let plan = plan_dir(&source, &sink, DELETE);
        let expected =
            [DirPair { source: 0, sink: None, index: 1 }, DirPair { source: 1, sink: Some(1), index: 2 }];
        assert_eq!(plan.pairs, expected);
    }

    #[test]
    fn files_outside_of_the_size_limits_are_left_alone_at_both_ends() {
        let sizes = SizeLimits { min: 10, max: 20 };
        let source =
            listing(&[file("grew", 21, 1), file("in", 10, 1), file("new", 9, 1), file("took part", 15, 1)]);
        let sink = listing(&[
            file("grew", 15, 2),
            file("theirs", 9, 1),
            file("theirs too", 20, 1),
            file("took part", 5, 1),
        ]);
        let plan = plan_dir(&source, &sink, Policy { sizes, ..DELETE });
        assert_eq!(plan.steps, [(1, Step::Create), (3, Step::Update)]);
        assert_eq!(plan.deletes, [2], "only what is within the limits goes");
    }

    #[test]
    fn what_the_rules_match_at_the_sink_stays() {
        let rules = Rules::new(None, &RelPath::root(), b"*.o\nbuild/\n", &InUse::default()).unwrap();
        let source = listing(&[file("build", 1, 1), file("made.o", 1, 1)]);
        let sink = listing(&[file("a.o", 1, 1), dir("build"), file("gone", 1, 1), dir("x.o")]);
        let plan = plan_with(&source, &sink, DELETE, Some(&rules));
        assert_eq!(plan.steps, [(0, Step::Create), (1, Step::Create)], "a spared directory is not replaced");
        assert_eq!(plan.deletes, [2]);
    }

    #[test]
    fn content_that_is_compared_is_not_judged_by_time() {
        let source = listing(&[file("same", 1, 1), file("size", 1, 1), file("time", 1, 1)]);
        let sink = listing(&[file("same", 1, 1), file("size", 2, 1), file("time", 1, 2)]);
        let plan = |content| plan_dir(&source, &sink, Policy { content, ..DELETE });
        assert_eq!(plan(Content::Trusted).steps, [(1, Step::Update), (2, Step::Update)]);
        assert!(plan(Content::Trusted).checks.is_empty());
        for (content, checks) in [(Content::Compared, &[0, 2][..]), (Content::Verified, &[0, 1, 2])] {
            let plan = plan(content);
            assert_eq!(plan.steps, [(1, Step::Update), (2, Step::Meta)]);
            assert_eq!(plan.checks, checks);
        }
    }

    #[test]
    fn a_step_is_set_in_its_place() {
        let mut plan = DirPlan { steps: vec![(1, Step::Meta), (5, Step::Create)], ..DirPlan::default() };
        for (index, step) in [(3, Some(Step::Update)), (1, Some(Step::Update)), (5, None), (9, None)] {
            plan.set_step(index, step);
        }
        assert_eq!(plan.steps, [(1, Step::Update), (3, Step::Update)]);
    }
}
