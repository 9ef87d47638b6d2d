//! The flags of `volferry snapshot export` and `import`.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser as _},
};

use super::{
    key_flags::KeyFlags,
    volume_flags::{VolumeFlags, path_in_snapshot},
};
use crate::remote::place::here;
use syncer::path::RelPath;

#[derive(Debug, Args)]
pub(crate) struct ExportFlags {
    /// The folder where the volume is mounted, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR", value_parser = PathBufValueParser::new().try_map(here))]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Only this file or folder of the snapshot, and all below it; may be repeated
    #[arg(long = "path", value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) paths: Vec<RelPath>,

    /// Write a tar archive to FILE, or to standard output without it or with `-`
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", required = true)]
    pub(crate) tar: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImportFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// Read a tar archive from FILE, or from standard input without it or with `-`
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", required = true)]
    pub(crate) tar: PathBuf,

    /// Give the snapshot this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,

    /// Say something about it
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) note: String,

    /// Keep it whatever a policy says, until it is unpinned
    #[arg(long)]
    pub(crate) pin: bool,

    /// Refuse an archive whose files are together longer, holes included [default: the size of the file system]
    #[arg(long, value_name = "BYTES", value_parser = contract::parse_bytes)]
    pub(crate) max_bytes: Option<u64>,
}
