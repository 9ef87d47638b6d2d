//! A key that a pod makes for itself: that of a SyncEndpoint, or of a SyncJob with an endpoint. The first pod makes it
//! and stores it in a Secret, which later pods find mounted.
//!
//! The pod may create Secrets while there is no key, and read or change none. The API server creates only one Secret of
//! a name, which decides whose key counts, should two pods ever try.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{IdentityError, OwnKey, chain};
use k8s_openapi::{
    ByteString,
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Api, Client, api::PostParams};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Where a pod has its key.
#[derive(Debug)]
pub struct KeyPlace {
    /// The file of the key in the mounted Secret; it is missing until the Secret is there.
    pub mounted: PathBuf,
    /// The pod's own copy, in memory.
    pub copy: PathBuf,
    /// The Secret that a pod without a key creates; `None` for one that a person made.
    pub secret: Option<KeySecret>,
    /// How long to wait until a Secret that another pod created is mounted here. The kubelet looks at Secrets about
    /// once in a minute.
    pub patience: Duration,
    /// How long to wait for the right to create the Secret.
    pub patience_for_right: Duration,
}

/// The Secret that keeps a key.
#[derive(Debug)]
pub struct KeySecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its one entry.
    pub entry: &'static str,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The object with which the garbage collector deletes it.
    pub owner: OwnerReference,
}

/// The reasons why a pod has no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The key cannot be made, or is none.
    #[error("the key cannot be used")]
    Identity(#[from] IdentityError),
    /// A file cannot be read or written.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The Secret is neither created nor mounted.
    #[error("the Secret {name} with the key is neither created nor mounted")]
    NotStored {
        /// The name of the Secret.
        name: String,
        /// The last answer of the API server.
        source: kube::Error,
    },
    /// The Secret of a person lacks the key.
    #[error("the Secret has no entry {0}")]
    Missing(String),
    /// There is no API server to store the key at.
    #[error("there is no API server to store a new key at")]
    NoApiServer,
}

/// What became of the attempt to create the Secret.
enum Stored {
    Created,
    Other(kube::Error),
}

/// Returns the key, which is in the file `copy` then: one that this pod had before its container was restarted, that of
/// the Secret, or a new one that is stored there. Calls `missing` before it stores a new one.
pub async fn ensure(
    place: &KeyPlace,
    client: Option<&Client>,
    missing: impl AsyncFnOnce(),
) -> Result<OwnKey, KeyError> {
    let own = &place.copy;
    if own.exists() || take_mounted(&place.mounted, own)? {
        return Ok(OwnKey::read(own)?);
    }
    let Some(kept) = &place.secret else {
        let entry = place.mounted.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(KeyError::Missing(entry));
    };
    let client = client.ok_or(KeyError::NoApiServer)?;
    let new = own.with_extension("new");
    remove(&new)?;
    OwnKey::generate()?.write(&new)?;
    let secret = secret(kept, fs::read(&new).map_err(in_file(&new))?);
    missing().await;
    let began = Instant::now();
    loop {
        let answer = match create(client, &kept.namespace, &secret).await {
            Stored::Created => {
                fs::rename(&new, own).map_err(in_file(own))?;
                tracing::info!(secret = kept.name, "there is a new key");
                return Ok(OwnKey::read(own)?);
            }
            Stored::Other(answer) => answer,
        };
        // Another pod was first, or an answer was lost; in both cases the Secret has the key that counts.
        if take_mounted(&place.mounted, own)? {
            remove(&new)?;
            return Ok(OwnKey::read(own)?);
        }
        let is_forbidden = matches!(&answer, kube::Error::Api(status) if status.is_forbidden());
        let patience = if is_forbidden { place.patience_for_right } else { place.patience };
        if began.elapsed() > patience {
            return Err(KeyError::NotStored { name: kept.name.clone(), source: answer });
        }
        tracing::info!(answer = chain(&answer), "the key is not stored yet");
        sleep(PAUSE).await;
    }
}

async fn create(client: &Client, namespace: &str, secret: &Secret) -> Stored {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    match timeout(REQUEST_TIMEOUT, api.create(&PostParams::default(), secret)).await {
        Ok(Ok(_)) => Stored::Created,
        Ok(Err(error)) => Stored::Other(error),
        Err(elapsed) => Stored::Other(kube::Error::Service(Box::new(elapsed))),
    }
}

/// Builds the Secret, which nobody can change and which the garbage collector deletes with its owner.
fn secret(kept: &KeySecret, key: Vec<u8>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(kept.name.clone()),
            namespace: Some(kept.namespace.clone()),
            labels: Some(kept.labels.clone()),
            owner_references: Some(vec![kept.owner.clone()]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some([(kept.entry.to_string(), ByteString(key))].into()),
        ..Secret::default()
    }
}

/// Copies the key of a Secret to a file that only this user may read. Returns false if the Secret is not mounted.
pub fn take_mounted(from: &Path, to: &Path) -> Result<bool, KeyError> {
    let text = match fs::read(from) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(in_file(from)(error)),
    };
    let part = to.with_extension("part");
    remove(&part)?;
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    file.and_then(|mut file| file.write_all(&text)).map_err(in_file(&part))?;
    fs::rename(&part, to).map_err(in_file(to))?;
    Ok(true)
}

fn remove(path: &Path) -> Result<(), KeyError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(in_file(path)(error)),
        _ => Ok(()),
    }
}

fn in_file(path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    let path = path.to_path_buf();
    |source| KeyError::File { path, source }
}
