//! Both trees in one process: the same plan and apply, and content copied from the source's files.

use std::{collections::VecDeque, io};

use contract::{Phase, Report, RunParams, Side, Usage, VolumeId};

use crate::{
    filter::Filter,
    locate::{locate, nonce},
    plan::Step,
    report::{Counters, Failures, Stopwatch},
    root::{Place, Root},
    session::{
        local::{
            copy::copy_all,
            local_tree::{LocalHashes, LocalTree},
        },
        plan::{
            compare::compare,
            contents, kinds,
            planned::{Compared, Planned},
            policy,
            room::Room,
            source_tree::SourceTree,
            subject::{self, Named, Subject, last_name, scan_tree},
        },
        reading::source_file::Origin,
        run::{
            applying::Applying,
            device_run,
            make_report::{self, make_report},
        },
        session_error::SessionError,
        sink::{context::Context, dry_run::DryRun, open::Target, read_back::Verifier, shards::ShardRun},
        source::{source_lock::SourceLock, tree_head::last_run},
    },
    transport::TransportError,
    tree::{
        Tree,
        dir::{ROOT, Totals},
    },
    wire::{SourceDone, TreeHead},
};

/// Syncs `from` onto `to`.
pub(crate) fn run(
    from: &Place,
    to: &Place,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let found = kinds::look(from, "--source-path", params.image)?;
    if found.is_device() {
        return device_run::sync(from, to, params, watch);
    }
    kinds::refuse_image(from, found, params)?;
    let from_path = from.path();
    let source = Subject::of_source(from, found, params)?;
    let there = kinds::look(to, "--destination-path", params.image)?;
    if !source.is_file() {
        kinds::refuse_tree(to, there, &format!("the source {}", from_path.display()))?;
    }
    let sink_subject = Subject::of_destination(to, source.is_file().then(|| last_name(from)))?;
    sink_subject.find_folder(to)?;
    watch.enter(Phase::Scan);
    let monitor = watch.monitor();
    let (from, to) = (&source.place, &sink_subject.place);
    let unreadable = |source| SessionError::Scan { path: from_path.clone(), source };
    let root = Root::enter(from).map_err(SessionError::Source)?;
    refuse_overlap(&source, &sink_subject)?;
    let reading = SourceLock::hold(&root, from)?;
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
    subject::check_found(&source, &from_path, &tree)?;
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
    let head = if source.is_file() { policy::of_same_root(head, &sink) } else { head };
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
pub(crate) struct AtHand<'a, T> {
    pub tree: T,
    pub head: TreeHead,
    pub origin: Origin<'a>,
    /// Looks at what is to be changed before anything is; may return a note for the report.
    pub ready: &'a Ready<'a>,
}

/// Takes what is to be changed, and the destination's root if it is there.
pub(crate) type Ready<'a> = dyn Fn(&Compared, Option<&Root>) -> Result<Option<String>, SessionError> + 'a;

/// A destination, and what was found there.
pub(crate) struct Found<'a> {
    pub target: Target,
    pub sink: Tree,
    pub subject: &'a Subject,
    pub notes: Vec<String>,
}

/// Brings a destination in step with a source at hand.
pub(crate) fn bring<T: SourceTree>(
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
    let (policy, may_move) = (policy::policy(params, destination.settings()), policy::may_move(params));
    let mut compared = compare(&mut source, &head, &sink, policy, may_move, &Filter::default(), monitor)?;
    watch.enter(Phase::Delta);
    let mut hashes = LocalHashes { origin, monitor };
    let changed = match destination.root() {
        Some(to) => {
            let checker = contents::checker(Origin::Tree(to), failures, monitor);
            checker.check(&mut compared.dirs, &mut hashes, Some(Step::Update))?
        }
        None => 0,
    };
    compared.settle(&sink, policy, monitor)?;
    notes.extend(ready(&compared, destination.root())?);
    let plan = Planned { compared, sink };
    let counters = Counters::default();
    let destination = match destination {
        Target::Change(destination) => destination,
        Target::Look(looked) => {
            let (looked, counters) = (&looked, &counters);
            let rehearsal = DryRun { params, head: &head, destination: looked, failures, counters, monitor };
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
    let shards = ShardRun::new(&destination, monitor, None);
    let room = origin.root().ok().and_then(|source| Room::of(destination.root(), Some(source)));
    let shards = shards.as_ref();
    let room = room.as_ref();
    let applying = Applying { context, params, head: &head, plan: &plan, shards, room, keeps_root };
    let applied = applying.apply(watch, &mut |executor| {
        copy_all(context.into(), origin, |fetch| executor.transfer(&plan.compared.dirs, fetch))
    });
    let totals = make_report::own_totals(&destination, &head);
    watch.did(make_report::work_of(&totals, &counters));
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
        () if show_the_same(source, sink) => overlap("shows, through a mount, folders of"),
        () => Ok(()),
    }
}

/// Whether two trees contain one another although their paths do not say so, as those of bind mounts do not.
fn show_the_same(source: &Subject, sink: &Subject) -> bool {
    let nonce = nonce();
    locate(&source.place, nonce).overlaps(&locate(&sink.place, nonce))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::monitor::Monitor;

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
