//! Decides which system calls of a program are counted: those whose number depends on its work, and not on timing.

use std::{collections::BTreeMap, path::Path};

use anyhow::ensure;

use crate::probe::Probe;

/// System calls whose number depends on the timing of threads and datagrams instead of the work; what `write` counts
/// is threads that wake each other, for contents are written by `pwrite64`.
const TIMED: &str = "brk clock_nanosleep epoll_ctl epoll_pwait epoll_wait futex madvise mmap mprotect mremap munmap \
    nanosleep poll ppoll recvfrom recvmmsg recvmsg restart_syscall sched_yield sendmmsg sendmsg sendto write";

/// Returns the system calls of a run's ends, without those that depend on timing.
pub fn system_calls(scratch: &Path, ends: &[&str]) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut sum = BTreeMap::new();
    for (name, count) in Probe::Strace.read(scratch, ends, parse_strace)?.into_iter().flatten() {
        *sum.entry(name).or_default() += count;
    }
    Ok(sum)
}

/// Parses strace's table: share, seconds, microseconds per call, calls, errors if any, and the name.
fn parse_strace(text: &str) -> anyhow::Result<Vec<(String, u64)>> {
    let mut calls = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (Some(count), Some(name)) = (fields.get(3), fields.last()) else { continue };
        let Ok(count) = count.parse() else { continue };
        if fields.len() >= 5 && *name != "total" && !TIMED.split_whitespace().any(|timed| timed == *name) {
            calls.push((name.to_string(), count));
        }
    }
    ensure!(!calls.is_empty(), "it has no calls");
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strace_counts_are_read_and_those_of_timing_left_out() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n \
                    60.00    0.000100           1       100         3 openat\n \
                    30.00    0.000050          10         5           futex\n  \
                    10.00    0.000010           5         2           statx\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.000160           1       107         3 total\n";
        assert_eq!(parse_strace(text).unwrap(), [("openat".to_string(), 100), ("statx".to_string(), 2)]);
        assert!(parse_strace("").is_err());
    }
}
