//! The reference trees of the comparisons with other tools.

use std::{io, path::Path};

use anyhow::Context as _;
use clap::ValueEnum;
use testkit::shape::Maker;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A reference tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tree {
    /// 1,008 files, 20.9 MB: what sparsync's own benchmark uses
    Net1k,
    /// 50,000 files of 0.2 to 2 KB in 2,500 folders
    Many50k,
    /// One random file of 1 GiB
    Large1g,
    /// One random file of 256 MiB
    Shift256m,
    /// 200 logs, 170 MB of words
    Text,
    /// A folder of 40 files of 8 MiB
    Rename320m,
    /// Four files of 64 MiB
    Parts256m,
    /// 1,000 files of 1 to 10 KB
    Local1k,
    /// One random file of 100 MiB
    Local100m,
    /// One random file of 1 GiB, for file systems that can clone
    Clone1g,
    // At the end, because the number of a tree is the seed of its content.
    /// 100 files of 100 KB
    Local10m,
}

impl Tree {
    /// Returns the name on the command line and in tables.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns a description for tables.
    pub fn title(self) -> &'static str {
        self.about().0
    }

    /// Returns the approximate total size of the files in bytes, for choosing the size of a loop device.
    pub fn bytes(self) -> u64 {
        self.about().1 * MIB
    }

    /// Returns the title, and the size in MiB with all that is added to the tree.
    fn about(self) -> (&'static str, u64) {
        match self {
            Self::Net1k => ("1,008 files, 21 MB", 21),
            // In blocks of 4 KiB, including the folders.
            Self::Many50k => ("50,000 files of 0.2 to 2 KB", 210),
            Self::Large1g | Self::Clone1g => ("one file of 1 GiB", 1024),
            Self::Shift256m => ("one file of 256 MiB", 257),
            Self::Text => ("200 logs, 170 MB", 173),
            Self::Rename320m => ("40 files of 8 MiB", 320),
            Self::Parts256m => ("four files of 64 MiB", 480),
            Self::Local1k => ("1,000 files of 1 to 10 KB", 8),
            Self::Local10m => ("100 files of 100 KB", 11),
            Self::Local100m => ("one file of 100 MiB", 100),
        }
    }

    /// Creates the tree in `root`, which must not exist.
    pub fn make(self, root: &Path) -> anyhow::Result<()> {
        let made = Maker::new(root, self as u64 + 1).and_then(|mut maker| {
            self.fill(&mut maker)?;
            maker.finish()
        });
        made.with_context(|| format!("making the tree {} in {}", self.name(), root.display()))
    }

    fn fill(self, maker: &mut Maker) -> io::Result<()> {
        match self {
            Self::Net1k => {
                (0..10).try_for_each(|dir| {
                    maker.numbered(&format!("small/dir_{dir}"), "file", 100, |_| 4 * KIB)
                })?;
                maker.numbered("large", "chunk", 8, |_| 2 * MIB)
            }
            Self::Many50k => (0..2500).try_for_each(|dir| {
                let dir = format!("group_{:02}/part_{:02}", dir / 50, dir % 50);
                maker.numbered(&dir, "item", 20, |rng| rng.between(200, 2000))
            }),
            Self::Large1g | Self::Clone1g => maker.random("disk.img", 1024 * MIB),
            Self::Shift256m => maker.random("archive.tar", 256 * MIB),
            Self::Text => maker.logs(200, 850_000),
            Self::Rename320m => maker.numbered("photos", "photo", 40, |_| 8 * MIB),
            Self::Parts256m => maker.numbered("disks", "disk", 4, |_| 64 * MIB),
            Self::Local1k => maker.numbered("files", "file", 1000, |rng| rng.between(1000, 10_000)),
            Self::Local10m => maker.numbered("files", "file", 100, |_| 100_000),
            Self::Local100m => maker.random("disk.img", 100 * MIB),
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::{
        compare::{Fidelity, compare},
        edits::files_below,
    };

    use super::*;

    #[test]
    fn a_tree_is_the_same_each_time_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        Tree::Net1k.make(&first).unwrap();
        Tree::Net1k.make(&second).unwrap();
        compare(&first, &second, Fidelity::Full, &[]).unwrap();
    }

    #[test]
    fn net1k_is_the_tree_that_the_figures_are_of() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        Tree::Net1k.make(&root).unwrap();
        let files = files_below(&root).unwrap();
        let bytes: u64 = files.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum();
        assert_eq!((files.len(), bytes), (1008, 20_873_216));
    }
}
