//! Stamps of regular files, by which a later scan recognises them. See [`ScanOptions::stamps`].

use rustix::fs::{Stat, Statx};

#[cfg(doc)]
use crate::scan::options::ScanOptions;
use crate::{
    entry::Time,
    sys::stat::{changed, device_of, device_of_stat},
    tree::stamps::IN_MOTION,
};

/// Returns the stamp of an open file of a tree whose root is on the file system `own`; see [`ScanOptions::stamps`].
pub(crate) fn stamp_of_stat(stat: &Stat, before: Time, own: u64) -> u64 {
    stamp(system(device_of_stat(stat), own), stat.st_ino, changed(stat), before)
}

/// Returns the stamp of a listed file of a tree whose root is on the file system `own`.
pub(super) fn stamp_of(stat: &Statx, before: Time, own: u64) -> u64 {
    let changed = Time { seconds: stat.stx_ctime.tv_sec, nanos: stat.stx_ctime.tv_nsec };
    stamp(system(device_of(stat), own), stat.stx_ino, changed, before)
}

/// Returns what stands for a file system in a stamp: nothing for the root's, which has the stamps as well, because its
/// number changes with the device that it is attached as.
fn system(device: u64, own: u64) -> u64 {
    if device == own { 0 } else { device }
}

/// Mixes file system, inode and change time of a file into its stamp; 0 for one that was changed since `before`.
fn stamp(device: u64, inode: u64, changed: Time, before: Time) -> u64 {
    if changed >= before {
        return 0;
    }
    let parts = [device, inode, changed.seconds as u64, u64::from(changed.nanos)];
    parts.into_iter().fold(1, |mixed, part| mix(mixed ^ part)).clamp(1, IN_MOTION - 1)
}

/// Mixes all bits of a word with one another; the constants are those of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
