//! The sink of a run that writes to a tree.

use std::{cell::OnceCell, sync::Arc};

use contract::{HistoryReport, Report, Side, SnapshotParams, SnapshotReport, VolumeId};

use crate::{
    destination::{Destination, Settings},
    measure::report::NOTES,
    plan::{
        changed_dirs::changed_dirs,
        guards::{self, first_snapshot_room, free_space::Room, renamed_file},
        plan_id::PlanHasher,
        planned::{Planned, PlannedDir, to_transfer},
        run_state::Run,
        scan_params::{ScanTimes, scan_tree, sees_all_of_destination},
        single_file::Subject,
    },
    scan::EarlierScan,
    session_error::SessionError,
    sink::{
        compare_run::Onto,
        copied_history::copy_from_source,
        open_destination::{HeldDestination, TakenDestination, open_destination},
        report_actions::{ReportActions, report_changes},
        source_end::SourceEnd,
        tree_changes::TreeChanges,
        verify_copy::Verifier,
    },
    snapshot::{
        around_runs::{Before, snapshot_after_run, snapshot_refused},
        create::{KnownFromRun, WrittenFiles, before_tick, is_like_own_scan},
    },
    sys::root::Root,
    transport::Control,
    tree::{Tree, dir::Totals},
    wire::TreeHead,
};

/// The destination of a run.
pub(crate) struct TreeSink<'a> {
    destination: Destination,
    run: &'a Run<'a>,
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
        run: &'a Run<'a>,
    ) -> Result<Self, SessionError> {
        let taken = open_destination(&subject.place, run.params, settings, held)?;
        let TakenDestination { destination, notes } = taken;
        run.note(notes);
        let source = run.params.source_id.filter(|_| run.params.demands.other_source.is_some());
        Ok(Self { destination, run, subject, control, written: OnceCell::new(), source })
    }
}

impl TreeSink<'_> {
    /// Returns whether the scan of this run finds the same entries as that of a snapshot, so that a run that changes
    /// nothing needs no second scan.
    fn scans_for_snapshot(&self) -> bool {
        let params = self.run.params;
        let is_whole = !self.subject.is_file() && sees_all_of_destination(params).unwrap_or(false);
        params.demands.snapshot.is_some() && is_whole
    }

    /// Starts to record the files that are written, if the run takes a snapshot. Other runs record nothing.
    fn remember_written(&self) -> Option<&WrittenFiles> {
        let asked = self.run.params.demands.snapshot.as_ref()?;
        self.written.get_or_init(|| WrittenFiles::begin(&self.destination, asked.engine)).as_ref()
    }

    /// Returns whether the scan before a run still describes directories that the run has not changed, as the scan of a
    /// snapshot would.
    fn knows_the_rest(&self, sink: &Tree) -> bool {
        let is_certain = self.destination.doubtful_since().is_none() && self.destination.noted().is_empty();
        is_certain && self.scans_for_snapshot() && is_like_own_scan(sink)
    }

    /// Returns the destination as a comparison sees it.
    pub(crate) fn onto(&self) -> Onto<'_> {
        let (root, settings) = (Some(self.destination.root()), self.destination.settings());
        Onto { root, settings, subject: self.subject, run: self.run }
    }

    pub(crate) fn root(&self) -> &Root {
        self.destination.root()
    }

    /// Scans the destination.
    pub(crate) fn scan(&self) -> Result<Tree, SessionError> {
        let run = self.run;
        let (root, doubt) = (self.destination.root(), self.destination.doubtful_since());
        let stamps = self.scans_for_snapshot().then(|| before_tick(self.destination.opened()));
        let times = ScanTimes { doubt, stamps, noted: Arc::clone(self.destination.noted()) };
        let sink = scan_tree(self.subject, root, run.params, Side::Sink, times, &run.failures, run.monitor)?;
        if sink.has_attrs() {
            self.destination.found_attrs();
        }
        Ok(sink)
    }

    /// Refuses a plan that must not be carried out. `room` is the room at the destination, if it is known. Returns
    /// notes for the report.
    pub(crate) fn guard(&self, plan: &Planned, room: Option<&Room>) -> Result<Vec<String>, SessionError> {
        let Run { params, failures, monitor, restores_in_place: in_place, .. } = self.run;
        let (root, path) = (self.destination.root(), self.subject.place.path());
        let mut notes = guards::check(params, plan, Some(root), room, failures.count(), *in_place, monitor)?;
        notes.extend(renamed_file::check_renamed(self.subject, params, &plan.compared)?);
        let room_note = first_snapshot_room::note(root, &path, params.demands.snapshot.as_ref(), plan);
        room_note.iter().for_each(|note| tracing::warn!(target: NOTES, "{note}"));
        notes.extend(room_note);
        Ok(notes)
    }

    /// Shows the actions of a plan to a user who asked for that.
    pub(crate) fn itemize(&self, plan: &Planned, source: &mut impl SourceEnd) -> Result<(), SessionError> {
        let params = self.run.params;
        if (params.itemize_changes || params.demands.itemize_changes) && self.leads() {
            self.actions(plan, &mut |actions| source.report_actions(self.run, actions))?;
        }
        Ok(())
    }

    /// Refuses a plan that is not the one that was shown, if only that may be carried out.
    pub(crate) fn expect_plan(&self, plan: &Planned) -> Result<(), SessionError> {
        let Some(expected) = self.run.expected_plan else { return Ok(()) };
        let mut now = PlanHasher::of(expected.snapshot, expected.in_place);
        self.actions(plan, &mut |actions| {
            actions.iter().for_each(|action| now.add(action));
            Ok(())
        })?;
        Ok(expected.id.check(&now.finish())?)
    }

    fn actions(&self, plan: &Planned, report: &mut ReportActions<'_>) -> Result<(), SessionError> {
        report_changes(plan, self.run.params, self.destination.settings(), &self.run.failures, report)
    }

    /// Records the destination's state before a restore, if the plan changes anything. May return a note.
    pub(crate) fn record(&self, before: &Before, plan: &Planned) -> Result<Option<String>, SessionError> {
        let changes =
            if before.in_place { plan.changes_anything() } else { plan.changes_or_removes_entries() };
        if changes {
            Ok(before.record(&self.destination, &self.subject.place.path(), self.run.monitor)?)
        } else {
            Ok(None)
        }
    }

    /// Refuses a restore in place for which the record of the state before has left too little `room`.
    pub(crate) fn guard_room_left(
        &self,
        before: &Before,
        plan: &Planned,
        room: Option<&Room>,
    ) -> Result<(), SessionError> {
        let room = room.filter(|_| before.in_place);
        guards::check_room_left(self.run.params, plan, room, self.run.monitor)
    }

    /// Begins the changes.
    pub(crate) fn begin<'c>(&'c self, plan: &'c Planned) -> Result<TreeChanges<'c>, SessionError> {
        let has_files = plan.compared.dirs.iter().any(|dir| to_transfer(dir).files > 0);
        let written = has_files.then(|| self.remember_written()).flatten();
        let keeps_root = self.subject.keeps_root(self.run.params);
        TreeChanges::begin(&self.destination, self.run, plan, written, keeps_root, self.control)
    }

    /// Makes the changes of a failed run durable.
    pub(crate) fn give_up(&self) {
        if let Err(error) = self.destination.commit_unfinished(self.run.monitor) {
            tracing::debug!(%error, "what was done may not be on the disk; the next run looks at it again");
        }
    }

    /// Reads the destination back and compares it with the source. Differences are failures. Returns notes.
    pub(crate) fn verify(
        &self,
        source: &mut impl SourceEnd,
        plan: &Planned,
    ) -> Result<Vec<String>, SessionError> {
        Verifier { run: self.run, destination: &self.destination, subject: self.subject }
            .verify(source, &plan.head)
    }

    /// Takes the snapshot that the owner of the destination wants after a successful run.
    pub(crate) fn snapshot(&self, asked: &SnapshotParams, plan: &Planned) -> SnapshotReport {
        let path = self.subject.place.path();
        if let Err(error) = first_snapshot_room::check(self.destination.root(), &path, asked.engine, plan) {
            return snapshot_refused(&error);
        }
        let changed = changed_dirs(plan);
        let scan = EarlierScan { tree: &plan.sink, changed: &changed };
        let scan = Some(scan).filter(|scan| self.knows_the_rest(scan.tree));
        let written = self.written.get().and_then(Option::as_ref);
        if let Some(written) = written {
            let linked = plan.compared.dirs.iter().flat_map(PlannedDir::linked_files);
            linked.for_each(|path| written.forget(&path));
        }
        let known = KnownFromRun { scan, written };
        let Run { params, monitor, .. } = self.run;
        snapshot_after_run(&self.destination, &path, asked, &params.run, known, monitor)
    }

    /// Copies the snapshots of the source that the run asks for.
    pub(crate) fn history(&self, source: &mut impl SourceEnd) -> Result<HistoryReport, SessionError> {
        copy_from_source(&self.destination, &self.subject.place.path(), source, self.run)
    }

    fn leads(&self) -> bool {
        self.destination.state().leads()
    }

    /// Returns the totals. Only the first of the processes that share a run counts the source, which all of them have
    /// seen.
    pub(crate) fn totals(&self, head: &TreeHead) -> Totals {
        if self.leads() { head.totals } else { Totals::default() }
    }

    /// Adds to a report what only this end knows.
    pub(crate) fn complete(&self, report: &mut Report) {
        report.volume = Some(self.destination.state().volume());
        let noted = self.source.filter(|_| self.leads());
        if let Some(Err(error)) = noted.map(|id| self.destination.note_source(id)) {
            report.notes.push(format!("the source of the copy is not noted: {error}"));
        }
        let room = rustix::fs::fstatvfs(self.destination.root()).ok();
        report.free_bytes = room.map(|room| room.f_bavail.saturating_mul(room.f_frsize));
    }

    /// Ends a run that reached its end.
    pub(crate) fn close(self) {
        self.destination.close();
    }
}
