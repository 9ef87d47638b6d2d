//! Takes the steps of the populator, one after the other, for each claim.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use contract::{Reason, chain};
use futures::StreamExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{
        Controller,
        controller::{Action, Error as ControllerError},
        reflector::ObjectRef,
        watcher,
    },
};
use serde_json::json;
use thiserror::Error;
use tokio::time::{error::Elapsed, timeout};

use super::{
    choose_content,
    plan::{self, ClaimSituation, FillStep},
    temporary_claim::{self, POPULATOR},
};
use crate::{
    api::SyncJob,
    controller::{
        apply::Applicable,
        pause_after_failure::pause_after,
        read::{DereferenceError, Guarded},
        recently_read::Recent,
        reconcile_timeout::TIMEOUT,
        serve::{ServeError, host_name},
        watches::{await_kind, scoped},
    },
    fault::Fault,
    leases::election::Election,
    names::{self, ANNOTATION_POPULATED, POPULATED_EMPTY},
    pods::read_warnings::last_warning,
    signals::Stops,
    telemetry::{
        events::{Events, Note},
        metrics::JobLabels,
        probes::{self, Health, PULSE},
    },
};

/// How often a claim that cannot be filled is looked at again, although no watch told of a change.
const LOOK: Duration = Duration::from_secs(30);

/// The group of the kind VolumePopulator.
const VALIDATED_BY: &str = "populator.storage.k8s.io";

/// The flags of `volferry-operator populate`.
#[derive(Debug, Clone, Args)]
pub struct PopulateArgs {
    /// Fill claims of these namespaces only; separated by commas. Absent or empty: all namespaces.
    #[arg(long, env = "VOLFERRY_WATCH_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Where /healthz, /readyz and /metrics are served. `[::]` is every address, also where there is no IPv6.
    #[arg(long, default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// The file with a token that readers of /metrics have to show as `Authorization: Bearer TOKEN`. Absent: none.
    #[arg(long, env = "VOLFERRY_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
    /// Work only while holding a Lease, so that several replicas can wait for each other.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// The Lease's name.
    #[arg(long, default_value = "volferry-populator")]
    pub lease_name: String,
    /// The Lease's namespace. Absent: the one that it runs in.
    #[arg(long, env = "POD_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// What this replica is called in the Lease and in events. Absent: the host's name, which is the pod's.
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
}

/// The reason why a step could not be taken. It is tried again.
#[derive(Debug, Error)]
#[error("cannot {what}")]
struct StepError {
    what: &'static str,
    source: kube::Error,
}

fn cannot(what: &'static str) -> impl Fn(kube::Error) -> StepError {
    move |source| StepError { what, source }
}

struct Populator {
    client: Client,
    events: Events,
    health: Arc<Health>,
    /// What each claim was last told, by its UID, so that it is told once an hour.
    told: Recent<Fault>,
    /// How often in a row each claim could not be advanced.
    failures: Recent<u32>,
}

/// Fills claims until SIGTERM or SIGINT, or until leadership is lost.
pub async fn serve(mut args: PopulateArgs) -> Result<(), ServeError> {
    args.watch_namespaces.retain(|namespace| !namespace.is_empty());
    let mut stops = Stops::new().map_err(ServeError::Signals)?;
    let config =
        Config::infer().await.map_err(|error| ServeError::Client(kube::Error::InferConfig(error)))?;
    let client = Client::try_from(config).map_err(ServeError::Client)?;
    let health = Arc::new(Health::default().asking_for_token(args.metrics_token_file.clone()));
    let address = args.listen;
    probes::serve(address, health.clone()).await.map_err(|source| ServeError::Listen { address, source })?;
    let identity = args.identity.clone().unwrap_or_else(host_name);
    let namespace = args.lease_namespace.clone().unwrap_or_else(|| client.default_namespace().into());
    tokio::select! {
        () = await_kind::<SyncJob>(&client, &args.watch_namespaces) => health.set_ready(),
        () = stops.next() => return Ok(()),
    }
    check_for_validator(&client).await;
    let election = Election::new(client.clone(), &namespace, &args.lease_name, &identity);
    let populator = Arc::new(Populator {
        events: Events::reporting_as(client.clone(), POPULATOR, &identity),
        client,
        health,
        told: Recent::default(),
        failures: Recent::default(),
    });
    let work = populator.work(&args.watch_namespaces);
    if !args.leader_elect {
        tokio::select! {
            () = work => {}
            () = stops.next() => {}
        }
        return Ok(());
    }
    let mut leadership = tokio::select! {
        leadership = election.acquire() => leadership,
        () = stops.next() => return Ok(()),
    };
    tracing::info!(lease = args.lease_name, namespace, "filling claims");
    tokio::select! {
        lost = leadership.hold() => return Err(lost.into()),
        () = work => {}
        () = stops.next() => {}
    }
    leadership.release().await;
    Ok(())
}

/// Logs if the cluster lacks the kind by which a validator of data sources learns that SyncJobs fill claims.
async fn check_for_validator(client: &Client) {
    let has_kind =
        client.list_api_groups().await.map(|it| it.groups.iter().any(|it| it.name == VALIDATED_BY));
    if has_kind.is_ok_and(|has_kind| !has_kind) {
        tracing::info!(
            "the cluster has no VolumePopulator, so nothing checks what claims name as their source; they are filled"
        );
    }
}

/// What was read for a look at a claim.
struct ClaimObjects {
    claim: PersistentVolumeClaim,
    is_lazy: bool,
    job: Option<SyncJob>,
    copy: Option<PersistentVolumeClaim>,
    temporary: Option<PersistentVolumeClaim>,
    warning: Option<String>,
    filler: Option<SyncJob>,
    volume: Option<PersistentVolume>,
}

impl ClaimObjects {
    fn situation(&self) -> ClaimSituation<'_> {
        ClaimSituation {
            claim: &self.claim,
            is_lazy: self.is_lazy,
            job: self.job.as_ref(),
            copy: self.copy.as_ref(),
            temporary: self.temporary.as_ref(),
            warning: self.warning.as_deref(),
            filler: self.filler.as_ref(),
            volume: self.volume.as_ref(),
        }
    }
}

impl Populator {
    /// Reconciles the claims of these namespaces, or of all if there are none, without end.
    async fn work(self: Arc<Self>, namespaces: &[String]) {
        let scopes = crate::controller::stores::scopes(namespaces);
        let work = futures::future::join_all(scopes.into_iter().map(|scope| self.clone().work_in(scope)));
        let mut pulse = tokio::time::interval(PULSE);
        let beats = async {
            loop {
                pulse.tick().await;
                self.health.beat();
            }
        };
        tokio::select! {
            _ = work => {}
            () = beats => {}
        }
    }

    async fn work_in(self: Arc<Self>, scope: Option<String>) {
        let claims = scoped::<PersistentVolumeClaim>(&self.client, scope.as_deref());
        let own = watcher::Config::default().labels(&format!("{}={POPULATOR}", names::LABEL_MANAGED_BY));
        let controller = Controller::new(claims.clone(), watcher::Config::default());
        let store = controller.store();
        // A SyncJob concerns the claims that name it, and the one that it fills.
        let concerned = move |job: Guarded| {
            let (namespace, name) = (job.namespace(), job.name_any());
            let is_concerned = |claim: &&Arc<PersistentVolumeClaim>| {
                (claim.namespace() == namespace && choose_content::source(claim) == Some(&*name))
                    || temporary_claim::is_of(&job, claim)
            };
            store
                .state()
                .iter()
                .filter(is_concerned)
                .map(|claim| ObjectRef::from_obj(&**claim))
                .collect::<Vec<_>>()
        };
        controller
            .owns(claims, own)
            .watches(scoped::<Guarded>(&self.client, scope.as_deref()), watcher::Config::default(), concerned)
            .run(reconcile, on_error, self.clone())
            .for_each(async |done| match done {
                Err(ControllerError::ObjectNotFound(claim)) => {
                    let gone = JobLabels { namespace: claim.namespace.unwrap_or_default(), name: claim.name };
                    self.health.metrics.claim_waits(&gone, false);
                }
                // What a step says is logged where it fails; this is about the watches.
                Err(error @ (ControllerError::QueueError(_) | ControllerError::RunnerError(_))) => {
                    tracing::warn!(error = chain(&error), "the API server does not list what claims need");
                }
                _ => {}
            })
            .await;
    }

    async fn advance(&self, claim: &PersistentVolumeClaim) -> Result<FillStep, StepError> {
        let Some(found) = self.read(claim).await? else { return Ok(FillStep::Done) };
        let step = match self.carry_out(&found, plan::next(found.situation())).await {
            // What the API server refuses is for a person to mend: a quota, a policy, a field that is not valid.
            Err(StepError { what, source: kube::Error::Api(answer) })
                if [400, 403, 422].contains(&answer.code) =>
            {
                FillStep::Tell(Fault::new(Reason::ChildRefused, format!("Cannot {what}: {}", answer.message)))
            }
            step => step?,
        };
        if let FillStep::Tell(fault) = &step {
            self.publish_fault(&found.claim, fault).await;
        }
        Ok(step)
    }

    /// Reads what the next step depends on; `None` if there is no such claim any more, or it names no SyncJob.
    async fn read(&self, claim: &PersistentVolumeClaim) -> Result<Option<ClaimObjects>, StepError> {
        let claims = self.namespaced::<PersistentVolumeClaim>(claim);
        // Read anew: what a watch brought may be older than the last step.
        let claim = claims.get_opt(&claim.name_any()).await.map_err(cannot("read the claim"))?;
        let Some(claim) = claim else { return Ok(None) };
        let Some(source) = choose_content::source(&claim) else { return Ok(None) };
        let name = temporary_claim::name(&claim);
        let temporary = claims.get_opt(&name).await.map_err(cannot("read the temporary claim"))?;
        let filler = self.job(&claim, &name).await?;
        let job = self.job(&claim, source).await?;
        let to = job.as_ref().and_then(|job| job.spec.destination.persistent_volume_claim.as_ref());
        let copy = match to {
            Some(to) => claims.get_opt(&to.claim_name).await.map_err(cannot("read the claim of the copy"))?,
            None => None,
        };
        let volume = match temporary.as_ref().and_then(|it| it.spec.as_ref()?.volume_name.clone()) {
            Some(name) => Api::<PersistentVolume>::all(self.client.clone())
                .get_opt(&name)
                .await
                .map_err(cannot("read the PersistentVolume"))?,
            None => None,
        };
        let warning = match &temporary {
            Some(temporary) if volume.is_none() => self.last_warning(temporary).await?,
            _ => None,
        };
        let is_lazy = self.is_lazy(&claim).await?;
        Ok(Some(ClaimObjects { claim, is_lazy, job, copy, temporary, warning, filler, volume }))
    }

    async fn job(&self, beside: &PersistentVolumeClaim, name: &str) -> Result<Option<SyncJob>, StepError> {
        let cannot = cannot("read a SyncJob");
        let job = self.namespaced::<Guarded>(beside).get_opt(name).await.map_err(&cannot)?;
        let unknown = |error| cannot(kube::Error::SerdeError(serde::de::Error::custom(error)));
        job.map(|job| job.0.map_err(unknown)).transpose()
    }

    /// Returns the latest warning about a claim, which has what the provisioner says.
    async fn last_warning(&self, claim: &PersistentVolumeClaim) -> Result<Option<String>, StepError> {
        let uid = claim.uid().unwrap_or_default();
        let namespace = claim.namespace().unwrap_or_default();
        last_warning(&self.client, &namespace, &uid).await.map_err(
            |DereferenceError::Read { source, .. }| StepError {
                what: "list the events of the temporary claim",
                source,
            },
        )
    }

    /// Returns whether a claim waits for its first consumer.
    async fn is_lazy(&self, claim: &PersistentVolumeClaim) -> Result<bool, StepError> {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
        let Some(class) = class.filter(|name| !name.is_empty()) else { return Ok(false) };
        let class = Api::<StorageClass>::all(self.client.clone()).get_opt(&class).await;
        let class = class.map_err(cannot("read the StorageClass"))?;
        Ok(class.is_some_and(|it| it.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")))
    }

    /// Carries out a step, and returns it.
    async fn carry_out(&self, found: &ClaimObjects, step: FillStep) -> Result<FillStep, StepError> {
        let ClaimObjects { claim, temporary, filler, volume, .. } = found;
        match (&step, temporary, filler, volume) {
            (FillStep::MakeClaim(made), ..) => self.create(&**made, "make the temporary claim").await?,
            (FillStep::MakeFiller(made), ..) => {
                self.create(&**made, "make the SyncJob that fills the claim").await?;
            }
            (FillStep::Mark(annotations), Some(temporary), ..) => {
                self.annotate(temporary, annotations).await?;
            }
            (FillStep::MarkClaim(annotations), ..) => self.annotate(claim, annotations).await?,
            (FillStep::Rebind(to), _, _, Some(volume)) => self.rebind(claim, volume, to).await?,
            (FillStep::DropClaim, Some(temporary), ..) => {
                self.delete(temporary, "delete the temporary claim").await?;
            }
            (FillStep::DropFiller, _, Some(filler), _) => {
                self.delete(filler, "delete the SyncJob that filled it").await?;
            }
            _ => {}
        }
        Ok(step)
    }

    async fn annotate(
        &self,
        claim: &PersistentVolumeClaim,
        annotations: &plan::Annotations,
    ) -> Result<(), StepError> {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).into(), json!(value))).collect();
        let patch = Patch::Merge(json!({"metadata": {"uid": claim.uid(), "annotations": annotations}}));
        let api = self.namespaced::<PersistentVolumeClaim>(claim);
        let done = api.patch(&claim.name_any(), &params(), &patch).await;
        done.map(drop).map_err(cannot("note how far the claim is"))
    }

    /// Gives a volume to a claim, if nobody has changed it since it was read.
    async fn rebind(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        to: &k8s_openapi::api::core::v1::ObjectReference,
    ) -> Result<(), StepError> {
        let metadata = json!({"uid": volume.uid(), "resourceVersion": volume.resource_version()});
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"claimRef": to}}));
        let api = Api::<PersistentVolume>::all(self.client.clone());
        api.patch(&volume.name_any(), &params(), &patch)
            .await
            .map_err(cannot("give the volume to the claim"))?;
        let (namespace, name) = (claim.namespace(), claim.name_any());
        tracing::info!(namespace, name, volume = volume.name_any(), "a claim is filled");
        let from = claim.annotations().get(ANNOTATION_POPULATED).map_or(POPULATED_EMPTY, String::as_str);
        let job = choose_content::source(claim).unwrap_or_default();
        self.health.metrics.claim_filled(&namespace.clone().unwrap_or_default());
        let message = match from {
            POPULATED_EMPTY => {
                format!("The SyncJob {job} has no copy, so the claim came up empty, as it says.")
            }
            _ => format!("The claim came up with the copy of the SyncJob {job} ({from})."),
        };
        self.events.publish(claim, &Note { warning: false, reason: Reason::Populated, message }).await;
        Ok(())
    }

    /// Publishes why a claim is not filled, unless it was told the same before.
    async fn publish_fault(&self, claim: &PersistentVolumeClaim, fault: &Fault) {
        self.health.metrics.claim_waits(&labels(claim), true);
        let uid = claim.uid().unwrap_or_default();
        if self.told.get(&uid, Duration::MAX).as_ref() == Some(fault) {
            return;
        }
        self.told.put(&uid, fault.clone());
        let (namespace, name) = (claim.namespace(), claim.name_any());
        tracing::warn!(namespace, name, reason = fault.reason.as_str(), "{}", fault.message);
        let note = Note { warning: true, reason: fault.reason.clone(), message: fault.message.clone() };
        self.events.publish(claim, &note).await;
    }

    /// Makes an object; one of its name that is there already is looked at in the next step.
    async fn create<K: Applicable>(&self, object: &K, what: &'static str) -> Result<(), StepError> {
        let params = PostParams { field_manager: Some(POPULATOR.into()), ..PostParams::default() };
        match self.namespaced::<K>(object).create(&params, object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
            Err(error) => Err(cannot(what)(error)),
        }
    }

    async fn delete<K: Applicable>(&self, object: &K, what: &'static str) -> Result<(), StepError> {
        let preconditions = Preconditions { uid: object.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.namespaced::<K>(object).delete(&object.name_any(), &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
            Err(error) => Err(cannot(what)(error)),
        }
    }

    fn namespaced<K>(&self, beside: &impl kube::ResourceExt) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &beside.namespace().unwrap_or_default())
    }
}

fn labels(claim: &PersistentVolumeClaim) -> JobLabels {
    JobLabels { namespace: claim.namespace().unwrap_or_default(), name: claim.name_any() }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(POPULATOR.into()), ..PatchParams::default() }
}

async fn reconcile(
    claim: Arc<PersistentVolumeClaim>,
    populator: Arc<Populator>,
) -> Result<Action, StepError> {
    if choose_content::source(&claim).is_none() {
        return Ok(Action::await_change());
    }
    let late = |late: Elapsed| Err(cannot("fill a claim in time")(kube::Error::Service(late.into())));
    let step = timeout(TIMEOUT, populator.advance(&claim)).await.unwrap_or_else(late)?;
    populator.failures.forget(&claim.uid().unwrap_or_default());
    Ok(match step {
        FillStep::Done => {
            populator.health.metrics.claim_waits(&labels(&claim), false);
            populator.told.forget(&claim.uid().unwrap_or_default());
            Action::await_change()
        }
        FillStep::Tell(fault) if fault.reason == Reason::NotFilled => Action::await_change(),
        // Neither volumes nor events nor the claim of the copy are watched.
        FillStep::Wait | FillStep::Tell(_) => Action::requeue(LOOK),
        _ => Action::requeue(Duration::ZERO),
    })
}

#[allow(clippy::needless_pass_by_value)] // kube calls it so
fn on_error(claim: Arc<PersistentVolumeClaim>, error: &StepError, populator: Arc<Populator>) -> Action {
    let of = ObjectRef::from_obj(&*claim);
    tracing::warn!(claim = %of, error = chain(error), "a claim is not filled yet, and tried again");
    Action::requeue(pause_after(populator.failures.failed(&claim.uid().unwrap_or_default())))
}
