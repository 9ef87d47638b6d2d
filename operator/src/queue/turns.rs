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

/// What a run counts for.
#[derive(Debug, Clone, PartialEq)]
struct Rooms {
    /// The namespace of the job first, then those of its run's claims.
    namespaces: Vec<String>,
    nodes: Vec<String>,
    set: Option<Share>,
    pool: Option<String>,
}

impl Rooms {
    /// Returns the rooms of a run of a job in that namespace, of that set, with the pool of its plain runs.
    fn of(run: &ActiveRun, namespace: &str, set: Option<Share>, pool: Option<String>) -> Self {
        let claims = run.folders();
        let mut others: Vec<String> = claims.filter_map(|folder| folder.namespace.clone()).collect();
        others.retain(|it| it != namespace);
        others.dedup();
        let namespaces = [namespace.to_string()].into_iter().chain(others).collect();
        Self { namespaces, nodes: run.nodes.clone(), set, pool: pool.filter(|_| run.is_plain()) }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Member {
    rooms: Rooms,
    place: Place,
    is_started: bool,
}

impl Member {
    fn of(job: &SyncJob, sets: &SetLimits) -> Option<Self> {
        let Recorded { place, run } = place::recorded(job)?;
        let namespace = job.namespace().unwrap_or_default();
        let rooms = Rooms::of(run, &namespace, Share::of(job, sets), pool(job));
        Some(Self { rooms, place, is_started: run.is_started() })
    }

    /// Orders started runs before waiting ones, and waiting ones by their places.
    fn order(&self) -> (bool, &Place) {
        (!self.is_started, &self.place)
    }
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
    limits: Limits,
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

    /// Returns whether others wait for their turn.
    pub fn has_waiting(&self) -> bool {
        self.others.iter().any(|other| !other.is_started)
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
        let mut ahead = Tally { limits: self.limits, ..Tally::default() };
        if let Some(pool) = self.pool.as_deref() {
            // Whatever is kept, one run at a time has its turn, so that none waits forever.
            let most = (self.limits.captures as usize).saturating_sub(1);
            ahead.pools.entry(pool).or_default().started = self.bases.min(most);
        }
        others.into_iter().for_each(|other| ahead.count(other));
        let rooms = Rooms::of(run, namespace, self.set.clone(), self.pool.clone());
        ahead.full(&rooms).map(|full| queued(run, &full))
    }

    /// Returns the round for a new run in that namespace: the one after the current round, plus one for each other run
    /// of the namespace. So namespaces take turns, and a waiting run is overtaken at most once in each round.
    pub fn next_round(&self, namespace: &str) -> i64 {
        if self.limits.all == 0 && self.limits.node == 0 {
            return 0;
        }
        let started = self.others.iter().filter(|it| it.is_started);
        let present = started.map(|it| it.place.round()).max().unwrap_or(0).max(0);
        let own = self.others.iter().filter(|it| it.rooms.namespaces[0] == namespace).count();
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
    /// Returns the narrowest limit that leaves no room for a run.
    fn full(&self, Rooms { namespaces, nodes, set, pool }: &Rooms) -> Option<Full> {
        let limits = self.limits;
        let full =
            |room: String, limit, ahead: Ahead| ahead.is_full(limit).then_some(Full { room, limit, ahead });
        let of = |counted: &BTreeMap<&str, Ahead>, room: &str| counted.get(room).copied().unwrap_or_default();
        let of_node = |node: &String| full(format!("the node {node}"), limits.node, of(&self.nodes, node));
        let of_set =
            |set: &Share| full(format!("the SyncJobSet {}", set.name), set.limit, of(&self.sets, &set.uid));
        let of_pool =
            |pool: &String| full(format!("captures of {pool}"), limits.captures, of(&self.pools, pool));
        let of_namespace = |namespace: &String| {
            full(format!("the namespace {namespace}"), limits.namespace, of(&self.namespaces, namespace))
        };
        let on_nodes = nodes.iter().find_map(of_node);
        let narrow = on_nodes.or_else(|| of_set(set.as_ref()?)).or_else(|| of_pool(pool.as_ref()?));
        let wide = || full("all namespaces together".into(), limits.all, self.all);
        narrow.or_else(|| namespaces.iter().find_map(of_namespace)).or_else(wide)
    }

    /// Counts the next run in order. A run that its node holds back takes no room from its set, one that either holds
    /// back takes none from its class, and so on for its namespace and the total, so that other runs can use it.
    fn count(&mut self, Member { rooms, is_started, .. }: &'a Member) {
        let (limits, is_started) = (self.limits, *is_started);
        let mut has_room = true;
        for node in &rooms.nodes {
            let ahead = self.nodes.entry(node).or_default();
            has_room &= !ahead.is_full(limits.node);
            ahead.count(is_started);
        }
        if let Some(set) = rooms.set.as_ref().filter(|_| is_started || has_room) {
            let ahead = self.sets.entry(&set.uid).or_default();
            has_room &= !ahead.is_full(set.limit);
            ahead.count(is_started);
        }
        if let Some(pool) = rooms.pool.as_deref().filter(|_| is_started || has_room) {
            let ahead = self.pools.entry(pool).or_default();
            has_room &= !ahead.is_full(limits.captures);
            ahead.count(is_started);
        }
        if is_started || has_room {
            has_room = true;
            for namespace in &rooms.namespaces {
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
    let mut ahead = Tally { limits, ..Tally::default() };
    let mut next = Vec::new();
    for (member, job) in &members {
        if !member.is_started && ahead.full(&member.rooms).is_none() {
            next.push(*job);
        }
        ahead.count(member);
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
