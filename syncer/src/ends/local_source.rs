//! A source in the same process: a tree, one file of a tree, or a device.

use std::{collections::VecDeque, io, os::fd::AsFd as _};

use contract::{RunParams, Side};

use crate::{
    ends::{
        local_tree::{LocalHashes, LocalTree},
        overlap::is_same_tree,
        tree_head::last_run,
    },
    fetch::copy_local::copy_all,
    kept_xattrs::Classes,
    measure::failures::Failures,
    plan::{
        compare_contents::{HashBatch, SourceHashes},
        guards::free_space::Room,
        needed_files::Fetch,
        run_state::Run,
        scan_params::{ScanTimes, scan_tree},
        single_file::{Named, Subject, check_found},
        source_tree::SourceTree,
    },
    reshape::Reshape,
    session_error::SessionError,
    sink::{
        source_end::{ContentEnd, ScannedTrees, SourceEnd, TakeHistory},
        writing::Writing,
    },
    snapshot::copy::{CopiedHistory, NoHistory, OpenHistory},
    source::{
        remove_source_files::Removal,
        source_file::{AsListed, Origin},
    },
    sys::{
        block_device::Opened,
        root::{Root, TreeLocation},
    },
    tree::{Tree, dir::DirId},
    wire::{Hashed, Listed, Release, TreeHead},
};

/// A tree, or one file of it, as the source of a run.
pub(crate) struct LocalSource<'a> {
    /// The place as the user named it.
    place: &'a TreeLocation,
    subject: &'a Subject,
    root: &'a Root,
    hashes: LocalHashes<'a>,
    tree: Named<LocalTree>,
    /// The kinds of attributes that the run keeps.
    classes: Classes,
    reshape: Reshape,
    removal: Removal,
}

impl<'a> LocalSource<'a> {
    /// Makes a source for a run whose destination is `sink`: a single file gets the name that it has there.
    pub(crate) fn new(
        place: &'a TreeLocation,
        subject: &'a Subject,
        root: &'a Root,
        sink: &Subject,
        run: &Run<'a>,
    ) -> Self {
        let origin = match &subject.only {
            Some(name) => Origin::File(root, name),
            None => Origin::Tree(root),
        };
        let keep = run.params.verify || run.params.remove_source_files;
        let tree = LocalTree { tree: Tree::empty(), asked: VecDeque::new(), keep };
        let hashes = LocalHashes { origin, monitor: run.monitor };
        let classes = Classes::wanted(&run.params.preserve);
        let reshape = Reshape::of(run.params);
        let moves = run.params.remove_source_files;
        // A file that gets another name in its folder is known to be another one.
        let is_apart = moves && subject.is_file() && is_same_tree(&subject.place, &sink.place);
        let removal = Removal::new(moves, is_apart);
        Self { place, subject, root, hashes, tree: Named::new(tree, sink), classes, reshape, removal }
    }
}

impl SourceTree for LocalSource<'_> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.tree.request(dirs)
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        self.tree.next()
    }
}

impl SourceHashes for LocalSource<'_> {
    fn ask(&mut self, batch: &HashBatch) -> Result<(), SessionError> {
        self.hashes.ask(batch)
    }

    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError> {
        let LocalHashes { origin, monitor } = self.hashes;
        Ok(self.removal.hash(origin, &batch.groups, &batch.files, monitor)?)
    }
}

impl ContentEnd for LocalSource<'_> {
    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        let since = self.tree.inner().tree.since.seconds;
        let as_listed = AsListed { classes: self.classes, since, reshape: self.reshape };
        copy_all(writing, self.hashes.origin, as_listed, work)
    }
}

impl SourceEnd for LocalSource<'_> {
    fn scan(
        &mut self,
        run: &Run<'_>,
        scan_sink: &mut dyn FnMut() -> Result<Tree, SessionError>,
    ) -> Result<ScannedTrees, SessionError> {
        let (subject, root, path) = (self.subject, self.root, self.place.path());
        let Run { params, failures, monitor, .. } = run;
        let (params, monitor): (&RunParams, _) = (params, *monitor);
        let (tree, sink) = std::thread::scope(|scope| {
            let scanned = scope.spawn(move || {
                scan_tree(subject, root, params, Side::Source, ScanTimes::default(), failures, monitor)
            });
            let sink = scan_sink();
            let unreadable = |source| SessionError::Scan { path: path.clone(), source };
            let tree = scanned.join().unwrap_or_else(|_| Err(unreadable(io::ErrorKind::Other.into())));
            Ok::<_, SessionError>((tree?, sink?))
        })?;
        check_found(subject, &path, &tree)?;
        let head = TreeHead { last_run: last_run(root), ..TreeHead::of(&tree) };
        self.tree.inner().tree = tree;
        Ok(ScannedTrees { head, sink })
    }

    fn history(&mut self, take: &mut TakeHistory<'_>, _: &Run<'_>) -> Result<CopiedHistory, SessionError> {
        let history = OpenHistory::open(self.root, &self.place.path())?;
        let done = match &history {
            Some(history) => take(&mut history.source()),
            None => take(&mut NoHistory),
        };
        Ok(done?)
    }

    fn room(&self, root: &Root) -> Option<Room> {
        Room::of(root, Some(self.root.as_fd()))
    }

    fn release(&mut self, release: Release, failures: &Failures) -> Result<(), SessionError> {
        self.removal.release(self.root, &self.tree.inner().tree, &release, failures)
    }
}

/// A device as the source of a run. It has no listings, because its tree follows from its length.
pub(crate) struct LocalDevice<'a>(LocalHashes<'a>);

impl<'a> LocalDevice<'a> {
    pub(crate) fn new(opened: &'a Opened, run: &Run<'a>) -> Self {
        Self(LocalHashes { origin: Origin::Device(opened), monitor: run.monitor })
    }
}

impl SourceHashes for LocalDevice<'_> {
    fn ask(&mut self, batch: &HashBatch) -> Result<(), SessionError> {
        self.0.ask(batch)
    }

    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError> {
        self.0.next(batch)
    }
}

impl ContentEnd for LocalDevice<'_> {
    fn transfer(
        &mut self,
        writing: Writing<'_>,
        work: &mut dyn FnMut(&mut dyn Fetch) -> Result<(), SessionError>,
    ) -> Result<(), SessionError> {
        copy_all(writing, self.0.origin, AsListed::default(), work)
    }
}
