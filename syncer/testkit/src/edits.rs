//! Changes a source between two runs.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::{rng::Rng, shape::Words};

const SEED: u64 = 0xed17;

/// A change of a tree, with deterministic content; the modification times come from the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// No change.
    None,
    /// Appends a line to each of the `count` files that sort first under `below`.
    AppendFirst {
        /// The folder, relative to the root.
        below: &'static str,
        /// The number of changed files.
        count: usize,
    },
    /// Appends a line to `count` files, spread evenly over the tree.
    AppendSpread {
        /// The number of changed files.
        count: usize,
    },
    /// Overwrites `count` pieces of the largest file in place, spread evenly over it.
    Overwrite {
        /// The number of pieces.
        count: u64,
        /// The size of each piece, in bytes.
        bytes: usize,
    },
    /// Inserts `bytes` random bytes 64 KiB after the start of the largest file.
    Insert {
        /// The number of inserted bytes.
        bytes: usize,
    },
    /// Appends `bytes` bytes of words to each of `count` files, spread evenly over the tree.
    Grow {
        /// The number of changed files.
        count: usize,
        /// The number of bytes appended to each.
        bytes: usize,
    },
    /// Creates a file from one piece of `bytes` bytes of each of the `count` files that sort first; no piece is from
    /// the start of its file.
    Assemble {
        /// The number of files.
        count: usize,
        /// The size of each piece, in bytes.
        bytes: usize,
    },
    /// Creates a random file, and another one with the same content.
    AddTwice {
        /// The size of each, in bytes.
        bytes: usize,
    },
    /// Renames a folder of the root.
    Rename {
        /// The old name.
        from: &'static str,
        /// The new name.
        to: &'static str,
    },
}

impl Edit {
    /// Changes the tree in `root`. Fails if a file cannot be changed.
    pub fn apply(self, root: &Path) -> anyhow::Result<()> {
        let mut rng = Rng::new(SEED);
        match self {
            Self::None => Ok(()),
            Self::AppendFirst { below, count } => {
                files_below(&root.join(below)).and_then(|files| append_lines(files.iter().take(count)))
            }
            Self::AppendSpread { count } => {
                files_below(root).and_then(|files| append_lines(spread(&files, count)))
            }
            Self::Overwrite { count, bytes } => {
                largest(root).and_then(|file| overwrite(&file, count, bytes, &mut rng))
            }
            Self::Insert { bytes } => largest(root).and_then(|file| insert(&file, bytes, &mut rng)),
            Self::Grow { count, bytes } => {
                files_below(root).and_then(|files| grow(spread(&files, count), bytes, &mut rng))
            }
            Self::Assemble { count, bytes } => assemble(root, count, bytes),
            Self::AddTwice { bytes } => add_twice(root, bytes, &mut rng),
            Self::Rename { from, to } => fs::rename(root.join(from), root.join(to)),
        }
        .with_context(|| format!("changing {} by {self:?}", root.display()))
    }
}

/// Returns all regular files below `dir`, sorted by the bytes of their paths.
pub fn files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(dir, &mut files)?;
    files.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(files)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => collect(&entry.path(), files)?,
            kind if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

/// Returns `count` of the files (or all, if fewer exist), evenly spaced.
fn spread(files: &[PathBuf], count: usize) -> impl Iterator<Item = &PathBuf> {
    files.iter().step_by((files.len() / count.max(1)).max(1)).take(count)
}

fn largest(root: &Path) -> io::Result<PathBuf> {
    let mut best = (0, None);
    for path in files_below(root)? {
        let bytes = fs::metadata(&path)?.len();
        if bytes > best.0 {
            best = (bytes, Some(path));
        }
    }
    best.1.ok_or_else(|| io::Error::other("the tree holds no file to change"))
}

fn append_lines<'a>(files: impl Iterator<Item = &'a PathBuf>) -> io::Result<()> {
    for (number, path) in files.enumerate() {
        writeln!(OpenOptions::new().append(true).open(path)?, "delta-{number}")?;
    }
    Ok(())
}

fn overwrite(path: &Path, count: u64, bytes: usize, rng: &mut Rng) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let stride = file.metadata()?.len() / count;
    let mut piece = vec![0; bytes];
    for number in 0..count {
        rng.fill(&mut piece);
        // An offset that is not aligned to any block size a tool may use.
        let offset = number * stride + rng.below(stride.saturating_sub(bytes as u64).max(1));
        file.write_all_at(&piece, offset)?;
    }
    Ok(())
}

fn insert(path: &Path, bytes: usize, rng: &mut Rng) -> io::Result<()> {
    const AT: usize = 64 << 10;
    let old = fs::read(path)?;
    let at = AT.min(old.len());
    let mut piece = vec![0; bytes];
    rng.fill(&mut piece);
    let mut file = File::create(path)?;
    [&old[..at], &piece, &old[at..]].iter().try_for_each(|part| file.write_all(part))
}

fn assemble(root: &Path, count: usize, bytes: usize) -> io::Result<()> {
    let files = files_below(root)?;
    let mut assembled = File::create_new(root.join("assembled"))?;
    let mut piece = vec![0; bytes];
    for (number, path) in (1..).zip(files.iter().take(count)) {
        File::open(path)?.read_exact_at(&mut piece, number * 1_000_003)?;
        assembled.write_all(&piece)?;
    }
    Ok(())
}

fn add_twice(root: &Path, bytes: usize, rng: &mut Rng) -> io::Result<()> {
    let mut content = vec![0; bytes];
    rng.fill(&mut content);
    ["new", "the same"].iter().try_for_each(|name| fs::write(root.join(name), &content))
}

fn grow<'a>(files: impl Iterator<Item = &'a PathBuf>, bytes: usize, rng: &mut Rng) -> io::Result<()> {
    let words = Words::new(rng);
    for path in files {
        OpenOptions::new().append(true).open(path)?.write_all(&words.lines(rng, bytes))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, usize)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; *bytes]).unwrap();
        }
        dir
    }

    #[test]
    fn the_files_that_sort_first_get_a_line() {
        let dir = tree(&[("small/b", 1), ("small/a/z", 1), ("small/c", 1), ("large/a", 1)]);
        Edit::AppendFirst { below: "small", count: 2 }.apply(dir.path()).unwrap();
        let read = |path| fs::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(read("small/a/z"), "xdelta-0\n");
        assert_eq!(read("small/b"), "xdelta-1\n");
        assert_eq!((read("small/c"), read("large/a")), ("x".into(), "x".into()));
    }

    #[test]
    fn pieces_are_overwritten_without_a_change_of_size() {
        let dir = tree(&[("small", 10), ("large", 100_000)]);
        Edit::Overwrite { count: 4, bytes: 1000 }.apply(dir.path()).unwrap();
        let bytes = fs::read(dir.path().join("large")).unwrap();
        let changed = bytes.iter().filter(|byte| **byte != b'x').count();
        assert_eq!(bytes.len(), 100_000);
        assert!((3900..=4000).contains(&changed), "{changed} bytes changed");
    }

    #[test]
    fn an_insertion_keeps_what_was_before_and_after_it() {
        let dir = tree(&[("large", 200_000)]);
        Edit::Insert { bytes: 5000 }.apply(dir.path()).unwrap();
        let bytes = fs::read(dir.path().join("large")).unwrap();
        assert_eq!(bytes.len(), 205_000);
        assert!(bytes[..65_536].iter().chain(&bytes[70_536..]).all(|byte| *byte == b'x'));
        assert!(bytes[65_536..70_536].iter().any(|byte| *byte != b'x'));
    }

    #[test]
    fn growth_is_spread_over_the_tree() {
        let names: Vec<String> = (0..10).map(|number| format!("log_{number}")).collect();
        let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 10)).collect();
        let dir = tree(&files);
        Edit::Grow { count: 2, bytes: 14 }.apply(dir.path()).unwrap();
        let sizes: Vec<u64> =
            names.iter().map(|name| fs::metadata(dir.path().join(name)).unwrap().len()).collect();
        assert_eq!(sizes, [24, 10, 10, 10, 10, 24, 10, 10, 10, 10]);
    }

    #[test]
    fn a_file_is_put_together_from_pieces_and_another_is_there_twice() {
        let dir = tree(&[("a", 3_000_000), ("b", 3_000_000), ("c", 3_000_000)]);
        Edit::Assemble { count: 2, bytes: 1000 }.apply(dir.path()).unwrap();
        Edit::AddTwice { bytes: 5000 }.apply(dir.path()).unwrap();
        let read = |name| fs::read(dir.path().join(name)).unwrap();
        assert_eq!(read("assembled"), [b'x'; 2000]);
        assert_eq!((read("new").len(), read("new") == read("the same")), (5000, true));
    }

    #[test]
    fn a_tree_without_files_cannot_be_overwritten() {
        let dir = tree(&[]);
        assert!(Edit::Overwrite { count: 1, bytes: 1 }.apply(dir.path()).is_err());
    }
}
