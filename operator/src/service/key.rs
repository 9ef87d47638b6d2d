//! The endpoint's own key. Its first pod makes it and stores it in a Secret, which later pods find mounted.
//!
//! The pod may create Secrets while the endpoint has no key, and read or change none. The API server creates only one
//! Secret of a name, which decides whose key is the endpoint's, should two pods ever try.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{IdentityError, OwnKey};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use super::{args::ServiceArgs, record::Recorder};
use crate::{
    api::SyncEndpoint,
    resources::{
        owner,
        service::{KEY_ENTRY, labels},
    },
    telemetry::chain,
};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the right to create the Secret, or until one that another pod created is mounted here. The
/// kubelet looks at Secrets about once in a minute.
const PATIENCE: Duration = Duration::from_secs(300);

/// The reasons why an endpoint has no key.
#[derive(Debug, Error)]
pub(super) enum KeyError {
    /// The key cannot be made, or is none.
    #[error("the endpoint's key cannot be used")]
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
    #[error("the Secret {name} with the endpoint's key is neither created nor mounted")]
    NotStored {
        /// The name of the Secret.
        name: String,
        /// The last answer of the API server.
        source: kube::Error,
    },
}

/// What became of the attempt to create the Secret.
enum Stored {
    Created,
    Other(kube::Error),
}

/// Returns the key, in a file that only this user may read: one that this pod had before its container was restarted,
/// that of the Secret, or a new one that is stored there.
pub(super) async fn ensure(
    args: &ServiceArgs,
    client: &Client,
    recorder: &Recorder,
) -> Result<(OwnKey, PathBuf), KeyError> {
    let own = args.state.join(KEY_ENTRY);
    if own.exists() {
        return Ok((OwnKey::read(&own)?, own));
    }
    if take_mounted(&args.key, &own)? {
        return Ok((OwnKey::read(&own)?, own));
    }
    let new = args.state.join(format!("{KEY_ENTRY}.new"));
    remove(&new)?;
    OwnKey::generate()?.write(&new)?;
    let secret = secret(args, fs::read(&new).map_err(in_file(&new))?);
    // Without a key in the status, the operator grants the right to store one.
    recorder.forget_key().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = match create(client, &args.namespace, &secret).await {
            Stored::Created => {
                fs::rename(&new, &own).map_err(in_file(&own))?;
                tracing::info!(secret = args.key_secret, "the endpoint has a new key");
                return Ok((OwnKey::read(&own)?, own));
            }
            Stored::Other(answer) => answer,
        };
        // Another pod was first, or an answer was lost; in both cases the Secret has the endpoint's key.
        if take_mounted(&args.key, &own)? {
            remove(&new)?;
            return Ok((OwnKey::read(&own)?, own));
        }
        if Instant::now() > deadline {
            return Err(KeyError::NotStored { name: args.key_secret.clone(), source: answer });
        }
        tracing::info!(answer = chain(&answer), "the endpoint's key is not stored yet");
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

/// Builds the Secret, which nobody can change and which the garbage collector deletes with the endpoint.
fn secret(args: &ServiceArgs, key: Vec<u8>) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(args.key_secret.clone()),
            namespace: Some(args.namespace.clone()),
            labels: Some(labels(&args.name)),
            owner_references: Some(vec![owner::<SyncEndpoint>(&args.name, &args.uid)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some([(KEY_ENTRY.to_string(), ByteString(key))].into()),
        ..Secret::default()
    }
}

/// Copies the key of the Secret to a file that only this user may read. Returns false if the Secret is not mounted.
fn take_mounted(from: &Path, to: &Path) -> Result<bool, KeyError> {
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
