//! Errors of operations on a store in object storage.

use std::{
    io,
    path::{Path, PathBuf},
};

use contract::{BucketUrl, ExitCode, IdentityError, NotABucket, Reason};
use syncer::snapshot::SnapshotError;
use thiserror::Error;

use super::object_names::{HEAD, HEAD_COPY, INDEXES, LISTS, is_in};

/// The reason why an operation on a store failed.
#[derive(Debug, Error)]
pub enum BucketError {
    /// The place cannot be read.
    #[error("{typed}: {source}")]
    Url {
        /// What was typed.
        typed: String,
        /// Why not.
        source: NotABucket,
    },
    /// No key was named.
    #[error("the key of the store is not named")]
    NoKey,
    /// The file of the key is another one.
    #[error("{path} has no key of object storage", path = .0.display())]
    NotAKey(PathBuf),
    /// The file of the key cannot be used.
    #[error("cannot use the key of the store")]
    Key(#[source] IdentityError),
    /// The file of the key cannot be read or made.
    #[error("cannot {operation} the key of the store, {path}", path = .path.display())]
    KeyFile {
        /// `read` or `make`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A new key would take the place of a file.
    #[error("{} is there already, and a key is never overwritten", .0.display())]
    KeyIsThere(PathBuf),
    /// A variable of the environment has a value that nothing can be done with.
    #[error("{name} {why}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong with its value, and what to write instead.
        why: String,
    },
    /// The environment names nobody that the requests are of.
    #[error("the environment has no credentials for {0}")]
    NoCredentials(BucketUrl),
    /// The client cannot be set up.
    #[error("cannot reach {url}")]
    Setup {
        /// The store.
        url: BucketUrl,
        /// What is wrong with the settings.
        source: object_store::Error,
    },
    /// The certificates that the environment names cannot be read, or are none.
    #[error("{} has no certificates of authorities that can be read", .0.display())]
    NoAuthorities(PathBuf),
    /// The system refuses threads or sockets.
    #[error("cannot start requests")]
    Runtime(#[source] io::Error),
    /// The bucket does not exist.
    #[error("there is no bucket {0}")]
    NoBucket(String),
    /// The store refuses what is asked of it.
    #[error("{place} refuses to {operation} {object}: {why}", object = named(.object))]
    Refused {
        /// The store, and where it was looked for.
        place: String,
        /// The operation.
        operation: &'static str,
        /// The object's name; empty for all of them.
        object: String,
        /// The store's own word for it.
        why: String,
        /// The next step.
        hint: &'static str,
    },
    /// The store shows a certificate of no authority that is trusted, or of another name, or an old one.
    #[error("the certificate that {place} shows is not accepted: {why}")]
    Untrusted {
        /// The store, and where it was looked for.
        place: String,
        /// What is wrong with the certificate.
        why: String,
    },
    /// The clocks differ.
    #[error("{0} says that the clock of this machine differs from its own by more than it allows")]
    Clock(String),
    /// The store does not answer, or not in time.
    #[error("cannot {operation} {object} in {place}: {why}", object = named(.object))]
    Lost {
        /// The store, and where it was looked for.
        place: String,
        /// The operation.
        operation: &'static str,
        /// The object's name; empty for all of them.
        object: String,
        /// The last answer.
        why: String,
        /// The next step.
        hint: &'static str,
    },
    /// The store writes over an object that is there, although it is asked not to.
    #[error("{0} ignores If-None-Match, so writers would lose each other's snapshots: none was changed")]
    NotConditional(BucketUrl),
    /// The place has no store.
    #[error("{0} has no snapshots")]
    NoStore(BucketUrl),
    /// The place has a store's other objects, but not the one by which it is known.
    #[error(
        "{0} has the objects of a store but one, `volferry`, by which it is known and without which nothing can be read"
    )]
    NoHead(BucketUrl),
    /// The place has objects that are not of a store.
    #[error("{0} has other objects, and no snapshots of this program")]
    Foreign(BucketUrl),
    /// The store was made with another key.
    #[error("the key does not fit {0}: the store was made with another one")]
    WrongKey(BucketUrl),
    /// The store was written by a newer program.
    #[error("{url} has format version {version}, and this program reads version {known}")]
    Version {
        /// The store.
        url: BucketUrl,
        /// Its version.
        version: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// An object is not what this store has written under its name.
    #[error("{object} in {url} is damaged: {what}")]
    Damaged {
        /// The store.
        url: BucketUrl,
        /// The object's name.
        object: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An object is missing.
    #[error("{object} is missing in {url}")]
    Missing {
        /// The store.
        url: BucketUrl,
        /// The object's name.
        object: String,
    },
    /// There are packs or indexes, and no list.
    #[error("the list of snapshots is missing in {0}, which has packs or indexes")]
    NoList(BucketUrl),
    /// The newest list is damaged, and an older one is read in its place.
    #[error("{damaged}; {read} is read in its place, which is older")]
    OlderList {
        /// What is wrong with the newest.
        damaged: Box<BucketError>,
        /// The name of the older one.
        read: String,
    },
    /// No index names what a snapshot needs.
    #[error("{url} lacks {what} {id}")]
    Lacks {
        /// The store.
        url: BucketUrl,
        /// What it lacks.
        what: &'static str,
        /// The hash that it would have.
        id: String,
    },
    /// Others have changed the list again and again.
    #[error("others keep changing the list of {0}")]
    Contended(BucketUrl),
    /// The system has no randomness.
    #[error("the system's random number generator failed")]
    Random,
    /// The snapshots of this machine, or what is asked of them.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// The operations on the file of a key.
const READ_KEY: &str = "read";
const MAKE_KEY: &str = "make";

impl BucketError {
    /// Returns the error for the file of a key that cannot be read.
    pub fn of_key(path: &Path, error: IdentityError) -> Self {
        match error {
            IdentityError::Malformed(_) => Self::NotAKey(path.into()),
            IdentityError::File { source, .. } => {
                Self::KeyFile { operation: READ_KEY, path: path.into(), source }
            }
            error => Self::Key(error),
        }
    }

    /// Returns the error for the file of a key that cannot be made.
    pub fn of_new_key(path: &Path, error: IdentityError) -> Self {
        match error {
            IdentityError::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Self::KeyIsThere(path.into())
            }
            IdentityError::File { source, .. } => {
                Self::KeyFile { operation: MAKE_KEY, path: path.into(), source }
            }
            error => Self::Key(error),
        }
    }

    /// Returns the exit code of a command that it ends.
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Damaged { .. }
            | Self::Missing { .. }
            | Self::Lacks { .. }
            | Self::NoList(_)
            | Self::OlderList { .. } => ExitCode::Partial,
            Self::Lost { .. } => ExitCode::PeerLost,
            Self::WrongKey(_) => ExitCode::Identity,
            Self::Url { .. } | Self::Variable { .. } => ExitCode::Usage,
            Self::Snapshot(error) if error.needs_repair() => ExitCode::Partial,
            Self::Snapshot(error) if error.is_usage() => ExitCode::Usage,
            _ => ExitCode::Failed,
        }
    }

    /// Returns the word for the report of a run that it ends.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Lost { .. } | Self::Runtime(_) | Self::Contended(_) => Reason::ObjectStoreLost,
            Self::Damaged { .. }
            | Self::Missing { .. }
            | Self::Lacks { .. }
            | Self::NoList(_)
            | Self::OlderList { .. } => Reason::SnapshotUnusable,
            _ => Reason::ObjectStoreUnusable,
        }
    }

    /// Returns whether the error is of an object: snapshots that do not need it may be whole.
    pub(crate) fn is_of_an_object(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Missing { .. } | Self::Lacks { .. })
    }

    /// Returns whether the head of the store is not as it was written, as far as its reader can tell.
    pub(crate) fn is_of_head(&self) -> bool {
        matches!(self, Self::Foreign(_) | Self::WrongKey(_)) || self.is_of_an_object()
    }

    /// Returns the name of the object that it is of, or the hash of what is lacking.
    pub(crate) fn object(&self) -> &str {
        match self {
            Self::Damaged { object, .. } | Self::Missing { object, .. } => object,
            Self::Lacks { id, .. } => id,
            Self::OlderList { damaged, .. } => damaged.object(),
            _ => "",
        }
    }

    /// Returns the next step for the user, if there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoKey => "name its file by --key-file or VOLFERRY_KEY_FILE; `volferry snapshot key FILE` makes one, \
                            for a new store"
                .into(),
            Self::NotAKey(_) | Self::KeyFile { operation: READ_KEY, .. } => {
                "name the file of the key by --key-file or VOLFERRY_KEY_FILE; `volferry snapshot key FILE` makes one, \
                 for a new store"
                    .into()
            }
            Self::KeyFile { .. } => "see that its folder is there, and that this user may write to it".into(),
            Self::KeyIsThere(_) => "name a new file".into(),
            Self::NoCredentials(_) => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_WEB_IDENTITY_TOKEN_FILE \
                                       and AWS_ROLE_ARN"
                .into(),
            Self::NoBucket(_) => "make the bucket first, or set AWS_ENDPOINT_URL and AWS_REGION to where it is".into(),
            Self::Refused { hint, .. } | Self::Lost { hint, .. } => (*hint).into(),
            Self::NoAuthorities(_) | Self::Untrusted { .. } => "SSL_CERT_FILE names the certificates of the authorities to trust; in a cluster, the \
                                       entry ca.crt of the Secret has them"
                .into(),
            Self::Clock(_) => "set the clock of this machine, and run the command again".into(),
            Self::NotConditional(_) => {
                "use a server that heeds it, such as Amazon S3, MinIO, Ceph from Squid on or Cloudflare R2, and nothing \
                 before it that drops headers"
                    .into()
            }
            Self::NoStore(_) => "`volferry snapshot copy DIR s3://BUCKET/PREFIX --all` makes a store there".into(),
            Self::NoHead(_) => "bring back the object `volferry`, if the bucket keeps older versions of it; else name another \
                                prefix, and copy the snapshots there from a volume that has them"
                .into(),
            Self::Foreign(_) => "name another prefix".into(),
            Self::WrongKey(_) => "name the file of the key that the store was made with; with the right key, the objects `volferry` and \
                                  `volferry-copy` are damaged"
                .into(),
            Self::Version { .. } => "use the newer volferry that wrote it".into(),
            Self::NoList(_) => "bring back the objects of `lists/`, if the bucket keeps older versions of them; else \
                                `volferry snapshot repair s3://BUCKET/PREFIX` shows how to go on without"
                .into(),
            Self::OlderList { damaged, .. } => return damaged.hint(),
            Self::Damaged { object, .. } if is_in(LISTS, object) => {
                "bring back the object, if the bucket keeps an older version of it; else \
                 `volferry snapshot repair s3://BUCKET/PREFIX` shows how to go on with an older list"
                    .into()
            }
            Self::Damaged { object, .. } if [HEAD, HEAD_COPY].contains(&&**object) => {
                "`volferry snapshot verify` with the right to write puts it right, if its other copy is whole".into()
            }
            Self::Damaged { object, .. } | Self::Missing { object, .. } if is_in(INDEXES, object) => {
                "`volferry snapshot copy DIR s3://BUCKET/PREFIX --all`, from a volume that has the snapshots, replaces it; \
                 `volferry snapshot repair s3://BUCKET/PREFIX` shows how to go on without"
                    .into()
            }
            Self::Damaged { .. } | Self::Missing { .. } | Self::Lacks { .. } => {
                "`volferry snapshot verify` names the snapshots that need it".into()
            }
            Self::Contended(_) => "run the command again".into(),
            Self::Snapshot(error) => return error.hint(),
            _ => return None,
        })
    }
}

/// Returns the name of an object, or what there is in place of one.
fn named(object: &str) -> &str {
    if object.is_empty() { "the objects" } else { object }
}

impl From<BucketError> for SnapshotError {
    fn from(error: BucketError) -> Self {
        match error {
            BucketError::Snapshot(error) => error,
            error if error.is_of_an_object() => Self::Elsewhere(error.to_string()),
            error => Self::Link(io::Error::other(error)),
        }
    }
}
