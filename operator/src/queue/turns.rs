//! Limits the number of concurrent runs, and decides which of the waiting runs comes next. Pure.
//!
//! `operator/doc/design.md` explains why the limits hold in any interleaving, and why no run waits forever.

use contract::Reason;
use std::collections::BTreeMap;

use jiff::SignedDuration;
use kube::ResourceExt as _;

use super::place::{self, Place, Recorded};
use crate::{
    api::{ActiveRun, CaptureMethod, SyncJob},
    fault::Fault,
    sets::members,
};

/// The shortest and longest interval at which a waiting run checks its position, in seconds.
const SHORTEST_LOOK_S: i64 = 10;
const LONGEST_LOOK_S: i64 = 300;

/// The maximum numbers of concurrent runs; 0 means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// In all namespaces that the operator watches.
    pub all: u32,
    /// In each namespace.
    pub namespace: u32,
    /// On each node.
    pub node: u32,
    /// Of those that have the storage capture their source: in each namespace, of each class.
    pub captures: u32,
}

impl Limits {
    /// Returns the limit, other than that on nodes, that keeps so many runs of one set from being under way together.
    pub fn below(self, of_set: u32, runs: usize) -> Option<(&'static str, u32)> {
        let limits = [
            ("spec.maxRuns of the SyncJobSet", of_set),
            ("--max-runs of the operator", self.all),
            ("--max-runs-per-namespace of the operator", self.namespace),
            ("--max-snapshots of the operator", self.captures),
        ];
        limits.into_iter().find(|(_, limit)| *limit > 0 && (*limit as usize) < runs)
    }

    /// Returns whether any limit is set.
    pub fn any(self) -> bool {
        self.all > 0 || self.namespace > 0 || self.node > 0 || self.captures > 0
    }
}

/// The maximum numbers of concurrent runs in SyncJobSets, by the sets' UIDs; 0 means no limit.
pub type SetLimits = BTreeMap<String, u32>;

/// A SyncJobSet with a limit, and that limit.
#[derive(Debug, Clone, PartialEq)]
struct Share {
    uid: String,
    name: String,
    limit: u32,
}

impl Share {
    /// Returns the limited set that owns a job. Of a set that is not known, which is being deleted, one run may be
    /// under way: its SyncJobs do not all begin while the garbage collector removes them.
    fn of(job: &SyncJob, sets: &SetLimits) -> Option<Self> {
        let owner = members::owner(job)?;
        let limit = sets.get(&owner.uid).copied().unwrap_or(1);
        (limit > 0).then(|| Self { uid: owner.uid.clone(), name: owner.name.clone(), limit })
    }
}

/// Returns whether any limit is set for runs of that job.
pub fn is_limited(job: &SyncJob, limits: Limits, sets: &SetLimits) -> bool {
    limits.any() || Share::of(job, sets).is_some()
}

/// The queue as one run sees it: all other jobs' runs that are under way or have a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    limits: Limits,
    set: Option<Share>,
    pool: Option<String>,
    /// The number of other jobs in the pool that keep a VolumeSnapshot for their next run.
    bases: usize,
    others: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq)]
struct Member {
    /// The namespace of the job first, then those of its run's claims.
    namespaces: Vec<String>,
    nodes: Vec<String>,
    set: Option<Share>,
    pool: Option<String>,
    place: Place,
    is_started: bool,
}

impl Member {
    fn of(job: &SyncJob, sets: &SetLimits) -> Option<Self> {
        let Recorded { place, run } = place::recorded(job)?;
        let (namespaces, nodes) = (namespaces(&job.namespace().unwrap_or_default(), run), run.nodes.clone());
        let (set, pool) = (Share::of(job, sets), pool(job).filter(|_| run.is_plain()));
        Some(Self { namespaces, nodes, set, pool, place, is_started: run.is_started() })
    }

    /// Orders started runs before waiting ones, and waiting ones by their places.
    fn order(&self) -> (bool, &Place) {
        (!self.is_started, &self.place)
    }
}

/// Returns the namespaces in which a run of a job of that namespace counts: that one, and those of its claims.
fn namespaces(own: &str, run: &ActiveRun) -> Vec<String> {
    let claims = run.folders();
    let mut others: Vec<String> = claims.filter_map(|folder| folder.namespace.clone()).collect();
    others.retain(|it| it != own);
    others.dedup();
    [own.to_string()].into_iter().chain(others).collect()
}

/// Returns where the storage captures the source of a job for its plain runs: the class that the job names, in its
/// namespace. `None` if they read the source itself.
fn pool(job: &SyncJob) -> Option<String> {
    let at = job.spec.source.point_in_time.as_ref()?;
    let class = match at.method {
        CaptureMethod::Snapshot => at.volume_snapshot_class_name.as_deref(),
        CaptureMethod::Clone => at.storage_class_name.as_deref(),
        CaptureMethod::Group => at.volume_group_snapshot_class_name.as_deref(),
    };
    let class = class.map_or_else(|| "the default class".into(), |class| format!("the class {class}"));
    Some(format!("{class} in the namespace {}", job.namespace().unwrap_or_default()))
}

/// The reason why a run has to wait because of the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// The message with its position and the limit.
    pub fault: Fault,
    /// The position: 1 if it is next, else 1 plus the number of runs before it.
    pub position: usize,
}

impl Queued {
    /// Returns how long the run waits before it checks its position again. A run near the head checks more often;
    /// besides, every run is woken when its turn comes.
    pub fn patience(&self) -> SignedDuration {
        let seconds = i64::try_from(self.position).unwrap_or(i64::MAX).saturating_mul(5);
        SignedDuration::from_secs(seconds.clamp(SHORTEST_LOOK_S, LONGEST_LOOK_S))
    }
}

/// The number of runs ahead in one namespace or set, of one class, on one node, or in total.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    started: usize,
    waiting: usize,
}

/// The numbers of runs ahead, counted in the order of turns.
#[derive(Debug, Default)]
struct Tally<'a> {
    nodes: BTreeMap<&'a str, Ahead>,
    sets: BTreeMap<&'a str, Ahead>,
    pools: BTreeMap<&'a str, Ahead>,
    namespaces: BTreeMap<&'a str, Ahead>,
    all: Ahead,
}

/// A limit that is used up.
struct Full {
    room: String,
    limit: u32,
    ahead: Ahead,
}

impl Line {
    /// Builds the queue of all `jobs` except the one with that UID, whose set and class count for its own run.
    pub fn new<'a>(
        uid: &str,
        jobs: impl IntoIterator<Item = &'a SyncJob>,
        limits: Limits,
        sets: &SetLimits,
    ) -> Self {
        let (mut own, mut others, mut bases) = ((None, None), Vec::new(), Vec::new());
        for job in jobs {
            if job.metadata.uid.as_deref() == Some(uid) {
                own = (Share::of(job, sets), pool(job));
            } else {
                others.extend(Member::of(job, sets));
                let keeps = job.status.as_ref().is_some_and(|status| status.change_base.is_some());
                bases.extend(keeps.then(|| pool(job)));
            }
        }
        let (set, pool) = own;
        let bases = bases.into_iter().filter(|of| pool.is_some() && *of == pool).count();
        Self { limits, set, pool, bases, others }
    }

    /// Returns the limits of this queue.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns whether the job may keep a VolumeSnapshot for its next run, in which place is left for a run of another.
    pub fn has_room_for_base(&self) -> bool {
        self.limits.captures == 0 || self.bases + 1 < self.limits.captures as usize
    }

    /// Returns why `run`, of a job in that namespace, has to wait; `None` if the limits give it its turn.
    ///
    /// Started runs count, and so do those with an earlier place, both before and after the run itself is started.
    pub fn ahead_of(&self, run: &ActiveRun, namespace: &str, place: &Place) -> Option<Queued> {
        let mut others: Vec<&Member> =
            self.others.iter().filter(|it| it.is_started || it.place < *place).collect();
        others.sort_unstable_by_key(|it| it.order());
        let mut ahead = Tally::default();
        if let Some(pool) = self.pool.as_deref() {
            // Whatever is kept, one run at a time has its turn, so that none waits forever.
            let most = (self.limits.captures as usize).saturating_sub(1);
            ahead.pools.entry(pool).or_default().started = self.bases.min(most);
        }
        others.into_iter().for_each(|other| ahead.count(other, self.limits));
        let namespaces = namespaces(namespace, run);
        let (set, pool) = (self.set.as_ref(), self.pool.as_deref().filter(|_| run.is_plain()));
        ahead.full(&namespaces, &run.nodes, set, pool, self.limits).map(|full| queued(run, &full))
    }

    /// Returns the round for a new run in that namespace: the one after the current round, plus one for each other run
    /// of the namespace. So namespaces take turns, and a waiting run is overtaken at most once in each round.
    pub fn next_round(&self, namespace: &str) -> i64 {
        if self.limits.all == 0 && self.limits.node == 0 {
            return 0;
        }
        let started = self.others.iter().filter(|it| it.is_started);
        let present = started.map(|it| it.place.round()).max().unwrap_or(0).max(0);
        let own = self.others.iter().filter(|it| it.namespaces[0] == namespace).count();
        present.saturating_add(1).saturating_add(i64::try_from(own).unwrap_or(i64::MAX))
    }
}

impl Ahead {
    fn count(&mut self, is_started: bool) {
        if is_started { self.started += 1 } else { self.waiting += 1 }
    }

    fn is_full(self, limit: u32) -> bool {
        limit > 0 && self.started + self.waiting >= limit as usize
    }
}

impl<'a> Tally<'a> {
    /// Returns the narrowest limit that leaves no room for a run of that set and class in those namespaces on those
    /// nodes.
    fn full(
        &self,
        namespaces: &[String],
        nodes: &[String],
        set: Option<&Share>,
        pool: Option<&str>,
        limits: Limits,
    ) -> Option<Full> {
        let full =
            |room: String, limit, ahead: Ahead| ahead.is_full(limit).then_some(Full { room, limit, ahead });
        let of_node = |node: &String| {
            let ahead = self.nodes.get(node.as_str()).copied().unwrap_or_default();
            full(format!("the node {node}"), limits.node, ahead)
        };
        let of_set = |set: &Share| {
            let ahead = self.sets.get(set.uid.as_str()).copied().unwrap_or_default();
            full(format!("the SyncJobSet {}", set.name), set.limit, ahead)
        };
        let of_pool = |pool: &str| {
            let ahead = self.pools.get(pool).copied().unwrap_or_default();
            full(format!("captures of {pool}"), limits.captures, ahead)
        };
        let of_namespace = |namespace: &String| {
            let ahead = self.namespaces.get(namespace.as_str()).copied().unwrap_or_default();
            full(format!("the namespace {namespace}"), limits.namespace, ahead)
        };
        let of_all = || full("all namespaces together".into(), limits.all, self.all);
        let of_namespaces = || namespaces.iter().find_map(of_namespace);
        let of_node = || nodes.iter().find_map(of_node);
        of_node().or_else(|| of_set(set?)).or_else(|| of_pool(pool?)).or_else(of_namespaces).or_else(of_all)
    }

    /// Counts the next run in order. A run that its node holds back takes no room from its set, one that either holds
    /// back takes none from its class, and so on for its namespace and the total, so that other runs can use it.
    fn count(&mut self, member: &'a Member, limits: Limits) {
        let is_started = member.is_started;
        let mut has_room = true;
        for node in &member.nodes {
            let ahead = self.nodes.entry(node).or_default();
            has_room &= !ahead.is_full(limits.node);
            ahead.count(is_started);
        }
        if let Some(set) = member.set.as_ref().filter(|_| is_started || has_room) {
            let ahead = self.sets.entry(&set.uid).or_default();
            has_room &= !ahead.is_full(set.limit);
            ahead.count(is_started);
        }
        if let Some(pool) = member.pool.as_deref().filter(|_| is_started || has_room) {
            let ahead = self.pools.entry(pool).or_default();
            has_room &= !ahead.is_full(limits.captures);
            ahead.count(is_started);
        }
        if is_started || has_room {
            has_room = true;
            for namespace in &member.namespaces {
                let ahead = self.namespaces.entry(namespace).or_default();
                has_room &= !ahead.is_full(limits.namespace);
                ahead.count(is_started);
            }
        }
        if is_started || has_room {
            self.all.count(is_started);
        }
    }
}

/// Returns the waiting jobs whose runs may have their turn now, in order. These are woken when a run ends.
pub fn next_in_line<'a>(
    jobs: impl IntoIterator<Item = &'a SyncJob>,
    limits: Limits,
    sets: &SetLimits,
) -> Vec<&'a SyncJob> {
    let mut members: Vec<(Member, &SyncJob)> =
        jobs.into_iter().filter_map(|job| Some((Member::of(job, sets)?, job))).collect();
    members.sort_unstable_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
    let mut ahead = Tally::default();
    let mut next = Vec::new();
    for (member, job) in &members {
        let Member { namespaces, nodes, set, pool, is_started, .. } = member;
        let (set, pool) = (set.as_ref(), pool.as_deref());
        if !is_started && ahead.full(namespaces, nodes, set, pool, limits).is_none() {
            next.push(*job);
        }
        ahead.count(member, limits);
    }
    next
}

fn queued(run: &ActiveRun, full: &Full) -> Queued {
    let Full { room, limit, ahead } = full;
    let position = ahead.waiting + 1;
    let message = format!(
        "Run {} is number {position} in the queue: {room} may have {limit} under way at a time, and {} are. Waiting uses up \
         neither retries nor spec.limits.timeout.",
        run.id, ahead.started
    );
    Queued { fault: Fault::new(Reason::Queued, message), position }
}

#[cfg(test)]
mod tests;
