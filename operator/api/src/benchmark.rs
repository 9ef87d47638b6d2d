use contract::{BenchFiles, BenchTree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// A benchmark of the transfer between the volumes of a SyncJob.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::benchmark()))]
pub struct Benchmark {
    /// The tree to make: `small`, `large` or `mixed`. Absent, and without `files`: `mixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<BenchmarkTree>,
    /// The tree to make, as groups of files of the same size, in place of one of the named trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10))]
    pub files: Option<Vec<BenchFiles>>,
    /// The percentage that changes before the last step: of the files of a group or, for files of 1 MiB or more, of the
    /// 64 KiB parts of each file. Absent: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub change_percent: Option<u8>,
    /// How often each step is run.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub rounds: u32,
}

/// A tree that a benchmark knows by its name.
#[derive(JsonSchema, Serialize, Deserialize, clap::ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum BenchmarkTree {
    /// 5,000 files of 4 KiB.
    Small,
    /// One file of 256 MiB.
    Large,
    /// 2,000 files of 4 KiB, 100 of 256 KiB and 4 of 16 MiB.
    #[default]
    Mixed,
}

impl BenchmarkTree {
    /// Returns the name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Mixed => "mixed",
        }
    }
}

impl Benchmark {
    /// Returns the requested tree.
    pub fn whole_tree(&self) -> BenchTree {
        let named = BenchTree::named(self.tree.unwrap_or_default().word());
        let named = named.unwrap_or_else(|| BenchTree { files: Vec::new(), change_percent: 5 });
        BenchTree {
            files: self.files.clone().unwrap_or(named.files),
            change_percent: self.change_percent.unwrap_or(named.change_percent),
        }
    }
}

fn three() -> u32 {
    3
}
