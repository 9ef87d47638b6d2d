//! Writing a run's progress and report into the SyncJob's status.
//!
//! The pod's role allows one thing: `patch` on the status of its own SyncJob. Each side writes under a field
//! manager of its own, and names the job's UID, so that a job made anew under the same name refuses the
//! patch.

use std::time::Duration;

use contract::{Progress, Report, Side};
use kube::{
    Api, Client, Config,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::AgentArgs;
use crate::{
    api::{Reports, RunProgress, SyncJob},
    controller::status::summary_of_progress,
    telemetry::chain,
};

/// Between two patches of the progress.
const PERIOD: Duration = Duration::from_secs(1);
/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// For how long the report is offered to an API server that is out of reach. The termination message has it
/// too.
const REPORT_TIMEOUT: Duration = Duration::from_secs(12);

/// Writes to the status of one SyncJob, if there is an API server to write to.
pub(super) struct Publisher {
    api: Option<Api<SyncJob>>,
    name: String,
    uid: String,
    run: String,
    side: Side,
    params: PatchParams,
}

impl Publisher {
    /// Prepares to write as the pod's ServiceAccount. Nothing is sent yet.
    pub(super) async fn connect(args: &AgentArgs) -> Self {
        let api = client().await.map(|client| Api::namespaced(client, &args.namespace));
        Self {
            api,
            name: args.name.clone(),
            uid: args.uid.clone(),
            run: args.run.clone(),
            side: args.side,
            params: PatchParams {
                field_manager: Some(format!("volferry-{}", args.side)),
                ..PatchParams::default()
            },
        }
    }

    /// Writes the newest progress, at most once a second, until `progress` is closed. The sink speaks for the
    /// run.
    pub(super) async fn progress(&self, mut progress: watch::Receiver<Progress>) {
        if self.side == Side::Source {
            return std::future::pending().await;
        }
        while progress.changed().await.is_ok() {
            let latest = *progress.borrow_and_update();
            let status = json!({
                "progress": RunProgress { run: self.run.clone(), progress: latest },
                "summary": summary_of_progress(&latest),
            });
            if let Err(error) = self.patch(&status).await {
                tracing::debug!(error = chain(&error), "the progress is not in the status");
            }
            sleep(PERIOD).await;
        }
    }

    /// Writes this end's report; tries again for a while, unless the API server says that it does not want
    /// it.
    pub(super) async fn report(&self, report: &Report) {
        let reports = match self.side {
            Side::Source => Reports { source: Some(report.clone()), sink: None },
            Side::Sink => Reports { source: None, sink: Some(report.clone()) },
        };
        let status = json!({ "reports": reports });
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

    async fn patch(&self, status: &Value) -> Result<(), PublishError> {
        let Some(api) = &self.api else { return Ok(()) };
        let patch = Patch::Merge(json!({ "metadata": { "uid": self.uid }, "status": status }));
        let request = api.patch_status(&self.name, &self.params, &patch);
        timeout(REQUEST_TIMEOUT, request).await.map_err(|_| PublishError::Timeout)??;
        Ok(())
    }

    /// A publisher with no API server.
    #[cfg(test)]
    pub(super) fn offline() -> Self {
        Self {
            api: None,
            name: String::new(),
            uid: String::new(),
            run: String::new(),
            side: Side::Sink,
            params: PatchParams::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("the API server does not answer")]
    Timeout,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

impl PublishError {
    /// The job is gone, is another one by now, or has no run that the report could be of.
    fn is_final(&self) -> bool {
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
    use tokio::net::TcpListener;

    use super::*;

    /// What an API server answers, one after the other, the last one for ever; and how often it was asked.
    #[derive(Clone)]
    struct Answers {
        codes: Arc<[u16]>,
        asked: Arc<AtomicUsize>,
    }

    async fn answer(State(answers): State<Answers>) -> impl IntoResponse {
        let at = answers.asked.fetch_add(1, Ordering::SeqCst).min(answers.codes.len() - 1);
        let code = StatusCode::from_u16(answers.codes[at]).unwrap();
        let body = if code.is_success() {
            serde_json::to_value(SyncJob::new("web", crate::api::SyncJobSpec::default())).unwrap()
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
        let (sender, latest) = watch::channel(Progress::default());
        let writing = tokio::spawn(async move { publisher.progress(latest).await });
        let started = Instant::now();
        for files in 0..100 {
            sender.send(Progress { files, ..Progress::default() }).unwrap();
            sleep(Duration::from_millis(50)).await;
        }
        drop(sender);
        writing.await.unwrap();
        let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
        let asked = answers.asked.load(Ordering::SeqCst);
        assert!(asked >= 2 && asked <= seconds + 1, "{asked} patches in {seconds} s");
    }
}
