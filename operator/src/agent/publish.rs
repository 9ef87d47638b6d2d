//! Writes a run's progress and report to the SyncRun's status.
//!
//! The pod's role allows it to read its own SyncRun and to patch that status. A patch tests the SyncRun's UID and the
//! try's number, so that a patch from an earlier try, or for a deleted SyncRun, has no effect.
//!
//! The shards of a run write under their indexes. The first shard writes the sum of their progress: the response to
//! each patch contains the whole status, and with it what the others wrote.

use std::{collections::BTreeMap, time::Duration};

use contract::{Progress, Report, Shard, Side, chain};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{args::AgentArgs, shorten_report};
use crate::{
    api::{
        RunProgress, ShardProgress, Stage, SyncRun, SyncRunStatus,
        reports::{self, end_name},
    },
    status::printer_columns::summary_of_progress,
};

/// The interval between two progress patches at a run's beginning, for each of its shards.
const SHARD_PERIOD: Duration = Duration::from_secs(1);
/// The longest interval between two progress patches, which applies with many shards or late in a run.
const LONGEST_PERIOD: Duration = Duration::from_secs(10);
/// The divisor that turns a run's elapsed time into the minimum interval: a long run needs no update each second.
const SHARE_OF_RUN: u32 = 10;
/// The timeout of one request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// How long sending the report is repeated while the API server is unreachable. The termination message contains it
/// too.
const REPORT_TIMEOUT: Duration = Duration::from_secs(12);

/// Writes to the status of one SyncRun, if an API server is available.
pub(super) struct Publisher {
    pub(super) api: Option<Api<SyncRun>>,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) run: String,
    pub(super) number: i32,
    pub(super) side: Side,
    pub(super) shard: Option<Shard>,
    /// Whether the run has no other pod than this one.
    pub(super) is_alone: bool,
    pub(super) params: PatchParams,
}

/// What a run is doing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Moment {
    pub(super) progress: Progress,
    /// What the other end answers while it lets the run wait.
    pub(super) waiting: Option<String>,
}

impl Publisher {
    /// Prepares to write as the pod's ServiceAccount. Sends nothing yet.
    pub(super) async fn connect(args: &AgentArgs) -> Self {
        let api = client().await.map(|client| Api::namespaced(client, &args.namespace));
        Self {
            api,
            name: args.name.clone(),
            uid: args.uid.clone(),
            run: args.run.clone(),
            number: args.number,
            side: args.side,
            shard: args.shard(),
            is_alone: args.key.is_some(),
            params: PatchParams {
                field_manager: Some(match args.shard() {
                    Some(shard) => format!("volferry-{}-{}", args.side, shard.index),
                    None => format!("volferry-{}", args.side),
                }),
                ..PatchParams::default()
            },
        }
    }

    /// Writes the latest progress until `progress` is closed: at most once in each interval, and less often as the run
    /// goes on. Of two pods, the sink writes progress.
    pub(super) async fn progress(&self, mut progress: watch::Receiver<Moment>) {
        if self.side == Side::Source && !self.is_alone {
            return std::future::pending().await;
        }
        let (mut others, started) = (BTreeMap::new(), Instant::now());
        while progress.changed().await.is_ok() {
            let latest = progress.borrow_and_update().clone();
            match self.patch(&self.progress_status(&latest, &others)).await {
                Ok(status) => others = status.and_then(|it| it.progress).unwrap_or_default().shards,
                Err(error) => tracing::debug!(error = chain(&error), "the progress is not in the status"),
            }
            sleep(self.period(started.elapsed())).await;
        }
    }

    /// Returns the interval until the next patch after that elapsed time.
    fn period(&self, elapsed: Duration) -> Duration {
        let first = SHARD_PERIOD * self.shard.map_or(1, |shard| shard.count);
        first.max(elapsed / SHARE_OF_RUN).min(LONGEST_PERIOD)
    }

    /// Returns the progress to write, given what other shards wrote last: values by their paths below the status.
    fn progress_status(&self, moment: &Moment, others: &BTreeMap<String, ShardProgress>) -> Vec<StatusField> {
        let (run, latest) = (self.run.clone(), moment.progress);
        let Some(shard) = self.shard else {
            let waiting = moment.waiting.clone();
            // A run that waits at an endpoint is not under way yet.
            let begun = waiting.is_none().then(under_way);
            let progress = RunProgress { run, progress: latest, waiting, ..RunProgress::default() };
            let written = [
                ("/progress".into(), json!(progress)),
                ("/summary".into(), json!(summary_of_progress(&latest))),
            ];
            return written.into_iter().chain(begun).collect();
        };
        let own = shard.index.to_string();
        let part = ShardProgress { run: run.clone(), progress: latest };
        let mut written = vec![(format!("/progress/shards/{own}"), json!(part))];
        if shard.index == 0 {
            // Progress left by an earlier try does not count.
            let others = others.iter().filter(|(index, other)| **index != own && other.run == run);
            let all: Vec<Progress> = others.map(|(_, other)| other.progress).chain([latest]).collect();
            let sum = Progress::of_shards(&all);
            let fields = json!(sum);
            let fields = fields.as_object().into_iter().flatten();
            written.extend(fields.map(|(name, value)| (format!("/progress/{name}"), value.clone())));
            written.push(("/summary".into(), json!(summary_of_progress(&sum))));
            written.push(under_way());
        }
        written
    }

    /// Writes this end's report. Repeats it for a while on failure, unless the API server rejects it for good.
    pub(super) async fn report(&self, report: &Report) {
        let status = self.report_status(report);
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let mut pause = Duration::from_millis(200);
        while let Err(error) = self.patch(&status).await {
            if error.is_final() || Instant::now() + pause > deadline {
                let error = chain(&error);
                return tracing::warn!(error, "the report is in the termination message only");
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Returns the report to write, shortened so that it fits into the status, if it has to be.
    fn report_status(&self, report: &Report) -> Vec<StatusField> {
        let report = match self.shard {
            None => shorten_report::of_status(report.clone()),
            Some(_) => shorten_report::of_shard(report.clone()),
        };
        let end = end_name(self.side, self.shard.map(|shard| shard.index));
        vec![(format!("/ends/{end}"), json!(reports::write(&report)))]
    }

    /// Writes to the status if the SyncRun still has this try, and returns the new status. Fails if the API server
    /// rejects the patch, or does not answer in time.
    pub(super) async fn patch(&self, written: &[StatusField]) -> Result<Option<SyncRunStatus>, PublishError> {
        let Some(api) = &self.api else { return Ok(None) };
        let tests = [("/metadata/uid", json!(self.uid)), ("/status/try", json!(self.number))]
            .map(|(path, value)| json!({"op": "test", "path": path, "value": value}));
        let values = written
            .iter()
            .map(|(path, value)| json!({"op": "add", "path": format!("/status{path}"), "value": value}));
        let operations: Vec<Value> = tests.into_iter().chain(values).collect();
        let patch = Patch::Json::<()>(serde_json::from_value(Value::Array(operations))?);
        let request = api.patch_status(&self.name, &self.params, &patch);
        let run = timeout(REQUEST_TIMEOUT, request).await.map_err(|_| PublishError::Timeout)??;
        Ok(run.status)
    }

    /// Returns a publisher without an API server.
    #[cfg(test)]
    pub(super) fn offline() -> Self {
        Self {
            api: None,
            name: String::new(),
            uid: String::new(),
            run: String::new(),
            number: 1,
            side: Side::Sink,
            shard: None,
            is_alone: false,
            params: PatchParams::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error("the API server does not answer")]
    Timeout,
    #[error("the patch cannot be rendered")]
    Render(#[from] serde_json::Error),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// A path below the status, and the value to write there.
type StatusField = (String, Value);

/// Sets the stage to Running, together with the progress, so that the operator need not.
fn under_way() -> StatusField {
    ("/stage".into(), json!(Stage::Running))
}

impl PublishError {
    /// Returns whether the pod lacks the permission.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 403)
    }

    /// Returns whether repeating is useless: the SyncRun is gone, is another one, or has another try.
    pub(super) fn is_final(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        [404, 409, 422].contains(&status.code)
    }
}

async fn client() -> Option<Client> {
    let client = match Config::infer().await {
        Ok(config) => Client::try_from(config),
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "there is no API server; the report goes to the termination message"
            );
            return None;
        }
    };
    client.inspect_err(|error| tracing::warn!(error = chain(error), "the API server cannot be used")).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::any};
    use contract::Phase;
    use tokio::net::TcpListener;

    use super::*;
    use crate::{api::reports::Reports, run::record, status::run_status::new_run};

    /// The answers of an API server in order, of which the last one repeats forever, and the number of requests.
    #[derive(Clone)]
    struct Answers {
        codes: Arc<[u16]>,
        asked: Arc<AtomicUsize>,
    }

    async fn answer(State(answers): State<Answers>) -> impl IntoResponse {
        let at = answers.asked.fetch_add(1, Ordering::SeqCst).min(answers.codes.len() - 1);
        let code = StatusCode::from_u16(answers.codes[at]).unwrap();
        let body = if code.is_success() {
            serde_json::to_value(SyncRun::new("web-1", crate::api::SyncRunSpec::default())).unwrap()
        } else {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()})
        };
        (code, axum::Json(body))
    }

    async fn server(codes: &[u16]) -> (Publisher, Answers) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answers = Answers { codes: codes.into(), asked: Arc::default() };
        let routes = Router::new().fallback(any(answer)).with_state(answers.clone());
        let publisher = publisher(&listener);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (publisher, answers)
    }

    fn publisher(listener: &TcpListener) -> Publisher {
        let config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let client = Client::try_from(config).unwrap();
        Publisher { api: Some(Api::namespaced(client, "prod")), name: "web".into(), ..Publisher::offline() }
    }

    #[tokio::test]
    async fn a_report_is_offered_again_after_a_passing_fault() {
        let (publisher, answers) = server(&[503, 403, 200]).await;
        publisher.report(&Report::default()).await;
        assert_eq!(answers.asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_report_that_nobody_wants_any_more_is_offered_once() {
        for code in [404, 409, 422] {
            let (publisher, answers) = server(&[code]).await;
            publisher.report(&Report::default()).await;
            assert_eq!(answers.asked.load(Ordering::SeqCst), 1, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_answers_is_not_waited_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let publisher = publisher(&listener);
        let started = Instant::now();
        publisher.report(&Report::default()).await;
        assert!(started.elapsed() <= REPORT_TIMEOUT + REQUEST_TIMEOUT, "{:?}", started.elapsed());
        assert!(started.elapsed() > REQUEST_TIMEOUT, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn progress_is_written_at_most_once_a_second_and_the_newest_counts() {
        let (publisher, answers) = server(&[200]).await;
        let (sender, latest) = watch::channel(Moment::default());
        let writing = tokio::spawn(async move { publisher.progress(latest).await });
        let started = Instant::now();
        for files in 0..100 {
            let progress = Progress { files, ..Progress::default() };
            sender.send(Moment { progress, waiting: None }).unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        drop(sender);
        writing.await.unwrap();
        let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
        let asked = answers.asked.load(Ordering::SeqCst);
        assert!(asked >= 2 && asked <= seconds + 1, "{asked} patches in {seconds} s");
    }

    fn of_shard(index: u32) -> Publisher {
        let shard = Some(Shard { index, count: 3 });
        Publisher { run: "web-1.retry1".into(), shard, ..Publisher::offline() }
    }

    fn moved(files: u64) -> Moment {
        let progress = Progress { phase: Phase::Transfer, files, files_total: 10, ..Progress::default() };
        Moment { progress, waiting: None }
    }

    #[test]
    fn shards_write_under_their_numbers_and_the_first_the_sum_of_this_try() {
        let mut status = begun();
        for (index, files) in [(1, 2), (2, 3)] {
            let written = of_shard(index).progress_status(&moved(files), &BTreeMap::new());
            assert_eq!(written.len(), 1, "the sum is for the first");
            apply(&mut status, &written);
        }
        status["progress"]["shards"]["7"] = json!({"run": "web-1", "files": 1000});
        let others: RunProgress = serde_json::from_value(status["progress"].clone()).unwrap();
        apply(&mut status, &of_shard(0).progress_status(&moved(4), &others.shards));

        let all: SyncRunStatus = serde_json::from_value(status).unwrap();
        let progress = all.progress.unwrap();
        let sum = Progress { phase: Phase::Transfer, files: 9, files_total: 30, ..Progress::default() };
        assert_eq!((progress.run.as_str(), progress.progress), ("web-1.retry1", sum));
        let parts = ["0", "1", "2"].map(|index| progress.shards[index].progress.files);
        assert_eq!((parts, all.summary.unwrap().files.as_str()), ([4, 2, 3], "9/30"));
        assert_eq!(all.stage, Some(Stage::Running));
    }

    #[test]
    fn reports_of_shards_do_not_overwrite_each_other_and_fit_into_a_status_together() {
        let mut status = begun();
        for index in 0..3 {
            for side in [Side::Source, Side::Sink] {
                let report = Report {
                    run: format!("{side} {index}"),
                    message: "x".repeat(10_000),
                    ..Report::default()
                };
                apply(&mut status, &Publisher { side, ..of_shard(index) }.report_status(&report));
            }
        }
        let ends = &status["ends"];
        assert!(ends.to_string().len() < 6 * 1500, "{}", ends.to_string().len());
        let reports: Reports = serde_json::from_value(ends.clone()).unwrap();
        for index in 0..3 {
            for side in [Side::Source, Side::Sink] {
                assert_eq!(reports.of(side, Some(index)).unwrap().run, format!("{side} {index}"));
            }
        }
        assert_eq!((reports.of(Side::Sink, Some(3)), reports.of(Side::Sink, None)), (None, None));
    }

    #[test]
    fn many_shards_together_patch_hardly_more_often_than_one() {
        let seconds = |count| {
            let shard = Some(Shard { index: 0, count });
            Publisher { shard, ..Publisher::offline() }.period(Duration::ZERO).as_secs()
        };
        assert_eq!(
            (Publisher::offline().period(Duration::ZERO).as_secs(), seconds(3), seconds(64)),
            (1, 3, 10)
        );
    }

    #[test]
    fn the_longer_a_run_the_rarer_are_its_patches() {
        let publisher = Publisher::offline();
        let (mut at, mut patches) = (Duration::ZERO, 0);
        while at < Duration::from_secs(210) {
            at += publisher.period(at);
            patches += 1;
        }
        assert!(patches < 60, "{patches} patches in 3.5 minutes");
        assert_eq!(publisher.period(Duration::from_secs(86_400)), LONGEST_PERIOD);
    }

    /// Returns the status that the operator gives to the SyncRun of a try with three shards.
    fn begun() -> Value {
        let mut run = new_run("web", 1, 1, None, jiff::Timestamp::UNIX_EPOCH);
        (run.shards, run.retries) = (3, 1);
        let none = SyncRunStatus::default();
        json!(record::under_way(&none, &run, Stage::Starting, None, 1, jiff::Timestamp::UNIX_EPOCH))
    }

    /// Applies a patch like an API server: a value can only be added below an existing parent.
    fn apply(into: &mut Value, written: &[StatusField]) {
        for (path, value) in written {
            let (parent, name) = path.rsplit_once('/').unwrap();
            let parent = into.pointer_mut(parent).and_then(Value::as_object_mut);
            parent.unwrap_or_else(|| panic!("{path} has no parent")).insert(name.into(), value.clone());
        }
    }
}
