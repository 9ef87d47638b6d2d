//! Decides by gitignore patterns which entries a run leaves alone. Excluded entries are not listed at either end, so
//! they are neither sent nor changed nor deleted.

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use thiserror::Error;

use crate::tree::{entry::Kind, path::RelPath};

/// The most include patterns, and the most exclude patterns. A compiled one takes up to some 30 KB of memory.
pub const MAX_PATTERNS: usize = 5000;

/// Says why patterns cannot be used.
#[derive(Debug, Error)]
pub enum FilterError {
    /// A pattern is not gitignore syntax.
    #[error("the pattern `{pattern}` is not gitignore syntax")]
    Syntax {
        /// The pattern.
        pattern: String,
        /// The parser's error.
        source: ignore::Error,
    },
    /// There are too many patterns.
    #[error("there are {0} patterns in a list, and there may be {MAX_PATTERNS}: join some")]
    TooMany(usize),
}

/// Include and exclude patterns, ready to match.
#[derive(Debug, Default)]
pub struct Filter {
    include: Option<Gitignore>,
    exclude: Option<Gitignore>,
    /// Patterns that the owner of the destination excludes. No pattern of the run overrides them.
    spare: Option<Gitignore>,
}

impl Filter {
    /// Compiles the patterns. An empty `include` includes everything.
    ///
    /// # Errors If a pattern cannot be parsed; the error names it.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, FilterError> {
        Ok(Self { include: compile(include)?, exclude: compile(exclude)?, spare: None })
    }

    /// Excludes matches of these patterns, too, whatever the others say.
    ///
    /// # Errors If a pattern cannot be parsed; the error names it.
    pub fn sparing(self, patterns: &[String]) -> Result<Self, FilterError> {
        Ok(Self { spare: compile(patterns)?, ..self })
    }

    /// Whether the file at `path`, or a directory above it, is excluded.
    pub fn excludes_path(&self, path: &RelPath) -> bool {
        let mut at = RelPath::root();
        let mut names = path.names().peekable();
        while let Some(name) = names.next() {
            if self.excludes(&at, name, names.peek().is_some()) {
                return true;
            }
            let Ok(next) = at.join(name) else { return false };
            at = next;
        }
        false
    }

    /// Whether no entry is excluded.
    pub fn is_empty(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.spare.is_none()
    }

    /// Whether the entry `name` of the directory `dir` is excluded. The directory itself is not, because a walk does
    /// not enter excluded directories. An include list does not exclude directories, because their entries may match.
    pub fn excludes(&self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let Ok(path) = dir.join(name) else { return false };
        let listed = |list| matches(list, |list| list.matched(path.as_path(), is_dir));
        let excluded = listed(self.exclude.as_ref()) || listed(self.spare.as_ref());
        let included = is_dir
            || self.include.is_none()
            || matches(self.include.as_ref(), |list| list.matched_path_or_any_parents(path.as_path(), false));
        excluded || !included
    }
}

/// The sizes, in bytes, of files that take part in a run. All other files are neither sent, changed nor deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// Smaller files are left alone.
    pub min: u64,
    /// Larger files are left alone.
    pub max: u64,
}

impl Default for SizeLimits {
    fn default() -> Self {
        Self { min: 0, max: u64::MAX }
    }
}

impl SizeLimits {
    /// Whether an entry of this kind is left alone.
    pub fn exclude(&self, kind: Kind<'_>) -> bool {
        matches!(kind, Kind::File { size } if size < self.min || size > self.max)
    }
}

fn matches<'a>(
    list: Option<&'a Gitignore>,
    matched: impl FnOnce(&'a Gitignore) -> Match<&'a ignore::gitignore::Glob>,
) -> bool {
    list.is_some_and(|list| matched(list).is_ignore())
}

fn compile(patterns: &[String]) -> Result<Option<Gitignore>, FilterError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut builder = GitignoreBuilder::new("");
    if patterns.len() > MAX_PATTERNS {
        return Err(FilterError::TooMany(patterns.len()));
    }
    let failed = |pattern: &str, source| FilterError::Syntax { pattern: pattern.into(), source };
    for pattern in patterns {
        builder.add_line(None, pattern).map_err(|source| failed(pattern, source))?;
    }
    builder.build().map(Some).map_err(|source| failed(&some_of(patterns), source))
}

/// Returns enough of the patterns to recognise them, because there may be thousands and the message crosses to the
/// peer.
fn some_of(patterns: &[String]) -> String {
    let (shown, rest) = patterns.split_at(patterns.len().min(3));
    match rest.len() {
        0 => shown.join("`, `"),
        more => format!("{}` or one of {more} more, `…", shown.join("`, `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(include: &[&str], exclude: &[&str], path: &str, is_dir: bool) -> bool {
        let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let filter = Filter::new(&strings(include), &strings(exclude)).unwrap();
        let mut names: Vec<&str> = path.split('/').collect();
        let name = names.pop().unwrap();
        let dir = names.iter().fold(RelPath::root(), |at, name| at.join(name.as_bytes()).unwrap());
        filter.excludes(&dir, name.as_bytes(), is_dir)
    }

    #[test]
    fn patterns_mean_what_they_mean_to_git() {
        for (pattern, path, is_dir, expected) in [
            ("*.tmp", "a/b.tmp", false, true),
            ("*.tmp", "a/b.txt", false, false),
            ("/top", "top", true, true),
            ("/top", "a/top", true, false),
            ("build/", "a/build", true, true),
            ("build/", "a/build", false, false),
            ("a/**/z", "a/b/c/z", false, true),
        ] {
            assert_eq!(excluded(&[], &[pattern], path, is_dir), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_later_negation_takes_a_match_back() {
        assert!(!excluded(&[], &["*.log", "!keep.log"], "keep.log", false));
    }

    #[test]
    fn an_include_list_leaves_out_the_rest_but_walks_directories() {
        assert!(!excluded(&["/docs"], &[], "docs/deep/a.md", false));
        assert!(excluded(&["/docs"], &[], "src/a.rs", false));
        assert!(!excluded(&["/docs"], &[], "src", true));
        assert!(excluded(&["/docs"], &["*.bak"], "docs/a.bak", false));
    }

    #[test]
    fn more_patterns_than_memory_should_hold_are_refused() {
        let many = vec!["x*.ext".to_string(); MAX_PATTERNS + 1];
        assert!(matches!(Filter::new(&[], &many), Err(FilterError::TooMany(5001))));
    }

    #[test]
    fn what_the_owner_excludes_is_taken_back_by_no_pattern() {
        let run = Filter::new(&[], &["!keep".into()]).unwrap();
        let filter = run.sparing(&["keep".into(), "dir/".into()]).unwrap();
        assert!(filter.excludes(&RelPath::root(), b"keep", false));
        assert!(!filter.excludes(&RelPath::root(), b"other", false));
        let path = |path: &str| RelPath::parse(path.as_bytes()).unwrap();
        assert!(filter.excludes_path(&path("dir/below/file")) && filter.excludes_path(&path("a/keep")));
        assert!(!filter.excludes_path(&path("a/dir")) && !filter.excludes_path(&RelPath::root()));
    }

    #[test]
    fn a_broken_pattern_is_named() {
        let error = Filter::new(&[], &["[z-a]".into()]).unwrap_err().to_string();
        assert!(error.contains("[z-a]"), "{error}");
    }
}
