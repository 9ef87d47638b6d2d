//! The source's end of a run: describes its tree, and answers the requests of the sink.

use std::{collections::VecDeque, path::Path};

use contract::{History, Phase, Report, RunParams, Side};

use crate::{
    attrs::Classes,
    destination::visible_attrs,
    ends::{
        match_kinds::{self, check_params},
        source_lock::SourceLock,
        tree_head::{done, last_run},
    },
    measure::{
        monitor::Monitor,
        report::{Counters, Failures, Stopwatch},
    },
    plan::{
        compare_params::work_of,
        scan_params::{ScanTimes, reach, scan_tree},
        single_file::{Subject, check_found, last_name},
    },
    session_error::{SessionError, of_link},
    snapshot::copy::{NoHistory, OpenHistory, refuse_history, serve_history},
    source::{
        hash_files::{Expect, HashRequest, hash_all},
        paths_by_number::{EntriesOf, Paths},
        remove_source_files::release,
        sample_files::sample_files,
        send_workers::Feed,
        source_file::Origin,
    },
    sys::{
        block_device::{self, Opened},
        locate::{Reach, locate, nonce, source_id},
        root::{Root, TreeLocation},
    },
    transport::{Control, DataSender, Peer, TransportError, history_bytes::history_bytes},
    tree::{
        Tree,
        dir::{DirId, ROOT},
    },
    wire::{FileGroup, Forecast, Hello, Listed, Message, SourceDone, TreeHead, Welcome},
};

/// The bytes of listings that are sent before the sink requests them, to save a round trip where the trees differ. A
/// connection may send about as much before the first acknowledgement, and it costs little where the trees are equal.
const PUSH_BYTES: usize = 64 << 10;

/// Runs the source's end over a connection; returns the sink's report.
pub(crate) fn run(
    place: &TreeLocation,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    watch.of_source();
    watch.enter(Phase::Scan);
    let found = match_kinds::look(place, "--source-path", params.image)?;
    if found.is_device() {
        return send_device(place, peer, params, watch);
    }
    match_kinds::refuse_image(place, found, params)?;
    let subject = Subject::of_source(place, found, params)?;
    let file = subject.is_file().then(|| last_name(place).to_vec());
    // Of a single file, the sink compares the folder only with the backup folder.
    let tree = match file {
        Some(_) => Reach::all(&subject.place),
        None => reach(&subject.place, params, Side::Source)?,
    };
    let whereabouts = locate(&tree, nonce());
    let last = peer.is_last();
    let source_id = file.is_none().then(|| source_id(&subject.place)).flatten();
    let told = RunParams { source_id, ..params.clone() };
    let hello = Hello { params: told, attrs: visible_attrs(), device: None, file, whereabouts, last };
    control.send(&Message::Hello(Box::new(hello)))?;
    let failures = Failures::default();
    let root = Root::enter(&subject.place).map_err(SessionError::Source)?;
    let _reading = SourceLock::hold(&root, &subject.place)?;
    let tree =
        scan_tree(&subject, &root, params, Side::Source, ScanTimes::default(), &failures, watch.monitor())?;
    check_found(&subject, &place.path(), &tree)?;
    // This is all that this end knows of the run if the sink is lost.
    watch.did(work_of(&tree.totals, &Counters::default()));
    push(control, &tree)?;
    let head = TreeHead {
        root_meta: tree.root_meta,
        root_attrs: tree.root_attrs.clone(),
        digest: tree.dirs[ROOT as usize].digest,
        totals: tree.totals,
        mounts: tree.mounts.clone(),
        last_run: last_run(&root),
        owners: tree.owners.most_frequent(),
        source: SourceDone { patterns: tree.patterns.clone(), ..done(&failures, watch) },
    };
    control.send(&Message::Tree(Box::new(head)))?;
    watch.enter(Phase::Plan);
    serve(Origin::Tree(&root), &tree, peer, params, watch)
}

/// Answers the sink until it sends the report.
pub(crate) fn serve(
    origin: Origin<'_>,
    tree: &Tree,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    let monitor = watch.monitor();
    // The owner of the destination may have made the run a dry one.
    let dry_run = expect_welcome(control)?.dry_run || params.dry_run;
    std::thread::scope(|scope| {
        let start = |watch: &mut Stopwatch<'_>| {
            watch.enter(Phase::Transfer);
            Feed::start(scope, origin, tree, peer, params, monitor)
        };
        let mut feed = None;
        let mut finder = None;
        // However this loop ends, no worker may wait for a sink that does not read any more.
        let _release = Release(peer);
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
                    control.send(&Message::Hashed(hash_all(origin, &files, Expect::AsListed, monitor)?))?;
                }
                Message::SampleRequest(request) => {
                    let files = finder.get_or_insert_with(|| Finder::new(tree)).files(&request.files)?;
                    control.send(&Message::Samples(sample_files(
                        origin,
                        &files,
                        request.sampling,
                        monitor,
                    )?))?;
                }
                Message::Release(groups) if params.remove_source_files && !dry_run => {
                    let failures = let_go(origin, tree, &groups)?;
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
fn let_go(origin: Origin<'_>, tree: &Tree, groups: &[FileGroup]) -> Result<Failures, SessionError> {
    let failures = Failures::default();
    let root = origin.root().map_err(|_| TransportError::Nonsense("a device was released"))?;
    release(root, tree, groups, &failures)?;
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
struct Release<'a>(&'a Peer);

impl Drop for Release<'_> {
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

/// Sends listings level by level from the root, up to [`PUSH_BYTES`].
pub(crate) fn push(control: &Control, tree: &Tree) -> Result<(), TransportError> {
    let mut sent = 0;
    let mut next = VecDeque::from([ROOT]);
    while let Some(id) = next.pop_front() {
        let dir = &tree.dirs[id as usize];
        sent += dir.listing.encoded_len() + dir.rules.len();
        if sent > PUSH_BYTES {
            return Ok(());
        }
        list(control, tree, &[id])?;
        next.extend(dir.first_child..dir.first_child + dir.listing.dirs());
    }
    Ok(())
}

fn list(control: &Control, tree: &Tree, dirs: &[DirId]) -> Result<(), TransportError> {
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

/// Runs the source's end of a device over a connection; returns the sink's report.
pub(crate) fn send_device(
    place: &TreeLocation,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    check_params(params)?;
    let opened = Opened::to_read(place).map_err(SessionError::SourceDevice)?;
    let hello = Hello {
        params: params.clone(),
        attrs: Classes::NONE,
        device: Some(opened.len()),
        file: None,
        whereabouts: Default::default(),
        last: peer.is_last(),
    };
    peer.control.send(&Message::Hello(Box::new(hello)))?;
    watch.enter(Phase::Plan);
    serve(Origin::Device(&opened), &block_device::tree(opened.len()), peer, params, watch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::monitor::Monitor, transport::memory_link};

    #[test]
    fn the_source_knows_how_much_it_will_send_before_it_is_asked_for_the_first_file() {
        let (source, sink) = memory_link::pair();
        let welcome = Welcome { version: String::new(), dry_run: false };
        let forecast = Forecast { files: 7, bytes: 99 };
        for message in
            [Message::Welcome(welcome), Message::Forecast(forecast), Message::Report(Box::default())]
        {
            sink.control.send(&message).unwrap();
        }
        let (dir, monitor) = (tempfile::tempdir().unwrap(), Monitor::default());
        run(&dir.path().into(), &source, &RunParams::default(), &mut Stopwatch::start(&monitor)).unwrap();
        let progress = monitor.snapshot();
        assert_eq!((progress.files_total, progress.bytes_total), (7, 99));
    }
}
