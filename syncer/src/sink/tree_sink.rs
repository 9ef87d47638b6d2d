//! The sink of a run that writes to a tree.

use std::{cell::OnceCell, sync::Arc};

use contract::{
    DeleteTiming, HistoryReport, Report, RunParams, Side, SnapshotParams, SnapshotReport, VolumeId,
};

use crate::{
    compare_entries::{Policy, Step},
    destination::{Destination, Settings},
    plan::{
        changed_dirs::changed_dirs,
        compare_contents::{SourceHashes, checker},
        compare_params::{count_owners, may_move, of_same_root, owners_filter, policy, rules_of_root},
        compare_trees::compare,
        first_run_deletes, first_snapshot_room, guard,
        plan_id::PlanHasher,
        planned::{Checked, Compared, Planned, PlannedDir, to_transfer},
        scan_params::{ScanTimes, scan_tree, sees_all_of_destination},
        single_file::Subject,
        source_tree::SourceTree,
    },
    scan::EarlierScan,
    session_error::SessionError,
    sink::{
        context::Context,
        copied_history::copy_from_source,
        executor::Executor,
        open_destination::{HeldDestination, open_destination},
        report_actions::tell_changes,
        settle_motion::{note_in_motion, settle_notes},
        shards::ShardRun,
        traits::{Changes, Run, SinkEnd, SourceEnd},
        verify_copy::Verifier,
    },
    snapshot::{
        around_runs::{Before, snapshot_after_run, snapshot_refused},
        create::{KnownFromRun, WrittenFiles, before_tick, is_like_own_scan},
    },
    source::source_file::Origin,
    sys::root::Root,
    transport::{Control, TransportError},
    tree::{Tree, dir::Totals},
    wire::{Forecast, TreeHead},
};

/// The approximate number of bytes that a new file takes on the disk besides its content.
const FILE_BYTES: u64 = 4096;

/// The destination of a run.
pub(crate) struct TreeSink<'a> {
    destination: Destination,
    subject: &'a Subject,
    /// The link to the source, which may be lost while waiting for other shards.
    control: Option<&'a Control>,
    /// Records the files that the run writes, if it takes a snapshot.
    written: OnceCell<Option<WrittenFiles>>,
    /// The source to note on the destination, if its owner wants that.
    source: Option<VolumeId>,
}

impl<'a> TreeSink<'a> {
    /// Opens the destination, and adds the notes about it to the report.
    pub(crate) fn open(
        subject: &'a Subject,
        settings: Settings,
        held: &mut HeldDestination,
        control: Option<&'a Control>,
        run: &Run<'_>,
    ) -> Result<Self, SessionError> {
        let (destination, notes) = open_destination(&subject.place, run.params, settings, held)?;
        run.note(notes);
        let source = run.params.source_id.filter(|_| run.params.demands.other_source.is_some());
        Ok(Self { destination, subject, control, written: OnceCell::new(), source })
    }
}

impl TreeSink<'_> {
    /// Returns whether the scan of this run finds the same entries as that of a snapshot, so that a run that changes
    /// nothing needs no second scan.
    fn scans_for_snapshot(&self, params: &RunParams) -> bool {
        let is_whole = !self.subject.is_file() && sees_all_of_destination(params).unwrap_or(false);
        params.demands.snapshot.is_some() && is_whole
    }

    /// Starts to record the files that are written, if the run takes a snapshot. Other runs record nothing.
    fn remember_written(&self, params: &RunParams) -> Option<&WrittenFiles> {
        let asked = params.demands.snapshot.as_ref()?;
        self.written.get_or_init(|| WrittenFiles::begin(&self.destination, asked.engine)).as_ref()
    }

    /// Returns whether the scan before a run still describes directories that the run has not changed, as the scan of a
    /// snapshot would.
    fn knows_the_rest(&self, sink: &Tree, params: &RunParams) -> bool {
        let is_certain = self.destination.doubtful_since().is_none() && self.destination.noted().is_empty();
        is_certain && self.scans_for_snapshot(params) && is_like_own_scan(sink)
    }
}

/// Compares the listings of a source with a tree at the sink, and counts links that cannot be made as failures.
pub(crate) fn compare_trees(
    source: &mut impl SourceTree,
    head: &TreeHead,
    sink: &Tree,
    settings: Settings,
    run: &Run<'_>,
) -> Result<Compared, SessionError> {
    let params = run.params;
    let policy = Policy { spares_foreign: run.restores_in_place, ..policy(params, settings) };
    let spared = (&owners_filter(params)?, rules_of_root(params)?);
    let compared = compare(source, head, sink, policy, may_move(params)?, spared, run.monitor)?;
    let why = "it is a hard link of a file that is excluded at the destination";
    compared.unlinked.iter().for_each(|path| run.failures.add(path, "link", &why));
    Ok(compared)
}

/// Compares contents if `root` exists, and then settles hard links.
pub(crate) fn compare_tree_contents(
    compared: &mut Compared,
    (sink, root): (&Tree, Option<&Root>),
    source: &mut dyn SourceHashes,
    settings: Settings,
    run: &Run<'_>,
) -> Result<Checked, SessionError> {
    let checked = match root {
        Some(root) => {
            let checker = checker(Origin::Tree(root), &run.failures, run.monitor);
            checker.check(&mut compared.dirs, source, Some(Step::Update))?
        }
        None => Checked::default(),
    };
    compared.settle(sink, policy(run.params, settings), run.monitor)?;
    Ok(checked)
}

impl SinkEnd for TreeSink<'_> {
    type Changes<'c>
        = TreeChanges<'c>
    where
        Self: 'c;

    fn scan(&self, run: &Run<'_>) -> Result<Tree, SessionError> {
        let (root, doubt) = (self.destination.root(), self.destination.doubtful_since());
        let stamps = self.scans_for_snapshot(run.params).then(|| before_tick(self.destination.opened()));
        let times = ScanTimes { doubt, stamps, noted: Arc::clone(self.destination.noted()) };
        let sink = scan_tree(self.subject, root, run.params, Side::Sink, times, &run.failures, run.monitor)?;
        if sink.has_attrs() {
            self.destination.found_attrs();
        }
        Ok(sink)
    }

    fn adapt(&self, head: TreeHead, sink: &Tree, run: &Run<'_>) -> TreeHead {
        if self.subject.keeps_root(run.params) { of_same_root(head, sink) } else { head }
    }

    fn compare(
        &self,
        source: &mut impl SourceTree,
        head: &TreeHead,
        sink: &Tree,
        run: &Run<'_>,
    ) -> Result<Compared, SessionError> {
        compare_trees(source, head, sink, self.destination.settings(), run)
    }

    fn compare_contents(
        &self,
        compared: &mut Compared,
        sink: &Tree,
        source: &mut dyn SourceHashes,
        run: &Run<'_>,
    ) -> Result<Checked, SessionError> {
        compare_tree_contents(compared, (sink, self.root()), source, self.destination.settings(), run)
    }

    fn root(&self) -> Option<&Root> {
        Some(self.destination.root())
    }

    fn guard(
        &self,
        plan: &Planned,
        source: &mut impl SourceEnd,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let room = source.room(self.destination.root());
        let Planned { head, compared, sink, .. } = plan;
        let known = run.failures.count();
        let mut notes = guard::check(run.params, head, sink, compared, room.as_ref(), known, run.monitor)?;
        notes.extend(guard::check_renamed(self.subject, run.params, compared)?);
        notes.extend(first_run_deletes::check(run.params, self.root(), sink, compared)?);
        let asked = run.params.demands.snapshot.as_ref();
        let path = self.subject.place.path();
        notes.extend(first_snapshot_room::announce(self.destination.root(), &path, asked, plan));
        let tells = run.params.itemize_changes || run.params.demands.itemize_changes;
        if tells && self.destination.state().leads() {
            let by = (run.params, self.destination.settings());
            tell_changes(plan, by, &run.failures, &mut |actions| source.tell(run, actions))?;
        }
        if let Some(expected) = run.expected_plan {
            let by = (run.params, self.destination.settings());
            let mut now = PlanHasher::default();
            tell_changes(plan, by, &run.failures, &mut |actions| {
                actions.iter().for_each(|action| now.add(action));
                Ok(())
            })?;
            expected.check(&now.finish())?;
        }
        Ok(notes)
    }

    fn record(&self, before: &Before, plan: &Planned, run: &Run<'_>) -> Result<Option<String>, SessionError> {
        let changes = match before.in_place {
            true => plan.changes_anything(),
            false => plan.changes_or_removes_entries(),
        };
        match changes {
            true => Ok(before.record(&self.destination, &self.subject.place.path(), run.monitor)?),
            false => Ok(None),
        }
    }

    /// Begins the changes. If several processes share the run, only the first carries out the deletes that come first.
    fn begin<'c>(
        &'c self,
        plan: &'c Planned,
        run: &'c Run<'_>,
    ) -> Result<Option<TreeChanges<'c>>, SessionError> {
        let Planned { head, compared, sink, .. } = plan;
        let (destination, params) = (&self.destination, run.params);
        let has_files = compared.dirs.iter().any(|dir| to_transfer(dir).0 > 0);
        let written = has_files.then(|| self.remember_written(params)).flatten();
        let (failures, counters, monitor) = (&run.failures, &run.counters, run.monitor);
        let context = Context { destination, failures, counters, monitor, written };
        let leads = destination.state().leads();
        if leads {
            count_owners(destination.settings(), head, sink, context.counters);
        }
        let mut executor = Executor::new(context, sink, compared, params);
        let keeps_root = self.subject.keeps_root(params);
        if keeps_root {
            executor.leave_root();
        } else if leads {
            executor.expect_root(head.root_meta, head.root_attrs.as_attrs());
        }
        for root in compared.dirs.iter().filter(|dir| dir.path.is_root()) {
            destination.check_names(root.listing.iter().map(|entry| entry.name))?;
        }
        let shards = ShardRun::new(destination, run.monitor, self.control);
        let failed = run.failures.count();
        let failed = shards.as_ref().map_or(Ok(failed), |shards| shards.assemble(context.failures))?;
        if leads {
            destination.drop_leftovers(compared.dirs.iter().flat_map(PlannedDir::large_files));
        }
        if leads {
            destination.adopt()?;
        }
        if !compared.dirs.is_empty() {
            destination.begin()?;
        }
        if leads {
            note_in_motion(destination, &plan.checked)?;
        }
        executor.keep_aside(&compared.dirs)?;
        if leads && params.delete_timing == DeleteTiming::Before {
            executor.delete_first(&compared.dirs, failed)?;
        }
        let failed = 0;
        Ok(Some(TreeChanges { context, params, plan, run, shards, executor, leads, keeps_root, failed }))
    }

    fn give_up(&self, run: &Run<'_>) {
        if let Err(error) = self.destination.commit_unfinished(run.monitor) {
            tracing::debug!(%error, "what was done may not be on the disk; the next run looks at it again");
        }
    }

    fn verify(
        &self,
        source: &mut impl SourceEnd,
        plan: &Planned,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let verifier = Verifier {
            params: run.params,
            settings: self.destination.settings(),
            root: self.destination.root(),
            subject: self.subject,
            failures: &run.failures,
            monitor: run.monitor,
        };
        verifier.verify(source, &plan.head)
    }

    fn snapshot(&self, asked: &SnapshotParams, plan: &Planned, run: &Run<'_>) -> Option<SnapshotReport> {
        let path = self.subject.place.path();
        if let Err(error) = first_snapshot_room::check(self.destination.root(), &path, asked.engine, plan) {
            return Some(snapshot_refused(&error));
        }
        let changed = changed_dirs(plan);
        let scan = EarlierScan { tree: &plan.sink, changed: &changed };
        let scan = Some(scan).filter(|scan| self.knows_the_rest(scan.tree, run.params));
        let written = self.written.get().and_then(Option::as_ref);
        if let Some(written) = written {
            let linked = plan.compared.dirs.iter().flat_map(PlannedDir::linked_files);
            linked.for_each(|path| written.forget(&path));
        }
        let known = KnownFromRun { scan, written };
        Some(snapshot_after_run(&self.destination, &path, asked, &run.params.run, known, run.monitor))
    }

    fn history(
        &self,
        source: &mut impl SourceEnd,
        run: &Run<'_>,
    ) -> Result<Option<HistoryReport>, SessionError> {
        copy_from_source(&self.destination, &self.subject.place.path(), source, run).map(Some)
    }

    /// Returns the totals. Only the first of the processes that share a run counts the source, which all of them have
    /// seen.
    fn totals(&self, head: &TreeHead) -> Totals {
        match self.destination.state().leads() {
            true => head.totals,
            false => Totals::default(),
        }
    }

    fn complete(&self, report: &mut Report) {
        report.volume = Some(self.destination.state().volume());
        let noted = self.source.filter(|_| self.destination.state().leads());
        if let Some(Err(error)) = noted.map(|id| self.destination.note_source(id)) {
            report.notes.push(format!("the source of the copy is not noted: {error}"));
        }
        let room = self.root().and_then(|root| rustix::fs::fstatvfs(root).ok());
        report.free_bytes = room.map(|room| room.f_bavail.saturating_mul(room.f_frsize));
    }

    fn close(self) {
        self.destination.close();
    }
}

/// A tree that is being changed.
pub(crate) struct TreeChanges<'a> {
    context: Context<'a>,
    params: &'a RunParams,
    plan: &'a Planned,
    run: &'a Run<'a>,
    /// The other processes that share the run, if there are any.
    shards: Option<ShardRun<'a>>,
    executor: Executor<'a>,
    /// Whether this process creates the directories for all processes that share the run.
    leads: bool,
    /// Whether the run leaves the root's own metadata alone.
    keeps_root: bool,
    /// The number of entries that had failed in all processes when deletes began.
    failed: u64,
}

impl TreeChanges<'_> {
    /// Creates the directories before the other processes begin, or waits for the process that creates them.
    fn share_out(&mut self) -> Result<(), SessionError> {
        let Some(shards) = &self.shards else { return Ok(()) };
        let dirs = &self.plan.compared.dirs;
        let (share, note) = match self.leads {
            true => {
                self.executor.make_dirs(dirs)?;
                (shards.deal(dirs)?, None)
            }
            false => shards.receive(dirs)?,
        };
        self.run.note(note);
        self.executor.take_share(share);
        Ok(())
    }
}

impl Changes for TreeChanges<'_> {
    fn transfer(&mut self, source: &mut impl SourceEnd) -> Result<(), SessionError> {
        self.share_out()?;
        let (context, executor, plan) = (self.context, &mut self.executor, self.plan);
        let dirs = &plan.compared.dirs;
        let (files, bytes) = executor.mine(dirs).map(to_transfer).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        context.monitor.set_totals(files, bytes);
        source.announce(Forecast { files, bytes })?;
        let destination = context.destination;
        // Each file takes at least one block.
        let written = bytes.saturating_add(files.saturating_mul(FILE_BYTES));
        let moved = destination.sync_during(written, context.monitor, || {
            let new = &mut || executor.unlike_any(dirs);
            let similar = source.similar(destination.root(), &plan.sink, new, context.monitor)?;
            executor.make_from(similar);
            source.transfer(context.into(), &mut |fetch| executor.transfer(dirs, fetch))
        });
        destination.still_held()?;
        moved
    }

    /// Applies deletes and links. If several processes share the run, the first sets the metadata of directories at the
    /// end.
    fn apply(&mut self) -> Result<(), SessionError> {
        let (executor, dirs, leads) = (&mut self.executor, &self.plan.compared.dirs, self.leads);
        let shards = self.shards.as_ref();
        if let Some(shards) = shards {
            shards.await_content()?;
        }
        executor.make_links(dirs)?;
        let failed = self.context.failures.count();
        self.failed = shards.map_or(Ok(failed), |shards| shards.await_links(failed))?;
        executor.put_folders(self.failed)?;
        if let Some(shards) = shards {
            shards.await_folders()?;
        }
        self.context.destination.end_asides();
        executor.replace_and_delete(dirs, self.failed)?;
        if let Some(shards) = shards.filter(|_| leads) {
            shards.await_others()?;
        }
        if leads {
            executor.link_to_replaced(dirs)?;
        }
        self.run.note(executor.finish()?);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), SessionError> {
        let Context { destination, failures, monitor, .. } = self.context;
        if self.leads {
            let failed = self.failed + failures.count();
            settle_notes(destination, self.plan, (self.params, self.keeps_root), (failures, failed))?;
        }
        self.run.note(destination.motion_sentence());
        // A run of one file has not checked other files that may be in doubt.
        let is_whole = self.failed + failures.count() == 0 && !self.keeps_root;
        destination.commit(is_whole, monitor).map_err(|error| match monitor.cancelled() {
            true => TransportError::Canceled.into(),
            false => SessionError::Commit(error),
        })?;
        if let Some(shards) = &self.shards {
            shards.is_done()?;
            if self.params.verify {
                shards.await_first()?;
            }
        }
        Ok(())
    }
}
