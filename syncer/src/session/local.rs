//! Both trees in one process: the same plan and apply, and content copied from the source's files.

use std::{collections::VecDeque, io, os::fd::AsFd as _};

use async_channel::{Receiver, Sender};
use contract::{Phase, Report, RunParams, Side, Usage, VolumeId};

use super::{
    SessionError,
    check::LocalHashes,
    compare::{Compared, SourceTree, compare},
    device,
    execute::{Context, Fetch, Need},
    read::{CHANGED, LastDir, MAX_ATTEMPTS, Origin, SourceFile},
    reading::Reading,
    rehearse::{Looked, Rehearsal},
    rewrite::{Zeros, differences},
    room::Room,
    shards::Crew,
    single::{self, Named, Subject, last_name},
    sink::{self, Applying, Planned, make_report, open_destination, scan_tree},
    source::last_run,
    verify::Verifier,
    writing::{Store, Writing},
};
use crate::{
    apply::{Destination, Settings, Staged},
    attrs::AttrsBuf,
    cores::cores,
    entry::Time,
    filter::Filter,
    monitor::Monitor,
    plan::Step,
    report::{Counters, Failures, Stopwatch},
    root::{Place, Root},
    slice::Slice,
    transport::TransportError,
    tree::{
        Tree,
        dir::{DirId, ROOT, Totals},
    },
    wire::{Listed, SourceDone, TreeHead},
    xattr,
};

/// Syncs `from` onto `to`.
pub(super) fn run(
    from: &Place,
    to: &Place,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let found = device::look(from, "--source-path", params.image)?;
    if found.is_device() {
        return device::sync(from, to, params, watch);
    }
    device::refuse_image(from, found, params)?;
    let from_path = from.path();
    let source = Subject::of_source(from, found, params)?;
    let there = device::look(to, "--destination-path", params.image)?;
    if !source.is_file() {
        device::refuse_tree(to, there, &format!("the source {}", from_path.display()))?;
    }
    let sink_subject = Subject::of_destination(to, source.is_file().then(|| last_name(from)))?;
    sink_subject.find_folder(to)?;
    watch.enter(Phase::Scan);
    let monitor = watch.monitor();
    let (from, to) = (&source.place, &sink_subject.place);
    let unreadable = |source| SessionError::Scan { path: from_path.clone(), source };
    let root = Root::enter(from).map_err(SessionError::Source)?;
    refuse_overlap(&source, &sink_subject)?;
    let reading = Reading::hold(&root, from)?;
    let (destination, mut notes) = Target::open(to, params, Some(&root))?;
    notes.extend(reading.note.clone());
    let doubt = destination.doubtful_since();
    let failures = Failures::default();
    let (tree, sink) = std::thread::scope(|scope| {
        let scanned =
            scope.spawn(|| scan_tree(&source, &root, params, Side::Source, None, &failures, monitor));
        let sink = match destination.root() {
            Some(root) => scan_tree(&sink_subject, root, params, Side::Sink, doubt, &failures, monitor),
            None => Ok(Tree::empty()),
        };
        let scanned = scanned.join().unwrap_or_else(|_| Err(unreadable(io::ErrorKind::Other.into())));
        Ok::<_, SessionError>((scanned?, sink?))
    })?;
    single::check_found(&source, &from_path, &tree)?;
    let head = TreeHead {
        root_meta: tree.root_meta,
        root_attrs: tree.root_attrs.clone(),
        digest: tree.dirs[ROOT as usize].digest,
        totals: tree.totals,
        owners: tree.owners.most_frequent(),
        last_run: last_run(&root),
        source: SourceDone::default(),
    };
    let tree = LocalTree { tree, asked: VecDeque::new(), keep: params.verify };
    let head = if source.is_file() { sink::of_same_root(head, &sink) } else { head };
    let origin = match &source.only {
        Some(name) => Origin::File(&root, name),
        None => Origin::Tree(&root),
    };
    let source = AtHand { tree: Named::new(tree, &sink_subject), head, origin, ready: &|_, _| Ok(None) };
    bring(
        source,
        Found { target: destination, sink, subject: &sink_subject, notes },
        params,
        &failures,
        watch,
    )
}

/// A source at hand: its tree, and the way to the content of its files.
pub(super) struct AtHand<'a, T> {
    pub tree: T,
    pub head: TreeHead,
    pub origin: Origin<'a>,
    /// Looks at what is to be changed before anything is; may return a note for the report.
    pub ready: &'a Ready<'a>,
}

/// Takes what is to be changed, and the destination's root if it is there.
pub(super) type Ready<'a> = dyn Fn(&Compared, Option<&Root>) -> Result<Option<String>, SessionError> + 'a;

/// A destination, and what was found there.
pub(super) struct Found<'a> {
    pub target: Target,
    pub sink: Tree,
    pub subject: &'a Subject,
    pub notes: Vec<String>,
}

/// Brings a destination in step with a source at hand.
pub(super) fn bring<T: SourceTree>(
    source: AtHand<'_, T>,
    found: Found<'_>,
    params: &RunParams,
    failures: &Failures,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let AtHand { tree: mut source, head, origin, ready } = source;
    let Found { target: destination, sink, subject, mut notes } = found;
    let keeps_root = subject.is_file();
    let monitor = watch.monitor();
    watch.enter(Phase::Plan);
    let (policy, may_move) = (sink::policy(params, destination.settings()), sink::may_move(params));
    let mut compared = compare(&mut source, &head, &sink, policy, may_move, &Filter::default())?;
    watch.enter(Phase::Delta);
    let mut hashes = LocalHashes { origin, monitor };
    let changed = match destination.root() {
        Some(to) => {
            let checker = sink::checker(Origin::Tree(to), failures, monitor);
            checker.check(&mut compared.dirs, &mut hashes, Some(Step::Update))?
        }
        None => 0,
    };
    compared.settle(&sink, policy);
    notes.extend(ready(&compared, destination.root())?);
    let plan = Planned { compared, sink };
    let counters = Counters::default();
    let destination = match destination {
        Target::Change(destination) => destination,
        Target::Look(looked) => {
            let (looked, counters) = (&looked, &counters);
            let rehearsal = Rehearsal { params, head: &head, looked, failures, counters };
            notes.extend(rehearsal.tell(&plan, changed, &mut |actions| {
                actions.iter().for_each(|action| monitor.planned(action));
                monitor.check().map_err(|_| TransportError::Canceled)
            })?);
            return Ok(report(params, watch, &rehearsal.totals(), counters, failures, looked.volume, notes));
        }
    };
    if plan.sink.has_attrs() {
        destination.found_attrs();
    }
    let context = Context { destination: &destination, failures, counters: &counters, monitor };
    let crew = Crew::new(&destination, monitor, None);
    let room = origin.root().ok().and_then(|source| Room::of(destination.root(), Some(source)));
    let crew = crew.as_ref();
    let room = room.as_ref();
    let applying = Applying { context, params, head: &head, plan: &plan, crew, room, keeps_root };
    let applied = applying.apply(watch, &mut |executor| {
        copy_all(context.into(), origin, |fetch| executor.transfer(&plan.compared.dirs, fetch))
    });
    let totals = sink::own_totals(&destination, &head);
    watch.did(sink::work_of(&totals, &counters));
    notes.extend(applied?);
    if params.verify {
        watch.enter(Phase::Plan);
        let verifier = Verifier {
            params,
            settings: destination.settings(),
            root: destination.root(),
            subject,
            failures,
            monitor,
        };
        notes.extend(verifier.verify(&mut source, &mut hashes, &head)?);
    }
    let report = report(params, watch, &totals, &counters, failures, Some(destination.own().volume()), notes);
    destination.close();
    Ok(report)
}

/// The destination as a run needs it.
pub(super) enum Target {
    /// Of a dry run.
    Look(Looked),
    Change(Box<Destination>),
}

impl Target {
    /// Opens the destination of a run from the tree at `source`, or from a snapshot, of which nobody knows how much room it needs. Also returns
    /// what is to be noted in the report.
    pub(super) fn open(
        place: &Place,
        params: &RunParams,
        source: Option<&Root>,
    ) -> Result<(Self, Vec<String>), SessionError> {
        let settings = Settings::resolve(&params.preserve)?;
        if params.dry_run {
            let (mut looked, notes) = Looked::at(place, params, settings, source)?;
            looked.room = looked.room.filter(|_| source.is_some());
            return Ok((Self::Look(looked), notes));
        }
        open_destination(place, params, settings)
            .map(|(opened, notes)| (Self::Change(Box::new(opened)), notes))
    }

    pub(super) fn root(&self) -> Option<&Root> {
        match self {
            Self::Look(looked) => looked.root(),
            Self::Change(destination) => Some(destination.root()),
        }
    }

    pub(super) fn doubtful_since(&self) -> Option<Time> {
        match self {
            Self::Look(_) => None,
            Self::Change(destination) => destination.doubtful_since(),
        }
    }

    fn settings(&self) -> Settings {
        match self {
            Self::Look(looked) => looked.settings,
            Self::Change(destination) => destination.settings(),
        }
    }
}

fn report(
    params: &RunParams,
    watch: &Stopwatch<'_>,
    totals: &Totals,
    counters: &Counters,
    failures: &Failures,
    volume: Option<VolumeId>,
    notes: Vec<String>,
) -> Report {
    let mut report = make_report(params, watch, totals, counters, failures, volume, notes);
    report.usage = watch.sink_usage(Usage::default());
    report.fill_rates();
    report
}

/// A tree synced onto itself or into itself would grow or vanish. The destination need not be there yet. Two files of one folder are
/// apart if their names are.
fn refuse_overlap(source: &Subject, sink: &Subject) -> Result<(), SessionError> {
    let (Some(from), Some(to)) = (source.place.real_path(), sink.place.real_path()) else { return Ok(()) };
    let overlap = |what: &str| {
        Err(SessionError::SameTree(format!(
            "the destination {} {what} the source {}: choose folders that do not contain one another",
            to.display(),
            from.display()
        )))
    };
    match () {
        () if source.is_file() && (from != to || source.only != sink.only) => Ok(()),
        () if source.is_file() => Err(SessionError::SameTree(format!(
            "the destination is the source, the file {} of {}: name another destination",
            String::from_utf8_lossy(source.only.as_deref().unwrap_or_default()),
            from.display()
        ))),
        () if from == to => overlap("is"),
        () if to.starts_with(&from) => overlap("lies in"),
        () if from.starts_with(&to) => overlap("contains"),
        () => Ok(()),
    }
}

/// The source's tree at hand.
struct LocalTree {
    tree: Tree,
    asked: VecDeque<DirId>,
    /// The listings are asked for again.
    keep: bool,
}

impl SourceTree for LocalTree {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.asked.extend(dirs);
        Ok(())
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        let id = self.asked.pop_front().unwrap_or(ROOT);
        let dirs = &mut self.tree.dirs;
        let dir = &mut dirs[id as usize];
        let (listing, rules) = match self.keep {
            true => (dir.listing.clone(), dir.rules.clone()),
            false => (std::mem::take(&mut dir.listing), std::mem::take(&mut dir.rules)),
        };
        let first_child = dirs[id as usize].first_child;
        let below = first_child as usize..(first_child + listing.dirs()) as usize;
        let children = dirs[below].iter().map(|dir| dir.digest).collect();
        Ok(Listed { dir: id, first_child, children, listing, rules })
    }
}

/// Runs `work` with workers that copy what it fetches.
pub(super) fn copy_all(
    writing: Writing<'_>,
    origin: Origin<'_>,
    work: impl FnOnce(&mut dyn Fetch) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let workers = cores();
    let (jobs, queue) = async_channel::bounded(workers * 16);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|_| {
                let queue = queue.clone();
                let copier = Copier { writing, origin, from: LastDir::default(), to: LastDir::default() };
                scope.spawn(move || copier.run(&queue))
            })
            .collect();
        // With the workers gone after a cancellation, nobody takes from the queue: a send has to fail, not to wait.
        drop(queue);
        let result = work(&mut CopyFetch { jobs: &jobs });
        jobs.close();
        for worker in workers {
            let _ = worker.join();
        }
        match writing.monitor.cancelled() {
            true => Err(TransportError::Canceled.into()),
            false => result,
        }
    })
}

/// A directory's files are dealt out in parts of this many.
const FILES_PER_JOB: usize = 64;

struct CopyFetch<'a> {
    jobs: &'a Sender<Vec<Need>>,
}

impl Fetch for CopyFetch<'_> {
    fn fetch(&mut self, mut needs: Vec<Need>) -> Result<(), SessionError> {
        while !needs.is_empty() {
            let rest = needs.split_off(needs.len().min(FILES_PER_JOB));
            let _ = self.jobs.send_blocking(needs);
            needs = rest;
        }
        Ok(())
    }

    /// All that is needed is at the source. The workers are waited for when the queue is closed.
    fn finish(&mut self, made_from_others: Vec<Need>) -> Result<(), SessionError> {
        self.fetch(made_from_others)
    }
}

struct Copier<'a> {
    writing: Writing<'a>,
    origin: Origin<'a>,
    from: LastDir,
    to: LastDir,
}

impl Copier<'_> {
    fn run(mut self, queue: &Receiver<Vec<Need>>) {
        while let Ok(needs) = queue.recv_blocking() {
            for need in needs {
                if self.writing.monitor.cancelled() || self.writing.is_lost() {
                    return;
                }
                match self.copy(&need) {
                    // Nobody asks what became of it: the run stops.
                    Err(_) if self.writing.monitor.cancelled() => return,
                    Err(error) => self.writing.failures.add(&need.path(), "copy", &error),
                    Ok(()) => {}
                }
                self.writing.has_done(&need);
            }
        }
    }

    fn copy(&mut self, need: &Need) -> io::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            if self.attempt(need)? {
                return Ok(());
            }
        }
        Err(io::Error::other(CHANGED))
    }

    /// One try; false when the file changed while it was read.
    fn attempt(&mut self, need: &Need) -> io::Result<bool> {
        let source = self.origin.file_in(&mut self.from, need.dir.source, &need.dir.path, &need.name)?;
        let writing = self.writing;
        let zeros = match writing.store {
            Store::Tree(tree) if tree.settings().holes && source.has_holes() => Zeros::Holes,
            Store::Device(device) if device.keeps_holes() => Zeros::AllHoles,
            _ => Zeros::Bytes,
        };
        let (staged, reused) = match writing.stage_over(need) {
            Some(staged) => {
                let same = copy_differences(&source, &staged, zeros, writing.monitor);
                let same = same.inspect_err(|_| writing.unstage(&staged))?;
                (staged, need.replaces.then_some(same))
            }
            None => match self.copy_whole(need, &source, zeros) {
                // A file that has become shorter has changed, and is read again.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !source.is_unchanged()? => {
                    return Ok(false);
                }
                copied => (copied?, None),
            },
        };
        let attrs = match writing.store {
            Store::Tree(_) if source.is_stored() => Ok(need.attrs.clone()),
            Store::Tree(tree) => {
                let settings = tree.settings();
                xattr::of_open(source.as_fd(), settings.attrs | settings.count_attrs)
            }
            Store::Device(_) => Ok(AttrsBuf::default()),
        };
        let attrs = attrs.inspect_err(|_| writing.unstage(&staged))?;
        if !source.is_unchanged()? {
            writing.unstage(&staged);
            return Ok(false);
        }
        let (meta, attrs) = (source.meta(&need.meta), attrs.as_attrs());
        writing.publish(need, &mut self.to, &staged, &meta, attrs, source.len())?;
        reused.inspect(|bytes| writing.count_reused(need, *bytes));
        writing.monitor.add_bytes(source.len());
        Ok(true)
    }

    fn copy_whole(&mut self, need: &Need, source: &SourceFile, zeros: Zeros) -> io::Result<Staged> {
        let staged = self.writing.create(need, &mut self.to, need.meta.mode)?;
        let (holes, monitor) = (zeros != Zeros::Bytes, self.writing.monitor);
        let copied = match source.content() {
            content if content.start == 0 => staged.copy_from(content.fd, source.len(), holes, monitor),
            content => copy_part(content, source.len(), &staged),
        };
        copied.inspect_err(|_| self.writing.unstage(&staged))?;
        Ok(staged)
    }
}

/// Copies a small file out of the pack that it is in.
fn copy_part(from: Slice<'_>, len: u64, staged: &Staged) -> io::Result<()> {
    let mut bytes = vec![0; len as usize];
    from.read_exact_at(&mut bytes, 0)?;
    staged.write_at(&bytes, 0)
}

/// A file that has become shorter is found to have changed later.
fn copy_differences(
    source: &SourceFile,
    staged: &Staged,
    zeros: Zeros,
    monitor: &Monitor,
) -> io::Result<u64> {
    match differences(source.content(), source.len(), staged, zeros, monitor) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !source.is_unchanged()? => Ok(0),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    const ENTRIES: usize = 3000;

    struct Trees {
        dir: tempfile::TempDir,
    }

    impl Trees {
        /// A source and a destination, one of which has many links, and the other one file.
        fn new(with_links: &str, other: &str) -> Self {
            let trees = Self { dir: tempfile::tempdir().unwrap() };
            [with_links, other].iter().for_each(|name| fs::create_dir(trees.path(name)).unwrap());
            let links = trees.path(with_links);
            (0..ENTRIES).for_each(|n| std::os::unix::fs::symlink("to", links.join(n.to_string())).unwrap());
            fs::write(trees.path(other).join("file"), "content").unwrap();
            trees
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().join(name)
        }

        fn sync(&self, monitor: &Monitor) -> Result<Report, SessionError> {
            let params = RunParams { delete: true, force: true, ..RunParams::default() };
            let [from, to] = ["source", "destination"].map(|name| Place::from(&*self.path(name)));
            run(&from, &to, &params, &mut Stopwatch::start(monitor))
        }

        fn links_there(&self) -> usize {
            fs::read_dir(self.path("destination"))
                .unwrap()
                .filter(|it| is_link(&it.as_ref().unwrap().path()))
                .count()
        }
    }

    fn is_link(path: &Path) -> bool {
        fs::symlink_metadata(path).unwrap().is_symlink()
    }

    /// The last looks of a run are at what it deletes.
    #[test]
    fn deletes_end_at_once_when_a_run_is_told_to_stop() {
        let whole = Monitor::default();
        let trees = Trees::new("destination", "source");
        trees.sync(&whole).unwrap();
        assert_eq!(trees.links_there(), 0);
        let trees = Trees::new("destination", "source");
        let error = trees.sync(&Monitor::canceled_at(whole.checks() - ENTRIES as u64 / 2)).unwrap_err();
        assert!(error.is_canceled(), "{error}");
        let left = trees.links_there();
        assert!((ENTRIES / 2 - 10..=ENTRIES / 2 + 10).contains(&left), "{left} of {ENTRIES} are left");
    }

    #[test]
    fn a_folder_is_not_filled_to_its_end_when_a_run_is_told_to_stop() {
        let whole = Monitor::default();
        let trees = Trees::new("source", "destination");
        trees.sync(&whole).unwrap();
        assert_eq!(trees.links_there(), ENTRIES);
        let trees = Trees::new("source", "destination");
        let error = trees.sync(&Monitor::canceled_at(whole.checks() - ENTRIES as u64 / 2)).unwrap_err();
        assert!(error.is_canceled(), "{error}");
        let made = trees.links_there();
        assert!((ENTRIES / 2 - 10..=ENTRIES / 2 + 10).contains(&made), "{made} of {ENTRIES} were made");
    }
}
