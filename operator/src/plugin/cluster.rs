use std::{fmt, path::absolute, time::Duration};

use contract::{Reason, Side};
use futures::AsyncBufRead;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client, Config, Resource, ResourceExt as _,
    api::{ListParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::{DeserializeGuard, error_boundary::InvalidObject},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::sleep;

use super::{
    args::Scope,
    await_object::await_condition,
    error::{AskedServer, PluginError},
    output,
};
use crate::{
    api::{SyncEndpoint, SyncGrant, SyncJob, SyncJobReference, SyncJobSet, SyncRun, SyncRunSpec, conditions},
    ends::end_namespaces::Places,
    names,
    run::run_annotations::RunNames,
};

/// Selects the operator's pods.
pub(super) const OPERATOR_PODS: &str =
    "app.kubernetes.io/name=volferry,app.kubernetes.io/component=controller";
/// The maximum number of objects in one response of the API server.
const PAGE: u32 = 500;
/// The pause before a SyncRun is looked at again whose SyncJob the operator has yet to see.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum length of a generated name before `-now-` and the API server's five characters.
const MAX_RUN_STEM: usize = 49;

/// A namespace of a cluster, as the user's kubeconfig reaches it.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The namespace, and what the user typed to get to the cluster; a path is absolute.
    pub(super) scope: Scope,
    /// The context of the kubeconfig, also where the user named none. The current one may change at any time.
    pub(super) context: Option<String>,
    /// The address of the API server.
    server: String,
}

impl Cluster {
    pub(super) async fn connect(typed: &Scope) -> Result<Self, PluginError> {
        let kubeconfig = typed
            .kubeconfig
            .as_ref()
            .map(|file| absolute(file).map_err(|source| KubeconfigError::ReadConfig(source, file.clone())));
        let unusable = |error: KubeconfigError| PluginError::kubeconfig(typed, &error);
        let kubeconfig = kubeconfig.transpose().map_err(unusable)?;
        let read = kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
        let read = read.map_err(unusable)?;
        let context = typed.context.clone().or_else(|| read.current_context.clone());
        let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(read, &options).await;
        let config = config.map_err(unusable)?;
        let server = config.cluster_url.to_string();
        let namespace = typed.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(PluginError::Client)?;
        let scope = Scope { namespace: Some(namespace.clone()), context: typed.context.clone(), kubeconfig };
        Ok(Self { client, namespace, scope, context, server })
    }

    /// Returns the namespace and what was typed, for errors and their hints.
    pub(super) fn at(&self) -> Box<Scope> {
        Box::new(self.scope.clone())
    }

    /// Returns a function that makes the API server's error an error of the request named by `doing`.
    pub(super) fn failed(&self, doing: String) -> impl FnOnce(kube::Error) -> PluginError + use<> {
        let reached = AskedServer {
            server: self.server.clone(),
            context: self.context.clone(),
            scope: self.scope.clone(),
        };
        move |source| PluginError::Api { doing, source, reached: Some(Box::new(reached)) }
    }

    /// Returns the flags by which another command gets to the same namespace of the same cluster.
    pub(super) fn flags(&self) -> String {
        self.scope.flags()
    }

    pub(super) async fn job(&self, name: &str) -> Result<SyncJob, PluginError> {
        let found = self.job_if_any(name).await?;
        found.ok_or_else(|| PluginError::NoJob { at: self.at(), name: name.into() })
    }

    pub(super) async fn job_if_any(&self, name: &str) -> Result<Option<SyncJob>, PluginError> {
        self.jobs_api().get_opt(name).await.map_err(self.failed(format!("read SyncJob {}", self.path(name))))
    }

    /// Returns the error that a SyncJob has had no run.
    pub(super) fn no_run(&self, name: &str) -> PluginError {
        PluginError::NoRun { at: self.at(), name: name.into() }
    }

    /// Returns the SyncJobs of the namespace, or of all, by namespace and name.
    pub(super) async fn jobs(&self, all_namespaces: bool) -> Result<Vec<SyncJob>, PluginError> {
        let mut jobs: Vec<SyncJob> = self.readable(&self.api(all_namespaces)).await?;
        jobs.sort_by_key(|job| (job.namespace(), job.name_any()));
        Ok(jobs)
    }

    /// Returns the API of a kind in the namespace, or in all.
    pub(super) fn api<K: Listed>(&self, all_namespaces: bool) -> Api<DeserializeGuard<K>> {
        if all_namespaces {
            return Api::all(self.client.clone());
        }
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) async fn run_if_any(&self, name: &str) -> Result<Option<SyncRun>, PluginError> {
        self.runs_api().get_opt(name).await.map_err(self.failed(format!("read SyncRun {}", self.path(name))))
    }

    /// Returns the SyncRuns of a SyncJob, the newest first.
    pub(super) async fn runs(&self, job: &str) -> Result<Vec<SyncRun>, PluginError> {
        let mut runs = self.all_runs().await?;
        runs.retain(|run| run.spec.sync_job.name == job);
        runs.sort_by_key(|run| std::cmp::Reverse((run.created(), run.spec.number)));
        Ok(runs)
    }

    /// Returns the SyncRuns of the namespace.
    pub(super) async fn all_runs(&self) -> Result<Vec<SyncRun>, PluginError> {
        self.readable(&Api::namespaced(self.client.clone(), &self.namespace)).await
    }

    /// Returns the objects of a kind of the namespace that this program cannot read.
    pub(super) async fn unreadable<K: Listed>(&self) -> Result<Vec<Unreadable>, PluginError> {
        let api = Api::<DeserializeGuard<K>>::namespaced(self.client.clone(), &self.namespace);
        let listed = self.list(&api, &K::plural(&()), ListParams::default()).await?;
        Ok(listed
            .into_iter()
            .filter_map(|object| object.0.err())
            .map(|it| unreadable_object::<K>(&it))
            .collect())
    }

    /// Returns the objects that this program can read, and says which others there are.
    pub(super) async fn readable<K: Listed>(
        &self,
        api: &Api<DeserializeGuard<K>>,
    ) -> Result<Vec<K>, PluginError> {
        let listed = self.list(api, &K::plural(&()), ListParams::default()).await?;
        let read = |object: DeserializeGuard<K>| match object.0 {
            Ok(object) => Some(object),
            Err(unreadable) => {
                let Unreadable { name, why } = unreadable_object::<K>(&unreadable);
                output::complain(&format!("{name} is left out, because it cannot be read: {why}"));
                None
            }
        };
        Ok(listed.into_iter().filter_map(read).collect())
    }

    /// Returns the pods of a run, the oldest first. Says which pods of other namespaces the user may not list.
    pub(super) async fn pods(&self, run: &str, end: Option<Side>) -> Result<Vec<Pod>, PluginError> {
        let end = end.map(|end| format!(",{}={end}", names::LABEL_SIDE)).unwrap_or_default();
        let params = ListParams::default().labels(&format!("{}={run}{end}", names::LABEL_RUN));
        let mut pods = self.list(&self.pods_api(&self.namespace), "pods", params.clone()).await?;
        let places = self.run_if_any(run).await?.map(|run| Places::of_run(&self.namespace, &run));
        let places = places.unwrap_or_default();
        for namespace in places.abroad() {
            match self.list(&self.pods_api(namespace), "pods", params.clone()).await {
                Ok(found) => pods.extend(found.into_iter().filter(|pod| places.have(pod))),
                Err(error) if error.is_forbidden() => output::complain(&format!(
                    "note: pods of the run in namespace {namespace} are left out, because your role may not list pods there"
                )),
                Err(error) => return Err(error),
            }
        }
        pods.sort_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.name_any()));
        Ok(pods)
    }

    /// Creates a SyncRun that asks for a run of a SyncJob now. Its generated name contains `word`.
    pub(super) async fn create_run(
        &self,
        job: &str,
        word: &str,
        asked: SyncRunSpec,
    ) -> Result<SyncRun, PluginError> {
        let sync_job = SyncJobReference { name: job.into(), ..SyncJobReference::default() };
        let spec = SyncRunSpec { sync_job, ..asked };
        let stem = names::shorten(job, MAX_RUN_STEM);
        let metadata = ObjectMeta { generate_name: Some(format!("{stem}-{word}-")), ..ObjectMeta::default() };
        let run = SyncRun { metadata, spec, status: None };
        let made = self.runs_api().create(&PostParams::default(), &run).await;
        made.map_err(self.failed(format!("create a SyncRun of SyncJob {}", self.path(job))))
    }

    /// Waits until a run has ended, and returns its SyncRun. A SyncRun for which no run ever begins is an error.
    pub(super) async fn ended(&self, name: &str) -> Result<SyncRun, PluginError> {
        let is_over = |run: Option<&SyncRun>| run.is_none_or(|run| has_ended(run) || refusal(run).is_some());
        loop {
            let found = await_condition(self.runs_api(), name, is_over).await;
            let found =
                found.map_err(|source| PluginError::Wait { at: self.at(), name: name.into(), source })?;
            let deleted = || PluginError::RunDeleted { at: self.at(), name: name.into() };
            let run = found.ok_or_else(deleted)?;
            let Some(refusal) = refusal(&run) else { return Ok(run) };
            let may_be_late = refusal.reason == *Reason::JobNotFound;
            if may_be_late && self.job_if_any(&run.spec.sync_job.name).await?.is_some() {
                // The operator has yet to see a SyncJob that was just made.
                sleep(PAUSE).await;
                continue;
            }
            let why = refusal.message.clone();
            return Err(PluginError::NotBegun { at: self.at(), name: name.into(), why });
        }
    }

    /// Sets `spec.suspend` of an existing SyncJob to true.
    pub(super) async fn suspend(&self, name: &str) -> Result<SyncJob, PluginError> {
        let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
        let done = self.jobs_api().patch(name, &PatchParams::default(), &patch).await;
        done.map_err(self.failed(format!("suspend SyncJob {}", self.path(name))))
    }

    /// Cancels a run of a SyncJob.
    pub(super) async fn cancel(&self, name: &str, run: RunNames<'_>) -> Result<SyncJob, PluginError> {
        let run = run.word();
        let patch = json!({"metadata": {"annotations": {names::ANNOTATION_CANCEL: run}}});
        let done = self.jobs_api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        done.map_err(self.failed(format!("cancel run {run} of SyncJob {}", self.path(name))))
    }

    /// Resumes a SyncJob: sets `spec.suspend` to false, and ends the hold of a completed restore in place.
    pub(super) async fn resume(&self, name: &str, restore: Option<&str>) -> Result<SyncJob, PluginError> {
        let mut patch = json!({"spec": {"suspend": false}});
        if let Some(restore) = restore {
            patch["metadata"] = json!({"annotations": {names::ANNOTATION_RESUME: restore}});
        }
        let done = self.jobs_api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        done.map_err(self.failed(format!("resume SyncJob {}", self.path(name))))
    }

    pub(super) async fn log(
        &self,
        pod: &Pod,
        follow: bool,
    ) -> Result<impl AsyncBufRead + use<>, PluginError> {
        let params = LogParams { container: Some(names::CONTAINER.into()), follow, ..LogParams::default() };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let log = self.pods_api(&namespace).log_stream(&name, &params).await;
        log.map_err(self.failed(format!("read the log of pod {namespace}/{name}")))
    }

    /// Returns whether a pod has ended or is gone, as far as that can be seen now.
    pub(super) async fn has_ended(&self, pod: &Pod) -> bool {
        let api = self.pods_api(&pod.namespace().unwrap_or_default());
        let Ok(found) = api.get_opt(&pod.name_any()).await else { return false };
        let found = found.filter(|found| found.uid() == pod.uid());
        let phase = found.as_ref().and_then(|found| found.status.as_ref()?.phase.as_deref());
        found.is_none() || ["Succeeded", "Failed"].contains(&phase.unwrap_or_default())
    }

    async fn list<K>(&self, api: &Api<K>, what: &str, params: ListParams) -> Result<Vec<K>, PluginError>
    where
        K: Resource + Clone + fmt::Debug + DeserializeOwned,
    {
        let mut params = params.limit(PAGE);
        let mut items = Vec::new();
        loop {
            let page = api.list(&params).await.map_err(self.failed(format!("list {what}")))?;
            items.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(items),
            }
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    fn jobs_api(&self) -> Api<SyncJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn runs_api(&self) -> Api<SyncRun> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn pods_api(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The kinds of which one object that cannot be read must not hide the others.
pub(super) trait Listed:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + fmt::Debug + DeserializeOwned
{
}

impl Listed for SyncJob {}
impl Listed for SyncRun {}
impl Listed for SyncGrant {}
impl Listed for SyncJobSet {}
impl Listed for SyncEndpoint {}

/// An object that this program cannot read.
pub(super) struct Unreadable {
    /// Its kind, namespace and name.
    pub(super) name: String,
    pub(super) why: String,
}

fn unreadable_object<K: Listed>(unreadable: &InvalidObject) -> Unreadable {
    let InvalidObject { metadata, error } = unreadable;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    Unreadable { name: format!("{} {namespace}/{name}", K::kind(&())), why: error.clone() }
}

fn has_ended(run: &SyncRun) -> bool {
    run.status.as_ref().is_some_and(|status| status.report.is_some())
}

/// Returns the condition that says why no run begins for a SyncRun, if there is one.
fn refusal(run: &SyncRun) -> Option<&Condition> {
    let conditions = run.status.as_ref().filter(|_| !has_ended(run)).map(|status| &status.conditions)?;
    let stalled = conditions::find(conditions, conditions::STALLED).filter(|it| it.status == "True")?;
    let is_final = [Reason::JobNotFound, Reason::InvalidSpec].iter().any(|it| stalled.reason == **it);
    is_final.then_some(stalled)
}

/// Returns a function that makes the API server's error an error of the request named by `doing`.
pub(super) fn failed(doing: String) -> impl FnOnce(kube::Error) -> PluginError {
    move |source| PluginError::Api { doing, source, reached: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syncrun_without_a_syncjob_or_with_a_spec_that_cannot_be_run_is_not_waited_for() {
        let refused = |reason: &str, report: serde_json::Value| {
            let condition = json!({"type": "Stalled", "status": "True", "reason": reason, "message": "why",
                "lastTransitionTime": "2026-11-22T20:44:47Z"});
            let run: SyncRun = serde_json::from_value(json!({
                "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "metadata": {"name": "web-now-1"},
                "spec": {"syncJob": {"name": "web"}},
                "status": {"conditions": [condition], "report": report},
            }))
            .unwrap();
            refusal(&run).map(|told| told.message.clone())
        };
        assert_eq!(refused("JobNotFound", json!(null)).as_deref(), Some("why"));
        assert_eq!(refused("InvalidSpec", json!(null)).as_deref(), Some("why"));
        assert_eq!(refused("ClaimNotFound", json!(null)), None, "it may begin yet");
        assert_eq!(refused("InvalidSpec", json!({"id": "web-1", "result": "Failed"})), None, "it has ended");
    }
}
