//! The patterns of a tree's ignore files. Pure: their text comes in as bytes.
//!
//! They are read at the source only, and apply to both trees. The source sends their text with the listing of a
//! directory, and matching entries at the sink are neither changed nor deleted.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use thiserror::Error;

use crate::tree::path::RelPath;

/// The names of ignore files. Their patterns apply as if they were in one file, in this order, so a later one
/// overrides.
pub const IGNORE_FILES: [&[u8]; 2] = [b".gitignore", b".volferryignore"];

/// The most text of one directory's ignore files, in bytes.
pub const MAX_RULES_BYTES: usize = 256 << 10;

/// The most patterns of one directory's ignore files.
pub const MAX_PATTERNS: usize = 1000;

/// The most memory that the patterns of directories in a walk may take at once, by [`memory_of`].
pub const MAX_BYTES_IN_USE: usize = 256 << 20;

/// Memory of a compiled pattern, measured. One that is not a name, a path or `*.` and an ending has its own regular
/// expression.
const REGEX_BYTES: usize = 30 << 10;
const LITERAL_BYTES: usize = 2 << 10;

/// Says why the patterns of a directory's ignore files cannot be used.
#[derive(Debug, Error)]
pub enum RulesError {
    /// They cannot be compiled.
    #[error("the patterns of the ignore files cannot be used: {0}")]
    Compile(#[source] ignore::Error),
    /// One directory has too many.
    #[error(
        "the ignore files have {0} patterns, and a folder may have {MAX_PATTERNS}: join some, or put them into the folders they are for"
    )]
    TooMany(usize),
    /// The directories of a walk have too many together.
    #[error(
        "the patterns of the tree's ignore files take more than {} MiB at once: join some, or leave folders out", MAX_BYTES_IN_USE >> 20
    )]
    TooManyInUse,
}

/// Counts the memory of patterns, shared by all rules of one walk.
#[derive(Debug, Clone, Default)]
pub struct InUse(Arc<AtomicUsize>);

impl InUse {
    /// Counts more bytes, unless that exceeds the limit.
    fn take(&self, bytes: usize) -> Result<HeldPattern, RulesError> {
        let before = self.0.fetch_add(bytes, Relaxed);
        // Dropping `held` releases them.
        let held = HeldPattern { in_use: self.clone(), bytes };
        if before + bytes > MAX_BYTES_IN_USE { Err(RulesError::TooManyInUse) } else { Ok(held) }
    }
}

/// Memory that counts as in use until it is dropped.
struct HeldPattern {
    in_use: InUse,
    bytes: usize,
}

impl Drop for HeldPattern {
    fn drop(&mut self) {
        self.in_use.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// The patterns of a directory's ignore files and of those above it. As in git, the last matching pattern decides, and
/// deeper ones come later.
pub struct Rules {
    above: Option<Arc<Self>>,
    dir: RelPath,
    patterns: Gitignore,
    _held: HeldPattern,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("dir", &self.dir).field("above", &self.above).finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles the text of the ignore files of `dir`, at most [`MAX_RULES_BYTES`], and counts its memory as `in_use`
    /// until it is dropped. As in git, an invalid line matches nothing.
    ///
    /// # Errors If the patterns exceed their limits.
    pub fn new(
        above: Option<Arc<Self>>,
        dir: &RelPath,
        text: &[u8],
        in_use: &InUse,
    ) -> Result<Self, RulesError> {
        let text = String::from_utf8_lossy(text);
        let lines = || text.lines().map(|line| line.trim_start_matches('\u{feff}')).filter(is_pattern);
        let count = lines().count();
        if count > MAX_PATTERNS {
            return Err(RulesError::TooMany(count));
        }
        let held = in_use.take(lines().map(memory_of).sum())?;
        let mut builder = GitignoreBuilder::new("");
        let mut wrong = Vec::new();
        for line in lines() {
            if let Err(error) = builder.add_line(None, line) {
                wrong.push((line, error));
            }
        }
        if let Some((line, error)) = wrong.first() {
            let lines = wrong.len();
            tracing::warn!(%dir, lines, first = line, %error, "lines of the ignore files are not patterns");
        }
        let patterns = builder.build().map_err(RulesError::Compile)?;
        Ok(Self { above, dir: dir.clone(), patterns, _held: held })
    }

    /// Whether the entry at `path`, below the directory of these rules, is excluded. Callers do not ask about entries
    /// of excluded directories.
    pub fn excludes(&self, path: &RelPath, is_dir: bool) -> bool {
        match self.patterns.matched(self.below(path), is_dir) {
            Match::Ignore(_) => true,
            Match::Whitelist(_) => false,
            Match::None => self.above.as_deref().is_some_and(|above| above.excludes(path, is_dir)),
        }
    }

    /// Returns `path` relative to the directory of these rules.
    fn below<'p>(&self, path: &'p RelPath) -> &'p Path {
        let prefix = match self.dir.as_bytes().len() {
            0 => 0,
            len => len + 1,
        };
        OsStr::from_bytes(path.as_bytes().get(prefix..).unwrap_or_default()).as_ref()
    }
}

/// Whether a line may be a pattern: it is not empty, and no comment.
fn is_pattern(line: &&str) -> bool {
    !line.trim().is_empty() && !line.starts_with('#')
}

/// Estimates the memory of a compiled pattern, in bytes.
fn memory_of(pattern: &str) -> usize {
    let rest = pattern.strip_prefix("*.").unwrap_or(pattern);
    match rest.contains(['*', '?', '[', '{']) {
        true => REGEX_BYTES,
        false => LITERAL_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(path: &str) -> RelPath {
        path.split('/')
            .filter(|name| !name.is_empty())
            .fold(RelPath::root(), |at, name| at.join(name.as_bytes()).unwrap())
    }

    /// Compiles ignore files by their directories, from the root downwards, each below the one before.
    fn rules(files: &[(&str, &str)]) -> Rules {
        let compile = |above: Option<Arc<Rules>>, (dir, text): &(&str, &str)| {
            Some(Arc::new(Rules::new(above, &rel(dir), text.as_bytes(), &InUse::default()).unwrap()))
        };
        Arc::into_inner(files.iter().fold(None, compile).unwrap()).unwrap()
    }

    #[test]
    fn patterns_count_from_their_own_directory() {
        let rules = rules(&[("a/b", "/top\nsub/x\n*.o\n# *.c\n\nbuild/\n")]);
        for (path, is_dir, expected) in [
            ("a/b/top", false, true),
            ("a/b/c/top", false, false),
            ("a/b/sub/x", false, true),
            ("a/b/c/sub/x", false, false),
            ("a/b/c/m.o", false, true),
            ("a/b/m.c", false, false),
            ("a/b/c/build", true, true),
            ("a/b/c/build", false, false),
        ] {
            assert_eq!(rules.excludes(&rel(path), is_dir), expected, "{path}");
        }
    }

    #[test]
    fn a_deeper_file_overrides_and_a_later_line_too() {
        let rules = rules(&[("", "*.log\n!keep.log\nsecret\n"), ("d", "!*.log\nkeep.log\n")]);
        for (path, expected) in
            [("d/a.log", false), ("d/keep.log", true), ("d/e/a.log", false), ("d/secret", true)]
        {
            assert_eq!(rules.excludes(&rel(path), false), expected, "{path}");
        }
    }

    #[test]
    fn a_line_that_is_no_pattern_does_not_keep_the_others_from_counting() {
        let rules = rules(&[("", "\u{feff}*.tmp\r\n[z-a]\nback\\\\\n\u{fffd}\n*.o")]);
        assert!(rules.excludes(&rel("a.tmp"), false) && rules.excludes(&rel("a.o"), false));
        assert!(!rules.excludes(&rel("z"), false));
        assert!(Rules::new(None, &RelPath::root(), b"\xff\xfe*.o\n*.tmp", &InUse::default()).is_ok());
    }

    #[test]
    fn more_patterns_than_memory_should_hold_are_refused_for_a_folder_and_for_all_in_use() {
        let in_use = InUse::default();
        let new = |text: &str| Rules::new(None, &RelPath::root(), text.as_bytes(), &in_use);
        let most = "x*.ext\n\n# a comment\n".repeat(MAX_PATTERNS);
        assert!(matches!(new(&format!("{most}y")), Err(RulesError::TooMany(1001))));
        let held = in_use.take(MAX_BYTES_IN_USE - REGEX_BYTES * MAX_PATTERNS + 1).unwrap();
        assert!(matches!(new(&most), Err(RulesError::TooManyInUse)));
        drop(held);
        assert!(new(&most).is_ok(), "what is dropped is not in use any more");
    }
}
