//! Finds out which modification times the destination keeps, and says so where files lose theirs.

use jiff::Timestamp;

use crate::{
    destination::metadata::{probe_file::ProbeFile, set_metadata},
    entry::Time,
    sys::stat::modified,
    tree::kept_times::KeptTimes,
};

/// Returns the times that the file system keeps, by setting some on a file there; without one, all count as kept.
pub(crate) fn probe(file: Option<&ProbeFile<'_>>) -> KeptTimes {
    let Some(file) = file else { return KeptTimes::ALL };
    KeptTimes::learn(|time| {
        rustix::fs::futimens(file, &set_metadata::times(time)).ok()?;
        rustix::fs::fstat(file).ok().map(|stat| modified(&stat))
    })
}

/// Returns what a file system does not keep of times, and what to do.
pub(crate) fn not_kept(kept: KeptTimes) -> String {
    let all = KeptTimes::ALL;
    let date =
        |time: Time| Timestamp::from_second(time.seconds).map_or_else(|_| time.seconds.to_string(), date_of);
    let mut limits = Vec::new();
    if kept.first != all.first {
        limits.push(format!("from {}", date(kept.first)));
    }
    if kept.last != all.last {
        limits.push(format!("to {}", date(kept.last)));
    }
    if kept.step_nanos != all.step_nanos {
        limits.push(format!("in steps of {} s", kept.step_nanos as f64 / 1e9));
    }
    format!(
        "modification times: the destination keeps times {}, and later runs compare with these; set other times at the \
         source, or use a file system that keeps them, such as ext4 with inodes of 256 bytes (to 2446) or btrfs",
        limits.join(" ")
    )
}

fn date_of(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}
