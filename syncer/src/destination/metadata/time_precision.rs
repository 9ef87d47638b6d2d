//! Finds out which modification times the destination keeps, and says so where files lose theirs.

use std::os::fd::BorrowedFd;

use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::{
    destination::metadata::set_metadata, entry::Time, sys::stat::modified, tree::kept_times::KeptTimes,
};

/// Returns the times that the file system of `dir` keeps, by setting some on a new file there. The file has no name, or
/// `name` for a moment if there is one and the file system knows no files without names; else all times count as kept.
pub(crate) fn probe(dir: BorrowedFd<'_>, name: Option<&str>) -> KeptTimes {
    let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let unnamed = rustix::fs::openat(dir, c".", flags | OFlags::TMPFILE, mode).ok();
    let named = |name: &str| {
        let file = rustix::fs::openat(dir, name, flags | OFlags::CREATE | OFlags::EXCL, mode).ok();
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        file
    };
    let Some(file) = unnamed.or_else(|| name.and_then(named)) else { return KeptTimes::ALL };
    KeptTimes::learn(|time| {
        rustix::fs::futimens(&file, &set_metadata::times(time)).ok()?;
        rustix::fs::fstat(&file).ok().map(|stat| modified(&stat))
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
