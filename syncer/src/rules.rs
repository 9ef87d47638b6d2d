//! The patterns of ignore files: what a tree itself says is to be left out of a run. Pure: the text of the files comes in as bytes.
//!
//! They are read at the source only, and count for both trees: with the listing of a directory the source sends the text of its ignore
//! files, and what they match at the sink is neither changed nor deleted.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use thiserror::Error;

use crate::path::RelPath;

/// The names of ignore files. Their patterns count as if they were in one file, in this order, so a later one overrides.
pub const IGNORE_FILES: [&[u8]; 2] = [b".gitignore", b".volferryignore"];

/// How much text the ignore files of one directory may have.
pub const MAX_RULES_BYTES: usize = 256 << 10;

/// The patterns of a directory's ignore files cannot be compiled, which takes more of them than anybody writes.
#[derive(Debug, Error)]
#[error("the patterns of the ignore files cannot be used: {0}")]
pub struct RulesError(#[source] ignore::Error);

/// What the ignore files of a directory and of those above it leave out, by the rules of gitignore: the last pattern that matches
/// decides, and one that is deeper in the tree comes after one that is less deep.
pub struct Rules {
    above: Option<Arc<Self>>,
    dir: RelPath,
    patterns: Gitignore,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("dir", &self.dir).field("above", &self.above).finish_non_exhaustive()
    }
}

impl Rules {
    /// Compiles the text of the ignore files of `dir`, which has at most [`MAX_RULES_BYTES`]. As in git, a line that is no pattern
    /// matches nothing.
    ///
    /// # Errors
    /// When all the lines together are more than can be compiled.
    pub fn new(above: Option<Arc<Self>>, dir: &RelPath, text: &[u8]) -> Result<Self, RulesError> {
        let text = String::from_utf8_lossy(text);
        let mut builder = GitignoreBuilder::new("");
        for line in text.lines() {
            if let Err(error) = builder.add_line(None, line.trim_start_matches('\u{feff}')) {
                tracing::warn!(%dir, line, %error, "a line of an ignore file is not a pattern");
            }
        }
        let patterns = builder.build().map_err(RulesError)?;
        Ok(Self { above, dir: dir.clone(), patterns })
    }

    /// Whether the entry at `path`, below the directory of these rules, is left out. What is below a directory that is left out
    /// is not asked for.
    pub fn excludes(&self, path: &RelPath, is_dir: bool) -> bool {
        match self.patterns.matched(self.below(path), is_dir) {
            Match::Ignore(_) => true,
            Match::Whitelist(_) => false,
            Match::None => self.above.as_deref().is_some_and(|above| above.excludes(path, is_dir)),
        }
    }

    /// `path` as it is from the directory of these rules.
    fn below<'p>(&self, path: &'p RelPath) -> &'p Path {
        let prefix = match self.dir.as_bytes().len() {
            0 => 0,
            len => len + 1,
        };
        OsStr::from_bytes(path.as_bytes().get(prefix..).unwrap_or_default()).as_ref()
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

    /// Ignore files by their directories, from the root downwards, each below the one before.
    fn rules(files: &[(&str, &str)]) -> Rules {
        let compile = |above: Option<Arc<Rules>>, (dir, text): &(&str, &str)| {
            Some(Arc::new(Rules::new(above, &rel(dir), text.as_bytes()).unwrap()))
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
        assert!(Rules::new(None, &RelPath::root(), b"\xff\xfe*.o\n*.tmp").is_ok());
    }
}
