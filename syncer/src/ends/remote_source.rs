//! A source over the network: its listings come over the control stream, and its files over the data streams.

use contract::{Effort, MAX_EFFORTS, PlannedAction, Report, RunParams, Usage};

use crate::{
    ends::{
        damaged_content::leave_out,
        remote_snapshot::find_damaged,
        remote_tree::{RemoteHashes, RemoteTree, expect_done},
    },
    fetch::request_files,
    measure::{failures::Failures, monitor::Monitor, report::Stopwatch},
    plan::{
        basis_by_content,
        basis_by_name::{NewFile, SimilarFiles},
        compare_contents::{HashBatch, SourceHashes},
        guards::free_space::Room,
        needed_files::Fetch,
        planned::{Compared, PlannedDir, path_in},
        run_state::Run,
        single_file::{Named, Subject},
        source_tree::SourceTree,
    },
    session_error::{SessionError, of_link},
    sink::{
        source_end::{ContentEnd, ScannedTrees, SourceEnd, TakeHistory},
        writing::Writing,
    },
    snapshot::{
        SnapshotError, SnapshotId,
        copy::{CopiedHistory, StreamedHistory},
    },
    sys::root::Root,
    transport::{Peer, TransportError, history_bytes::history_bytes},
    tree::{Tree, dir::DirId},
    wire::{Forecast, Hashed, Listed, Message, Release},
};

/// The source of a run over the network.
pub(crate) struct RemoteSource<'a> {
    peer: &'a Peer,
    tree: Named<RemoteTree<'a>>,
    bytes_on_wire: &'a dyn Fn() -> u64,
    usage: Usage,
    efforts: Vec<Effort>,
    /// The number of entries that had failed when the source was scanned.
    scan_failed: u64,
    /// The snapshot that the source serves, and the number of its entries.
    snapshot: Option<(SnapshotId, u64)>,
}

impl<'a> RemoteSource<'a> {
    pub(crate) fn new(peer: &'a Peer, subject: &Subject, bytes_on_wire: &'a dyn Fn() -> u64) -> Self {
        let tree = Named::new(RemoteTree::new(&peer.control), subject);
        let (usage, efforts) = (Usage::default(), Vec::new());
        Self { peer, tree, bytes_on_wire, usage, efforts, scan_failed: 0, snapshot: None }
    }

    fn hashes(&self) -> RemoteHashes<'a> {
        RemoteHashes(&self.peer.control)
    }
}

impl SourceTree for RemoteSource<'_> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.tree.request(dirs)
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        self.tree.next()
    }
}

impl SourceHashes for RemoteSource<'_> {
    fn ask(&mut self, batch: &HashBatch) -> Result<(), SessionError> {
        self.hashes().ask(batch)
    }

    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError> {
        self.hashes().next(batch)
    }
}

impl ContentEnd for RemoteSource<'_> {
    /// Sends the forecast, unless no file is needed: then the run ends with the next message.
    fn announce(&self, forecast: Forecast) -> Result<(), TransportError> {
        match forecast.files {
            0 => Ok(()),
            _ => self.peer.control.send(&Message::Forecast(forecast)),
        }
    }

    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        if request_files::run(writing, self.peer, work)? {
            let done = expect_done(&self.peer.control)?;
            self.usage = done.usage;
            self.efforts = bounded(done.efforts);
            writing.run.failures.merge(done.failed.saturating_sub(self.scan_failed), Vec::new(), 0);
        }
        Ok(())
    }

    /// Shows the actions at the ends that asked for them, possibly both. The source of a dry run expects them.
    fn report_actions(&mut self, run: &Run<'_>, actions: Vec<PlannedAction>) -> Result<(), TransportError> {
        let RunParams { dry_run, itemize_changes, demands, .. } = run.params;
        if demands.dry_run || demands.itemize_changes {
            actions.iter().for_each(|action| run.monitor.planned(action));
        }
        if *dry_run || *itemize_changes { self.peer.control.send(&Message::Planned(actions)) } else { Ok(()) }
    }

    fn add_usage(&self, report: &mut Report, watch: &Stopwatch<'_>) {
        report.work.bytes_on_wire = (self.bytes_on_wire)();
        report.link = self.peer.link;
        report.usage = watch.sink_usage(self.usage);
    }

    fn efforts(&self) -> Option<&[Effort]> {
        Some(&self.efforts)
    }

    fn send_report(&self, report: &Report) -> Result<(), TransportError> {
        self.peer.control.send(&Message::Report(Box::new(report.clone())))
    }
}

impl SourceEnd for RemoteSource<'_> {
    /// Scans the destination while the source scans: the source began when it sent `Hello`.
    fn scan(
        &mut self,
        run: &Run<'_>,
        scan_sink: &mut dyn FnMut() -> Result<Tree, SessionError>,
    ) -> Result<ScannedTrees, SessionError> {
        let sink = scan_sink()?;
        let head = self.tree.inner().head()?;
        let done = &head.source;
        run.failures.merge(done.failed, done.failures.clone(), done.failed_paths);
        (self.usage, self.scan_failed) = (done.usage, done.failed);
        self.efforts = bounded(done.efforts.clone());
        self.snapshot =
            done.snapshot.as_deref().map(snapshot_id).transpose()?.map(|id| (id, head.totals.entries));
        Ok(ScannedTrees { head, sink })
    }

    /// Has the source check every object of a snapshot that is needed, so that an incomplete snapshot changes nothing
    /// at the destination. A run that keeps going leaves the damaged files as they are.
    fn ready(
        &self,
        compared: &mut Compared,
        _: Option<&Root>,
        run: &Run<'_>,
    ) -> Result<Option<String>, SessionError> {
        let Some((id, entries)) = self.snapshot else { return Ok(None) };
        let damaged = find_damaged(compared, &mut self.hashes())?;
        if let Some(first) = damaged.first() {
            if !run.params.keep_going {
                let (count, path) = (damaged.len() as u64, first.to_string());
                return Err(SnapshotError::NotWhole { id, count, path }.into());
            }
            let is_damaged = |dir: &PlannedDir, name: &[u8]| damaged.contains(&path_in(&dir.path, name));
            leave_out(compared, is_damaged, &run.failures);
        }
        Ok(Some(format!("the source is snapshot {id} of {entries} entries")))
    }

    fn room(&self, root: &Root) -> Option<Room> {
        Room::of(root, None)
    }

    fn similar<'p>(
        &mut self,
        root: &Root,
        sink: &Tree,
        new: &mut dyn FnMut() -> Result<Vec<NewFile<'p>>, SessionError>,
        monitor: &Monitor,
    ) -> Result<SimilarFiles, SessionError> {
        basis_by_content::compare_samples(root, sink, new()?, &self.peer.control, monitor)
    }

    fn release(&mut self, release: Release, failures: &Failures) -> Result<(), SessionError> {
        self.peer.control.send(&Message::Release(release))?;
        let done = expect_done(&self.peer.control)?;
        failures.merge(done.failed, done.failures, done.failed_paths);
        Ok(())
    }

    fn history(&mut self, take: &mut TakeHistory<'_>, run: &Run<'_>) -> Result<CopiedHistory, SessionError> {
        let (from, to) = history_bytes(self.peer, run.monitor);
        let mut source = StreamedHistory::new(from, to);
        let done = take(&mut source);
        let told =
            if done.as_ref().is_err_and(SnapshotError::is_lost) { Ok(()) } else { source.finish(&done) };
        told.and(done).map_err(|error| of_link(error.into()))
    }
}

fn snapshot_id(text: &str) -> Result<SnapshotId, TransportError> {
    text.parse().map_err(|_| TransportError::Nonsense("a snapshot has an id that is none"))
}

/// Truncates the efforts to the largest number that a report has: a source has one for each phase.
fn bounded(mut efforts: Vec<Effort>) -> Vec<Effort> {
    efforts.truncate(MAX_EFFORTS);
    efforts
}
