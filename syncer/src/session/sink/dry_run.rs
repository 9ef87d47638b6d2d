//! A dry run: the same scan, comparison and guards as a run has, and then every action is told instead of done.

use std::{collections::HashSet, io, sync::atomic::Ordering::Relaxed};

use contract::{Action, DeleteTiming, EntryKind, PlannedAction, Report, RunParams, Side, VolumeId};
use rustix::io::Errno;

use crate::{
    apply::{ApplyError, Candidate, Settings, visible_attrs},
    entry::{Entry, Kind},
    monitor::Monitor,
    path::RelPath,
    plan::Step,
    report::{Counters, Failures},
    root::{Place, Root},
    session::{
        plan::{
            contents::SourceHashes,
            guard,
            planned::{
                Compared, MovedDir, Planned, PlannedDir, below_replaced, deletes_in, entries_below,
                is_emptied, path_in,
            },
            policy::{count_owners, of_same_root, same_meta},
            room::Room,
            source_tree::SourceTree,
            subject::{Subject, scan_tree},
        },
        session_error::SessionError,
        sink::{
            read_back,
            traits::{NoChanges, Run, SinkEnd, SourceEnd},
            tree_sink::{compare_tree_contents, compare_trees},
        },
    },
    transport::TransportError,
    tree::{
        Tree,
        dir::{DirId, Totals},
    },
    wire::TreeHead,
};

/// Actions are told so many at a time.
const BATCH: usize = 256;

/// The destination of a dry run, which need not be there. It is only looked at.
pub(crate) struct DryDestination {
    candidate: Option<Candidate>,
    /// What would be set. Whether the file system takes extended attributes is not tried.
    pub settings: Settings,
    /// The folder that the destination would be made in.
    above: Option<Root>,
    /// What the destination is known by.
    pub volume: Option<VolumeId>,
}

impl DryDestination {
    /// Looks at the destination, and whether it is the one that the run is meant for. Also returns what is to be noted in the report.
    pub(crate) fn at(
        place: &Place,
        params: &RunParams,
        mut settings: Settings,
    ) -> Result<(Self, Vec<String>), SessionError> {
        let candidate = Candidate::look(place)?;
        let volume = match &candidate {
            Some(candidate) => candidate.volume()?,
            None => None,
        };
        let notes = guard::check_volume(params, &place.path(), volume)?;
        let above = match &candidate {
            Some(candidate) => {
                candidate.check_writable()?;
                None
            }
            None => Some(Root::above_missing(place).map_err(ApplyError::Open)?),
        };
        settings.attrs = settings.attrs.and(visible_attrs());
        Ok((Self { candidate, settings, above, volume }, notes))
    }

    /// For scanning.
    pub(crate) fn root(&self) -> Option<&Root> {
        self.candidate.as_ref().map(Candidate::root)
    }
}

/// A dry run whose trees were compared.
pub(crate) struct DryRun<'a> {
    pub params: &'a RunParams,
    pub destination: &'a DryDestination,
    pub room: Option<Room>,
    pub failures: &'a Failures,
    pub counters: &'a Counters,
    pub monitor: &'a Monitor,
}

impl DryRun<'_> {
    /// Tells what the plan would do, and counts it as if it were done; then judges it as a run would be judged, and takes what differs as failures where the run is to verify.
    /// Returns notes for the report.
    pub(crate) fn tell(
        &self,
        plan: &Planned,
        tell: &mut dyn FnMut(Vec<PlannedAction>) -> Result<(), TransportError>,
    ) -> Result<Vec<String>, SessionError> {
        let Planned { head, compared, sink, changed } = plan;
        if !self.tells() {
            self.failures.forget();
            return self.judge(plan, 0);
        }
        count_owners(self.destination.settings, head, sink, self.counters);
        let mut teller = Teller { counters: self.counters, told: Vec::new(), tell };
        if self.destination.candidate.is_none() {
            teller.push(Action::Create, EntryKind::Folder, &RelPath::root(), 0)?;
        } else if !same_root(head, sink, self.destination.settings) {
            teller.push(Action::SetMetadata, EntryKind::Folder, &RelPath::root(), 0)?;
        }
        let known = self.failures.count();
        self.fail_replaced(plan);
        let failed = self.failures.count();
        let keeps_back = failed > 0 && !self.params.delete_anyway;
        // What is deleted first is not kept back by what fails later.
        let deletes_first = self.params.delete_timing == DeleteTiming::Before && known == 0;
        for dir in &compared.dirs {
            teller.steps(dir, compared, &self.staying(dir, plan, keeps_back))?;
        }
        if keeps_back {
            let deletes = |dir| match deletes_first {
                true => below_replaced(dir, sink, &compared.kept),
                false => deletes_in(dir, sink, &compared.kept),
            };
            self.counters.keep_back(compared.dirs.iter().map(deletes).sum(), failed);
        }
        for dir in compared.dirs.iter().filter(|_| !keeps_back || deletes_first) {
            teller.deletes(dir, compared, sink, self.params.delete && !keeps_back)?;
        }
        teller.flush()?;
        let mut notes = self.judge(plan, known)?;
        if self.params.verify {
            let differences = read_back::report(compared, sink, self.failures);
            notes.extend(read_back::notes(None, head.totals.entries, differences, *changed));
        }
        Ok(notes)
    }

    /// Has the guards judge the plan, with so many entries that could not be listed or read.
    fn judge(&self, plan: &Planned, known: u64) -> Result<Vec<String>, SessionError> {
        let Planned { head, compared, sink, .. } = plan;
        guard::check(self.params, head, sink, compared, self.room.as_ref(), known, self.monitor)
    }

    /// Takes as failures the folders that something else cannot replace, because not all in them may be deleted.
    fn fail_replaced(&self, Planned { compared, sink, .. }: &Planned) {
        for dir in &compared.dirs {
            for (name, id) in dir.replaced_in(sink) {
                if !is_emptied(sink, &compared.kept, id, self.params.delete) {
                    let error = io::Error::from(Errno::NOTEMPTY);
                    self.failures.add(&path_in(&dir.path, name), "make way", &error);
                }
            }
        }
    }

    /// The names of the folders that something else would replace and that would stay.
    fn staying<'p>(
        &self,
        dir: &'p PlannedDir,
        Planned { compared, sink, .. }: &'p Planned,
        keeps_back: bool,
    ) -> HashSet<&'p [u8]> {
        let stays = |id| {
            let is_kept = keeps_back && entries_below(sink, id, &compared.kept) > 0;
            is_kept || !is_emptied(sink, &compared.kept, id, self.params.delete)
        };
        dir.replaced_in(sink).filter(|(_, id)| stays(*id)).map(|(name, _)| name).collect()
    }

    /// Of the processes that share a run, the first says what all of it would do, and the others nothing.
    fn tells(&self) -> bool {
        tells(self.params)
    }
}

/// Whether this process is the one that says what all that share a run would do.
fn tells(params: &RunParams) -> bool {
    params.shard.is_none_or(|shard| shard.index == 0)
}

/// A tree that a dry run looks at.
pub(crate) struct DryTree<'a> {
    destination: DryDestination,
    subject: &'a Subject,
    /// Whether this process is the one of all that share the run that says what it would do.
    tells: bool,
}

impl<'a> DryTree<'a> {
    pub(crate) fn look(
        subject: &'a Subject,
        settings: Settings,
        run: &Run<'_>,
    ) -> Result<Self, SessionError> {
        let (destination, notes) = DryDestination::at(&subject.place, run.params, settings)?;
        run.note(notes);
        Ok(Self { destination, subject, tells: tells(run.params) })
    }
}

impl SinkEnd for DryTree<'_> {
    type Changes<'c>
        = NoChanges
    where
        Self: 'c;

    fn scan(&self, run: &Run<'_>) -> Result<Tree, SessionError> {
        match self.root() {
            Some(root) => {
                scan_tree(self.subject, root, run.params, Side::Sink, None, &run.failures, run.monitor)
            }
            None => Ok(Tree::empty()),
        }
    }

    fn adapt(&self, head: TreeHead, sink: &Tree) -> TreeHead {
        if self.subject.is_file() { of_same_root(head, sink) } else { head }
    }

    fn compare(
        &self,
        source: &mut impl SourceTree,
        head: &TreeHead,
        sink: &Tree,
        run: &Run<'_>,
    ) -> Result<Compared, SessionError> {
        compare_trees(source, head, sink, self.destination.settings, run)
    }

    fn compare_contents(
        &self,
        compared: &mut Compared,
        sink: &Tree,
        source: &mut dyn SourceHashes,
        run: &Run<'_>,
    ) -> Result<u64, SessionError> {
        compare_tree_contents(compared, (sink, self.root()), source, self.destination.settings, run)
    }

    fn root(&self) -> Option<&Root> {
        self.destination.root()
    }

    fn guard(
        &self,
        plan: &Planned,
        source: &mut impl SourceEnd,
        run: &Run<'_>,
    ) -> Result<Vec<String>, SessionError> {
        let root = self.root().or(self.destination.above.as_ref());
        let room = root.and_then(|root| source.room(root));
        let (failures, counters) = (&run.failures, &run.counters);
        let dry_run = DryRun {
            params: run.params,
            destination: &self.destination,
            room,
            failures,
            counters,
            monitor: run.monitor,
        };
        dry_run.tell(plan, &mut |actions| source.tell(run, actions))
    }

    fn begin<'c>(&'c self, _: &'c Planned, _: &'c Run<'_>) -> Result<Option<NoChanges>, SessionError> {
        Ok(None)
    }

    fn give_up(&self, _: &Run<'_>) {}

    /// Nothing was changed: what differs was told with the plan.
    fn verify(&self, _: &mut impl SourceEnd, _: &Planned, _: &Run<'_>) -> Result<Vec<String>, SessionError> {
        Ok(Vec::new())
    }

    fn totals(&self, head: &TreeHead) -> Totals {
        if self.tells { head.totals } else { Totals::default() }
    }

    fn complete(&self, report: &mut Report) {
        report.volume = self.destination.volume;
    }

    fn close(self) {}
}

struct Teller<'a> {
    counters: &'a Counters,
    told: Vec<PlannedAction>,
    tell: &'a mut dyn FnMut(Vec<PlannedAction>) -> Result<(), TransportError>,
}

impl Teller<'_> {
    fn push(
        &mut self,
        action: Action,
        kind: EntryKind,
        path: &RelPath,
        bytes: u64,
    ) -> Result<(), TransportError> {
        let counter = match action {
            Action::Create => &self.counters.created,
            Action::Update | Action::Replace | Action::SetMetadata => &self.counters.updated,
            Action::Delete | Action::Move => &self.counters.deleted,
        };
        counter.fetch_add(u64::from(!path.is_root()), Relaxed);
        self.counters.bytes_changed.fetch_add(bytes, Relaxed);
        self.tell(PlannedAction { action, kind, path: path.to_string(), from: None, bytes })
    }

    /// A folder with all that is in it.
    fn push_move(&mut self, moved: &MovedDir, to: &RelPath) -> Result<(), TransportError> {
        moved.count(self.counters);
        self.counters.created.fetch_add(1, Relaxed);
        let (path, from) = (to.to_string(), Some(moved.from.to_string()));
        self.tell(PlannedAction { action: Action::Move, kind: EntryKind::Folder, path, from, bytes: 0 })
    }

    fn tell(&mut self, action: PlannedAction) -> Result<(), TransportError> {
        self.told.push(action);
        if self.told.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        match self.told.is_empty() {
            true => Ok(()),
            false => (self.tell)(std::mem::take(&mut self.told)),
        }
    }

    /// `staying` folders are not replaced.
    fn steps(
        &mut self,
        dir: &PlannedDir,
        compared: &Compared,
        staying: &HashSet<&[u8]>,
    ) -> Result<(), TransportError> {
        for (step, entry) in dir.steps().filter(|(_, entry)| !staying.contains(entry.name)) {
            let action = match step {
                Step::Create => Action::Create,
                Step::Replace { .. } => Action::Replace,
                Step::Update => Action::Update,
                Step::Meta => Action::SetMetadata,
            };
            let bytes = match entry.kind {
                Kind::File { size } if step != Step::Meta => size,
                _ => 0,
            };
            let path = path_in(&dir.path, entry.name);
            match compared.moves.get(&path).filter(|_| entry.kind == Kind::Dir) {
                Some(moved) => self.push_move(moved, &path)?,
                None => self.push(action, kind_of(&entry), &path, bytes)?,
            }
        }
        Ok(())
    }

    /// What the source does not have, and what is below a directory that something else takes the place of.
    fn deletes(
        &mut self,
        dir: &PlannedDir,
        compared: &Compared,
        sink: &Tree,
        delete: bool,
    ) -> Result<(), TransportError> {
        let Some(id) = dir.sink else { return Ok(()) };
        let replaced = if delete { dir.replaced_dirs() } else { Default::default() };
        let mut deletes = dir.plan.deletes.iter().peekable();
        let mut child = sink.dirs[id as usize].first_child;
        for (index, entry) in (0..).zip(&sink.dirs[id as usize].listing) {
            let is_dir = entry.kind == Kind::Dir;
            let goes = deletes.next_if(|&&at| at == index).is_some();
            let path = path_in(&dir.path, entry.name);
            let mut empties = true;
            if is_dir && (goes || replaced.contains(entry.name)) {
                empties = self.deletes_below(child, &path, compared, sink)?;
            }
            if goes && empties {
                self.push(Action::Delete, kind_of(&entry), &path, 0)?;
            }
            child += u32::from(is_dir);
        }
        Ok(())
    }

    /// Returns whether all that is in the directory would go. Paths have a limit, and so has the depth.
    fn deletes_below(
        &mut self,
        id: DirId,
        path: &RelPath,
        compared: &Compared,
        sink: &Tree,
    ) -> Result<bool, TransportError> {
        let dir = &sink.dirs[id as usize];
        let mut empties = !dir.leaves_out && dir.listing.is_complete();
        let mut child = dir.first_child;
        for (index, entry) in (0..).zip(&dir.listing) {
            let is_dir = entry.kind == Kind::Dir;
            let path = path_in(path, entry.name);
            let goes = !compared.kept.contains(&(id, index))
                && (!is_dir || self.deletes_below(child, &path, compared, sink)?);
            if goes {
                self.push(Action::Delete, kind_of(&entry), &path, 0)?;
            }
            empties &= goes;
            child += u32::from(is_dir);
        }
        Ok(empties)
    }
}

/// Whether the root itself is as it shall be.
fn same_root(head: &TreeHead, sink: &Tree, settings: Settings) -> bool {
    let same_attrs = head.root_attrs.as_attrs().same(&sink.root_attrs.as_attrs(), settings.attrs);
    same_meta(&head.root_meta, &sink.root_meta, settings) && same_attrs
}

fn kind_of(entry: &Entry<'_>) -> EntryKind {
    match entry.kind {
        Kind::File { .. } => EntryKind::File,
        Kind::Dir => EntryKind::Folder,
        Kind::Symlink { .. } => EntryKind::Link,
        Kind::Fifo => EntryKind::Fifo,
        Kind::CharDevice { .. } | Kind::BlockDevice { .. } => EntryKind::Device,
        Kind::Socket => EntryKind::Socket,
        Kind::HardLink { .. } => EntryKind::HardLink,
    }
}
