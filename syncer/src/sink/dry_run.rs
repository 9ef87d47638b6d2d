//! Dry runs: scan, compare and check like a run, and then report every action instead of carrying it out.

use contract::{Side, VolumeId};

use crate::{
    destination::{ApplyError, Candidate, Settings, visible_attrs},
    measure::report::NOTES,
    plan::{
        compare_params::count_owners,
        guards::{
            self, expected_volume::check_volume, first_snapshot_room, free_space::Room,
            other_source::check_source, renamed_file,
        },
        planned::{NotArrived, NotEmptied, Planned, below_replaced, deletes_in},
        run_state::Run,
        scan_params::{ScanTimes, scan_tree},
        single_file::Subject,
    },
    session_error::SessionError,
    sink::{
        compare_run::Onto,
        report_actions::{Judged, ReportActions, names_of_staying, report_plan},
        source_end::SourceEnd,
        verify_copy,
    },
    sys::root::{Root, TreeLocation},
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
    /// Looks at the destination, and checks that it is the one that the run is meant for. Adds notes to the report.
    pub(crate) fn at(
        place: &TreeLocation,
        mut settings: Settings,
        run: &Run<'_>,
    ) -> Result<Self, SessionError> {
        let params = run.params;
        let candidate = Candidate::find(place)?;
        let volume = match &candidate {
            Some(candidate) => candidate.volume()?,
            None => None,
        };
        let mut notes = check_volume(params, &place.path(), volume)?;
        if let (Some(_), Some(candidate)) = (params.demands.other_source, &candidate) {
            notes.extend(check_source(params, &place.path(), candidate.source()?)?);
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
        run.note(notes);
        Ok(Self { candidate, settings, above, volume })
    }

    /// Returns the root to scan; `None` if the destination does not exist.
    pub(crate) fn root(&self) -> Option<&Root> {
        self.candidate.as_ref().map(Candidate::root)
    }
}

/// A tree that a dry run reads.
pub(crate) struct DryTree<'a> {
    destination: DryDestination,
    subject: &'a Subject,
    run: &'a Run<'a>,
}

impl<'a> DryTree<'a> {
    /// Opens the destination, and adds the notes about it to the report.
    pub(crate) fn open(
        subject: &'a Subject,
        settings: Settings,
        run: &'a Run<'a>,
    ) -> Result<Self, SessionError> {
        Ok(Self { destination: DryDestination::at(&subject.place, settings, run)?, subject, run })
    }

    /// Returns the destination as a comparison sees it.
    pub(crate) fn onto(&self) -> Onto<'_> {
        let (root, settings) = (self.destination.root(), self.destination.settings);
        Onto { root, settings, subject: self.subject, run: self.run }
    }

    /// Scans the destination, if it exists.
    pub(crate) fn scan(&self) -> Result<Tree, SessionError> {
        let Some(candidate) = &self.destination.candidate else { return Ok(Tree::empty()) };
        let Run { params, failures, monitor, .. } = self.run;
        let times = ScanTimes { noted: candidate.noted(), ..ScanTimes::default() };
        scan_tree(self.subject, candidate.root(), params, Side::Sink, times, failures, monitor)
    }

    /// Shows the actions of the plan and counts them as if they were carried out, and then checks the plan as a run
    /// would: so the user sees which actions are refused. If the run is to verify, differences count as failures.
    /// Returns notes for the report.
    pub(crate) fn show(
        &self,
        plan: &Planned,
        source: &mut impl SourceEnd,
    ) -> Result<Vec<String>, SessionError> {
        let Run { params, failures, .. } = self.run;
        let root = self.destination.root();
        let room = root.or(self.destination.above.as_ref()).and_then(|root| source.room(root));
        let known = if self.leads() { failures.count() } else { 0 };
        if self.leads() {
            self.report(plan, &mut |actions| source.report_actions(self.run, actions))?;
        } else {
            failures.forget();
        }
        let mut notes = self.guard(plan, room.as_ref(), known)?;
        let Planned { head, compared, sink, checked } = plan;
        if params.verify && self.leads() {
            let differences = verify_copy::report(compared, sink, failures);
            notes.extend(verify_copy::notes(
                None,
                head.totals.entries,
                compared.left_out,
                differences,
                checked.changed,
            ));
        }
        notes.extend(renamed_file::check_renamed(self.subject, params, compared)?);
        let (path, asked) = (self.subject.place.path(), params.demands.snapshot.as_ref());
        let room_note = root.and_then(|root| first_snapshot_room::note(root, &path, asked, plan));
        room_note.iter().for_each(|note| tracing::warn!(target: NOTES, "{note}"));
        notes.extend(room_note);
        failures.add_those_put_off();
        Ok(notes)
    }

    fn report(&self, plan: &Planned, report: &mut ReportActions<'_>) -> Result<(), SessionError> {
        let Run { params, failures, counters, .. } = self.run;
        let Planned { head, compared, sink, .. } = plan;
        count_owners(self.destination.settings, head, sink, counters);
        let judged = Judged::of(plan, params, failures, self.destination.candidate.is_none());
        let blocked = plan.blocked_by_folders(params.delete);
        blocked.for_each(|path| failures.add(&path, "make way", &NotEmptied));
        if judged.keeps_back {
            let deletes = |dir| {
                if judged.deletes {
                    below_replaced(dir, sink, &compared.kept)
                } else {
                    deletes_in(dir, sink, &compared.kept)
                }
            };
            counters.keep_back(compared.dirs.iter().map(deletes).sum(), failures.count());
        }
        for (path, first) in names_of_staying(plan, judged, params.delete) {
            failures.add(&path, "link", &NotArrived(first));
        }
        Ok(report_plan(plan, judged, params, self.destination.settings, counters, report)?)
    }

    /// Has the guards check the plan, given the number of entries that could not be listed or read.
    fn guard(&self, plan: &Planned, room: Option<&Room>, known: u64) -> Result<Vec<String>, SessionError> {
        let Run { params, monitor, restores_in_place: in_place, .. } = self.run;
        guards::check(params, plan, self.destination.root(), room, known, *in_place, monitor)
    }

    /// Returns whether this process reports the actions for all processes that share the run.
    fn leads(&self) -> bool {
        self.run.params.shard.is_none_or(|shard| shard.index == 0)
    }

    /// Returns the share of the source's totals that this process reports.
    pub(crate) fn totals(&self, head: &TreeHead) -> Totals {
        if self.leads() { head.totals } else { Totals::default() }
    }

    /// Returns the destination's identity.
    pub(crate) fn volume(&self) -> Option<VolumeId> {
        self.destination.volume
    }
}
