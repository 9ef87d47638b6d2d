//! The arguments that name a volume, and a path in a snapshot of it.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser as _},
};

use syncer::path::{PathError, RelPath};

use crate::remote::place::here;

/// The volume that a command is about.
#[derive(Debug, Clone, Args)]
pub(crate) struct VolumeFlags {
    /// The folder where the volume is mounted; or s3://BUCKET/PREFIX, but not for create, restore, status, stats,
    /// mount, import and log
    #[arg(value_name = "DIR", value_parser = PathBufValueParser::new().try_map(here))]
    pub(crate) dir: PathBuf,

    /// Print JSON on standard output; `volferry snapshot schema` describes it
    #[arg(long)]
    pub(crate) json: bool,

    /// If another run or command holds the volume, wait for it at most this long, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = super::time::span_seconds, default_value = "0s", hide_default_value = true)]
    pub(crate) wait_lock: u64,
}

/// Parses a path in a snapshot: `.` and `/` are its root, and slashes at the start or the end are ignored.
pub(crate) fn path_in_snapshot(text: &str) -> Result<RelPath, PathError> {
    match text.trim_matches('/') {
        // As by a variable that is not set.
        "" if text.is_empty() => Err(PathError::Empty),
        "" | "." => Ok(RelPath::root()),
        path => RelPath::parse(path.trim_start_matches("./").as_bytes()),
    }
}
