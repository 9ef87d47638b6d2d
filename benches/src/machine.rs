//! Describes the machine that the figures were measured on.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

/// The machine and the file system.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The processor's name.
    pub cpu: String,
    /// The main memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The type of the file system that holds both trees.
    pub file_system: String,
    /// The load average of the minute before the bench. Figures of a busy machine mean little.
    pub load: f64,
}

impl Machine {
    /// Describes this machine; `dir` is where the trees will be.
    pub fn describe(dir: &Path) -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            cpu: field("/proc/cpuinfo", "model name"),
            memory_mib: field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0)
                / 1024,
            kernel: read("/proc/sys/kernel/osrelease"),
            file_system: file_system(dir),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, cpu, memory_mib, kernel, file_system, load } = self;
        write!(
            f,
            "{cores} cores ({cpu}), {memory_mib} MiB, Linux {kernel}, trees on {file_system}, load {load}"
        )
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

/// Returns the value of the first line `name : value` in a file of the kernel.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map(|(_, value)| value.trim().to_string()).unwrap_or_default()
}

/// Returns the type of the mount that holds `dir`, which is the one with the longest matching path.
fn file_system(dir: &Path) -> String {
    let mounts = read("/proc/self/mounts");
    let mounts = mounts.lines().filter_map(|line| line.split_once(' ')?.1.split_once(' '));
    let of_dir = mounts.filter(|(point, _)| dir.starts_with(point)).max_by_key(|(point, _)| point.len());
    let kind = of_dir.and_then(|(_, rest)| rest.split(' ').next());
    kind.unwrap_or("unknown").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_wins() {
        assert_eq!(file_system(Path::new("/proc/self")), "proc");
        assert_ne!(file_system(Path::new("/")), "proc");
    }
}
