//! Creates the objects that a step requires: those of a run, or the destination's claim. It also expands that claim.

use kube::ResourceExt;

use super::{
    apply::{self, ApplyError, Refusal},
    context::Context,
    error::Error,
    view::View,
};
use crate::{
    ends::destination_identity,
    grants::refresh_grants,
    pods::Try,
    run::stages::step::Step,
    snapshots::{find_changes, source_capture},
    spec::validate::ValidatedSyncJob,
    volumes::{claim_creation, claim_growth},
};

/// Creates the missing objects of the run under way; for a run whose pods are starting already, only the service
/// account. Returns the API server's objection if it rejects one of them: the status then shows it, because only a user
/// can resolve it. Fails on all other errors.
pub(crate) async fn launch(
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
    step: &Step,
) -> Result<Option<Refusal>, Error> {
    let (Some(run), Some(names)) = (view.active(), &view.active_names) else { return Ok(None) };
    let Some(run_uid) = view.found.run.as_ref().and_then(ResourceExt::uid) else { return Ok(None) };
    let run_uid = &run_uid;
    let (settings, found) = (&context.settings, view.found);
    let (ends, placements) = (&found.ends, &found.placements);
    let expect_volume = destination_identity::expected(view.status, valid, found.destination_uid());
    let fs_groups = found.fs_groups.unwrap_or_default();
    let reading = source_capture::reading(valid, run);
    let changes = &find_changes::find(&context.client, view, run, valid).await;
    let of = Try {
        job: &reading,
        uid: view.uid(),
        run,
        account: found.account,
        run_uid,
        names,
        settings,
        ends,
        placements,
        expect_volume,
        other_source: view.other_source(valid, run),
        fs_groups,
        awaited_hook: view.awaited_hook(valid),
        makes_key: view.makes_key(valid),
        changes,
    };
    let (client, accounts) = (&context.client, &context.accounts);
    refresh_grants::confirm(context, view.job, &found.ends, &found.users).await?;
    let made = match step {
        Step::Launch => apply::launch(client, &context.known.batch, accounts, &of, &found.children).await,
        _ => apply::grant(client, accounts, &of).await,
    };
    match made {
        Ok(()) => Ok(None),
        Err(error) => error.refusal().map(Some).ok_or(error.into()),
    }
}

/// Creates the destination's claim. Returns the API server's objection if it rejects the claim.
pub(crate) async fn create(
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
) -> Result<Option<Refusal>, ApplyError> {
    let Some(claim) = claim_creation::due(valid, &view.found.claims) else { return Ok(None) };
    match apply::create_claim(&context.client, &claim_creation::given_to(claim, view.job)).await {
        Ok(made) => {
            made.iter().for_each(|made| context.known.claims.wrote(made));
            Ok(None)
        }
        Err(error) => error.refusal().map(Some).ok_or(error),
    }
}

/// Requests the larger size for the destination's claim. Returns the API server's objection if it rejects the request.
pub(crate) async fn grow(
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
) -> Result<Option<Refusal>, ApplyError> {
    let claims = &view.found.claims;
    let Some(growing) = claim_growth::wanted(valid.create.as_ref(), claims) else { return Ok(None) };
    match apply::grow_claim(&context.client, &growing).await {
        Ok(grown) => {
            context.known.claims.wrote(&grown);
            Ok(None)
        }
        Err(error) => error.refusal().map(Some).ok_or(error),
    }
}
