//! Measures how long CPU limits of this process's control group, and of the groups above it, have stopped it.

use std::{fs::File, os::unix::fs::FileExt as _, sync::LazyLock, time::Duration};

use crate::measure::thread_time::IS_MEASURED;

/// An upper bound of the length of `cpu.stat`, and of the part of `/proc/self/cgroup` that is needed.
const MAX_TEXT_BYTES: usize = 2048;
/// The number of groups that are read: the process's own and those above it. A pod's container has four to six.
const MAX_LEVELS: usize = 8;

/// The open `cpu.stat` files of this process's group and of those above it, found once.
static STATS: LazyLock<Vec<File>> = LazyLock::new(|| {
    let groups = File::open("/proc/self/cgroup").ok();
    groups.and_then(|groups| with_text(&groups, |groups| Some(accounts(groups)))).unwrap_or_default()
});

/// The time that each of the groups has been stopped since it was made, the process's own first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Throttled([Duration; MAX_LEVELS]);

impl Throttled {
    /// Returns the time that CPU limits have stopped this process's groups, added up over all processors of a group; 0
    /// for groups without a limit.
    pub(crate) fn now() -> Self {
        let mut levels = [Duration::ZERO; MAX_LEVELS];
        if !IS_MEASURED {
            return Self(levels);
        }
        for (level, file) in levels.iter_mut().zip(STATS.iter()) {
            *level = with_text(file, throttled_in).unwrap_or_default();
        }
        Self(levels)
    }

    /// Returns the longest time that any of the groups was stopped since `before`. Groups are stopped together with
    /// those above them, so their times do not add up.
    pub(crate) fn since(&self, before: &Self) -> Duration {
        let levels = self.0.iter().zip(before.0);
        levels.map(|(now, before)| now.saturating_sub(before)).max().unwrap_or_default()
    }
}

fn accounts(groups: &str) -> Vec<File> {
    let own = places_of(groups).into_iter().flatten();
    let mut found = own.map(|GroupPlace { mount, group }| {
        let above = levels_of(&group).filter_map(|group| File::open(format!("{mount}{group}/cpu.stat")).ok());
        above.take(MAX_LEVELS).collect::<Vec<_>>()
    });
    found.find(|files| !files.is_empty()).unwrap_or_default()
}

/// Yields a group and all groups above it: for `/a/b` also `/a` and the mount's root.
fn levels_of(group: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(group.trim_end_matches('/')), |group| Some(group.rsplit_once('/')?.0))
}

/// Passes the present text of a kernel file to `read`.
fn with_text<T>(file: &File, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut text = [0; MAX_TEXT_BYTES];
    let len = file.read_at(&mut text, 0).ok()?;
    read(std::str::from_utf8(&text[..len]).ok()?)
}

/// Returns the wall time in which a process was stopped, if it ran for `cpu` in `wall`, and all its processors together
/// were stopped for `throttled`.
pub(crate) fn stopped(wall: Duration, cpu: Duration, throttled: Duration) -> Duration {
    let wanted = (cpu + throttled).as_secs_f64();
    if wanted == 0.0 {
        return Duration::ZERO;
    }
    wall.mul_f64(throttled.as_secs_f64() / wanted).min(throttled)
}

/// A place where a group may be mounted.
struct GroupPlace {
    mount: &'static str,
    /// Its path below the mount.
    group: String,
}

/// Returns the places where the group in `/proc/self/cgroup` may be mounted: in version 1 if that has the CPU
/// controller, else in version 2. A container may see only its own group, at the mount's root.
fn places_of(groups: &str) -> [Option<GroupPlace>; 3] {
    let of = |is_it: fn(&str) -> bool| {
        let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines.find(|(controllers, _)| is_it(controllers)).map(|(_, path)| path)
    };
    let at = |mount, group: &str| Some(GroupPlace { mount, group: group.to_string() });
    const UNIFIED: &str = "/sys/fs/cgroup";
    match (of(|controllers| controllers.split(',').any(|it| it == "cpu")), of(str::is_empty)) {
        (Some(group), _) => [at("/sys/fs/cgroup/cpu", group), at("/sys/fs/cgroup/cpu", ""), None],
        (None, Some(group)) => [at(UNIFIED, group), at("/sys/fs/cgroup/unified", group), at(UNIFIED, "")],
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
        let first = |groups: &str| {
            let [first, ..] = places_of(groups);
            first.map(|GroupPlace { mount, group }| format!("{mount}{group}"))
        };
        assert_eq!(first("0::/kubepods/a\n").unwrap(), "/sys/fs/cgroup/kubepods/a");
        assert_eq!(first("4:cpuset:/a\n3:cpu,cpuacct:/x\n0::/y\n").unwrap(), "/sys/fs/cgroup/cpu/x");
        assert_eq!(first("nonsense"), None);
    }

    #[test]
    fn the_groups_above_are_read_up_to_the_mount() {
        assert_eq!(
            levels_of("/kubepods/pod1/c").collect::<Vec<_>>(),
            ["/kubepods/pod1/c", "/kubepods/pod1", "/kubepods", ""]
        );
        assert_eq!(levels_of("/").collect::<Vec<_>>(), [""]);
    }

    #[test]
    fn the_limit_that_stopped_the_process_longest_in_a_phase_counts() {
        let of = |own, pod| {
            let mut levels = [Duration::ZERO; MAX_LEVELS];
            (levels[0], levels[1]) = (Duration::from_secs(own), Duration::from_secs(pod));
            Throttled(levels)
        };
        assert_eq!(of(105, 3).since(&of(100, 1)), Duration::from_secs(5));
        assert_eq!(of(100, 9).since(&of(100, 1)), Duration::from_secs(8), "of the pod's group alone");
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
