//! The source of a run, as the sink sees it.

use contract::{Effort, PlannedAction, Report, Usage};

use crate::{
    measure::{failures::Failures, monitor::Monitor, report::Stopwatch},
    plan::{
        basis_by_name::{NewFile, SimilarFiles},
        compare_contents::SourceHashes,
        guards::free_space::Room,
        needed_files::Fetch,
        planned::Compared,
        run_state::Run,
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
    tree::Tree,
    wire::{Forecast, Release, TreeHead},
};

/// Copies snapshots from a store.
pub(crate) type TakeHistory<'t> =
    dyn FnMut(&mut dyn HistorySource) -> Result<CopiedHistory, SnapshotError> + 't;

/// The end that has the content: a tree or a device, over the network, in the same process, or in a snapshot.
pub(crate) trait ContentEnd: SourceHashes {
    /// Reports to the source how many files and bytes the sink will ask for.
    fn announce(&self, _forecast: Forecast) -> Result<(), TransportError> {
        Ok(())
    }

    /// Runs `work`, and writes the files that it asks for. Returns when each is written or has failed.
    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError>;

    /// Shows actions to the user, and fails if the user has stopped the run.
    fn report_actions(&mut self, run: &Run<'_>, actions: Vec<PlannedAction>) -> Result<(), TransportError> {
        actions.iter().for_each(|action| run.monitor.planned(action));
        run.monitor.check().map_err(|_| TransportError::Canceled)
    }

    /// Adds the resources that the link and both processes used to a report.
    fn add_usage(&self, report: &mut Report, watch: &Stopwatch<'_>) {
        report.usage = watch.sink_usage(Usage::default());
    }

    /// Returns the efforts that the source reported for each phase; `None` if its threads belong to this process.
    fn efforts(&self) -> Option<&[Effort]> {
        None
    }

    /// Sends the report of a run that reached its end to the source.
    fn send_report(&self, _report: &Report) -> Result<(), TransportError> {
        Ok(())
    }
}

/// The trees of both ends, as they were scanned.
pub(crate) struct ScannedTrees {
    /// The root of the source, and what it says of the whole tree.
    pub head: TreeHead,
    /// The destination's tree.
    pub sink: Tree,
}

/// The end that has a tree of files.
pub(crate) trait SourceEnd: SourceTree + ContentEnd {
    /// Scans the source, and runs `scan_sink` meanwhile to scan the destination.
    fn scan(
        &mut self,
        run: &Run<'_>,
        scan_sink: &mut dyn FnMut() -> Result<Tree, SessionError>,
    ) -> Result<ScannedTrees, SessionError>;

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

    /// Removes entries of the source, whose copies are durable and were compared with them, unless it is the
    /// destination. What cannot be removed is a failure. A source that can lose nothing does nothing.
    fn release(&mut self, _release: Release, _failures: &Failures) -> Result<(), SessionError> {
        Ok(())
    }

    /// Has `take` copy from the snapshots of the source.
    fn history(&mut self, take: &mut TakeHistory<'_>, _run: &Run<'_>) -> Result<CopiedHistory, SessionError> {
        Ok(take(&mut NoHistory)?)
    }
}
