use contract::Side;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;

use super::*;
use crate::api::{SyncJobSpec, SyncJobStatus};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn folder_of(name: &str) -> RunFolder {
    let (claim, path) = name.split_once(':').unwrap_or((name, "/"));
    RunFolder { claim_name: claim.into(), path: path.into(), ..RunFolder::default() }
}

/// Returns a run from one folder to another, each given as `claim` or `claim:/path`, with a place since that second.
fn run(source: &str, destination: &str, queued: i64) -> ActiveRun {
    ActiveRun {
        id: "r-1".into(),
        source: Some(folder_of(source)),
        destination: Some(folder_of(destination)),
        queue_time: Some(MicroTime(at(queued))),
        ..ActiveRun::default()
    }
}

fn started(run: ActiveRun) -> ActiveRun {
    ActiveRun { start_time: Some(MicroTime(at(0))), ..run }
}

fn job(name: &str, run: ActiveRun) -> SyncJob {
    let mut job = SyncJob::new(name, SyncJobSpec::default());
    job.metadata.uid = Some(format!("uid-of-{name}"));
    job.metadata.namespace = Some("prod".into());
    job.status = Some(SyncJobStatus { active_run: Some(run), ..SyncJobStatus::default() });
    job
}

fn pod(of: &str, claim: &str, read_only: bool, phase: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": format!("pod-of-{of}"), "namespace": "prod", "annotations": {names::ANNOTATION_SYNCJOB: of}},
        "spec": {"nodeName": "n1", "containers": [],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}]},
        "status": {"phase": phase},
    }))
    .unwrap()
}

fn ahead(own: &ActiveRun, others: &[SyncJob]) -> Option<String> {
    Rivals::new("prod", "own", others, vec![])
        .ahead_of(own, "own", "uid-of-own", at(9))
        .map(|fault| fault.message)
}

#[test]
fn a_run_waits_for_one_that_writes_what_it_reads_or_uses_what_it_writes() {
    let own = run("a", "b", 5);
    for (source, destination, waits) in [
        ("x", "a", true),
        ("b", "x", true),
        ("x", "b", true),
        ("a", "x", false),
        ("x", "y", false),
        ("x", "a:/sub", true),
        ("x", "b:/sub", true),
    ] {
        let other = job("other", started(run(source, destination, 1)));
        assert_eq!(ahead(&own, &[other]).is_some(), waits, "{source} to {destination}");
    }
}

#[test]
fn a_run_waits_for_those_of_its_own_namespace_at_an_endpoint_and_for_nobody_elses() {
    let endpoint =
        RunFolder { address: Some("h:7400::web".into()), path: "/".into(), ..RunFolder::default() };
    let own = ActiveRun { destination: Some(endpoint.clone()), ..run("a", "", 5) };
    let mut other = job("other", started(ActiveRun { destination: Some(endpoint), ..run("x", "", 1) }));
    assert!(ahead(&own, &[other.clone()]).is_some());
    other.metadata.namespace = Some("tenant".into());
    assert_eq!(ahead(&own, &[other]), None);
}

#[test]
fn a_reader_that_pauses_before_its_next_try_holds_up_no_writer() {
    let pausing = |run: ActiveRun| ActiveRun { try_time: Some(MicroTime(at(20))), ..started(run) };
    let waits = |other: ActiveRun, now: i64| {
        let known = Rivals::new("prod", "own", &[job("other", other)], vec![]);
        known.ahead_of(&run("a", "b", 5), "own", "u", at(now)).is_some()
    };
    assert!(!waits(pausing(run("b", "x", 1)), 19));
    assert!(waits(pausing(run("b", "x", 1)), 20), "its time has come");
    assert!(waits(pausing(run("x", "b", 1)), 19), "it writes, and has written a part");
    assert!(waits(pausing(run("x", "a", 1)), 19), "this run would read what is half written");
}

#[test]
fn folders_of_one_claim_that_hold_no_file_in_common_are_no_reason_to_wait() {
    let own = run("a:/one", "b:/one", 5);
    for (destination, waits) in [
        ("a:/two", false),
        ("a:/one/deep", true),
        ("a", true),
        ("a:/on", false),
        ("b:/one", true),
        ("b:/one-more", false),
    ] {
        let other = job("other", started(run("x", destination, 1)));
        assert_eq!(ahead(&own, &[other]).is_some(), waits, "{destination}");
    }
}

#[test]
fn the_message_names_who_is_waited_for_and_why() {
    let fault = Rivals::new("prod", "own", &[job("db", started(run("x", "a", 1)))], vec![])
        .ahead_of(&run("a", "b", 5), "own", "u", at(9))
        .unwrap();
    assert_eq!(fault.reason, "WaitingForRun");
    assert_eq!(
        fault.message,
        "Run r-1 waits for run r-1 of SyncJob db, which writes the claim a that this run reads. It starts as soon as that is \
         over; waiting uses up neither retries nor spec.limits.timeout."
    );
}

/// Each job checks both before and after it is started. Of any two recorded at a time, exactly one passes, in every
/// interleaving of their steps.
#[test]
fn of_two_runs_one_starts_and_never_both_whatever_comes_first() {
    for (first, second) in [(1, 1), (1, 2), (2, 1)] {
        for order in interleavings() {
            let launched = play([first, second], &order);
            assert!(launched.len() <= 1, "places {first}, {second}; steps {order:?}: {launched:?} launched");
        }
        let launched = play([first, second], &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(launched.len(), 1, "places {first}, {second}");
    }
}

/// Returns all orders of six steps each of two jobs.
fn interleavings() -> Vec<Vec<usize>> {
    let of_second = (0..1_u32 << 12).filter(|bits| bits.count_ones() == 6);
    of_second.map(|bits| (0..12).map(|step| ((bits >> step) & 1) as usize).collect()).collect()
}

/// The progress of one job. What it has read may be outdated by the time it acts on it.
#[derive(Clone, Default)]
struct Player {
    run: Option<ActiveRun>,
    seen: Option<Rivals>,
    launched: bool,
}

/// Plays the steps of two jobs that write to one claim. Each of them reads in one step and writes in the next.
fn play(places: [i64; 2], order: &[usize]) -> Vec<usize> {
    let mut players = [Player::default(), Player::default()];
    for &own in order {
        let other = 1 - own;
        let recorded = players[other].run.clone().map(|run| job(&format!("job{other}"), run));
        let player = &mut players[own];
        let name = format!("job{own}");
        match (&player.run, player.seen.take()) {
            _ if player.launched => {}
            (None, _) => player.run = Some(run("x", "a", places[own])),
            (Some(_), None) => player.seen = Some(Rivals::new("prod", &name, recorded.as_slice(), vec![])),
            (Some(run), Some(seen)) => {
                let uid = format!("uid-of-{name}");
                let is_free = seen.ahead_of(run, &name, &uid, at(9)).is_none();
                player.launched = is_free && run.is_started();
                let start_time = is_free.then(|| MicroTime(at(9)));
                player.run = Some(ActiveRun { start_time, ..run.clone() });
            }
        }
    }
    (0..2).filter(|own| players[*own].launched).collect()
}

#[test]
fn a_run_without_a_place_or_of_a_job_that_goes_is_in_nobodys_way() {
    let own = run("a", "b", 5);
    let homeless = job("other", ActiveRun { queue_time: None, ..run("x", "a", 1) });
    let mut deleted = job("other", run("x", "a", 1));
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(2));
    deleted.metadata.deletion_timestamp = Some(now);
    assert_eq!(ahead(&own, &[homeless, deleted.clone()]), None);
    deleted.status.as_mut().unwrap().active_run = Some(started(run("x", "a", 1)));
    assert_eq!(ahead(&own, std::slice::from_ref(&deleted)), None, "a finalizer may hold it for ever");
    let stray = vec![pod("other", "a", false, "Running")];
    let waits = Rivals::new("prod", "own", &[deleted], stray).ahead_of(&own, "own", "u", at(9));
    assert!(waits.is_some(), "its pod still runs");
}

#[test]
fn pods_that_no_record_stands_for_are_waited_for_until_they_have_ended() {
    let own = run("a", "b", 5);
    let waits = |pod: Pod, jobs: &[SyncJob]| {
        Rivals::new("prod", "own", jobs, vec![pod])
            .ahead_of(&own, "own", "u", at(9))
            .map(|fault| fault.message)
    };
    let message = waits(pod("gone", "a", false, "Running"), &[]).unwrap();
    assert!(message.contains("the pod pod-of-gone on node n1"), "{message}");
    assert!(waits(pod("gone", "b", true, "Pending"), &[]).is_some(), "it reads what this run writes");
    assert_eq!(waits(pod("gone", "a", true, "Running"), &[]), None, "both read");
    assert_eq!(waits(pod("gone", "a", false, "Succeeded"), &[]), None);
    assert_eq!(waits(pod("own", "a", false, "Running"), &[]), None, "its own are another matter");
    let apart = job("gone", started(run("x", "a:/elsewhere", 9)));
    let own = run("a:/here", "b", 5);
    let told = Rivals::new("prod", "own", &[apart], vec![pod("gone", "a", false, "Running")]);
    assert_eq!(told.ahead_of(&own, "own", "u", at(9)), None, "its record says more than its pod");
    // The pods of a canceled run may outlive the start of the next one, which uses another claim.
    let next = ActiveRun { number: 2, ..started(run("x", "y", 9)) };
    for (number, waits) in [(1, true), (2, false)] {
        let other = job("gone", next.clone());
        let mut of_try = pod("gone", "a", false, "Running");
        let label = TryNames::new("gone", &other.uid().unwrap_or_default(), number, 0).label();
        of_try.metadata.labels = Some([(names::LABEL_TRY.into(), label)].into());
        let known = Rivals::new("prod", "own", &[other], vec![of_try]);
        assert_eq!(known.ahead_of(&own, "own", "u", at(9)).is_some(), waits, "pods of run {number}");
    }
}

#[test]
fn who_probably_uses_a_volume_is_named() {
    let own = started(run("a", "b", 5));
    let others = [job("db", started(run("b:/elsewhere", "x", 1))), job("waits", run("b", "x", 1))];
    let known = Rivals::new("prod", "own", &others, vec![]);
    assert_eq!(known.suspects(&own, Side::Sink), "The claim b is used by run r-1 of SyncJob db.");
    assert!(known.suspects(&own, Side::Source).contains("of another namespace or cluster"));
}

#[test]
fn a_benchmark_writes_to_both_of_its_volumes_whatever_folders_its_job_has() {
    let benchmark =
        ActiveRun { benchmark: Some(crate::api::Benchmark::default()), ..run("a:/in", "b:/out", 5) };
    for (source, destination, waits) in
        [("a:/else", "x", true), ("b:/else", "x", true), ("x", "a", true), ("x", "y", false)]
    {
        let ahead_of = |own: &ActiveRun, other: &ActiveRun| {
            ahead(own, &[job("other", started(other.clone()))]).is_some()
        };
        let later = run(source, destination, 9);
        assert_eq!(ahead_of(&benchmark, &later), waits, "the benchmark waits for {source} {destination}");
        assert_eq!(ahead_of(&later, &benchmark), waits, "{source} {destination} waits for the benchmark");
    }
}
