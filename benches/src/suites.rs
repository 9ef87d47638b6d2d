//! Defines the named benches: trees and steps on which whole runs of the program are measured by Criterion, by
//! `benches/compare` and by the regression tests alike.

use clap::ValueEnum;
use testkit::{edits::Edit, shape::Shape};

const KB: u64 = 1000;
const MB: u64 = 1000 * KB;

/// How the two ends of a run are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Mode {
    /// `volferry sync`
    Local,
    /// `volferry send` to a waiting `volferry receive`, over QUIC on loopback
    Network,
}

impl Mode {
    /// Returns the name in tables and in the names of benches.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Network => "network",
        }
    }
}

/// The state from which a measured run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An empty destination.
    First,
    /// A destination that equals the source.
    Again,
    /// A destination that equals the source as it was before this edit.
    After(Edit),
}

/// One named bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bench {
    /// The suite, by its usual name.
    pub suite: &'static str,
    /// The value that distinguishes it within the suite: a count, a depth or a size.
    pub parameter: &'static str,
    /// The source.
    pub shape: Shape,
    /// The state from which the run starts.
    pub step: Step,
    /// The extension of files that the run leaves out by `--exclude`.
    pub excluded: Option<&'static str>,
}

impl Bench {
    /// Returns the name `suite/parameter`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.suite, self.parameter)
    }

    /// Returns the name `mode/suite/parameter`.
    pub fn full_name(&self, mode: Mode) -> String {
        format!("{}/{}", mode.name(), self.name())
    }
}

/// Returns all named benches, in the order of tables.
pub fn benches() -> Vec<Bench> {
    [small_files(), nested_dirs(), large_files(), idempotent(), vec![filtering(), tiny()], sy(), delta()]
        .concat()
}

/// Returns the bench named `suite/parameter`.
pub fn bench(name: &str) -> Option<Bench> {
    benches().into_iter().find(|bench| bench.name() == name)
}

fn first(suite: &'static str, parameter: &'static str, shape: Shape) -> Bench {
    Bench { suite, parameter, shape, step: Step::First, excluded: None }
}

fn small_files() -> Vec<Bench> {
    let sizes = [("10", 10), ("50", 50), ("100", 100), ("500", 500), ("1000", 1000)];
    sizes.map(|(name, files)| first("sync_small_files", name, small(files))).to_vec()
}

/// Returns a tree of files of 1 to 4 KB, a hundred in each folder.
fn small(files: u32) -> Shape {
    Shape { bytes: (KB, 4 * KB), folders: files.div_ceil(100), ..Shape::flat(files, 0) }
}

/// Returns benches with one file in a folder at each level.
fn nested_dirs() -> Vec<Bench> {
    let nested = |levels| Shape { folders: levels, depth: levels, ..Shape::flat(levels, KB) };
    let levels = [("5", 5), ("10", 10), ("20", 20), ("50", 50)];
    levels.map(|(name, levels)| first("sync_nested_dirs", name, nested(levels))).to_vec()
}

fn large_files() -> Vec<Bench> {
    let sizes = [("1MB", 1), ("5MB", 5), ("10MB", 10), ("50MB", 50), ("100MB", 100)];
    sizes.map(|(name, size)| first("sync_large_files", name, Shape::large(size * MB))).to_vec()
}

fn idempotent() -> Vec<Bench> {
    let sizes = [("100", 100), ("1000", 1000), ("50000", 50_000)];
    let again = |(name, files)| Bench { step: Step::Again, ..first("sync_idempotent", name, small(files)) };
    sizes.map(again).to_vec()
}

fn filtering() -> Bench {
    let shape = Shape { endings: &["bin", "tmp"], ..Shape::flat(100, KB) };
    Bench { excluded: Some("tmp"), ..first("sync_filtering", "100-to-50", shape) }
}

/// Returns the bench that is measured mainly for its memory.
fn tiny() -> Bench {
    first("memory_5000_tiny", "5000", Shape { folders: 50, ..Shape::flat(5000, 10) })
}

/// Returns the five trees of sy's own benchmark (`scripts/benchmark.py` of nijaru/sy), with random bytes where sy
/// repeats one letter.
fn sy() -> Vec<Bench> {
    let shape = |files, kb: u64, folders, depth| Shape { folders, depth, ..Shape::flat(files, kb * 1024) };
    vec![
        first("sy", "small_files", shape(1000, 1, 10, 3)),
        first("sy", "large_file", Shape::large(100_000 * 1024)),
        first("sy", "mixed", Shape { large: (5, 10_000 * 1024), ..shape(500, 10, 50, 3) }),
        first("sy", "deep_dirs", shape(100, 1, 100, 10)),
        first("sy", "source_code", shape(5000, 5, 200, 3)),
    ]
}

/// Returns the benches of small changes in large files. sy's goals are 10 MB below 100 ms, and 80 % of the bytes saved;
/// ours is 98 % after a change of 1 MB in 100 MB.
fn delta() -> Vec<Bench> {
    let changed = |name, size: u64, bytes| Bench {
        step: Step::After(Edit::Overwrite { count: 1, bytes }),
        ..first("delta", name, Shape::large(size * MB))
    };
    vec![changed("10MB", 10, 100_000), changed("100MB", 100, 1_000_000)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_is_one_bench() {
        let names: BTreeSet<String> = benches().iter().map(Bench::name).collect();
        assert_eq!(names.len(), benches().len());
        assert!(names.iter().all(|name| bench(name).is_some_and(|bench| bench.name() == *name)));
    }

    #[test]
    fn no_tree_takes_more_memory_than_a_small_machine_has() {
        assert!(benches().iter().all(|bench| bench.shape.bytes() <= 250 * MB));
    }
}
