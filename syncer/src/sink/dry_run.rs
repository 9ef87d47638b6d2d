//! Dry runs: scan, compare and check like a run, and then report every action instead of carrying it out.

use contract::{DeleteTiming, PlannedAction, Report, RunParams, Side, VolumeId};

use crate::{
    destination::{ApplyError, Candidate, Settings, visible_attrs},
    measure::{
        monitor::Monitor,
        report::{Counters, Failures},
    },
    plan::{
        compare_contents::SourceHashes,
        compare_params::{count_owners, of_same_root},
        first_run_deletes, first_snapshot_room,
        free_space::Room,
        guard,
        planned::{Checked, Compared, NotEmptied, Planned, below_replaced, deletes_in, is_emptied, path_in},
        scan_params::{ScanTimes, scan_tree},
        single_file::Subject,
        source_tree::SourceTree,
    },
    session_error::SessionError,
    sink::{
        report_actions::{Judged, tell_plan},
        traits::{NoChanges, Run, SinkEnd, SourceEnd},
        tree_sink::{compare_tree_contents, compare_trees},
        verify_copy,
    },
    sys::root::{Root, TreeLocation},
    transport::TransportError,
    tree::{Tree, dir::Totals},
    wire::TreeHead,
};

/// The destination of a dry run, which need not exist. It is only read.
pub(crate) struct DryDestination {
    candidate: Option<Candidate>,
    /// The settings of the run. Support for extended attributes is not probed.
    pub settings: Settings,
    /// The folder in which the destination would be created.
    above: Option<Root>,
    /// The destination's identity.
    pub volume: Option<VolumeId>,
}

impl DryDestination {
    /// Looks at the destination, and checks that it is the one that the run is meant for. Also returns notes for the
    /// report.
    pub(crate) fn at(
        place: &TreeLocation,
        params: &RunParams,
        mut settings: Settings,
    ) -> Result<(Self, Vec<String>), SessionError> {
        let candidate = Candidate::look(place)?;
        let volume = match &candidate {
            Some(candidate) => candidate.volume()?,
            None => None,
        };
        let mut notes = guard::check_volume(params, &place.path(), volume)?;
        if let (Some(_), Some(candidate)) = (params.demands.other_source, &candidate) {
            notes.extend(guard::check_source(params, &place.path(), candidate.source()?)?);
        }
        let above = match &candidate {
            Some(candidate) => {
                candidate.check_writable()?;
                None
            }
            None => Some(Root::above_missing(place).map_err(ApplyError::Open)?),
        };
        settings.attrs = settings.attrs.and(visible_attrs());
        if let Some(candidate) = candidate.as_ref().filter(|_| settings.times) {
            settings.kept_times = candidate.kept_times();
        }
        Ok((Self { candidate, settings, above, volume }, notes))
    }

    /// Returns the root to scan; `None` if the destination does not exist.
    pub(crate) fn root(&self) -> Option<&Root> {
        self.candidate.as_ref().map(Candidate::root)
    }
}

/// A dry run after the comparison of the trees.
pub(crate) struct DryRun<'a> {
    pub params: &'a RunParams,
    pub destination: &'a DryDestination,
    pub room: Option<Room>,
    pub failures: &'a Failures,
    pub counters: &'a Counters,
    pub monitor: &'a Monitor,
}

impl DryRun<'_> {
    /// Reports the actions of the plan and counts them as if they were carried out, and then checks the plan as a run
    /// would. If the run is to verify, differences count as failures. Returns notes for the report.
    pub(crate) fn tell(
        &self,
        plan: &Planned,
        tell: &mut dyn FnMut(Vec<PlannedAction>) -> Result<(), TransportError>,
    ) -> Result<Vec<String>, SessionError> {
        let Planned { head, compared, sink, checked } = plan;
        if !self.tells() {
            self.failures.forget();
            return self.judge(plan, 0);
        }
        count_owners(self.destination.settings, head, sink, self.counters);
        let known = self.failures.count();
        self.fail_replaced(plan);
        let failed = self.failures.count();
        let keeps_back = failed > 0 && !self.params.deletes_anyway();
        // Later failures do not keep back deletes that come first.
        let deletes_first = self.params.delete_timing == DeleteTiming::Before && known == 0;
        if keeps_back {
            let deletes = |dir| match deletes_first {
                true => below_replaced(dir, sink, &compared.kept),
                false => deletes_in(dir, sink, &compared.kept),
            };
            self.counters.keep_back(compared.dirs.iter().map(deletes).sum(), failed);
        }
        let is_new = self.destination.candidate.is_none();
        let judged = Judged { is_new, keeps_back, deletes: !keeps_back || deletes_first };
        tell_plan(plan, judged, (self.params, self.destination.settings), self.counters, tell)?;
        let mut notes = self.judge(plan, known)?;
        if self.params.verify {
            let differences = verify_copy::report(compared, sink, self.failures);
            notes.extend(verify_copy::notes(None, head.totals.entries, differences, checked.changed));
        }
        Ok(notes)
    }

    /// Has the guards check the plan, given the number of entries that could not be listed or read.
    fn judge(&self, plan: &Planned, known: u64) -> Result<Vec<String>, SessionError> {
        let Planned { head, compared, sink, .. } = plan;
        let room = self.room.as_ref();
        let mut notes = guard::check(self.params, head, sink, compared, room, known, self.monitor)?;
        notes.extend(first_run_deletes::check(self.params, self.destination.root(), sink, compared)?);
        Ok(notes)
    }

    /// Records a failure for each folder that cannot be replaced, because not all entries in it may be deleted.
    fn fail_replaced(&self, Planned { compared, sink, .. }: &Planned) {
        for dir in &compared.dirs {
            for (name, id) in dir.replaced_in(sink) {
                if !is_emptied(sink, &compared.kept, id, self.params.delete) {
                    self.failures.add(&path_in(&dir.path, name), "make way", &NotEmptied);
                }
            }
        }
    }

    /// Returns whether this process reports the actions of the run: the first of the processes that share it does.
    fn tells(&self) -> bool {
        tells(self.params)
    }
}

/// Returns whether this process reports the actions for all processes that share the run.
fn tells(params: &RunParams) -> bool {
    params.shard.is_none_or(|shard| shard.index == 0)
}

/// A tree that a dry run reads.
pub(crate) struct DryTree<'a> {
    destination: DryDestination,
    subject: &'a Subject,
    /// Whether this process reports the actions for all processes that share the run.
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
                let noted = self.destination.candidate.as_ref().map(Candidate::noted).unwrap_or_default();
                let times = ScanTimes { noted, ..ScanTimes::default() };
                scan_tree(self.subject, root, run.params, Side::Sink, times, &run.failures, run.monitor)
            }
            None => Ok(Tree::empty()),
        }
    }

    fn adapt(&self, head: TreeHead, sink: &Tree, run: &Run<'_>) -> TreeHead {
        if self.subject.keeps_root(run.params) { of_same_root(head, sink) } else { head }
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
    ) -> Result<Checked, SessionError> {
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
        let mut notes = dry_run.tell(plan, &mut |actions| source.tell(run, actions))?;
        notes.extend(guard::check_renamed(self.subject, run.params, &plan.compared)?);
        let (path, asked) = (self.subject.place.path(), run.params.demands.snapshot.as_ref());
        let announced = |root| first_snapshot_room::announce(root, &path, asked, plan);
        notes.extend(self.root().and_then(announced));
        Ok(notes)
    }

    fn begin<'c>(&'c self, _: &'c Planned, _: &'c Run<'_>) -> Result<Option<NoChanges>, SessionError> {
        Ok(None)
    }

    fn give_up(&self, _: &Run<'_>) {}

    /// Returns no notes: nothing was changed, and the differences were reported with the plan.
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
