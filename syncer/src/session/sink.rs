//! The sink's end of a run.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::atomic::Ordering::Relaxed,
};

use contract::{
    Compare, DeleteTiming, Demands, Phase, PlannedAction, Report, RunParams, Side, VolumeId, Work, WriteMode,
};

use super::{
    SessionError, alike,
    check::{Checker, Expect, RemoteHashes},
    compare::{Compared, PlannedDir, SourceTree, compare},
    device,
    execute::{Context, Executor},
    guard,
    read::Origin,
    rehearse::{Looked, Rehearsal},
    remote, rfc3339,
    room::Room,
    shards::{Crew, to_transfer},
    single::{Named, Subject},
    verify::Verifier,
};
use crate::{
    apply::{Candidate, Destination, Settings},
    attrs::Classes,
    entry::Time,
    filter::{Filter, FilterError, SizeLimits},
    locate::locate,
    monitor::Monitor,
    plan::{Content, Policy, Step},
    report::{Counters, Failures, Stopwatch},
    root::{Place, Root},
    scan::{ScanOptions, scan},
    transport::{Control, Peer, TransportError},
    tree::{
        Tree,
        dir::{DirId, Totals},
    },
    wire::{Hello, Listed, Message, SourceDone, TreeHead, Welcome},
};

/// Entries that a source may push before the sink asked for any. A source stops at 64 KiB of listings, where no entry is below five bytes.
const MAX_PUSHED_ENTRIES: usize = 16 << 10;

/// The fewest bytes that an entry of a listing takes.
const MIN_ENTRY_BYTES: usize = 5;

/// How a plan may go ahead once the trees were compared.
pub(super) struct Planned {
    pub compared: Compared,
    pub sink: Tree,
}

/// Runs the sink's end over a connection, as far as `demands` lets the source decide. `run` is set to the run's name once the source has said it, for the report of a run that fails;
/// `bytes_on_wire` is asked when the report is made.
pub(super) fn run(
    place: &Place,
    peer: &Peer,
    demands: &Demands,
    watch: &mut Stopwatch<'_>,
    run: &mut String,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    watch.enter(Phase::Scan);
    let version = env!("CARGO_PKG_VERSION").into();
    control.send(&Message::Welcome(Welcome { version, dry_run: demands.dry_run }))?;
    let hello = demanded(expect_hello(control)?, demands);
    run.clone_from(&hello.params.run);
    peer.use_connections(hello.params.connections);
    if let Some(len) = hello.device {
        return device::receive(place, len, peer, &hello.params, watch, bytes_on_wire);
    }
    let found = device::look(place, "--destination-path", demands.image)?;
    if hello.file.is_none() {
        device::refuse_tree(place, found, "the source")?;
    }
    let subject = Subject::of_destination(place, hello.file.as_deref())?;
    subject.find_folder(place)?;
    refuse_overlap(&hello, place)?;
    if hello.params.dry_run {
        return rehearse(&subject, peer, &hello, watch, bytes_on_wire);
    }
    let Hello { params, attrs: visible, .. } = hello;
    let failures = Failures::default();
    let mut settings = Settings::resolve(&params.preserve)?;
    // What the source cannot see may be there all the same.
    settings.attrs = settings.attrs.and(visible);
    let (destination, mut notes) = open_destination(&subject.place, &params, settings)?;
    let doubt = destination.doubtful_since();
    let sink =
        scan_tree(&subject, destination.root(), &params, Side::Sink, doubt, &failures, watch.monitor())?;
    if sink.has_attrs() {
        destination.found_attrs();
    }
    let mut source = RemoteTree::new(control);
    let head = source.head()?;
    merge(&failures, &head.source);
    let head = if subject.is_file() { of_same_root(head, &sink) } else { head };
    let mut source = Named::new(source, &subject);

    watch.enter(Phase::Plan);
    let (policy, may_move) = (policy(&params, destination.settings()), may_move(&params));
    let mut compared = compare(&mut source, &head, &sink, policy, may_move, &owners_filter(&params)?)?;
    report_unlinked(&compared, &failures);
    watch.enter(Phase::Delta);
    let checker = checker(Origin::Tree(destination.root()), &failures, watch.monitor());
    checker.check(&mut compared.dirs, &mut RemoteHashes(control), Some(Step::Update))?;
    compared.settle(&sink, policy);
    let plan = Planned { compared, sink };
    let counters = Counters::default();
    let context = Context {
        destination: &destination,
        failures: &failures,
        counters: &counters,
        monitor: watch.monitor(),
    };
    let mut done = head.source.clone();
    let crew = Crew::new(&destination, watch.monitor(), Some(control));
    let room = Room::of(destination.root(), None);
    let (crew, keeps_root) = (crew.as_ref(), subject.is_file());
    let room = room.as_ref();
    let applying = Applying { context, params: &params, head: &head, plan: &plan, crew, room, keeps_root };
    let applied = applying.apply(watch, &mut |executor| {
        let unlike = executor.unlike_any(&plan.compared.dirs);
        executor.make_from(alike::look(destination.root(), &plan.sink, unlike, control, context.monitor)?);
        if remote::run(context.into(), peer, |fetch| executor.transfer(&plan.compared.dirs, fetch))? {
            done = expect_done(control)?;
            failures.merge(done.failed.saturating_sub(head.source.failed), Vec::new(), 0);
        }
        Ok(())
    });
    let totals = own_totals(&destination, &head);
    watch.did(work_of(&totals, &counters));
    notes.extend(applied?);
    if params.verify {
        watch.enter(Phase::Plan);
        let verifier = Verifier {
            params: &params,
            settings: destination.settings(),
            root: destination.root(),
            subject: &subject,
            failures: &failures,
            monitor: watch.monitor(),
        };
        notes.extend(verifier.verify(&mut source, &mut RemoteHashes(control), &head)?);
    }
    let volume = Some(destination.own().volume());
    let mut report = make_report(&params, watch, &totals, &counters, &failures, volume, notes);
    report.work.bytes_on_wire = bytes_on_wire();
    report.usage = watch.sink_usage(done.usage);
    report.fill_rates();
    destination.close();
    control.send(&Message::Report(Box::new(report.clone())))?;
    Ok(report)
}

/// Refuses a destination that is the source's tree, lies in it or contains it: each run would nest it one level deeper.
fn refuse_overlap(hello: &Hello, place: &Place) -> Result<(), SessionError> {
    let here = locate(place, hello.whereabouts.run());
    match hello.file.is_none() && hello.whereabouts.overlaps(&here) {
        true => Err(SessionError::SameTree(format!(
            "the destination {} is the source, lies in it or contains it, on one machine: choose folders that do not contain one another",
            place.path().display()
        ))),
        false => Ok(()),
    }
}

/// The run that the source asks for, as far as the owner of the destination lets it.
fn demanded(mut hello: Hello, demands: &Demands) -> Hello {
    let params = &mut hello.params;
    params.demands = demands.clone();
    // The source tells of a dry run that it asked for.
    params.demands.dry_run &= !params.dry_run;
    params.dry_run |= demands.dry_run;
    params.delete &= !demands.no_delete;
    hello
}

/// Tells the source of some of the actions of a dry run, and whoever asked for it at this end.
pub(super) fn tell_planned(
    control: &Control,
    params: &RunParams,
    monitor: &Monitor,
    actions: Vec<PlannedAction>,
) -> Result<(), TransportError> {
    if params.demands.dry_run {
        actions.iter().for_each(|action| monitor.planned(action));
    }
    control.send(&Message::Planned(actions))
}

/// Takes the destination at `path`, if it is the one that the run is meant for. Also returns what is to be noted in the report.
pub(super) fn open_destination(
    place: &Place,
    params: &RunParams,
    mut settings: Settings,
) -> Result<(Destination, Vec<String>), SessionError> {
    settings.in_place = params.write == WriteMode::InPlace;
    // A folder is made only if the run may go there, and looked at again for what came meanwhile.
    let candidate = match Candidate::look(place)? {
        Some(candidate) => candidate,
        None => {
            guard::check_volume(params, &place.path(), None)?;
            Candidate::open(place)?
        }
    };
    let mut notes = guard::check_volume(params, &place.path(), candidate.volume()?)?;
    let shard = params.shard.filter(|shard| shard.count > 1);
    if shard.is_some_and(|shard| !shard.is_valid()) {
        return Err(TransportError::Nonsense("there is no such shard").into());
    }
    let shard = shard.map(|shard| (params.run.as_str(), shard));
    let destination = candidate.take(settings, shard)?;
    notes.extend_from_slice(destination.notes());
    Ok((destination, notes))
}

/// Runs the sink's end of a dry run.
fn rehearse(
    subject: &Subject,
    peer: &Peer,
    Hello { params, attrs: visible, .. }: &Hello,
    watch: &mut Stopwatch<'_>,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    let failures = Failures::default();
    let mut settings = Settings::resolve(&params.preserve)?;
    settings.attrs = settings.attrs.and(*visible);
    let (looked, mut notes) = Looked::at(&subject.place, params, settings, None)?;
    let sink = match looked.root() {
        Some(root) => scan_tree(subject, root, params, Side::Sink, None, &failures, watch.monitor())?,
        None => Tree::empty(),
    };
    let mut source = RemoteTree::new(control);
    let head = source.head()?;
    merge(&failures, &head.source);
    let head = if subject.is_file() { of_same_root(head, &sink) } else { head };
    let mut source = Named::new(source, subject);
    watch.enter(Phase::Plan);
    let policy = policy(params, looked.settings);
    let owner = owners_filter(params)?;
    let mut compared = compare(&mut source, &head, &sink, policy, may_move(params), &owner)?;
    report_unlinked(&compared, &failures);
    watch.enter(Phase::Delta);
    let changed = match looked.root() {
        Some(root) => {
            let checker = checker(Origin::Tree(root), &failures, watch.monitor());
            checker.check(&mut compared.dirs, &mut RemoteHashes(control), Some(Step::Update))?
        }
        None => 0,
    };
    compared.settle(&sink, policy);
    let plan = Planned { compared, sink };
    let counters = Counters::default();
    let rehearsal =
        Rehearsal { params, head: &head, looked: &looked, failures: &failures, counters: &counters };
    notes.extend(
        rehearsal
            .tell(&plan, changed, &mut |actions| tell_planned(control, params, watch.monitor(), actions))?,
    );
    let totals = rehearsal.totals();
    let mut report = make_report(params, watch, &totals, &counters, &failures, looked.volume, notes);
    report.work.bytes_on_wire = bytes_on_wire();
    report.usage = watch.sink_usage(head.source.usage);
    report.fill_rates();
    control.send(&Message::Report(Box::new(report.clone())))?;
    Ok(report)
}

/// A plan, and what it takes to carry it out.
pub(super) struct Applying<'a> {
    pub context: Context<'a>,
    pub params: &'a RunParams,
    pub head: &'a TreeHead,
    pub plan: &'a Planned,
    /// Where several processes share the run.
    pub crew: Option<&'a Crew<'a>>,
    /// What is known of the destination's file system.
    pub room: Option<&'a Room>,
    /// The root's own metadata is none of the run's business.
    pub keeps_root: bool,
}

/// What moves the content.
type Transfer<'a> = dyn FnMut(&mut Executor<'_>) -> Result<(), SessionError> + 'a;

impl Applying<'_> {
    /// Carries the plan out, through to a durable destination. A run that fails makes durable what it did.
    pub(super) fn apply(
        &self,
        watch: &mut Stopwatch<'_>,
        transfer: &mut Transfer<'_>,
    ) -> Result<Vec<String>, SessionError> {
        self.carry_out(watch, transfer).inspect_err(|_| {
            if let Err(error) = self.context.destination.commit_unfinished(self.context.monitor) {
                tracing::debug!(%error, "what was done may not be on the disk; the next run looks at it again");
            }
        })
    }

    /// Of several processes, the first makes the directories before the others begin, and sets their metadata when the others are done.
    fn carry_out(
        &self,
        watch: &mut Stopwatch<'_>,
        transfer: &mut Transfer<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let Self { context, params, head, plan, crew, room, keeps_root } = *self;
        let Planned { compared, sink } = plan;
        let failed = context.failures.count();
        let mut notes = guard::check(params, head, sink, compared, room, failed)?;
        let leads = context.destination.own().leads();
        if leads {
            count_owners(context.destination.settings(), head, sink, context.counters);
        }
        let mut executor = Executor::new(context, sink, compared, params);
        if keeps_root {
            executor.leave_root();
        } else if leads {
            executor.expect_root(head.root_meta, head.root_attrs.as_attrs());
        }
        for root in compared.dirs.iter().filter(|dir| dir.path.is_root()) {
            context.destination.check_names(root.listing.iter().map(|entry| entry.name))?;
        }
        let failed = crew.map_or(Ok(failed), |crew| crew.assemble(context.failures))?;
        if leads {
            context.destination.drop_leftovers(compared.dirs.iter().flat_map(PlannedDir::large_files));
        }
        if !compared.dirs.is_empty() {
            context.destination.begin()?;
        }
        executor.keep_aside(&compared.dirs)?;
        if leads && params.delete_timing == DeleteTiming::Before {
            executor.delete_first(&compared.dirs, failed)?;
        }
        if let Some(crew) = crew {
            watch.enter(Phase::Transfer);
            let (share, note) = match leads {
                true => {
                    executor.make_dirs(&compared.dirs)?;
                    (crew.deal(&compared.dirs)?, None)
                }
                false => crew.receive(&compared.dirs)?,
            };
            notes.extend(note);
            executor.take_share(share);
        }
        watch.enter(Phase::Transfer);
        let (files, bytes) =
            executor.mine(&compared.dirs).map(to_transfer).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        context.monitor.set_totals(files, bytes);
        let moved = context.destination.sync_during(context.monitor, || transfer(&mut executor));
        context.destination.still_held()?;
        moved?;
        watch.enter(Phase::Apply);
        if let Some(crew) = crew {
            crew.await_content()?;
        }
        executor.make_links(&compared.dirs)?;
        let failed = context.failures.count();
        let failed = crew.map_or(Ok(failed), |crew| crew.await_links(failed))?;
        executor.put_folders(failed)?;
        if let Some(crew) = crew {
            crew.await_folders()?;
        }
        context.destination.end_asides();
        executor.replace_and_delete(&compared.dirs, failed)?;
        if let Some(crew) = crew.filter(|_| leads) {
            crew.await_others()?;
        }
        if leads {
            executor.link_to_replaced(&compared.dirs)?;
        }
        notes.extend(executor.finish()?);
        watch.enter(Phase::Commit);
        // A run of one file has not looked at the others that may be in doubt.
        let is_whole = failed + context.failures.count() == 0 && !keeps_root;
        context.destination.commit(is_whole, context.monitor).map_err(|error| {
            match context.monitor.cancelled() {
                true => TransportError::Canceled.into(),
                false => SessionError::Commit(error),
            }
        })?;
        if let Some(crew) = crew {
            crew.is_done()?;
            if params.verify {
                crew.await_first()?;
            }
        }
        Ok(notes)
    }
}

/// What the owner of the destination lets no source write.
pub(super) fn owners_filter(params: &RunParams) -> Result<Filter, FilterError> {
    Filter::default().sparing(&params.demands.exclude)
}

/// Takes the links of `compared` that cannot be made as failures, as their files are excluded at this end.
fn report_unlinked(compared: &Compared, failures: &Failures) {
    let why = "it is a hard link of a file that is excluded at the destination";
    compared.unlinked.iter().for_each(|path| failures.add(path, "link", &why));
}

/// What decides that entries are the same.
pub(super) fn policy(params: &RunParams, settings: Settings) -> Policy {
    Policy {
        delete: params.delete,
        owners: settings.owners,
        user: settings.user,
        permissions: settings.permissions,
        times: settings.times,
        attrs: settings.attrs,
        sizes: sizes(params),
        content: content(params),
    }
}

fn content(params: &RunParams) -> Content {
    match params.compare {
        _ if params.dry_run && params.verify => Content::Verified,
        Compare::Metadata => Content::Trusted,
        Compare::Content => Content::Compared,
    }
}

/// Of files whose content is compared before the run.
pub(super) fn checker<'a>(origin: Origin<'a>, failures: &'a Failures, monitor: &'a Monitor) -> Checker<'a> {
    Checker { origin, failures, monitor, expect: Expect::SameSize }
}

fn sizes(params: &RunParams) -> SizeLimits {
    SizeLimits { min: params.min_size.unwrap_or(0), max: params.max_size.unwrap_or(u64::MAX) }
}

/// Whether a directory may be moved as it is: where something may be left out of a run, it might be in there; and metadata has to tell
/// that its files have not changed.
pub(super) fn may_move(params: &RunParams) -> bool {
    let mut patterns = [&params.include, &params.exclude, &params.demands.exclude].into_iter();
    let has_patterns = patterns.any(|patterns| !patterns.is_empty());
    let leaves_out = has_patterns || params.ignore_files || sizes(params) != SizeLimits::default();
    !leaves_out && content(params) == Content::Trusted
}

/// Scans the tree at `root` for one side of a run, as the parameters ask. Files that were changed since the time of a `doubt` do not count as what they look like.
pub(super) fn scan_tree(
    subject: &Subject,
    root: &Root,
    params: &RunParams,
    side: Side,
    doubt: Option<Time>,
    failures: &Failures,
    monitor: &Monitor,
) -> Result<Tree, SessionError> {
    let options = ScanOptions {
        doubt,
        only: subject.only.clone(),
        filter: Filter::new(&params.include, &params.exclude)?.sparing(&params.demands.exclude)?,
        // The sink is told of the source's with its listings.
        ignore_files: params.ignore_files && side == Side::Source,
        ignore_permissions: !params.preserve.permissions,
        ignore_specials: !params.preserve.specials,
        list_sockets: side == Side::Sink,
        hard_links: params.preserve.hard_links,
        sizes: sizes(params),
        attrs: Classes::wanted(&params.preserve),
        unreadable_attrs: side == Side::Sink,
        stamps: None,
    };
    scan(root, &options, failures, monitor).map_err(|source| match monitor.cancelled() {
        true => TransportError::Canceled.into(),
        false => SessionError::Scan { path: subject.place.path(), source },
    })
}

/// The head of a tree whose root is as the sink's: that of a file's folder says nothing of the file.
pub(super) fn of_same_root(head: TreeHead, sink: &Tree) -> TreeHead {
    TreeHead { root_meta: sink.root_meta, root_attrs: sink.root_attrs.clone(), ..head }
}

/// What a process counts of what was scanned: of several that share a run, which have all seen it, only one does.
pub(super) fn own_totals(destination: &Destination, head: &TreeHead) -> Totals {
    match destination.own().leads() {
        true => head.totals,
        false => Totals::default(),
    }
}

/// Counts the entries whose copies do not keep their owners, also in a run that finds nothing to do: from what both ends have counted in their scans.
/// Where owners are not asked for, there are none.
pub(super) fn count_owners(settings: Settings, head: &TreeHead, sink: &Tree, counters: &Counters) {
    if settings.count_owners {
        let lost = head.owners.not_kept(&sink.owners, settings.user);
        counters.owners_not_kept.store(lost.min(head.totals.entries), Relaxed);
    }
}

/// The report of a run that got to its end.
pub(super) fn make_report(
    params: &RunParams,
    watch: &Stopwatch<'_>,
    source: &Totals,
    counters: &Counters,
    failures: &Failures,
    volume: Option<VolumeId>,
    notes: Vec<String>,
) -> Report {
    let failed = failures.count();
    let now = std::time::SystemTime::now();
    let mut report = Report {
        run: params.run.clone(),
        dry_run: params.dry_run,
        start_time: rfc3339(now - watch.elapsed()),
        completion_time: rfc3339(now),
        volume,
        timings: watch.timings(),
        work: Work { files_failed: failed, ..work_of(source, counters) },
        failures: failures.named(),
        notes: once_each(notes),
        ..Report::default()
    };
    if failed + report.work.deletes_kept_back > 0 {
        report.tell_failures(counters.kept_back_for.load(Relaxed));
    }
    report
}

/// What the source's tree holds, and what has been done so far.
pub(super) fn work_of(source: &Totals, counters: &Counters) -> Work {
    Work {
        files_scanned: source.entries,
        files_skipped: source.skipped,
        bytes_total: source.bytes,
        ..counters.work()
    }
}

/// Takes the failures of the source's scan.
fn merge(failures: &Failures, source: &SourceDone) {
    failures.merge(source.failed, source.failures.clone(), source.failed_paths);
}

/// The notes in their order, none of them twice.
fn once_each(notes: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    notes.into_iter().filter(|note| seen.insert(note.clone())).collect()
}

fn expect_hello(control: &Control) -> Result<Hello, TransportError> {
    match control.recv()? {
        Message::Hello(hello) => Ok(*hello),
        other => Err(TransportError::Unexpected { got: other.what(), expected: "Hello" }),
    }
}

pub(super) fn expect_done(control: &Control) -> Result<SourceDone, TransportError> {
    match control.recv()? {
        Message::SourceDone(done) => Ok(*done),
        other => Err(TransportError::Unexpected { got: other.what(), expected: "SourceDone" }),
    }
}

/// The source's tree over the control stream. The source pushes its first listings unasked, to save a round trip.
struct RemoteTree<'a> {
    control: &'a Control,
    pushed: HashMap<DirId, Listed>,
    pushed_entries: usize,
    asked: VecDeque<DirId>,
}

impl<'a> RemoteTree<'a> {
    fn new(control: &'a Control) -> Self {
        Self { control, pushed: HashMap::new(), pushed_entries: 0, asked: VecDeque::new() }
    }

    /// Waits for the end of the source's scan.
    fn head(&mut self) -> Result<TreeHead, TransportError> {
        loop {
            match self.control.recv()? {
                Message::Tree(head) => return Ok(*head),
                Message::Listed(listed) => self.keep(listed)?,
                other => return Err(TransportError::Unexpected { got: other.what(), expected: "Tree" }),
            }
        }
    }

    fn keep(&mut self, listed: Listed) -> Result<(), TransportError> {
        self.pushed_entries += 1 + listed.listing.len() + listed.rules.len() / MIN_ENTRY_BYTES;
        if self.pushed_entries > MAX_PUSHED_ENTRIES {
            return Err(TransportError::Nonsense("more was pushed than may be"));
        }
        self.pushed.insert(listed.dir, listed);
        Ok(())
    }
}

impl SourceTree for RemoteTree<'_> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.asked.extend(dirs);
        let missing: Vec<DirId> = dirs.iter().copied().filter(|dir| !self.pushed.contains_key(dir)).collect();
        if !missing.is_empty() {
            self.control.send(&Message::Want(missing))?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        if let Some(listed) = self.asked.pop_front().and_then(|dir| self.pushed.remove(&dir)) {
            return Ok(listed);
        }
        match self.control.recv()? {
            Message::Listed(listed) => Ok(listed),
            other => Err(TransportError::Unexpected { got: other.what(), expected: "Listed" }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_told_once() {
        let notes = ["b", "a", "b", "c", "a"].map(String::from).to_vec();
        assert_eq!(once_each(notes), ["b", "a", "c"]);
    }
}
