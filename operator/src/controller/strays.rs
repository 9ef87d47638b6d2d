//! Handles SyncRuns that ask for a run of a SyncJob that does not exist.

use jiff::Timestamp;

use super::{context::Context, record::RecordError};
use crate::{api::SyncRun, model::record as model, telemetry::chain};

/// Writes to each SyncRun that asks for a run of this missing SyncJob that the SyncJob does not exist.
pub(super) async fn tell(context: &Context, namespace: &str, job: &str) {
    let told = write(context, namespace, job, |run| Some(model::astray(run, Timestamp::now())));
    if let Err(error) = told.await {
        tracing::warn!(
            namespace,
            job,
            error = chain(&error),
            "a SyncRun is not told that its SyncJob is missing"
        );
    }
}

/// Removes that message from SyncRuns whose SyncJob exists by now.
pub(super) async fn take_back(context: &Context, namespace: &str, job: &str) -> Result<(), RecordError> {
    write(context, namespace, job, |run| model::no_longer_astray(run, Timestamp::now())).await
}

async fn write(
    context: &Context,
    namespace: &str,
    job: &str,
    status: impl Fn(&SyncRun) -> Option<crate::api::SyncRunStatus>,
) -> Result<(), RecordError> {
    let asks = |run: &SyncRun| {
        run.metadata.namespace.as_deref() == Some(namespace)
            && run.spec.sync_job.name == job
            && run.is_asked_for()
    };
    for run in context.known.runs.state().into_iter().filter(|run| asks(run)) {
        if let Some(new) = status(&run) {
            context.tell_run(&run, &new).await?;
        }
    }
    Ok(())
}
