//! Decides by gitignore patterns which entries a run leaves alone. Excluded entries are not listed at either end, so
//! they are neither sent nor changed nor deleted.

use thiserror::Error;

use crate::tree::{
    entry::Kind,
    path::RelPath,
    pattern::{Pattern, Patterns},
};

/// The most include patterns, and the most exclude patterns. Each is tried on every entry.
pub const MAX_PATTERNS: usize = 5000;

/// Why patterns cannot be used.
#[derive(Debug, Error)]
pub enum FilterError {
    /// A pattern matches nothing.
    #[error(
        "the pattern `{}` matches nothing: it is empty, a comment, or longer than any path; write \\# for a name that begins with #",
        start_of(.0)
    )]
    Nothing(String),
    /// There are too many patterns.
    #[error("there are {0} patterns in a list, and there may be {MAX_PATTERNS}: join some")]
    TooMany(usize),
}

/// Include and exclude patterns, ready to match.
#[derive(Debug, Default)]
pub struct Filter {
    include: Patterns,
    exclude: Patterns,
    /// Patterns that the owner of the destination excludes. No pattern of the run overrides them.
    spare: Patterns,
}

impl Filter {
    /// Reads the patterns. An empty `include` includes everything.
    ///
    /// # Errors
    /// If a pattern matches nothing; the error names it.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, FilterError> {
        Ok(Self { include: read(include)?, exclude: read(exclude)?, spare: Patterns::default() })
    }

    /// Also excludes matches of these patterns; no other pattern overrides them.
    ///
    /// # Errors
    /// If a pattern matches nothing; the error names it.
    pub fn sparing(self, patterns: &[String]) -> Result<Self, FilterError> {
        Ok(Self { spare: read(patterns)?, ..self })
    }

    /// Returns whether the file at `path`, or a directory above it, is excluded.
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

    /// Returns whether no entry is excluded.
    pub fn is_empty(&self) -> bool {
        [&self.include, &self.exclude, &self.spare].into_iter().all(|list| list.0.is_empty())
    }

    /// Returns whether the entry `name` of the directory `dir` is excluded. The directory itself is not, because a walk
    /// does not enter excluded directories. An include list does not exclude directories, because their entries may
    /// match.
    pub fn excludes(&self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let Ok(path) = dir.join(name) else { return false };
        let listed = |list: &Patterns| list.decide(path.as_bytes(), is_dir) == Some(true);
        let includes_all = is_dir || self.include.0.is_empty();
        listed(&self.exclude)
            || listed(&self.spare)
            || !(includes_all || self.include.decide_with_parents(path.as_bytes()) == Some(true))
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
    /// Returns whether an entry of this kind is left alone.
    pub fn exclude(&self, kind: Kind<'_>) -> bool {
        matches!(kind, Kind::File { size } if size < self.min || size > self.max)
    }
}

fn read(patterns: &[String]) -> Result<Patterns, FilterError> {
    if patterns.len() > MAX_PATTERNS {
        return Err(FilterError::TooMany(patterns.len()));
    }
    let read = |pattern: &String| {
        Pattern::parse(pattern.as_bytes()).ok_or_else(|| FilterError::Nothing(pattern.clone()))
    };
    patterns.iter().map(read).collect::<Result<_, _>>().map(Patterns)
}

/// Returns enough of a pattern to recognise it, because the message crosses to the peer.
fn start_of(pattern: &str) -> String {
    pattern.chars().take(80).collect()
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
    fn a_pattern_that_matches_nothing_is_named() {
        for nothing in ["", "#comment", "!"] {
            let error = Filter::new(&[], &["*.o".into(), nothing.into()]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the pattern `{nothing}` matches nothing")), "{error}");
        }
        assert!(Filter::new(&["a".repeat(1 << 20)], &[]).unwrap_err().to_string().len() < 300);
    }
}
