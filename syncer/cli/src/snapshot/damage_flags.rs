//! The flags of `volferry snapshot verify` and `repair`, as typed.

use clap::Args;

use super::{key_flags::KeyFlags, volume_flags::VolumeFlags};
use crate::flags::bandwidth_rate::bandwidth;
use syncer::snapshot::check::StoreShare;

#[derive(Debug, Args)]
pub(crate) struct VerifyFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// Read the contents of the Nth of M parts only; M runs read all
    #[arg(long, value_name = "N/M", value_parser = part)]
    pub(crate) part: Option<StoreShare>,

    /// Read the contents of the next of M parts: M calls read all. A call that is cut off leaves its part to the next
    #[arg(long, value_name = "M", conflicts_with = "part", value_parser = parts)]
    pub(crate) in_turn: Option<u64>,

    /// Read at most this many bytes per second, such as 100Mi [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    pub(crate) bandwidth_limit: Option<u64>,

    /// Only check, and put nothing right
    #[arg(long)]
    pub(crate) no_heal: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// Do what was shown
    #[arg(long)]
    pub(crate) apply: bool,
}

fn parts(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|parts| *parts > 0).ok_or_else(|| "write the number of parts, 1 or more".into())
}

fn part(text: &str) -> Result<StoreShare, String> {
    StoreShare::parse(text).ok_or_else(|| "write it as N/M, N from 1 to M".into())
}
