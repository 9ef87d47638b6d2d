//! The flags by which a run takes a snapshot of its destination.

use clap::Args;
use contract::{Retention, SnapshotEngine, SnapshotParams, SnapshotVerify};

use super::bandwidth_rate::bandwidth;
use crate::snapshot::time;
use syncer::snapshot::store::check_tag;

/// The flags of [`SnapshotParams::to_args`].
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Snapshot of DST")]
pub(crate) struct TakeFlags {
    /// Take a snapshot of DST after a run that succeeds, as `volferry snapshot create` does
    ///
    /// A run that fails, or leaves something out, takes none. If the snapshot fails, the exit code is 3.
    #[arg(long)]
    pub(crate) snapshot: bool,

    /// Give the snapshot this tag; may be repeated
    #[arg(long, value_name = "TAG", requires = "snapshot", value_parser = tag)]
    snapshot_tag: Vec<String>,

    /// The job that the snapshot belongs to, such as NAMESPACE/NAME of a SyncJob; the rules below judge the snapshots
    /// of each job separately
    #[arg(long, value_name = "NAME", requires = "snapshot", default_value = "", hide_default_value = true)]
    snapshot_job: String,

    /// How content gets into the snapshot: by clones where DST's file system has them, or by copies
    #[arg(
        long,
        value_name = "auto|clone|copy",
        requires = "snapshot",
        default_value_t,
        hide_default_value = true
    )]
    snapshot_engine: SnapshotEngine,

    /// Keep the newest N snapshots of this job, and drop those that no rule keeps; without a rule, all are kept
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_keep_last: Option<u32>,

    /// Keep the last one of each of N hours
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_keep_hourly: Option<u32>,

    /// Keep the last one of each of N days
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_keep_daily: Option<u32>,

    /// Keep the last one of each of N weeks
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_keep_weekly: Option<u32>,

    /// Keep the last one of each of N months
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_keep_monthly: Option<u32>,

    /// Keep the last one of each of N years
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_keep_yearly: Option<u32>,

    /// Keep all that were taken at most this time before the newest one, such as 48h or 2d12h
    #[arg(long, value_name = "TIME", requires = "snapshot", value_parser = time::span_seconds)]
    snapshot_keep_within: Option<u64>,

    /// Keep all with this tag; may be repeated
    #[arg(long, value_name = "TAG", requires = "snapshot", value_parser = tag)]
    snapshot_keep_tag: Vec<String>,

    /// Drop the oldest of the kept ones until the rest takes at most this, such as 10G
    #[arg(long, value_name = "BYTES", requires = "snapshot", value_parser = contract::parse_bytes)]
    snapshot_max_bytes: Option<u64>,

    /// If the next snapshot does not fit, what the rules would drop after it goes before it: keep at least N of the
    /// job's snapshots all the same [default: 1]
    #[arg(long, value_name = "N", requires = "snapshot")]
    snapshot_min_keep: Option<u32>,

    /// After the snapshot, check the next of N parts of DST's snapshots, and heal damage: N runs check everything
    ///
    /// As `volferry snapshot verify --in-turn N` does. If damage is left, the exit code is 3. A volume stays locked
    /// meanwhile; in object storage nothing is healed at once, and the next run sends damaged files again.
    #[arg(long, value_name = "N", requires = "snapshot", value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_verify: Option<u64>,

    /// Read at most this many bytes per second for that check, such as 100Mi [default: no limit]
    #[arg(long, value_name = "BYTES", requires = "snapshot_verify", value_parser = bandwidth)]
    snapshot_verify_bandwidth_limit: Option<u64>,
}

impl From<TakeFlags> for Option<SnapshotParams> {
    fn from(flags: TakeFlags) -> Self {
        let keep = Retention {
            last: flags.snapshot_keep_last.unwrap_or_default(),
            hourly: flags.snapshot_keep_hourly.unwrap_or_default(),
            daily: flags.snapshot_keep_daily.unwrap_or_default(),
            weekly: flags.snapshot_keep_weekly.unwrap_or_default(),
            monthly: flags.snapshot_keep_monthly.unwrap_or_default(),
            yearly: flags.snapshot_keep_yearly.unwrap_or_default(),
            within_seconds: flags.snapshot_keep_within,
            tags: flags.snapshot_keep_tag.into_iter().collect(),
            max_bytes: flags.snapshot_max_bytes,
        };
        let (tags, job) = (flags.snapshot_tag, flags.snapshot_job);
        let bandwidth_limit = flags.snapshot_verify_bandwidth_limit;
        let verify = flags.snapshot_verify.map(|parts| SnapshotVerify { parts, bandwidth_limit });
        let (engine, min_keep) = (flags.snapshot_engine, flags.snapshot_min_keep);
        flags.snapshot.then_some(SnapshotParams { tags, job, engine, keep, min_keep, verify })
    }
}

pub(super) fn tag(text: &str) -> Result<String, String> {
    check_tag(text).map(|()| text.into()).map_err(|error| error.to_string())
}
