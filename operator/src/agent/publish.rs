//! Writing a run's progress and report into the SyncJob's status.
//!
//! The pod's role allows one thing: `patch` on the status of its own SyncJob. Each side writes under a field
//! manager of its own, and names the job's UID, so that a job made anew under the same name refuses the patch.

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
/// For how long the report is offered to an API server that is out of reach. The termination message has it too.
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

    /// Writes the newest progress, at most once a second, until `progress` is closed. The sink speaks for the run.
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

    /// Writes this end's report; tries again for a while, unless the API server says that it does not want it.
    pub(super) async fn report(&self, report: &Report) {
        let reports = match self.side {
            Side::Source => Reports { source: Some(report.clone()), sink: None },
            Side::Sink => Reports { source: None, sink: Some(report.clone()) },
        };
        let status = json!({ "reports": reports });
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let mut pause = Duration::from_millis(200);
        while let Err(error) = self.patch(&status).await {
            let pointless = matches!(&error, PublishError::Api(kube::Error::Api(status)) if [404, 409, 422].contains(&status.code));
            if pointless || Instant::now() + pause > deadline {
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
