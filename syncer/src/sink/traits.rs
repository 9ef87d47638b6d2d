//! The two ends of a run, as seen by its pipeline.

use std::cell::RefCell;

use contract::{Effort, HistoryReport, PlannedAction, Report, RunParams, SnapshotParams, SnapshotReport};

use crate::{
    measure::{
        monitor::Monitor,
        report::{Counters, Failures, Stopwatch},
    },
    plan::{
        basis_by_name::{NewFile, SimilarFiles},
        compare_contents::SourceHashes,
        free_space::Room,
        needed_files::Fetch,
        plan_id::PlanId,
        planned::{Checked, Compared, Planned},
        source_tree::SourceTree,
    },
    session_error::SessionError,
    sink::writing::Writing,
    snapshot::{
        SnapshotError,
        around_runs::Before,
        copy::{CopiedHistory, HistorySource, NoHistory},
    },
    sys::root::Root,
    transport::TransportError,
    tree::{Tree, dir::Totals},
    wire::{FileGroup, Forecast, TreeHead},
};

/// One run: its parameters, and its results so far.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub params: &'a RunParams,
    pub monitor: &'a Monitor,
    pub failures: Failures,
    pub counters: Counters,
    /// Whether a volume is brought back to its own snapshot: what no snapshot has, or another job's, is not deleted.
    pub restores_in_place: bool,
    /// The plan that was shown, if only that may be carried out.
    pub expected_plan: Option<&'a PlanId>,
    notes: RefCell<Vec<String>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(params: &'a RunParams, monitor: &'a Monitor) -> Self {
        let (failures, counters) = (Failures::default(), Counters::default());
        Self {
            params,
            monitor,
            failures,
            counters,
            restores_in_place: false,
            expected_plan: None,
            notes: RefCell::default(),
        }
    }

    /// Adds notes to the report.
    pub(crate) fn note(&self, notes: impl IntoIterator<Item = String>) {
        self.notes.borrow_mut().extend(notes);
    }

    /// Takes the notes, once, for the report.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        self.notes.take()
    }
}

/// Copies snapshots from a store.
pub(crate) type TakeHistory<'t> =
    dyn FnMut(&mut dyn HistorySource) -> Result<CopiedHistory, SnapshotError> + 't;

/// The end that has the files: over the network, in the same process, or in a snapshot.
pub(crate) trait SourceEnd: SourceTree + SourceHashes {
    /// Scans the source, and runs `scan_sink` meanwhile to scan the destination. Returns the root of the source, and
    /// the destination's tree.
    fn scan(
        &mut self,
        run: &Run<'_>,
        scan_sink: &mut dyn FnMut() -> Result<Tree, SessionError>,
    ) -> Result<(TreeHead, Tree), SessionError>;

    /// Measures the free space on the file system of `root`, on which the destination is or will be. Returns `None` if
    /// that is not possible.
    fn room(&self, root: &Root) -> Option<Room>;

    /// Checks that everything that `compared` needs can be read, before anything is changed. May return a note for the
    /// report.
    fn ready(
        &self,
        _compared: &mut Compared,
        _sink: Option<&Root>,
        _run: &Run<'_>,
    ) -> Result<Option<String>, SessionError> {
        Ok(None)
    }

    /// Returns the records that the sink makes of its state before it is changed; none if this is no restore.
    fn before_changes(&self) -> Option<&Before> {
        None
    }

    /// Finds content of `new` files in the destination. A source that sends no literals does not search.
    fn similar<'p>(
        &mut self,
        _root: &Root,
        _sink: &Tree,
        _new: &mut dyn FnMut() -> Result<Vec<NewFile<'p>>, SessionError>,
        _monitor: &Monitor,
    ) -> Result<SimilarFiles, SessionError> {
        Ok(SimilarFiles::new())
    }

    /// Tells the source how many files and bytes the sink will ask for.
    fn announce(&self, _forecast: Forecast) -> Result<(), TransportError> {
        Ok(())
    }

    /// Runs `work`, and writes the files that it asks for. Returns when each is written or has failed.
    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError>;

    /// Removes entries of the source, whose copies are durable and were compared with them. What cannot be removed is a
    /// failure. A source that can lose nothing does nothing.
    fn release(&mut self, _groups: Vec<FileGroup>, _failures: &Failures) -> Result<(), SessionError> {
        Ok(())
    }

    /// Has `take` copy from the snapshots of the source.
    fn history(&mut self, take: &mut TakeHistory<'_>, _run: &Run<'_>) -> Result<CopiedHistory, SessionError> {
        Ok(take(&mut NoHistory)?)
    }

    /// Shows actions of a dry run to the user.
    fn tell(&mut self, run: &Run<'_>, actions: Vec<PlannedAction>) -> Result<(), TransportError>;

    /// Adds the resources that the link and both processes used to a report.
    fn add_usage(&self, report: &mut Report, watch: &Stopwatch<'_>);

    /// Returns the efforts that the source reported for each phase; `None` if its threads belong to this process.
    fn efforts(&self) -> Option<&[Effort]> {
        None
    }

    /// Sends the report of a run that reached its end to the source.
    fn send_report(&self, _report: &Report) -> Result<(), TransportError> {
        Ok(())
    }
}

/// The end that writes: a tree or a device, or either of them in a dry run, which only reads it.
pub(crate) trait SinkEnd {
    type Changes<'a>: Changes
    where
        Self: 'a;

    /// Scans the destination.
    fn scan(&self, run: &Run<'_>) -> Result<Tree, SessionError>;

    /// Removes the parts of the source's head that do not concern this end.
    fn adapt(&self, head: TreeHead, _sink: &Tree, _run: &Run<'_>) -> TreeHead {
        head
    }

    /// Compares the listings of both trees.
    fn compare(
        &self,
        source: &mut impl SourceTree,
        head: &TreeHead,
        sink: &Tree,
        run: &Run<'_>,
    ) -> Result<Compared, SessionError>;

    /// Compares the contents of files whose metadata is not trusted.
    fn compare_contents(
        &self,
        compared: &mut Compared,
        sink: &Tree,
        source: &mut dyn SourceHashes,
        run: &Run<'_>,
    ) -> Result<Checked, SessionError>;

    /// Returns the root of the destination, if it is an existing tree.
    fn root(&self) -> Option<&Root>;

    /// Refuses a plan that must not be carried out. A dry run shows its actions first, so that the user sees which ones
    /// are refused.
    fn guard(
        &self,
        plan: &Planned,
        source: &mut impl SourceEnd,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError>;

    /// Records its state before a restore, if the plan changes anything. May return a note for the report.
    fn record(&self, _: &Before, _: &Planned, _: &Run<'_>) -> Result<Option<String>, SessionError> {
        Ok(None)
    }

    /// Begins to carry out a plan. Returns `None` for a dry run.
    fn begin<'a>(
        &'a self,
        plan: &'a Planned,
        run: &'a Run<'_>,
    ) -> Result<Option<Self::Changes<'a>>, SessionError>;

    /// Makes the changes of a failed run durable.
    fn give_up(&self, run: &Run<'_>);

    /// Reads the destination back and compares it with the source. Differences are failures.
    fn verify(
        &self,
        source: &mut impl SourceEnd,
        plan: &Planned,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError>;

    /// Takes the snapshot that the owner of the destination wants after a successful run. Only trees have snapshots.
    fn snapshot(&self, _asked: &SnapshotParams, _plan: &Planned, _run: &Run<'_>) -> Option<SnapshotReport> {
        None
    }

    /// Copies the snapshots of the source that the run asks for. Only trees have snapshots.
    fn history(&self, _: &mut impl SourceEnd, _: &Run<'_>) -> Result<Option<HistoryReport>, SessionError> {
        Ok(None)
    }

    /// Returns the share of the source's totals that this process reports.
    fn totals(&self, head: &TreeHead) -> Totals;

    /// Adds the data that only this end has to a report.
    fn complete(&self, report: &mut Report);

    /// Ends a run that reached its end.
    fn close(self);
}

/// A plan that is being carried out.
pub(crate) trait Changes {
    /// Transfers the content of files to the destination.
    fn transfer(&mut self, source: &mut impl SourceEnd) -> Result<(), SessionError>;

    /// Carries out deletes, and sets the metadata of directories.
    fn apply(&mut self) -> Result<(), SessionError>;

    /// Makes the destination durable.
    fn commit(&mut self) -> Result<(), SessionError>;
}

/// The changes of a dry run, which has none.
pub(crate) enum NoChanges {}

impl Changes for NoChanges {
    fn transfer(&mut self, _: &mut impl SourceEnd) -> Result<(), SessionError> {
        match *self {}
    }

    fn apply(&mut self) -> Result<(), SessionError> {
        match *self {}
    }

    fn commit(&mut self) -> Result<(), SessionError> {
        match *self {}
    }
}
