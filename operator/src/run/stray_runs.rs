//! Handles SyncRuns that no reconciliation of a SyncJob takes care of: those that ask for a run of a SyncJob that does
//! not exist, and those that cannot be read.

use contract::chain;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    record,
    write_record::{self, RecordError},
};
use crate::{api::SyncRun, controller::context::Context, names};

/// Writes to each SyncRun that asks for a run of this missing SyncJob that the SyncJob does not exist.
pub(crate) async fn report(context: &Context, namespace: &str, job: &str) {
    let told = write(context, namespace, job, |run| Some(record::astray(run, Timestamp::now())));
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
pub(crate) async fn take_back(context: &Context, namespace: &str, job: &str) -> Result<(), RecordError> {
    write(context, namespace, job, |run| record::no_longer_astray(run, Timestamp::now())).await
}

/// Writes to a SyncRun that this operator cannot read that it cannot, so that its user learns of it. It is no other's
/// concern, and a failure is logged.
pub(crate) async fn report_unreadable(context: &Context, run: &SyncRun) {
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    let why = run.annotations().get(names::ANNOTATION_UNREADABLE).map(String::as_str).unwrap_or_default();
    tracing::warn!(namespace, name, error = why, "a SyncRun cannot be read, and is left alone");
    let told = write_record::write_unread(&context.client, run, &record::unreadable(run, why)).await;
    if let Err(error) = told {
        tracing::warn!(
            namespace,
            name,
            error = chain(&error),
            "a SyncRun is not told that it cannot be read"
        );
    }
}

/// Reports to a SyncRun that a person made with fields of the operator why no run starts for it.
pub(crate) async fn report_preset(context: &Context, namespace: &str, job: &str) -> Result<(), RecordError> {
    for run in context.known.runs.of(namespace, job) {
        if let Some(new) = record::preset(&run, Timestamp::now()) {
            context.write_run_status(&run, &new).await?;
        }
    }
    Ok(())
}

async fn write(
    context: &Context,
    namespace: &str,
    job: &str,
    status: impl Fn(&SyncRun) -> Option<crate::api::SyncRunStatus>,
) -> Result<(), RecordError> {
    for run in context.known.runs.of(namespace, job).into_iter().filter(|run| run.is_asked_for()) {
        if let Some(new) = status(&run) {
            context.write_run_status(&run, &new).await?;
        }
    }
    Ok(())
}
