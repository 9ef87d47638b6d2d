//! Handles benchmarks: derives the job that a benchmark runs as, refuses impossible ones, and bounds the results. Pure.

use contract::{BenchFigures, BenchPlace, BenchStepName, History, Reason, Report, Side};
use kube::ResourceExt as _;

use crate::{
    api::{ActiveRun, Benchmark, Files, Run, SyncJobSpec},
    ends::end_kind::EndKind,
    fault::Fault,
    human, names,
    pods::stored_fields::Pod,
    spec::validate::ValidatedSyncJob,
    volumes::claims::Claim,
};

/// The maximum length of a string from a syncer, in bytes.
const MAX_WORD_BYTES: usize = 256;
/// The maximum number of notes of a benchmark.
const MAX_NOTES: usize = 4;

/// Returns the spec of a benchmark: the job's two volumes and their connection, without filters, snapshots, hooks,
/// shards or the suspension.
pub fn spec(spec: &SyncJobSpec) -> SyncJobSpec {
    let mut spec = spec.clone();
    spec.files = Files::default();
    (spec.source.snapshot, spec.source.point_in_time) = (None, None);
    spec.source.history = History::None;
    (spec.snapshots, spec.hooks) = (None, None);
    (spec.parallelism, spec.suspend) = (1, false);
    spec
}

/// Returns why the benchmark under way cannot be run; `None` if it can.
pub fn refusal(run: Option<&ActiveRun>, job: &ValidatedSyncJob, claims: &[Claim]) -> Option<Fault> {
    let benchmark = run?.benchmark.as_ref()?;
    let fault = |message: String| Some(Fault::new(Reason::BenchmarkRefused, message));
    if let Some(side) = job.outside() {
        return fault(format!("A benchmark is between two claims, and one end is {}.", job.ends.of(side)));
    }
    let volumes = job.ends.iter().filter_map(EndKind::mounted);
    if let Some(volume) = volumes.into_iter().find(|volume| volume.is_block) {
        return fault(format!(
            "The claim {} has volumeMode Block, and a benchmark makes files. Benchmark a SyncJob whose claims both have \
             volumeMode Filesystem.",
            volume.claim
        ));
    }
    if let Some(claim) = claims.iter().find(|claim| is_read_only(claim)) {
        return fault(format!(
            "The claim {} has the access mode ReadOnlyMany alone, and a benchmark writes to both volumes. Benchmark a SyncJob \
             whose claims may be written to.",
            claim.name
        ));
    }
    let problem = benchmark.whole_tree().fault()?;
    fault(format!("spec.benchmark describes no possible tree: {problem}."))
}

fn is_read_only(claim: &Claim) -> bool {
    let modes = claim.found.as_ref().and_then(|found| found.spec.as_ref()?.access_modes.as_ref());
    modes.is_some_and(|modes| !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany"))
}

/// Adds the source volume's figures, which only the source's end reports, to the report of the sink's end.
pub fn join(report: &mut Report, source: Option<&Report>) {
    let Some(figures) = &mut report.benchmark else { return };
    if figures.source.is_none() {
        figures.source = source.and_then(|report| report.benchmark.as_ref()?.source.clone());
    }
}

/// Returns a syncer's figures with bounded strings, completed by the storage classes and nodes of both ends, which only
/// the cluster knows.
pub fn placed(mut found: BenchFigures, run: &ActiveRun, claims: &[Claim], pods: &[Pod]) -> BenchFigures {
    let place = |place: &BenchPlace, side| BenchPlace {
        path: word(&place.path),
        file_system: word(&place.file_system),
        device: word(&place.device),
        mount_options: word(&place.mount_options),
        storage_class: class(claims, side),
        node: node(run, pods, side),
        machine: contract::BenchMachine { kernel: word(&place.machine.kernel), ..place.machine },
    };
    found.source = found.source.map(|it| place(&it, Side::Source));
    found.destination = found.destination.map(|it| place(&it, Side::Sink));
    found.bench = run.benchmark.as_ref().map_or(found.bench, Benchmark::whole_tree);
    found.start_time = word(&found.start_time);
    found.steps.truncate(BenchStepName::ALL.len());
    for step in &mut found.steps {
        step.bottleneck.iter_mut().for_each(|it| it.message = human::clipped(&it.message, MAX_WORD_BYTES));
    }
    found.notes.truncate(MAX_NOTES);
    found.notes.iter_mut().for_each(|note| *note = human::clipped(note, MAX_WORD_BYTES));
    found
}

fn word(text: &str) -> String {
    human::clipped(text, MAX_WORD_BYTES)
}

fn class(claims: &[Claim], side: Side) -> Option<String> {
    let claim = claims.iter().find(|claim| claim.side == side)?.found.as_ref()?;
    claim.spec.as_ref()?.storage_class_name.clone()
}

/// Returns the node of an end's pod. If one pod serves both ends, it bears the sink's labels.
fn node(run: &ActiveRun, pods: &[Pod], side: Side) -> Option<String> {
    let side = run.only_side().unwrap_or(side).to_string();
    let is_own = |pod: &&Pod| {
        pod.labels().get(names::LABEL_RUN) == Some(&run.id)
            && pod.labels().get(names::LABEL_SIDE) == Some(&side)
    };
    let pod = pods.iter().filter(is_own).max_by_key(|pod| pod.metadata.creation_timestamp.clone())?;
    pod.spec.as_ref()?.node_name.clone()
}

/// Returns the status message of a benchmark that succeeded.
pub fn message(run: &Run, figures: &BenchFigures) -> String {
    let steps = figures.steps.iter();
    let steps: Vec<_> =
        steps.map(|it| format!("{} {}", it.step.word(), human::milliseconds(it.median_ms))).collect();
    format!("Benchmark {}: {}.", run.id, steps.join(", "))
}

#[cfg(test)]
mod tests {
    use contract::{BenchMachine, BenchTree, Bottleneck, Cause, ExitCode, RunResult};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        api::{ActiveRun, BenchmarkTree, SyncJob, SyncJobStatus, SyncRun, SyncRunSpec},
        run::{
            outcome::{Ending, Outcome, judge},
            restore,
        },
        spec::validate::validate,
        status::run_status,
        volumes::claims::Class,
    };

    fn job() -> SyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "from"}, "path": "/a", "snapshot": "latest"},
            "destination": {"persistentVolumeClaim": {"claimName": "to"}},
            "schedule": {"interval": "1h"},
            "suspend": true,
            "trigger": "go",
            "files": {"delete": true, "exclude": ["*.tmp"]},
            "transfer": {"bandwidthLimit": "1Mi"},
            "snapshots": {},
            "hooks": {"before": {"target": {"matchLabels": {"a": "b"}}, "command": ["x"]}},
        });
        SyncJob::new("web", serde_json::from_value(spec).unwrap())
    }

    fn benchmark(more: Value) -> Benchmark {
        serde_json::from_value(more).unwrap()
    }

    fn asked() -> SyncRun {
        let benchmark = Some(benchmark(json!({"tree": "small"})));
        SyncRun::new("bench", SyncRunSpec { benchmark, ..SyncRunSpec::default() })
    }

    fn active(local: bool) -> ActiveRun {
        let run = run_status::new_run("web", 8, 3, Some("other".into()), Timestamp::UNIX_EPOCH);
        ActiveRun { id: "bench".into(), local, benchmark: asked().spec.benchmark, ..run }
    }

    fn claim(side: Side, spec: &Value) -> Claim {
        let found = Some(serde_json::from_value(json!({"spec": spec})).unwrap());
        Claim { side, name: format!("prod/{side}"), found, class: Class::Unknown }
    }

    fn figures(source: Option<&str>, destination: Option<&str>) -> BenchFigures {
        let place = |device: &str| BenchPlace { device: device.into(), ..BenchPlace::default() };
        BenchFigures {
            bench: BenchTree::named("large").unwrap(),
            start_time: "2026-11-23T10:00:00Z".into(),
            source: source.map(place),
            destination: destination.map(place),
            steps: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn report(figures: BenchFigures) -> Report {
        Report {
            run: "bench".into(),
            result: RunResult::Succeeded,
            benchmark: Some(Box::new(figures)),
            ..Report::default()
        }
    }

    #[test]
    fn a_benchmark_uses_the_volumes_of_its_job_and_nothing_else_of_it() {
        let (job, asked) = (job(), asked());
        let wished = restore::wished(&job, Some(&asked));
        let valid = validate(&wished.spec, "web", "prod").unwrap();
        assert!(!valid.params.delete && valid.params.exclude.is_empty());
        assert_eq!((valid.params.source_snapshot, valid.params.demands.snapshot), (None, None));
        assert_eq!(
            (valid.suspend, valid.is_local, valid.params.bandwidth_limit),
            (false, false, Some(1 << 20))
        );
        assert!(valid.schedule.is_some() && wished.spec.hooks.is_none());
    }

    #[test]
    fn devices_volumes_that_are_only_read_and_impossible_trees_are_refused_by_name() {
        let job = job();
        let spec = restore::wished(&job, Some(&asked())).spec.clone();
        let mut valid = validate(&spec, "web", "prod").unwrap();
        let mode = |mode: &str| [claim(Side::Source, &json!({"accessModes": [mode]}))];
        let told = |run: &ActiveRun, valid: &ValidatedSyncJob, claims: &[Claim]| {
            refusal(Some(run), valid, claims).map(|fault| fault.message)
        };
        assert_eq!(told(&active(false), &valid, &mode("ReadWriteOnce")), None);
        assert!(told(&active(false), &valid, &mode("ReadOnlyMany")).unwrap().contains("prod/source"));
        let files = json!({"files": vec![json!({"count": 9_000_000, "bytes": 1}); 2]});
        let huge = ActiveRun { benchmark: Some(benchmark(files)), ..active(false) };
        assert!(told(&huge, &valid, &[]).unwrap().contains("the sum of all count is 18000000"));
        valid.ends.sink = valid.ends.sink.of_kind(true);
        let refused = told(&active(false), &valid, &[]).unwrap();
        assert!(refused.contains("prod/to") && refused.contains("volumeMode Block"), "{refused}");
        let run = ActiveRun { benchmark: None, ..active(false) };
        assert_eq!(told(&run, &valid, &mode("ReadOnlyMany")), None, "a run like any other");
    }

    #[test]
    fn a_tree_is_named_or_described_and_changes_as_much_as_is_asked_for() {
        let of = |spec: Value| benchmark(spec).whole_tree();
        assert_eq!(of(json!({})), BenchTree::named("mixed").unwrap());
        assert_eq!(benchmark(json!({})).rounds, 3);
        assert_eq!(of(json!({"tree": "large", "changePercent": 50})).change_percent, 50);
        assert_eq!(of(json!({"files": [{"count": 7, "bytes": 9}]})).count(), 7);
        for tree in [BenchmarkTree::Small, BenchmarkTree::Large, BenchmarkTree::Mixed] {
            assert!(BenchTree::named(tree.word()).is_some(), "{tree:?}");
        }
    }

    #[test]
    fn a_benchmark_is_over_and_its_job_stands_as_before() {
        let mut before = SyncJobStatus::default();
        let run = run_status::new_run("web", 7, 3, Some("go".into()), Timestamp::UNIX_EPOCH);
        run_status::begin(&mut before, run, Timestamp::UNIX_EPOCH);
        let outcome = Outcome { report: Report::default(), may_retry: false, exit: ExitCode::Done };
        run_status::finish(&mut before, &outcome, None, Timestamp::UNIX_EPOCH);
        for (exit, result) in [(ExitCode::Done, RunResult::Succeeded), (ExitCode::Failed, RunResult::Failed)]
        {
            let mut status = before.clone();
            run_status::begin(&mut status, active(true), Timestamp::UNIX_EPOCH);
            let notes = vec!["a note".into()];
            let told = Report { result, notes, ..report(figures(Some("a"), Some("b"))) };
            let outcome = Outcome { report: told, may_retry: false, exit };
            run_status::finish(&mut status, &outcome, None, Timestamp::UNIX_EPOCH);
            let found = status.last_benchmark.take().unwrap();
            assert_eq!((found.number, found.result, found.benchmark.is_some()), (8, result, true));
            assert_eq!(status, before);
        }
    }

    #[test]
    fn the_sinks_figures_count_and_only_the_place_of_the_source_is_taken_from_it() {
        let end = |figures| Ending { exit: Some(0), report: Some(report(figures)), ..Ending::default() };
        let outcome = judge(&end(figures(Some("from"), None)), &end(figures(None, Some("to"))));
        let found = *outcome.report.benchmark.unwrap();
        assert_eq!(found.source.unwrap().device, "from");
        assert_eq!(found.destination.unwrap().device, "to");
    }

    #[test]
    fn what_syncers_found_gets_the_clusters_names_and_is_bounded() {
        let pod = |side: &str, node: &str| -> Pod {
            let labels = json!({names::LABEL_RUN: "bench", names::LABEL_SIDE: side});
            serde_json::from_value(json!({
                "metadata": {"name": side, "labels": labels},
                "spec": {"nodeName": node, "containers": []},
            }))
            .unwrap()
        };
        let claims = [
            claim(Side::Source, &json!({"storageClassName": "slow"})),
            claim(Side::Sink, &json!({"storageClassName": "fast"})),
        ];
        let pods = [pod("source", "n1"), pod("sink", "n2")];
        let long = "x".repeat(10_000);
        let mut told = figures(Some(&long), Some("b"));
        told.notes = vec![long.clone(); 50];
        told.destination.as_mut().unwrap().machine =
            BenchMachine { kernel: long.clone(), ..Default::default() };
        let bottleneck = Bottleneck { cause: Cause::Cpu, share: 1, message: long };
        let run = Report { bottleneck: Some(bottleneck), ..Report::default() };
        let step = contract::BenchStep::of(BenchStepName::First, &[run]).unwrap();
        told.steps = vec![step; 50];
        let found = placed(told, &active(false), &claims, &pods);
        assert!(serde_json::to_string(&found).unwrap().len() < 8192);
        assert_eq!(
            found.bench,
            BenchTree::named("small").unwrap(),
            "what was asked for, whatever a syncer says"
        );
        let names = |place: Option<BenchPlace>| place.map(|it| (it.storage_class.unwrap(), it.node.unwrap()));
        assert_eq!(names(found.source), Some(("slow".into(), "n1".into())));
        assert_eq!(names(found.destination), Some(("fast".into(), "n2".into())));
        let local = placed(figures(Some("a"), Some("b")), &active(true), &claims, &pods);
        assert_eq!(names(local.source), Some(("slow".into(), "n2".into())), "one pod is both ends");
    }
}
