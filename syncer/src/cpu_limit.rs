//! Reads for how long the CPU limit of a process's control group has stopped it.

use std::{fs::File, os::unix::fs::FileExt as _, sync::LazyLock, time::Duration};

/// More than the kernel writes into a `cpu.stat`, or `/proc/self/cgroup` has lines for.
const MAX_TEXT_BYTES: usize = 2048;

/// The account of this process's group, which is found once.
static STAT: LazyLock<Option<File>> = LazyLock::new(|| {
    with_text(&File::open("/proc/self/cgroup").ok()?, |groups| {
        places_of(groups).into_iter().flatten().find_map(|path| File::open(path).ok())
    })
});

/// Returns for how long the CPU limit has stopped the processors of this process's group, all of them added up, since
/// the group was made. Zero of a group without a limit.
pub(crate) fn throttled() -> Duration {
    STAT.as_ref().and_then(|file| with_text(file, throttled_in)).unwrap_or_default()
}

/// Passes on the text that a file of the kernel's has now.
fn with_text<T>(file: &File, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0; MAX_TEXT_BYTES];
    let len = file.read_at(&mut text, 0).ok()?;
    read(std::str::from_utf8(&text[..len]).ok()?)
}

/// Returns the wall time in which a process was stopped that ran for `cpu` in `wall`, where all its processors together
/// were stopped for `throttled`.
pub(crate) fn stopped(wall: Duration, cpu: Duration, throttled: Duration) -> Duration {
    let wanted = (cpu + throttled).as_secs_f64();
    if wanted == 0.0 {
        return Duration::ZERO;
    }
    wall.mul_f64(throttled.as_secs_f64() / wanted).min(throttled)
}

/// Returns where the account may be of the group that `/proc/self/cgroup` names: below the mount of version 1 where
/// that has the processors, else of version 2. A container may see its own group only, at the mount's root.
fn places_of(groups: &str) -> [Option<String>; 3] {
    let of = |is_it: fn(&str) -> bool| {
        let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find(|(controllers, _)| is_it(controllers)).map(|(_, path)| path)
    };
    let at = |mount: &str, group: &str| Some(format!("/sys/fs/cgroup{mount}{group}/cpu.stat"));
    match (of(|controllers| controllers.split(',').any(|it| it == "cpu")), of(str::is_empty)) {
        (Some(group), _) => [at("/cpu", group), at("/cpu", ""), None],
        (None, Some(group)) => [at("", group), at("/unified", group), at("", "")],
        (None, None) => [None, None, None],
    }
}

fn throttled_in(stat: &str) -> Option<Duration> {
    stat.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value = value.parse().ok()?;
        match name {
            "throttled_usec" => Some(Duration::from_micros(value)),
            "throttled_time" => Some(Duration::from_nanos(value)),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_looked_for_where_its_version_is_mounted() {
        let first = |groups: &str| places_of(groups)[0].clone();
        assert_eq!(first("0::/kubepods/a\n").unwrap(), "/sys/fs/cgroup/kubepods/a/cpu.stat");
        assert_eq!(first("4:cpuset:/a\n3:cpu,cpuacct:/x\n0::/y\n").unwrap(), "/sys/fs/cgroup/cpu/x/cpu.stat");
        assert_eq!(first("nonsense"), None);
    }

    #[test]
    fn both_versions_of_the_account_are_read() {
        let limited = "usage_usec 9\nnr_throttled 3\nthrottled_usec 70\nnr_bursts 0\n";
        assert_eq!(throttled_in(limited), Some(Duration::from_micros(70)));
        assert_eq!(throttled_in("nr_periods 5\nthrottled_time 70000\n"), Some(Duration::from_micros(70)));
        assert_eq!(throttled_in("usage_usec 9\n"), None);
    }

    #[test]
    fn processors_that_were_stopped_at_the_same_time_count_once() {
        let s = Duration::from_secs;
        assert_eq!(stopped(s(10), s(2), s(8)), s(8), "one thread");
        assert_eq!(stopped(s(10), s(4), s(16)), s(8), "two threads");
        assert_eq!(stopped(s(10), s(0), s(0)), s(0));
    }
}
