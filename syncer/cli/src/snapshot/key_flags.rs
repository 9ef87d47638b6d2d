//! The flags that name the key of a store in object storage.

use std::{env, ffi::OsString, path::PathBuf};

use bucket::{BucketError, BucketStore};
use clap::Args;
use contract::{BucketUrl, StoreKey};

/// The variable that names the file of the key.
const KEY_FILE: &str = "VOLFERRY_KEY_FILE";

#[derive(Debug, Clone, Args)]
pub(crate) struct KeyFlags {
    /// With s3://BUCKET/PREFIX, the file of the key that the store is encrypted by; `volferry snapshot key` makes one
    /// [default: the file that VOLFERRY_KEY_FILE names]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NewKeyFlags {
    /// The new file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

impl KeyFlags {
    /// Reads the key.
    pub(crate) fn key(&self) -> Result<StoreKey, BucketError> {
        let named = || env::var_os(KEY_FILE).filter(|file: &OsString| !file.is_empty()).map(PathBuf::from);
        let file = self.key_file.clone().or_else(named).ok_or(BucketError::NoKey)?;
        StoreKey::read(&file).map_err(|error| BucketError::of_key(&file, error))
    }

    /// Opens the store at `url`.
    pub(super) fn open(&self, url: &BucketUrl) -> Result<BucketStore, BucketError> {
        BucketStore::open(url, &self.key()?)
    }
}
