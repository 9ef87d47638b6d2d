//! The figures that `volferry bench` measures between two volumes, and the tree that it uses. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bottleneck::Bottleneck, timings::Timings};

/// The most files that a tree may have.
pub const MAX_BENCH_FILES: u64 = 10_000_000;
/// The most bytes that a tree may have.
pub const MAX_BENCH_BYTES: u64 = 1 << 40;
/// The most groups of files that a tree may have.
pub const MAX_BENCH_GROUPS: usize = 100;

/// A tree that is made for a bench. Its content cannot be compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BenchTree {
    /// Groups of equal files.
    pub files: Vec<BenchFiles>,
    /// The percentage that changes before the last step: of the files of a group, or of the 64 KiB parts of each file
    /// if they have 1 MiB or more.
    #[serde(default = "some_percent")]
    pub change_percent: u8,
}

/// Equal files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BenchFiles {
    /// The number of files.
    #[schemars(range(min = 1, max = MAX_BENCH_FILES))]
    pub count: u64,
    /// The size of each, in bytes.
    #[schemars(range(max = MAX_BENCH_BYTES))]
    pub bytes: u64,
    /// The number of folders that they are in.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MAX_BENCH_FILES))]
    pub folders: u64,
}

fn some_percent() -> u8 {
    5
}

fn one() -> u64 {
    1
}

impl BenchTree {
    /// Returns the tree of a name: `small`, `large` or `mixed`.
    pub fn named(name: &str) -> Option<Self> {
        let group = |count, bytes, folders| BenchFiles { count, bytes, folders };
        let files = match name {
            "small" => vec![group(5_000, 4 << 10, 50)],
            "large" => vec![group(1, 256 << 20, 1)],
            "mixed" => vec![group(2_000, 4 << 10, 20), group(100, 256 << 10, 2), group(4, 16 << 20, 1)],
            _ => return None,
        };
        Some(Self { files, change_percent: some_percent() })
    }

    /// Returns the number of its files.
    pub fn count(&self) -> u64 {
        self.files.iter().map(|group| group.count).fold(0, u64::saturating_add)
    }

    /// Returns the number of its folders.
    pub fn folders(&self) -> u64 {
        self.files.iter().map(|group| group.folders.saturating_add(1)).fold(0, u64::saturating_add)
    }

    /// Returns the sum of the files' sizes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|group| group.count.saturating_mul(group.bytes)).fold(0, u64::saturating_add)
    }

    /// Returns why the tree is impossible, such as `files[2].folders is 0, and has to be 1 to 5`; `None` if it is not.
    pub fn fault(&self) -> Option<String> {
        let bounds = |field: String, value: u64, least: u64, most: u64| {
            let fits = (least..=most).contains(&value);
            (!fits).then(|| format!("{field} is {value}, and has to be {least} to {most}"))
        };
        let groups = self.files.len() as u64;
        let of_group = |(at, group): (usize, &BenchFiles)| {
            let field = |name: &str| format!("files[{at}].{name}");
            bounds(field("count"), group.count, 1, MAX_BENCH_FILES)
                .or_else(|| bounds(field("bytes"), group.bytes, 0, MAX_BENCH_BYTES))
                .or_else(|| bounds(field("folders"), group.folders, 1, group.count))
        };
        bounds("the number of groups in files".into(), groups, 1, MAX_BENCH_GROUPS as u64)
            .or_else(|| self.files.iter().enumerate().find_map(of_group))
            .or_else(|| bounds("the sum of all count".into(), self.count(), 1, MAX_BENCH_FILES))
            .or_else(|| bounds("the sum of all bytes".into(), self.bytes(), 0, MAX_BENCH_BYTES))
            .or_else(|| bounds("changePercent".into(), self.change_percent.into(), 0, 100))
    }
}

/// The figures of a bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchFigures {
    /// The tree that was copied from one volume to the other.
    pub bench: BenchTree,
    /// When the bench began, RFC 3339.
    pub start_time: String,
    /// The volume that it was read from; absent in the other end's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<BenchPlace>,
    /// The volume that it was written to; absent in the other end's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<BenchPlace>,
    /// The times of each step, in the order of the steps.
    pub steps: Vec<BenchStep>,
    /// Files or folders that could not be put back as they were, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The place where an end of a bench worked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchPlace {
    /// The folder, without links.
    pub path: String,
    /// The kind of file system, such as `ext4`.
    pub file_system: String,
    /// The device or the server's path that is mounted there.
    pub device: String,
    /// The mount options, such as `rw,relatime`.
    pub mount_options: String,
    /// The storage class of the volume's claim; in a cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// The node that the end ran on; in a cluster only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The machine that the end ran on.
    #[serde(default)]
    pub machine: BenchMachine,
}

impl BenchPlace {
    /// Describes the volume in a line for people.
    pub fn volume(&self) -> String {
        let Self { path, file_system, device, mount_options, storage_class, .. } = self;
        let class = storage_class.iter().map(|class| format!(", storage class {class}")).collect::<String>();
        format!("{path}: {file_system} on {device} ({mount_options}){class}")
    }
}

/// The machine of an end of a bench.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchMachine {
    /// The kernel's release.
    pub kernel: String,
    /// Processors that the process may use.
    pub cores: u32,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
}

/// A step of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BenchStepName {
    /// The first copy of all files.
    First,
    /// A run after no change.
    Unchanged,
    /// A run after some files have changed.
    Changed,
}

impl BenchStepName {
    /// The steps of a round, in their order.
    pub const ALL: [Self; 3] = [Self::First, Self::Unchanged, Self::Changed];

    /// Returns the word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
        }
    }
}

/// The times of a step in all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchStep {
    /// The step.
    pub step: BenchStepName,
    /// The number of rounds.
    pub rounds: u32,
    /// The median of its wall times, in milliseconds.
    pub median_ms: u64,
    /// The shortest of its wall times, in milliseconds.
    pub least_ms: u64,
    /// The longest of its wall times, in milliseconds.
    pub most_ms: u64,
    /// The spread of the runs: the factor within which a run's time usually is, at least 1.
    pub spread: f64,
    /// Entries of the tree for each second of the median.
    pub files_per_second: f64,
    /// Changed bytes for each second of the median.
    pub bytes_per_second: f64,
    /// The median of each phase separately, in milliseconds.
    pub timings: Timings,
    /// The bottleneck of the run with the median time; absent if that was too short to be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> BenchTree {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_tree_that_is_impossible_names_the_field() {
        assert_eq!(tree(r#"{"files": [{"count": 3, "bytes": 10}, {"count": 2, "bytes": 5}]}"#).fault(), None);
        for (text, says) in [
            (r#"{"files": []}"#, "the number of groups in files is 0, and has to be 1 to 100"),
            (r#"{"files": [{"count": 1, "bytes": 1}, {"count": 0, "bytes": 1}]}"#, "files[1].count is 0"),
            (
                r#"{"files": [{"count": 2, "bytes": 1, "folders": 3}]}"#,
                "files[0].folders is 3, and has to be 1 to 2",
            ),
            (
                r#"{"files": [{"count": 1024, "bytes": 1099511627776}]}"#,
                "the sum of all bytes is 1125899906842624",
            ),
            (r#"{"files": [{"count": 1, "bytes": 1}], "changePercent": 101}"#, "changePercent is 101"),
        ] {
            let fault = tree(text).fault().unwrap();
            assert!(fault.starts_with(says), "{fault}");
        }
    }

    #[test]
    fn the_trees_of_known_names_are_possible() {
        for name in ["small", "large", "mixed"] {
            assert_eq!(BenchTree::named(name).unwrap().fault(), None, "{name}");
        }
        assert_eq!(BenchTree::named("huge"), None);
    }
}
