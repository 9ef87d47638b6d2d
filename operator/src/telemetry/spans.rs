//! Builds the spans of a run from the records of the operator and the ends.

use std::time::{Duration, SystemTime};

use contract::{Effort, Phase, Report, RunResult, Side, Timings};
use jiff::Timestamp;
use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::api::{ActiveRun, Run};

/// The trace of one run.
struct Trace {
    id: TraceId,
    uid: String,
}

/// One span of a trace, before it has an id.
struct Span {
    name: String,
    /// The key, unique in its trace, whose hash is the span's id.
    key: String,
    parent: Option<SpanId>,
    times: [SystemTime; 2],
    attributes: Vec<KeyValue>,
    status: Status,
}

impl Trace {
    fn of(uid: &str) -> Self {
        let digits: String = uid.chars().filter(char::is_ascii_hexdigit).collect();
        let hash = || TraceId::from_bytes(number(&format!("trace {uid}")));
        let id = TraceId::from_hex(&digits).ok().filter(|_| digits.len() == 32).unwrap_or_else(hash);
        Self { id, uid: uid.into() }
    }

    fn root(&self) -> SpanId {
        self.span_id("run")
    }

    fn span_id(&self, key: &str) -> SpanId {
        SpanId::from_bytes(number(&format!("span {} {key}", self.uid)))
    }

    fn data(&self, span: Span) -> SpanData {
        let Span { name, key, parent, times: [start_time, end_time], attributes, status } = span;
        let context =
            SpanContext::new(self.id, self.span_id(&key), TraceFlags::SAMPLED, false, TraceState::default());
        SpanData {
            span_context: context,
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time,
            end_time: end_time.max(start_time),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: InstrumentationScope::builder("volferry").build(),
        }
    }
}

/// Returns the first `N` bytes of a text's hash, as the id of a trace or a span.
fn number<const N: usize>(text: &str) -> [u8; N] {
    let hash = blake3::hash(text.as_bytes());
    std::array::from_fn(|at| hash.as_bytes()[at])
}

/// Returns the operator's spans of a run that has ended: the run, its wait in the queue, and the start of its pods.
/// `active` is the run as recorded in the SyncJob's status before. A run without a SyncRun has no spans.
pub fn of_run(namespace: &str, job: &str, active: &ActiveRun, run: &Run) -> Vec<SpanData> {
    let Some(uid) = &active.uid else { return Vec::new() };
    let trace = Trace::of(uid);
    let time = |time: &Timestamp| SystemTime::from(*time);
    let micro = |at: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime>| {
        at.as_ref().map(|at| time(&at.0))
    };
    let ended = run.completion_time.as_ref().map_or_else(SystemTime::now, |at| time(&at.0));
    let (queued, started) = (micro(&active.queue_time), micro(&active.start_time));
    let began = queued.or(started).unwrap_or(ended);
    let attributes = vec![
        KeyValue::new("k8s.namespace.name", namespace.to_string()),
        KeyValue::new("volferry.syncjob", job.to_string()),
        KeyValue::new("volferry.syncrun", run.id.clone()),
        KeyValue::new("volferry.result", format!("{:?}", run.result)),
        KeyValue::new("volferry.retries", i64::from(run.retries)),
        KeyValue::new("volferry.files_changed", count(run.work.changed())),
        KeyValue::new("volferry.bytes_changed", count(run.work.bytes_changed)),
        KeyValue::new("volferry.bytes_on_wire", count(run.work.bytes_on_wire)),
    ];
    let root = Span {
        name: format!("run {}", run.id),
        key: "run".into(),
        parent: None,
        times: [began, ended],
        attributes,
        status: status(run.result, run.message.as_deref()),
    };
    let stage = |name: &str, from: Option<SystemTime>, to: Option<SystemTime>| {
        Some(Span {
            name: name.into(),
            key: name.into(),
            parent: Some(trace.root()),
            times: [from?, to?],
            attributes: Vec::new(),
            status: Status::Unset,
        })
    };
    let ready = micro(&active.pods_ready_time);
    let stages = [
        stage("queue", queued, started),
        stage("pod start", micro(&active.try_time).or(started), ready),
        stage("running", ready, Some(ended)),
    ];
    [Some(root)].into_iter().chain(stages).flatten().map(|span| trace.data(span)).collect()
}

/// Returns the spans of one end of a try: the end itself, from `began` to `ended`, and each of its phases.
pub fn of_end(uid: &str, try_id: &str, side: Side, report: &Report, times: [SystemTime; 2]) -> Vec<SpanData> {
    let trace = Trace::of(uid);
    let key = format!("{try_id} {side}");
    let end = Span {
        name: side.to_string(),
        key: key.clone(),
        parent: Some(trace.root()),
        times,
        attributes: vec![
            KeyValue::new("volferry.try", try_id.to_string()),
            KeyValue::new("volferry.result", format!("{:?}", report.result)),
        ],
        status: status(report.result, Some(&report.message)),
    };
    let began = report.start_time.parse::<Timestamp>().map_or(times[0], SystemTime::from).max(times[0]);
    let mut at = began;
    let parent = trace.span_id(&key);
    let phases = efforts(report, side).into_iter().map(|effort| {
        let from = at;
        at += Duration::from_micros(effort.wall_us);
        Span {
            name: format!("{:?}", effort.phase).to_lowercase(),
            key: format!("{key} {:?}", effort.phase),
            parent: Some(parent),
            times: [from, at],
            attributes: waits(&effort),
            status: Status::Unset,
        }
    });
    let phases: Vec<Span> = phases.collect();
    [end].into_iter().chain(phases).map(|span| trace.data(span)).collect()
}

/// Returns the work of the end in each phase. A phase that was not measured at this end has the run's time.
fn efforts(report: &Report, side: Side) -> Vec<Effort> {
    let measured = match side {
        Side::Source => &report.efforts.source,
        Side::Sink => &report.efforts.sink,
    };
    let of_run = phases(&report.timings).map(|(phase, ms)| {
        let whole = Effort { phase, wall_us: ms.saturating_mul(1000), ..Effort::default() };
        measured.iter().copied().find(|effort| effort.phase == phase).unwrap_or(whole)
    });
    of_run.filter(|effort| effort.wall_us > 0).collect()
}

fn phases(timings: &Timings) -> impl Iterator<Item = (Phase, u64)> {
    let Timings { connect, scan, plan, delta, transfer, apply, commit, snapshot, .. } = *timings;
    Phase::ALL.into_iter().zip([connect, scan, plan, delta, transfer, apply, commit, snapshot])
}

/// Lists what the end waited for in a phase, in microseconds.
fn waits(effort: &Effort) -> Vec<KeyValue> {
    let waits = [
        ("volferry.cpu_us", effort.cpu_us),
        ("volferry.throttled_us", effort.throttled_us),
        ("volferry.reading_us", effort.reading_us),
        ("volferry.writing_us", effort.writing_us),
        ("volferry.syncing_us", effort.syncing_us),
        ("volferry.hashing_us", effort.hashing_us),
        ("volferry.compressing_us", effort.compressing_us),
        ("volferry.network_us", effort.network_us),
        ("volferry.peer_us", effort.peer_us),
    ];
    waits.into_iter().filter(|(_, us)| *us > 0).map(|(name, us)| KeyValue::new(name, count(us))).collect()
}

fn status(result: RunResult, message: Option<&str>) -> Status {
    match result {
        RunResult::Succeeded => Status::Ok,
        _ => Status::error(message.unwrap_or_default().to_string()),
    }
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

    use super::*;

    const UID: &str = "4bf92f35-77b3-4da6-a3ce-929d0e0e4736";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn run_spans() -> Vec<SpanData> {
        let micro = |seconds| Some(MicroTime(at(seconds)));
        let active = ActiveRun {
            uid: Some(UID.into()),
            queue_time: micro(0),
            start_time: micro(2),
            try_time: micro(2),
            pods_ready_time: micro(4),
            ..ActiveRun::default()
        };
        let run = Run { id: "web-1".into(), completion_time: Some(Time(at(9))), ..Run::default() };
        of_run("prod", "web", &active, &run)
    }

    fn end_spans(side: Side) -> Vec<SpanData> {
        let scan =
            Effort { phase: Phase::Scan, wall_us: 1_500_000, reading_us: 900_000, ..Effort::default() };
        let report = Report {
            start_time: at(5).to_string(),
            timings: Timings { scan: 2000, transfer: 1000, ..Timings::default() },
            efforts: contract::Efforts { source: vec![scan], sink: Vec::new() },
            ..Report::default()
        };
        of_end(UID, "web-1-0", side, &report, [at(4), at(9)].map(SystemTime::from))
    }

    #[test]
    fn the_operator_and_both_ends_have_one_trace_with_one_root() {
        let spans = [run_spans(), end_spans(Side::Source), end_spans(Side::Sink)].concat();
        let trace = TraceId::from_hex(&UID.replace('-', "")).unwrap();
        assert!(spans.iter().all(|span| span.span_context.trace_id() == trace));
        let ids: std::collections::HashSet<_> =
            spans.iter().map(|span| span.span_context.span_id()).collect();
        assert_eq!(ids.len(), spans.len(), "each span has a number of its own");
        let (roots, others): (Vec<_>, Vec<_>) =
            spans.iter().partition(|span| span.parent_span_id == SpanId::INVALID);
        assert_eq!(roots.len(), 1);
        assert!(others.iter().all(|span| ids.contains(&span.parent_span_id)));
    }

    #[test]
    fn stages_and_phases_follow_one_another() {
        let times = |spans: &[SpanData]| -> Vec<(String, f64, f64)> {
            let since = |time: SystemTime| time.duration_since(at(0).into()).unwrap().as_secs_f64();
            let of = |span: &SpanData| (span.name.to_string(), since(span.start_time), since(span.end_time));
            spans.iter().map(of).collect()
        };
        let name = str::to_string;
        let stages = [("run web-1", 0., 9.), ("queue", 0., 2.), ("pod start", 2., 4.), ("running", 4., 9.)];
        assert_eq!(times(&run_spans()), stages.map(|(stage, from, to)| (name(stage), from, to)));
        let source = [("source", 4., 9.), ("scan", 5., 6.5), ("transfer", 6.5, 7.5)];
        assert_eq!(times(&end_spans(Side::Source)), source.map(|(phase, from, to)| (name(phase), from, to)));
        let sink = [("sink", 4., 9.), ("scan", 5., 7.), ("transfer", 7., 8.)];
        assert_eq!(times(&end_spans(Side::Sink)), sink.map(|(phase, from, to)| (name(phase), from, to)));
    }

    #[test]
    fn a_uid_that_is_none_still_gives_one_trace() {
        assert_eq!(Trace::of("u").id, Trace::of("u").id);
        assert_ne!(Trace::of("u").id, TraceId::INVALID);
    }
}
