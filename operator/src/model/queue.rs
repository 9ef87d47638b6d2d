//! How many runs are under way at a time, and which of those that are due comes next. Pure.
//!
//! `operator/doc/design.md` explains why the limits hold whatever happens at a time, and why no run waits for ever.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::place::{self, Place};
use crate::{
    api::{ActiveRun, SyncJob, conditions::reason},
    fault::Fault,
};

/// The most runs that are under way at a time; 0 stands for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// In all namespaces that the operator watches.
    pub all: u32,
    /// In each namespace.
    pub namespace: u32,
}

impl Limits {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self.all > 0 || self.namespace > 0
    }
}

/// The runs of all other jobs that are under way or have a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    limits: Limits,
    others: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq)]
struct Member {
    namespace: String,
    place: Place,
    is_started: bool,
}

/// Why a run has to wait for the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Its position, 1 for the next one, and the limit, in words.
    pub fault: Fault,
    /// How many runs have their turn before it, plus one.
    pub position: usize,
}

/// What is ahead of a run in one namespace.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    started: usize,
    waiting: usize,
}

impl Line {
    /// The line of all `jobs` but the one with that UID.
    pub fn new<'a>(uid: &str, jobs: impl IntoIterator<Item = &'a SyncJob>, limits: Limits) -> Self {
        let member = |job: &SyncJob| {
            let (place, run) = place::recorded(job)?;
            let namespace = job.namespace().unwrap_or_default();
            Some(Member { namespace, place, is_started: run.is_started() })
        };
        let others = jobs.into_iter().filter_map(member).filter(|it| it.place.uid() != uid);
        Self { limits, others: others.collect() }
    }

    /// The limits that hold for it.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Says why `run`, of a job of that namespace, has to wait; `None`: the limits leave it its turn.
    ///
    /// Runs that have been started count, and so do those with an earlier place, before and after the run itself is
    /// started.
    pub fn ahead_of(&self, run: &ActiveRun, namespace: &str, place: &Place) -> Option<Queued> {
        let limits = self.limits;
        let mut ahead: BTreeMap<&str, Ahead> = BTreeMap::new();
        for other in self.others.iter().filter(|it| it.is_started || it.place < *place) {
            let there = ahead.entry(&other.namespace).or_default();
            if other.is_started { there.started += 1 } else { there.waiting += 1 }
        }
        let own = ahead.get(namespace).copied().unwrap_or_default();
        if is_full(own.started + own.waiting, limits.namespace) {
            return Some(queued(run, &format!("the namespace {namespace}"), limits.namespace, own));
        }
        let taken = ahead.values().map(|there| there.to_come(limits.namespace)).sum();
        let all = ahead.values().fold(Ahead::default(), Ahead::plus);
        is_full(taken, limits.all).then(|| queued(run, "all namespaces together", limits.all, all))
    }

    /// Finds the round for a new run of that namespace: after the one that has its turn, and one later for each run of
    /// the namespace that is there. So namespaces take turns, and a run that waits is overtaken at most once in each
    /// round.
    pub fn next_round(&self, namespace: &str) -> i64 {
        if self.limits.all == 0 {
            return 0;
        }
        let started = self.others.iter().filter(|it| it.is_started);
        let present = started.map(|it| it.place.round()).max().unwrap_or(0).max(0);
        let own = self.others.iter().filter(|it| it.namespace == namespace).count();
        present.saturating_add(1).saturating_add(i64::try_from(own).unwrap_or(i64::MAX))
    }
}

impl Ahead {
    fn plus(self, other: &Self) -> Self {
        Self { started: self.started + other.started, waiting: self.waiting + other.waiting }
    }

    /// How many of these can be under way at once, with that limit of a namespace.
    fn to_come(self, limit: u32) -> usize {
        let all = self.started + self.waiting;
        if limit == 0 { all } else { all.min(limit as usize).max(self.started) }
    }
}

/// The jobs whose runs wait and may have their turn now, in its order; whom to wake when a run is over.
pub fn next_in_line<'a>(jobs: impl IntoIterator<Item = &'a SyncJob>, limits: Limits) -> Vec<&'a SyncJob> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let (mut all, mut waiting) = (0, Vec::new());
    for (job, (place, run)) in jobs.into_iter().filter_map(|job| Some((job, place::recorded(job)?))) {
        if run.is_started() {
            *taken.entry(job.namespace().unwrap_or_default()).or_default() += 1;
            all += 1;
        } else {
            waiting.push((place, job));
        }
    }
    waiting.sort_by(|a, b| a.0.cmp(&b.0));
    let mut next = Vec::new();
    for (_, job) in waiting {
        if is_full(all, limits.all) {
            break;
        }
        let own = taken.entry(job.namespace().unwrap_or_default()).or_default();
        if !is_full(*own, limits.namespace) {
            (*own, all) = (*own + 1, all + 1);
            next.push(job);
        }
    }
    next
}

fn is_full(count: usize, limit: u32) -> bool {
    limit > 0 && count >= limit as usize
}

fn queued(run: &ActiveRun, room: &str, limit: u32, ahead: Ahead) -> Queued {
    let position = ahead.waiting + 1;
    let message = format!(
        "Run {} is number {position} in the queue: {room} may have {limit} under way at a time, and {} are. Waiting uses up \
         neither retries nor spec.limits.timeout.",
        run.id, ahead.started
    );
    Queued { fault: Fault::new(reason::QUEUED, message), position }
}

#[cfg(test)]
mod tests;
