//! The key by which an endpoint knows a SyncJob, of a pod that dials one.

use std::{path::PathBuf, time::Duration};

use contract::PublicKey;
use serde_json::json;
use tokio::time::timeout;

use super::{
    AgentArgs,
    error::AgentError,
    own_key::{self, KeyPlace, KeySecret},
    publish::Publisher,
};
use crate::{
    api::{JobIdentity, SyncJob},
    pods::{self, job::JOB_KEY_ENTRY, object_store::AUTHORITIES_ENTRY},
};

/// How long to wait until a new key is stored.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long to wait for the right to store it. The operator grants it before it makes the pod, but not to a job whose
/// key it knows: the Secret of such a job was deleted.
const PATIENCE_FOR_RIGHT: Duration = Duration::from_secs(15);

/// How long a run waits until the status has its public key, which another run tells as well.
const TELL_TIMEOUT: Duration = Duration::from_secs(20);

/// Makes sure that the pod has the key, and tells its public half. Does nothing in a pod that dials no endpoint.
pub(super) async fn ensure(args: &AgentArgs, publisher: &Publisher) -> Result<(), AgentError> {
    let Some(place) = place(args) else { return Ok(()) };
    let client = publisher.api.clone().map(kube::Api::into_client);
    let key = own_key::ensure(&place, client.as_ref(), async || {}).await?;
    publish_key(publisher, key.public()).await;
    Ok(())
}

/// Takes the key for object storage from the Secret. Returns the file with certificates of authorities, if the Secret
/// has one. Does nothing in any other pod.
pub(super) fn take_store_key(args: &AgentArgs) -> Result<Option<PathBuf>, AgentError> {
    let (Some(mounted), Some(copy)) = (&args.store_key, &args.key_copy) else { return Ok(None) };
    if !copy.exists() && !own_key::take_mounted(mounted, copy)? {
        let entry = mounted.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(AgentError::StoreKey(entry));
    }
    Ok(Some(mounted.with_file_name(AUTHORITIES_ENTRY)).filter(|file| file.exists()))
}

async fn publish_key(publisher: &Publisher, public_key: PublicKey) {
    let told = publisher.offer("/identity".into(), json!(JobIdentity { public_key }));
    if !matches!(timeout(TELL_TIMEOUT, told).await, Ok(Ok(()))) {
        tracing::warn!(%public_key, "the status does not have this SyncJob's public key");
    }
}

fn place(args: &AgentArgs) -> Option<KeyPlace> {
    let secret = args.key_secret.as_ref().map(|name| {
        let job = args.syncjob.as_deref().unwrap_or_default();
        let uid = args.syncjob_uid.as_deref().unwrap_or_default();
        KeySecret {
            namespace: args.namespace.clone(),
            name: name.clone(),
            entry: JOB_KEY_ENTRY,
            labels: pods::job_labels(job),
            owner: pods::owner::<SyncJob>(job, uid),
        }
    });
    let (mounted, copy) = (args.key.clone()?, args.key_copy.clone()?);
    Some(KeyPlace { mounted, copy, secret, patience: PATIENCE, patience_for_right: PATIENCE_FOR_RIGHT })
}
