//! Answers the requests of the sink over the network: listings, hashes, samples, and the content of files.

use std::path::Path;

use contract::{History, Phase, Report, RunParams};

use crate::{
    ends::tree_head::done,
    measure::{failures::Failures, monitor::Monitor, report::Stopwatch},
    session_error::{SessionError, of_link},
    snapshot::copy::{NoHistory, OpenHistory, refuse_history, serve_history},
    source::{
        hash_files::HashRequest,
        paths_by_number::{EntriesOf, Paths},
        remove_source_files::Removal,
        sample_files::sample_files,
        send_workers::Feed,
        source_file::Origin,
    },
    transport::{Control, DataSender, Peer, TransportError, history_bytes::history_bytes},
    tree::{Tree, dir::DirId},
    wire::{FileGroup, Forecast, Listed, Message, Release, Welcome},
};

/// Answers the sink until it sends the report.
pub(crate) fn serve(
    origin: Origin<'_>,
    tree: &Tree,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let (control, monitor) = (&peer.control, watch.monitor());
    // The owner of the destination may have made the run a dry one.
    let dry_run = expect_welcome(control)?.dry_run || params.dry_run;
    std::thread::scope(|scope| {
        let start = |watch: &mut Stopwatch<'_>| {
            watch.enter(Phase::Transfer);
            Feed::start(scope, origin, tree, peer, params, monitor)
        };
        let mut feed = None;
        let mut finder = None;
        let mut removal = Removal::new(params.remove_source_files, false);
        // However this loop ends, no worker may wait for a sink that does not read any more.
        let _end = EndWorkers(peer);
        loop {
            match control.recv()? {
                Message::Want(dirs) => list(control, tree, &dirs)?,
                Message::Forecast(Forecast { files, bytes }) => monitor.set_totals(files, bytes),
                Message::Need(needs) => feed.get_or_insert_with(|| start(watch)).send(&needs)?,
                Message::Update(update) => feed.get_or_insert_with(|| start(watch)).update(update)?,
                Message::NeedsEnd => {
                    if let Some(feed) = feed.take() {
                        feed.finish()?;
                    }
                    watch.enter(Phase::Commit);
                    control.send(&Message::SourceDone(Box::new(done(&Failures::default(), watch))))?;
                }
                Message::Hash(groups) => {
                    let files = finder.get_or_insert_with(|| Finder::new(tree)).files(&groups)?;
                    control.send(&Message::Hashed(removal.hash(origin, &groups, &files, monitor)?))?;
                }
                Message::SampleRequest(request) => {
                    let files = finder.get_or_insert_with(|| Finder::new(tree)).files(&request.files)?;
                    let samples = sample_files(origin, &files, request.sampling, monitor)?;
                    control.send(&Message::Samples(samples))?;
                }
                Message::Release(release) if params.remove_source_files && !dry_run => {
                    let failures = let_go(origin, tree, &mut removal, &release)?;
                    control.send(&Message::SourceDone(Box::new(done(&failures, watch))))?;
                }
                Message::History(first) if params.history != History::None && !dry_run => {
                    serve_history_of(origin, peer, first, monitor)?;
                }
                Message::Planned(actions) if dry_run || params.itemize_changes => {
                    actions.iter().for_each(|action| monitor.planned(action));
                }
                Message::Report(report) => return Ok(*report),
                other => {
                    return Err(TransportError::Unexpected { got: other.what(), expected: "Need" }.into());
                }
            }
        }
    })
}

/// Removes entries whose copies are durable. Returns those that cannot be removed.
fn let_go(
    origin: Origin<'_>,
    tree: &Tree,
    removal: &mut Removal,
    entries: &Release,
) -> Result<Failures, SessionError> {
    let failures = Failures::default();
    let root = origin.root().map_err(|_| TransportError::Nonsense("a device was released"))?;
    removal.release(root, tree, entries, &failures)?;
    Ok(failures)
}

/// Answers the sink from the snapshots of the source, until it has copied them.
fn serve_history_of(
    origin: Origin<'_>,
    peer: &Peer,
    first: Vec<u8>,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    let root = origin.root().map_err(|_| TransportError::Nonsense("a device was asked for snapshots"))?;
    let (from, to) = history_bytes(peer, monitor);
    let from = from.with_first(first);
    let served = match OpenHistory::open(root, Path::new("")) {
        Ok(Some(history)) => serve_history(&mut history.source(), from, to).map(drop),
        Ok(None) => serve_history(&mut NoHistory, from, to).map(drop),
        Err(error) => refuse_history(&error, from, to),
    };
    served.map_err(|error| of_link(error.into()))
}

/// Finds the files that the sink names in its requests.
struct Finder<'a> {
    paths: Paths<'a>,
    entries: EntriesOf<'a>,
}

impl<'a> Finder<'a> {
    fn new(tree: &'a Tree) -> Self {
        Self { paths: Paths::new(tree), entries: EntriesOf::new(tree) }
    }

    fn files(&mut self, groups: &[FileGroup]) -> Result<Vec<HashRequest>, TransportError> {
        const NONE: TransportError =
            TransportError::Nonsense("something was asked about a file that there is not");
        let mut files = Vec::new();
        for group in groups {
            let first = group.indices.first().copied().unwrap_or(0);
            let mut entries = (first..).zip(self.entries.from(group.dir, first).ok_or(NONE)?);
            let path = self.paths.of(group.dir);
            for wanted in &group.indices {
                let (_, entry) = entries.find(|(index, _)| index == wanted).ok_or(NONE)?;
                files.push(HashRequest::new(group.dir, &path, &entry).ok_or(NONE)?);
            }
        }
        Ok(files)
    }
}

/// Closes the data streams when it is dropped, so that the workers end.
struct EndWorkers<'a>(&'a Peer);

impl Drop for EndWorkers<'_> {
    fn drop(&mut self) {
        self.0.senders.iter().for_each(DataSender::close);
    }
}

fn expect_welcome(control: &Control) -> Result<Welcome, TransportError> {
    match control.recv()? {
        Message::Welcome(welcome) => {
            tracing::debug!(version = welcome.version, dry_run = welcome.dry_run, "the sink is ready");
            Ok(welcome)
        }
        other => Err(TransportError::Unexpected { got: other.what(), expected: "Welcome" }),
    }
}

/// Sends the listings of directories.
pub(crate) fn list(control: &Control, tree: &Tree, dirs: &[DirId]) -> Result<(), TransportError> {
    for &id in dirs {
        let dir = tree.dirs.get(id as usize);
        let dir = dir.ok_or(TransportError::Nonsense("a directory was asked for that there is not"))?;
        let below = dir.first_child as usize..(dir.first_child + dir.listing.dirs()) as usize;
        let children = tree.dirs[below].iter().map(|dir| dir.digest).collect();
        let listing = dir.listing.clone();
        control.send(&Message::Listed(Listed {
            dir: id,
            first_child: dir.first_child,
            children,
            listing,
            rules: dir.rules.clone(),
        }))?;
    }
    Ok(())
}
