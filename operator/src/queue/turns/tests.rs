use contract::ContentHash;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use proptest::prelude::*;

use super::*;
use crate::api::{ChangeBase, PointInTime, SyncJobSpec, SyncJobStatus};

fn at(second: i64) -> MicroTime {
    MicroTime(Timestamp::from_second(1_800_000_000 + second).unwrap())
}

/// Returns a run of that round with a place since that second.
fn run(round: i64, queued: i64) -> ActiveRun {
    ActiveRun { id: "own-1".into(), queue_round: round, queue_time: Some(at(queued)), ..ActiveRun::default() }
}

fn started(run: ActiveRun) -> ActiveRun {
    ActiveRun { start_time: Some(at(0)), ..run }
}

/// Returns a job with that name, given as `namespace/name`.
fn job(name: &str, run: ActiveRun) -> SyncJob {
    let (namespace, name) = name.split_once('/').unwrap();
    let mut job = SyncJob::new(name, SyncJobSpec::default());
    job.metadata.namespace = Some(namespace.into());
    job.metadata.uid = Some(format!("uid-of-{namespace}-{name}"));
    job.status = Some(SyncJobStatus { active_run: Some(run), ..SyncJobStatus::default() });
    job
}

/// Returns `run` with volumes on these nodes.
fn on(nodes: &[&str], run: ActiveRun) -> ActiveRun {
    ActiveRun { nodes: nodes.iter().map(ToString::to_string).collect(), ..run }
}

const fn limits(all: u32, namespace: u32) -> Limits {
    Limits { all, namespace, node: 0, captures: 0 }
}

const fn per_node(node: u32) -> Limits {
    Limits { all: 0, namespace: 0, node, captures: 0 }
}

/// Returns why the run `a/own`, with a place since second 50, has to wait for the others.
fn waits(others: &[SyncJob], limits: Limits) -> Option<Queued> {
    waits_as(&run(0, 50), others, limits)
}

/// Returns why the run `own` has to wait for the others.
fn waits_as(own: &ActiveRun, others: &[SyncJob], limits: Limits) -> Option<Queued> {
    let place = Place::of(own, "own", "uid-of-a-own").unwrap();
    Line::new("uid-of-a-own", others, limits, &SetLimits::new()).ahead_of(own, "a", &place)
}

fn names(jobs: &[SyncJob], limits: Limits) -> Vec<String> {
    next_in_line(jobs, limits, &SetLimits::new()).into_iter().map(kube::ResourceExt::name_any).collect()
}

#[test]
fn a_run_waits_while_as_many_as_the_limit_are_started_or_have_an_earlier_place() {
    let (busy, early, late) =
        (job("b/busy", started(run(0, 90))), job("c/early", run(0, 10)), job("c/late", run(0, 90)));
    assert_eq!(waits(std::slice::from_ref(&late), limits(1, 0)), None);
    for (others, waiting) in [(vec![busy.clone()], 1), (vec![early.clone()], 2), (vec![busy, early, late], 2)]
    {
        let queued = waits(&others, limits(others.len().min(2) as u32, 0)).unwrap();
        assert_eq!((queued.position, queued.fault.reason.as_str()), (waiting, "Queued"), "{others:?}");
        assert_eq!(waits(&others, limits(3, 0)), None);
        assert_eq!(waits(&others, limits(0, 1)), None, "all are in other namespaces");
    }
}

#[test]
fn a_run_of_a_higher_priority_comes_first_and_one_that_has_started_stays() {
    let at_priority = |priority, run: ActiveRun| ActiveRun { priority, ..run };
    let (urgent, idle) =
        (job("b/urgent", at_priority(1, run(9, 90))), job("b/idle", at_priority(-1, run(0, 10))));
    assert_eq!(waits(std::slice::from_ref(&idle), limits(1, 0)), None);
    assert_eq!(waits(std::slice::from_ref(&urgent), limits(1, 0)).unwrap().position, 2);
    let busy = job("b/busy", at_priority(-1, started(run(0, 10))));
    assert_eq!(waits(std::slice::from_ref(&busy), limits(1, 0)).unwrap().position, 1);
    let jobs = [idle, job("a/own", run(0, 50)), urgent];
    assert_eq!(names(&jobs, limits(2, 0)), ["urgent", "own"]);
}

#[test]
fn the_message_says_the_position_and_the_limit() {
    let others = [job("a/x", started(run(0, 1))), job("a/y", started(run(0, 2))), job("a/z", run(0, 3))];
    let message = |limits| waits(&others, limits).unwrap().fault.message;
    assert_eq!(
        message(limits(0, 2)),
        "Run own-1 is number 2 in the queue: the namespace a may have 2 under way at a time, and 2 are. Waiting uses up \
         neither retries nor spec.limits.timeout."
    );
    assert!(message(limits(2, 0)).contains("all namespaces together may have 2 under way"));
}

#[test]
fn runs_that_their_own_namespace_holds_back_leave_room_for_others() {
    let mut others: Vec<SyncJob> = (0..9).map(|n| job(&format!("b/{n}"), run(0, n))).collect();
    assert!(waits(&others, limits(2, 0)).is_some());
    assert_eq!(waits(&others, limits(2, 1)), None, "of b, one at a time is to come");
    others.push(job("c/x", run(0, 1)));
    assert!(waits(&others, limits(2, 1)).is_some());
}

#[test]
fn a_run_whose_source_is_captured_waits_for_its_class_and_namespace_alone() {
    let captured = |name: &str, class: Option<&str>, run: ActiveRun| {
        let mut job = job(name, run);
        let class = class.map(String::from);
        let at = PointInTime { volume_snapshot_class_name: class, ..PointInTime::default() };
        job.spec.source.point_in_time = Some(at);
        job
    };
    let one = Limits { captures: 1, ..Limits::default() };
    let own = captured("a/own", Some("fast"), run(0, 50));
    let waits = |other: &SyncJob| {
        let place = Place::of(&run(0, 50), "own", "uid-of-a-own").unwrap();
        let jobs = [own.clone(), other.clone()];
        Line::new("uid-of-a-own", &jobs, one, &SetLimits::new()).ahead_of(&run(0, 50), "a", &place)
    };
    let busy = |name, class| captured(name, class, started(run(0, 90)));
    let queued = waits(&busy("a/busy", Some("fast"))).unwrap();
    assert!(
        queued.fault.message.contains("captures of the class fast in the namespace a may have 1"),
        "{queued:?}"
    );
    assert_eq!(waits(&busy("b/busy", Some("fast"))), None);
    assert_eq!(waits(&busy("a/busy", Some("slow"))), None);
    assert_eq!(waits(&busy("a/busy", None)), None);
    assert_eq!(waits(&job("a/busy", started(run(0, 90)))), None, "it reads the source itself");
    let restores = ActiveRun { restore: Some(Default::default()), ..started(run(0, 90)) };
    assert_eq!(waits(&captured("a/busy", Some("fast"), restores)), None);
    let next = [busy("a/busy", Some("fast")), own.clone(), captured("a/slow", Some("slow"), run(0, 60))];
    assert_eq!(names(&next, one), ["slow"]);
    // One that its class holds back leaves room in its namespace.
    let both = Limits { namespace: 2, ..one };
    let next = [busy("a/busy", Some("fast")), own.clone(), job("a/plain", run(0, 60))];
    assert_eq!(names(&next, both), ["plain"]);
}

#[test]
fn what_other_jobs_keep_for_their_next_run_counts_and_leaves_one_place() {
    let captured = |name: &str, keeps: bool, run: ActiveRun| {
        let mut job = job(name, run);
        job.spec.source.point_in_time = Some(PointInTime::default());
        let (snapshot, content_hash) = (name.into(), ContentHash::default());
        let base = ChangeBase { snapshot, snapshot_uid: "u".into(), content_hash };
        job.status.as_mut().unwrap().change_base = keeps.then_some(base);
        job
    };
    let line = |captures: u32, others: &[SyncJob]| {
        let own = [captured("a/own", true, run(0, 50))];
        let limits = Limits { captures, ..Limits::default() };
        Line::new("uid-of-a-own", own.iter().chain(others), limits, &SetLimits::new())
    };
    let waits = |line: &Line| {
        let place = Place::of(&run(0, 50), "own", "uid-of-a-own").unwrap();
        line.ahead_of(&run(0, 50), "a", &place).is_some()
    };
    let (keeps, busy) = (captured("a/x", true, run(0, 90)), captured("a/y", false, started(run(0, 90))));
    for (captures, others, has_room, has_to_wait) in [
        (0, vec![keeps.clone(), busy.clone()], true, false),
        (1, vec![], false, false),
        (1, vec![keeps.clone()], false, false),
        (2, vec![], true, false),
        (2, vec![keeps.clone()], false, false),
        (2, vec![keeps.clone(), busy.clone()], false, true),
        (3, vec![keeps.clone(), busy.clone()], true, false),
    ] {
        let line = line(captures, &others);
        assert_eq!(
            (line.has_room_for_base(), waits(&line)),
            (has_room, has_to_wait),
            "{captures} {others:?}"
        );
    }
}

#[test]
fn a_place_of_a_later_round_waits_for_one_of_an_earlier_round() {
    let others = [job("b/x", run(1, 10)), job("b/y", run(-1, 90))];
    assert_eq!(waits(&others[..1], limits(1, 0)), None);
    assert_eq!(waits(&others[1..], limits(1, 0)).unwrap().position, 2);
}

#[test]
fn namespaces_take_turns() {
    let mut jobs = vec![job("a/runs", started(run(4, 0)))];
    let next = |jobs: &[SyncJob], namespace, limits| {
        Line::new("new", jobs, limits, &SetLimits::new()).next_round(namespace)
    };
    assert_eq!((next(&jobs, "a", limits(1, 0)), next(&jobs, "b", limits(1, 0))), (6, 5));
    assert_eq!(next(&jobs, "a", limits(0, 1)), 0, "one namespace knows no other");
    // Namespace a has ten runs due before b has two; the runs of b are placed among a's first ones.
    for n in 0..10 {
        jobs.push(job(&format!("a/{n}"), run(next(&jobs, "a", limits(1, 0)), 10)));
    }
    for n in 0..2 {
        jobs.push(job(&format!("b/{n}"), run(next(&jobs, "b", limits(1, 0)), 20)));
    }
    let order = next_in_line(&jobs, limits(6, 0), &SetLimits::new());
    let names: Vec<_> = order.iter().map(|job| job.namespace().unwrap() + &job.name_any()).collect();
    assert_eq!(names, ["b0", "a0", "b1", "a1", "a2"]);
}

#[test]
fn those_next_in_line_are_as_many_as_there_is_room_for() {
    let mut jobs: Vec<SyncJob> = (0..3).map(|n| job(&format!("a/{n}"), run(0, n))).collect();
    jobs.push(job("b/x", run(0, 9)));
    assert_eq!(names(&jobs, limits(2, 0)), ["0", "1"]);
    assert_eq!(names(&jobs, limits(2, 1)), ["0", "x"]);
    jobs.push(job("a/runs", started(run(0, 0))));
    assert_eq!(names(&jobs, limits(2, 1)), ["x"]);
    jobs.push(job("c/runs", started(run(0, 0))));
    assert!(names(&jobs, limits(2, 1)).is_empty());
}

#[test]
fn a_run_waits_for_each_node_that_it_has_a_volume_on() {
    let others = [job("b/x", started(on(&["n1"], run(0, 1)))), job("c/y", on(&["n2"], run(0, 2)))];
    let waits = |nodes: &[&str], limit| waits_as(&on(nodes, run(0, 50)), &others, per_node(limit));
    let message = waits(&["n1"], 1).unwrap().fault.message;
    assert!(
        message.contains("number 1 in the queue: the node n1 may have 1 under way at a time, and 1 are"),
        "{message}"
    );
    assert_eq!(waits(&["n2"], 1).unwrap().position, 2, "one with an earlier place");
    assert!(waits(&["n3", "n2"], 1).is_some());
    for (nodes, limit) in [(&["n3"][..], 1), (&[], 1), (&["n1", "n2"], 2), (&["n1"], 0)] {
        assert_eq!(waits(nodes, limit), None, "{nodes:?} {limit}");
    }
}

#[test]
fn runs_that_their_node_holds_back_leave_room_for_runs_on_others() {
    let mut jobs: Vec<SyncJob> = (0..9).map(|n| job(&format!("a/{n}"), on(&["n1"], run(0, n)))).collect();
    let limits = Limits { all: 2, namespace: 2, node: 1, captures: 0 };
    let own = on(&["n2"], run(0, 50));
    assert_eq!(waits_as(&own, &jobs, limits), None, "of those on n1, one at a time is to come");
    assert!(waits_as(&own, &jobs, Limits { node: 0, ..limits }).is_some());
    jobs.push(job("a/own", own));
    assert_eq!(names(&jobs, limits), ["0", "own"]);
    jobs.push(job("b/runs", started(on(&["n1"], run(0, 0)))));
    assert_eq!(names(&jobs, limits), ["own"]);
}

/// Returns the job as one of the set `every`.
fn of_set(mut job: SyncJob) -> SyncJob {
    job.metadata.owner_references = Some(vec![crate::sets::template::owner_reference("every", "set")]);
    job
}

#[test]
fn a_run_of_a_set_waits_for_the_sets_others_and_leaves_room_for_those_of_no_set() {
    let mut jobs: Vec<SyncJob> = (0..4).map(|n| of_set(job(&format!("a/{n}"), run(0, n)))).collect();
    jobs.push(job("a/own", run(0, 50)));
    let sets = SetLimits::from([("set".into(), 2)]);
    let names = |jobs: &[SyncJob], limits, sets: &SetLimits| -> Vec<String> {
        next_in_line(jobs, limits, sets).into_iter().map(kube::ResourceExt::name_any).collect()
    };
    assert_eq!(names(&jobs, limits(0, 0), &sets), ["0", "1", "own"]);
    assert_eq!(names(&jobs, limits(3, 3), &sets), ["0", "1", "own"]);
    assert_eq!(names(&jobs, limits(0, 0), &SetLimits::new()), ["0", "own"], "the set is being deleted");
    assert_eq!(names(&jobs, limits(0, 0), &[("set".into(), 0)].into()).len(), 5);
    let own = run(0, 3);
    let line = Line::new("uid-of-a-3", &jobs, limits(0, 0), &sets);
    let queued = line.ahead_of(&own, "a", &Place::of(&own, "3", "uid-of-a-3").unwrap()).unwrap();
    assert!(
        queued.fault.message.contains("the SyncJobSet every may have 2 under way at a time, and 0 are"),
        "{queued:?}"
    );
    assert!(is_limited(&jobs[0], limits(0, 0), &sets) && !is_limited(&jobs[4], limits(0, 0), &sets));
}

/// The progress of one of several jobs. What it has read may be outdated by the time it acts on it.
#[derive(Clone, Default)]
struct Player {
    run: Option<ActiveRun>,
    seen: Option<Line>,
    launched: bool,
    over: bool,
}

/// Jobs that all want to run at once, two in each namespace, with places unrelated to the order of their steps. What a
/// job reads is at most `lag` writes old, and never older than its own last write.
struct Game {
    players: Vec<Player>,
    places: Vec<i64>,
    /// The nodes of each job's volumes.
    nodes: Vec<Vec<String>>,
    limits: Limits,
    /// The limit of the set that the jobs of the first two namespaces belong to.
    sets: SetLimits,
    /// The recorded state after each write.
    history: Vec<Vec<SyncJob>>,
    /// The index in `history` of each job's last write.
    written: Vec<usize>,
    lag: usize,
    /// Whether jobs start as soon as they are recorded.
    hasty: bool,
}

/// Returns the SyncJob of a player. The first four belong to one set.
fn player(own: usize, run: ActiveRun) -> SyncJob {
    let job = job(&format!("{}/{own}", own / 2), run);
    if own < 4 { of_set(job) } else { job }
}

impl Game {
    fn job(&self, own: usize) -> Option<SyncJob> {
        Some(player(own, self.players[own].run.clone()?))
    }

    /// Performs one step of one job: it takes its place, reads, writes based on what it read, or ends.
    fn step(&mut self, own: usize) {
        let newest = self.history.len() - 1;
        let seen = &self.history[newest.saturating_sub(self.lag).max(self.written[own])];
        let (place, is_hasty) = (self.places[own], self.hasty);
        let (limits, sets, player) = (self.limits, &self.sets, &mut self.players[own]);
        let (namespace, name) = ((own / 2).to_string(), own.to_string());
        let uid = format!("uid-of-{namespace}-{name}");
        match (&player.run, player.seen.take()) {
            _ if player.over => {}
            _ if player.launched => {
                *player = Player { over: true, ..Player::default() };
                self.write(own);
            }
            (None, _) => {
                let (start_time, nodes) = (is_hasty.then(|| at(99)), self.nodes[own].clone());
                player.run = Some(ActiveRun { start_time, nodes, ..run(0, place) });
                self.write(own);
            }
            (Some(_), None) => player.seen = Some(Line::new(&uid, seen, limits, sets)),
            (Some(run), Some(seen)) => {
                let is_free = seen.ahead_of(run, &namespace, &Place::of(run, &name, &uid).unwrap()).is_none();
                player.launched = is_free && run.is_started();
                let after = ActiveRun { start_time: is_free.then(|| at(99)), ..run.clone() };
                if player.run.replace(after.clone()) != Some(after) {
                    self.write(own);
                }
            }
        }
    }

    fn write(&mut self, own: usize) {
        self.history.push((0..self.players.len()).filter_map(|it| self.job(it)).collect());
        self.written[own] = self.history.len() - 1;
    }

    fn launched(&self, of: impl Fn(usize) -> bool) -> usize {
        (0..self.players.len()).filter(|it| self.players[*it].launched && of(*it)).count()
    }
}

proptest! {
    /// In whatever order the jobs record, read and write, and however outdated their reads are, no more runs are
    /// launched at a time than the limits allow, and all runs end.
    #[test]
    fn no_more_than_the_limits_run_whatever_comes_first(
        places in prop::collection::vec(0_i64..4, 6),
        order in prop::collection::vec(0_usize..6, 0..120),
        (all, namespace, node, set) in (0_u32..4, 0_u32..3, 0_u32..3, 0_u32..4),
        nodes in prop::collection::vec(prop::collection::btree_set("[xyz]", 0..3), 6),
        (lag, hasty) in (0_usize..12, any::<bool>()),
    ) {
        let limits = Limits { all, namespace, node, captures: 0 };
        let nodes: Vec<Vec<String>> = nodes.into_iter().map(|it| it.into_iter().collect()).collect();
        let (players, history, written) = (vec![Player::default(); 6], vec![vec![]], vec![0; 6]);
        let sets = SetLimits::from([("set".into(), set)]);
        let mut game = Game { players, places, nodes: nodes.clone(), limits, sets, history, written, lag, hasty };
        let in_turn = (0..60).flat_map(|_| 0..6);
        let random = order.len();
        for (step, own) in order.into_iter().chain(in_turn).enumerate() {
            // In the end, every read is up to date.
            game.lag = if step < random { lag } else { 0 };
            game.step(own);
            let launched = game.launched(|_| true);
            prop_assert!(all == 0 || launched <= all as usize, "{launched} of {limits:?}");
            for there in 0..3 {
                let launched = game.launched(|it| it / 2 == there);
                prop_assert!(namespace == 0 || launched <= namespace as usize, "{launched} of {limits:?}");
            }
            let launched = game.launched(|it| it < 4);
            prop_assert!(set == 0 || launched <= set as usize, "{launched} of a set of {set}");
            for there in ["x", "y", "z"] {
                let launched = game.launched(|it| nodes[it].iter().any(|node| node == there));
                prop_assert!(node == 0 || launched <= node as usize, "{launched} on {there} of {limits:?}");
            }
        }
        prop_assert!(game.players.iter().all(|player| player.over), "some never got their turn");
    }
}
