//! The two ends of a run, as its pipeline sees them.

use std::cell::RefCell;

use contract::{Effort, PlannedAction, Report, RunParams, SnapshotParams, SnapshotReport};

use crate::{
    monitor::Monitor,
    report::{Counters, Failures, Stopwatch},
    root::Root,
    session::{
        plan::{
            basis_search::{NewFile, SimilarFiles},
            contents::SourceHashes,
            need::Fetch,
            planned::{Compared, Planned},
            room::Room,
            source_tree::SourceTree,
        },
        session_error::SessionError,
        sink::writing::Writing,
    },
    transport::TransportError,
    tree::{Tree, dir::Totals},
    wire::{Forecast, TreeHead},
};

/// One run: what it was asked to do, and what it has done so far.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub params: &'a RunParams,
    pub monitor: &'a Monitor,
    pub failures: Failures,
    pub counters: Counters,
    notes: RefCell<Vec<String>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(params: &'a RunParams, monitor: &'a Monitor) -> Self {
        let (failures, counters) = (Failures::default(), Counters::default());
        Self { params, monitor, failures, counters, notes: RefCell::default() }
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

/// The end that has the files: over the network, in the same process, or in a snapshot.
pub(crate) trait SourceEnd: SourceTree + SourceHashes {
    /// Scans the source, and has `scan_sink` scan the destination meanwhile. Returns the root of the source, and the
    /// destination's tree.
    fn scan(
        &mut self,
        run: &Run<'_>,
        scan_sink: &mut dyn FnMut() -> Result<Tree, SessionError>,
    ) -> Result<(TreeHead, Tree), SessionError>;

    /// Measures the room on the file system of `root`, which the destination is or will be on. `None` where nothing can
    /// be said.
    fn room(&self, root: &Root) -> Option<Room>;

    /// Checks that all that `compared` needs can be read, before anything is changed. May return a note for the report.
    fn ready(&self, _compared: &Compared, _sink: Option<&Root>) -> Result<Option<String>, SessionError> {
        Ok(None)
    }

    /// Finds content of `new` files in the destination. A source that sends no literals does not look.
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

    /// Runs `work`, and writes the files that it asks for. Returns when all are written or have failed.
    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError>;

    /// Shows the user actions of a dry run.
    fn tell(&mut self, run: &Run<'_>, actions: Vec<PlannedAction>) -> Result<(), TransportError>;

    /// Adds to a report what the link and both processes used.
    fn add_usage(&self, report: &mut Report, watch: &Stopwatch<'_>);

    /// Returns what the source's threads did in each phase, as it says; `None` where they are of this process.
    fn efforts(&self) -> Option<&[Effort]> {
        None
    }

    /// Gives the source the report of a run that got to its end.
    fn send_report(&self, _report: &Report) -> Result<(), TransportError> {
        Ok(())
    }
}

/// The end that is written to: a tree or a device, or one of them that a dry run only looks at.
pub(crate) trait SinkEnd {
    type Changes<'a>: Changes
    where
        Self: 'a;

    /// Scans the destination.
    fn scan(&self, run: &Run<'_>) -> Result<Tree, SessionError>;

    /// Takes from the head of the source what is none of this end's business.
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

    /// Compares the contents of files whose metadata is not trusted. Returns how many changed at the source meanwhile.
    fn compare_contents(
        &self,
        compared: &mut Compared,
        sink: &Tree,
        source: &mut dyn SourceHashes,
        run: &Run<'_>,
    ) -> Result<u64, SessionError>;

    /// The root of the destination, if it is a tree that is there.
    fn root(&self) -> Option<&Root>;

    /// Refuses a plan that is not to be carried out. A dry run shows its actions first, so that the user sees what is
    /// refused.
    fn guard(
        &self,
        plan: &Planned,
        source: &mut impl SourceEnd,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError>;

    /// Begins to carry out a plan. `None` for a dry run.
    fn begin<'a>(
        &'a self,
        plan: &'a Planned,
        run: &'a Run<'_>,
    ) -> Result<Option<Self::Changes<'a>>, SessionError>;

    /// Makes durable what a run that failed did.
    fn give_up(&self, run: &Run<'_>);

    /// Reads the destination back and compares it with the source. What differs is a failure.
    fn verify(
        &self,
        source: &mut impl SourceEnd,
        plan: &Planned,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError>;

    /// Takes the snapshot that the owner of the destination wants after a run that succeeded. Only trees have
    /// snapshots.
    fn snapshot(&self, _asked: &SnapshotParams, _plan: &Planned, _run: &Run<'_>) -> Option<SnapshotReport> {
        None
    }

    /// Returns the share of the source's totals that this process reports.
    fn totals(&self, head: &TreeHead) -> Totals;

    /// Adds to a report what only this end knows.
    fn complete(&self, report: &mut Report);

    /// Ends a run that got to its end.
    fn close(self);
}

/// A plan that is being carried out.
pub(crate) trait Changes {
    /// Brings the content of files to the destination.
    fn transfer(&mut self, source: &mut impl SourceEnd) -> Result<(), SessionError>;

    /// Deletes, and sets the metadata of directories.
    fn apply(&mut self) -> Result<(), SessionError>;

    /// Makes the destination durable.
    fn commit(&mut self) -> Result<(), SessionError>;
}

/// The changes of a dry run, of which there are none.
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
