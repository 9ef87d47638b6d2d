//! The flags of the commands that look into snapshots.

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
pub(crate) struct LsFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The folder in the snapshot
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,

    /// Also what is in the folders below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CatFlags {
    /// The folder where the volume is mounted, or s3://BUCKET/PREFIX
    #[arg(value_name = "DIR", value_parser = PathBufValueParser::new().try_map(here))]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The file in the snapshot
    #[arg(value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,
}

#[derive(Debug, Args)]
pub(crate) struct MountFlags {
    /// The folder where the volume is mounted
    #[arg(value_name = "DIR", value_parser = PathBufValueParser::new().try_map(here))]
    pub(crate) dir: PathBuf,

    /// The folder to mount at, outside of the volume
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,

    /// Let other users in, too, as far as the modes of the snapshots' files and folders let them
    #[arg(long)]
    pub(crate) allow_other: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// The snapshot that B is compared with
    #[arg(value_name = "A")]
    pub(crate) one: String,

    /// The snapshot whose differences from A are shown
    #[arg(value_name = "B")]
    pub(crate) other: String,

    /// Only this path
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,

    /// Also show which lines of text files differ, as `diff -u` does; of files up to 1 MiB
    #[arg(long, conflicts_with = "json")]
    pub(crate) content: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID", default_value = "latest")]
    pub(crate) id: String,

    /// Read the files of which size and time are those of the snapshot, and compare their contents
    #[arg(short, long)]
    pub(crate) checksum: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FindFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// A pattern as in .gitignore: `*.csv` in any folder, `/reports/2026*` from the root, `logs/` only folders
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatsFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// The path in the snapshots
    #[arg(value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,
}
