//! Combines a job with everything that was read for it, for the step that decides.

use contract::{OtherSource, Side};
use jiff::Timestamp;
use kube::{Client, ResourceExt};

use super::dereference::Dereferenced;
use crate::{
    api::{ActiveRun, Hook, Hooks, JobIdentity, SyncJob, SyncJobStatus, SyncRunStatus},
    ends::{
        destination_identity,
        source_identity::{self, SourceNow},
    },
    fault::Fault,
    hooks::hook_state::{self, Point},
    names::{self, TryNames},
    pods::{
        Settings,
        children::{Children, Reported},
        cleanup::{self, ChildOwner, CleanupError},
        kept_for_logs,
        pod_state::EndState,
        stored_fields::Job,
    },
    queue::{place::Place, turns::Line},
    run::{
        benchmark,
        run_annotations::RunNames,
        shard_pairs::Pair,
        stages::{
            situation::{Demand, Situation, Subject, Turn},
            step::{ClaimStep, HookStep, Step},
        },
    },
    spec::{spec_hash, validate::ValidatedSyncJob},
    volumes::{
        claim_creation,
        claim_growth::{self, Growth},
        claim_sharing,
        claims::{self, Blocked},
    },
};

/// What a reconciliation goes by.
pub(crate) struct Inspected {
    pub(crate) found: Dereferenced,
    /// The SyncJob as it may be run, or the reason why it may not.
    pub(crate) valid: Result<ValidatedSyncJob, Fault>,
    /// The status, with what a person has accepted since it was written.
    pub(crate) status: SyncJobStatus,
    pub(crate) now: Timestamp,
}

/// A job as seen by one reconciliation.
pub(crate) struct View<'a> {
    pub(crate) job: &'a SyncJob,
    pub(crate) subject: Subject,
    pub(crate) valid: &'a Result<ValidatedSyncJob, Fault>,
    pub(crate) status: &'a SyncJobStatus,
    pub(crate) found: &'a Dereferenced,
    pub(crate) now: Timestamp,
    image: &'a str,
    /// The names of the current try of the run under way.
    pub(crate) active_names: Option<TryNames>,
}

impl<'a> View<'a> {
    pub(crate) fn new(job: &'a SyncJob, seen: &'a Inspected, settings: &'a Settings) -> Self {
        let Inspected { found, valid, status, now } = seen;
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        let names = |run: &ActiveRun| TryNames::new(&name, &uid, run.number, run.past_tries());
        Self {
            active_names: status.active_run.as_ref().map(names),
            subject: Subject {
                namespace: job.namespace().unwrap_or_default(),
                generation: job.metadata.generation.unwrap_or(0),
                spec_hash: spec_hash::of(&job.spec),
                uid,
                name,
            },
            job,
            valid,
            status,
            found,
            now: *now,
            image: &settings.image.name,
        }
    }

    /// Returns the run under way.
    pub(crate) fn active(&self) -> Option<&'a ActiveRun> {
        self.status.active_run.as_ref()
    }

    /// Returns the job's UID.
    pub(crate) fn uid(&self) -> &str {
        &self.subject.uid
    }

    /// Returns the tries that are over and still have objects.
    fn leftovers(&self) -> Vec<TryNames> {
        self.leftovers_of(&self.found.children, self.active_names.as_ref())
    }

    fn leftovers_of(&self, children: &Children, current: Option<&TryNames>) -> Vec<TryNames> {
        let owner = self.owner();
        children.leftovers(current, |job| owner.owns(job))
    }

    /// Returns whether, after the status `written`, no objects of past tries are left, except those that are kept for
    /// readers of logs.
    pub(crate) fn is_swept(&self, written: &SyncJobStatus) -> bool {
        let job = SyncJob { status: Some(written.clone()), ..self.job.clone() };
        let mut children = self.found.children.clone();
        kept_for_logs::take(&mut children, &job, &self.found.claims);
        let current = self.active_names.as_ref().filter(|_| written.active_run.is_some());
        self.leftovers_of(&children, current).is_empty()
    }

    /// Returns the status message about the remaining objects of earlier tries; `None` if none remain.
    fn farewell(&self) -> Option<String> {
        let labels: Vec<String> = self.leftovers().iter().map(TryNames::label).collect();
        let pods = self.found.children.pods.iter();
        let pods =
            pods.filter(|pod| pod.labels().get(names::LABEL_TRY).is_some_and(|it| labels.contains(it)));
        (!labels.is_empty()).then(|| cleanup::farewell(&pods.collect::<Vec<_>>(), self.now))
    }

    /// Returns the hooks of the run under way, as its SyncRun recorded them at its start; those of the SyncJob if the
    /// SyncRun is gone, and this process has not seen it begin them. Restores and benchmarks have none.
    pub(crate) fn hooks(&self) -> Option<&Hooks> {
        self.active().filter(|run| run.is_plain())?;
        let record = self.found.run.as_ref().or(self.found.owing.as_ref());
        let recorded = record.and_then(|run| run.spec.job.as_ref());
        recorded.unwrap_or(&self.job.spec).hooks.as_ref()
    }

    /// Returns whether neither the spec nor the run under way has hooks.
    pub(crate) fn is_without_hooks(&self) -> bool {
        self.job.spec.hooks.is_none() && self.hooks().is_none()
    }

    /// Returns the hook `before` for which pods that are launched now have to wait.
    pub(crate) fn awaited_hook(&self, valid: &ValidatedSyncJob) -> Option<&Hook> {
        hook_state::awaited(self.active()?, self.hooks()?, valid.capture.is_some())
    }

    fn is_free(&self) -> bool {
        let free = self.run_status().and_then(|status| status.free.as_ref());
        self.active().zip(free).is_some_and(|(run, free)| free.len() >= run.pod_count())
    }

    /// Returns the status of the SyncRun of the run under way.
    fn run_status(&self) -> Option<&SyncRunStatus> {
        self.found.run.as_ref()?.status.as_ref()
    }

    /// Returns when the last process of the current try began; `None` unless all have begun.
    pub(crate) fn ran_since(&self) -> Option<Timestamp> {
        self.found.children.ran_since(self.active_names.as_ref()?, self.active()?.pod_count())
    }

    fn is_outdated(&self) -> bool {
        let is = |(run, names): (&ActiveRun, &TryNames)| {
            let placements = &self.found.placements;
            let placements = if run.local { placements.in_one_pod() } else { placements.clone() };
            self.found.children.is_outdated(names, run.generation, self.image, &placements)
        };
        self.active().zip(self.active_names.as_ref()).is_some_and(is)
    }

    /// Returns the owner whose children may be removed: the job's SyncRuns.
    fn owner(&self) -> ChildOwner {
        let runs = self.found.runs.iter().filter_map(|run| run.uid());
        let active = self.found.run.as_ref().and_then(ResourceExt::uid);
        ChildOwner {
            namespace: self.subject.namespace.clone(),
            uid: self.subject.uid.clone(),
            runs: runs.chain(active).collect(),
        }
    }

    /// Returns the Jobs that are still to be removed: of past tries, and of the current try or end if the step
    /// withdraws it.
    pub(crate) fn doomed(&self, step: &Step) -> Vec<&'a Job> {
        let mut tries = self.leftovers();
        // While `before` goes on, its pods wait for it, and would begin at its end.
        let ends_waiting = self.found.facts.withdrawn.is_some()
            && matches!(step, Step::Hook(HookStep::Await(Point::Before)));
        let stops =
            matches!(step, Step::Withdraw | Step::Halt(_) | Step::Hook(HookStep::Begin { stops: true, .. }));
        // Of a try that gives its place up before it ran. One that found a volume in use is over.
        let gives_place = matches!(step, Step::Postpone(..))
            && self.active().is_some_and(|run| run.pods_ready_time.is_none());
        // Pods that were made before the API server refused another one are known only now.
        let is_stopped = matches!(step, Step::Hook(HookStep::Await(Point::After)))
            && self.active().and_then(|run| run.hooks.as_ref()).is_some_and(|it| it.stopped.is_some());
        if stops || gives_place || ends_waiting || is_stopped {
            tries.extend(self.active_names.clone());
        }
        let mut doomed = cleanup::due(&self.owner(), &self.found.children, &tries);
        if let (Step::Dismiss(side, _), Some(names)) = (step, &self.active_names) {
            doomed.extend(self.found.children.job_of(names, *side).filter(|job| self.owner().owns(*job)));
        }
        doomed
    }

    /// Deletes these Jobs with their pods.
    pub(crate) async fn sweep(&self, client: &Client, doomed: &[&Job]) -> Result<(), CleanupError> {
        cleanup::sweep(client, &self.owner(), &self.found.children, doomed).await
    }

    /// Deletes the objects of the last run that were kept for readers of logs.
    pub(crate) async fn let_go(&self, client: &Client) -> Result<(), CleanupError> {
        cleanup::discard(client, &self.owner(), &self.found.outgoing).await
    }

    /// Returns the ends of the run under way that have no pods, or will have none after this step.
    pub(crate) fn absent_ends(&self, step: &Step) -> impl Iterator<Item = Side> {
        let pairs = self.pairs();
        let dismissed = if let Step::Dismiss(side, _) = step { Some(*side) } else { None };
        [Side::Source, Side::Sink].into_iter().filter(move |side| {
            dismissed == Some(*side) || pairs.iter().all(|pair| *pair.of(*side) == EndState::Absent)
        })
    }

    /// Returns the input of the plan.
    pub(crate) fn situation(&'a self) -> Situation<'a> {
        Situation {
            job: &self.subject,
            status: self.status,
            facts: &self.found.facts,
            demand: self.demand(),
            claims: self.claims(),
            not_granted: self.not_granted(),
            claim_step: self.claim_step(),
            lost: self.found.lost(),
            is_new_destination: self.is_new_destination(),
            is_accepted: self.job.status.as_ref().is_some_and(|it| it.destination != self.status.destination),
            turn: self.active().map_or(Turn::Unknown, |run| self.turn_of(run)),
            keeps_others_waiting: self.found.line.as_ref().is_some_and(Line::has_waiting),
            is_canceled: self.is_canceled(),
            refused: self.refused(),
            hooks: self.hooks(),
            is_free: self.is_free(),
            progress: self.run_status().and_then(|status| status.progress.as_ref()),
            pairs: self.pairs(),
            leftovers: self.farewell(),
            outdated: self.is_outdated(),
            overdue: self.active_names.as_ref().and_then(|it| self.found.children.overdue_at(it, self.now)),
            now: self.now,
        }
    }

    /// Returns the demands of the spec, with the grants by which its claims are used.
    fn demand(&self) -> Result<Demand, Fault> {
        let mut demand = self.valid.as_ref().map(Demand::from).map_err(Clone::clone)?;
        let grant = |side| self.found.ends.of(side).grant().map(|grant| grant.name.clone());
        (demand.source.grant, demand.destination.grant) = (grant(Side::Source), grant(Side::Sink));
        Ok(demand)
    }

    fn is_canceled(&self) -> bool {
        let canceled = self.job.annotations().get(names::ANNOTATION_CANCEL);
        let names = self.active().map(RunNames::from);
        names.zip(canceled).is_some_and(|(run, canceled)| run.is_meant(canceled, &self.subject.name))
    }

    fn refused(&self) -> Option<Fault> {
        benchmark::refusal(self.active(), self.valid.as_ref().ok()?, &self.found.claims)
    }

    fn is_new_destination(&self) -> bool {
        let uid = self.found.destination_uid();
        self.valid.as_ref().is_ok_and(|valid| destination_identity::is_new(self.status, valid, uid))
    }

    /// Returns whether `run` of this job has its turn, or which other run comes first.
    pub(crate) fn turn_of(&self, run: &ActiveRun) -> Turn {
        let Subject { namespace, name, uid, .. } = &self.subject;
        let rivals = self.found.rivals.as_ref();
        if let Some(fault) = rivals.and_then(|rivals| rivals.ahead_of(run, name, uid, self.now)) {
            return Turn::Taken(fault);
        }
        let line = self.found.line.as_ref().zip(Place::of(run, name, uid));
        let queued = line.and_then(|(line, place)| line.ahead_of(run, namespace, &place));
        match queued {
            Some(queued) => Turn::Queued(queued),
            None if rivals.is_none() => Turn::Unknown,
            None => Turn::Free,
        }
    }

    /// Returns why a claim of another namespace may not be used. If that has ended the last run, its words stay, which
    /// name the grant.
    fn not_granted(&self) -> Option<Fault> {
        let fault = self.found.ends.refusal()?.fault;
        let last = self.status.last_run.as_ref().filter(|_| self.status.active_run.is_none());
        let last = last.filter(|run| run.reason.as_ref() == Some(&fault.reason));
        let words = last.and_then(|run| run.message.clone());
        Some(words.map_or(fault.clone(), |words| Fault::new(fault.reason, words)))
    }

    fn claims(&self) -> Result<(), Blocked> {
        let valid = self.valid;
        if let Some(fault) = self.not_granted() {
            return Err(Blocked::Stalled(fault));
        }
        let (pods, is_local) = valid.as_ref().map_or((1, true), |valid| (valid.parallelism, valid.is_local));
        let check = |claim| claims::check(claim).and_then(|()| claim_sharing::check_sharing(claim, pods));
        self.found.claims.iter().try_for_each(check)?;
        claim_sharing::check_both_ends(&self.found.claims, is_local)?;
        if let Ok(valid) = valid {
            source_identity::check(self.status, valid, self.source_now())?;
        }
        match valid.as_ref().map(|valid| self.growth(valid)) {
            Ok(Growth::Blocked(blocked)) => Err(blocked),
            _ => Ok(()),
        }
    }

    /// Returns whether the destination refuses another source than that of its copy.
    pub(crate) fn other_source(&self, valid: &ValidatedSyncJob, run: &ActiveRun) -> Option<OtherSource> {
        source_identity::rule(self.status, valid, run, self.source_now(), self.found.shared.is_none())
    }

    fn source_now(&self) -> SourceNow<'_> {
        let accepted = self.job.annotations().get(names::ANNOTATION_ACCEPT_SOURCE).map(String::as_str);
        let is_copy = self.found.is_source_a_copy;
        SourceNow { claims: &self.found.claims, accepted, is_copy }
    }

    /// Returns the key for endpoints that the pod of the run under way tells of.
    pub(crate) fn identity(&self) -> Option<JobIdentity> {
        self.run_status()?.identity
    }

    /// Returns whether the run's pod has to be able to keep a new key of the job in a Secret.
    pub(crate) fn makes_key(&self, valid: &ValidatedSyncJob) -> bool {
        let has_own = valid.remote().is_some_and(|remote| remote.identity.is_none());
        has_own && self.status.identity.or(self.identity()).is_none()
    }

    fn claim_step(&self) -> Option<ClaimStep> {
        let valid = self.valid.as_ref().ok()?;
        if claim_creation::due(valid, &self.found.claims).is_some() {
            return Some(ClaimStep::Create);
        }
        matches!(self.growth(valid), Growth::Due(_)).then_some(ClaimStep::Grow)
    }

    fn growth(&self, valid: &ValidatedSyncJob) -> Growth {
        claim_growth::judge(valid.create.as_ref(), &self.found.claims)
    }

    /// Returns the two ends of each shard of the run under way. If one pod serves both ends, it appears as both.
    fn pairs(&self) -> Vec<Pair> {
        let (Some(run), Some(names)) = (self.active(), &self.active_names) else { return Vec::new() };
        let try_id = names::try_id(&run.id, run.past_tries());
        let reports = self.run_status().and_then(|status| status.ends.as_ref());
        let seen = Reported { reports, warnings: &self.found.warnings, now: self.now };
        let end = |side, shard| self.found.children.end_state(side, shard, names, &try_id, seen);
        let pair = |shard| match run.only_side() {
            Some(side) => {
                let both = end(side, shard);
                Pair { source: both.clone(), sink: both }
            }
            None => Pair::each(|side| end(side, shard)),
        };
        match run.shard_count() {
            1 => vec![pair(None)],
            count => (0..count).map(|shard| pair(Some(shard))).collect(),
        }
    }
}
