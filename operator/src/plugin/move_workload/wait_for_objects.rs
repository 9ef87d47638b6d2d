//! Waits for objects, for at most a while.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Preconditions},
    runtime::wait::{self, conditions::is_deleted},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::super::{
    await_object::await_condition,
    cluster::failed,
    error::{PluginError, told},
};

/// How long a step of the cluster may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience(pub(super) Duration);

impl Patience {
    /// Waits; `until` ends the sentence "it is not so yet that …".
    pub(super) async fn wait<T>(
        self,
        until: &str,
        step: impl Future<Output = Result<T, wait::Error>>,
    ) -> Result<(), PluginError> {
        let hint = "what is done stays; run the same command again once that is out of the way";
        match timeout(self.0, step).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                Err(PluginError::blocked(format!("cannot wait until {until}: {}", told(&error)), hint))
            }
            Err(_) => Err(PluginError::blocked(format!("waited in vain until {until}"), hint)),
        }
    }

    /// Waits until a pod has ended.
    pub(super) async fn ended(self, pods: &Api<Pod>, pod: &Pod) -> Result<(), PluginError> {
        let (name, uid) = (pod.name_any(), pod.uid());
        let has_ended = |found: Option<&Pod>| {
            let found = found.filter(|found| found.uid() == uid);
            let phase = found.and_then(|found| found.status.as_ref()?.phase.as_deref());
            found.is_none() || ["Succeeded", "Failed"].contains(&phase.unwrap_or_default())
        };
        let ended = await_condition(pods.clone(), &name, has_ended);
        self.wait(&format!("pod {name} has ended, which uses a claim"), ended).await
    }

    /// Deletes an object as it was seen, and waits until it is gone.
    pub(super) async fn delete<K>(self, api: &Api<K>, seen: &K) -> Result<(), PluginError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let (name, uid) = (seen.name_any(), seen.uid().unwrap_or_default());
        let what = format!("{} {name}", K::kind(&()));
        if seen.meta().deletion_timestamp.is_none() {
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), ..Preconditions::default() });
            match api.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
                deleted => drop(deleted.map_err(failed(format!("delete {what}")))?),
            }
        }
        self.wait(&format!("{what} is gone"), await_condition(api.clone(), &name, is_deleted(&uid))).await
    }
}
