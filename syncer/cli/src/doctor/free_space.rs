//! Checks whether the destination has room left, for bytes and for files.

use std::path::Path;

use contract::human::bytes;

use super::finding::{Check, Finding, Severity};

/// The smallest free share of a file system without a warning: one part in this many.
const LEAST_FREE: u64 = 20;

/// Checks the room for bytes and for files.
pub(super) fn findings(folder: &Path) -> Vec<Finding> {
    let Ok(room) = rustix::fs::statvfs(folder) else { return Vec::new() };
    let (free, total) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
    let mut findings = Vec::new();
    let severity = |free: u64| if free == 0 { Severity::Error } else { Severity::Warning };
    if total > 0 && free < total / LEAST_FREE {
        let message = format!("the destination is almost full: {} of {} are free", bytes(free), bytes(total));
        let hint = "make room; --delete=before deletes before it writes";
        findings.push(Finding::new(Check::FreeSpace, severity(free), message, hint));
    } else {
        findings.push(Finding::ok(Check::FreeSpace, format!("{} of {} are free", bytes(free), bytes(total))));
    }
    if room.f_files > 0 && room.f_favail < room.f_files / LEAST_FREE {
        let message = format!("the destination has room for {} more files", room.f_favail);
        let hint = "remove files, or make the file system with more inodes";
        findings.push(Finding::new(Check::FreeSpace, severity(room.f_favail), message, hint));
    }
    findings
}
