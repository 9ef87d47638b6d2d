//! Decides by gitignore patterns which entries a run leaves alone. Excluded entries are not listed at either end, so
//! they are neither sent nor changed nor deleted.

use contract::gitignore_pattern::{PatternError, Patterns, read_pattern, start_of};
use thiserror::Error;

use super::{
    pattern_use::{PatternUse, WatchedPatterns},
    rsync_filter_rules::{FilterRules, RuleError},
};
use crate::tree::path::RelPath;

/// The most include patterns, and the most exclude patterns. Each is tried on every entry.
pub const MAX_PATTERNS: usize = 5000;

/// Why patterns cannot be used.
#[derive(Debug, Error)]
pub enum FilterError {
    /// A pattern can have no effect.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// No include pattern can have an effect.
    #[error("--exclude `{}` leaves out everything, so no --include has an effect", start_of(.0))]
    NoWay(String),
    /// A filter rule of rsync cannot be used.
    #[error(transparent)]
    OfRsync(#[from] RuleError),
    /// There are too many patterns.
    #[error("there are {0} patterns in a list, and there may be {MAX_PATTERNS}: join some")]
    TooMany(usize),
}

/// Include and exclude patterns, ready to match.
#[derive(Debug, Default)]
pub struct Filter {
    include: WatchedPatterns,
    exclude: WatchedPatterns,
    /// Patterns that the owner of the destination excludes. No pattern of the run overrides them.
    spare: Patterns,
    /// Filter rules that look for no file in the directories.
    rules: FilterRules,
}

impl Filter {
    /// Reads the patterns. An empty `include` includes everything.
    ///
    /// # Errors
    /// If a pattern matches nothing, or all of `include`; the error names it.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, FilterError> {
        let (included, excluded) = (read(include)?, read(exclude)?);
        let last = excluded.0.iter().zip(exclude).rev().take_while(|(pattern, _)| !pattern.is_negated);
        match last.map(|(pattern, line)| (pattern.takes_all(), line)).find(|(takes_all, _)| *takes_all) {
            Some((_, line)) if !include.is_empty() => Err(FilterError::NoWay(line.clone())),
            _ => Ok(Self { include: included.into(), exclude: excluded.into(), ..Self::default() }),
        }
    }

    /// Returns what the patterns have matched so far.
    pub fn pattern_use(&self) -> PatternUse {
        PatternUse::of(&[&self.include, &self.exclude])
    }

    /// Also excludes matches of these patterns; no other pattern overrides them.
    ///
    /// # Errors
    /// If a pattern matches nothing; the error names it.
    pub fn sparing(self, patterns: &[String]) -> Result<Self, FilterError> {
        Ok(Self { spare: read(patterns)?, ..self })
    }

    /// Also excludes what these rules exclude; none of them looks for a file in the directories.
    #[must_use]
    pub fn ruled(self, rules: FilterRules) -> Self {
        Self { rules, ..self }
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

    /// Returns whether the directory at `path`, or one above it, is excluded.
    pub fn excludes_dir(&self, path: &RelPath) -> bool {
        let (above, name) = path.split_last().unwrap_or_default();
        !path.is_root() && (self.excludes_dir(&above) || self.excludes(&above, name, true))
    }

    /// Returns whether no entry is excluded.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty() && self.spare.0.is_empty() && self.rules.is_empty()
    }

    /// Returns whether the entry `name` of the directory `dir` is excluded. The directory itself is not, because a walk
    /// does not enter excluded directories. An include list does not exclude directories, because their entries may
    /// match.
    pub fn excludes(&self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        if self.is_empty() {
            return false;
        }
        let Ok(path) = dir.join(name) else { return false };
        let path = path.as_bytes();
        let includes_all = is_dir || self.include.is_empty();
        self.exclude.decide(path, is_dir) == Some(true)
            || self.spare.decide(path, is_dir) == Some(true)
            || self.rules.exclude(path, is_dir, |_| None)
            || !(includes_all || self.include.decide_with_parents(path) == Some(true))
    }
}

fn read(patterns: &[String]) -> Result<Patterns, FilterError> {
    if patterns.len() > MAX_PATTERNS {
        return Err(FilterError::TooMany(patterns.len()));
    }
    Ok(Patterns(patterns.iter().map(|line| read_pattern(line)).collect::<Result<_, _>>()?))
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
    fn a_pattern_that_means_something_else_to_rsync_is_refused() {
        let refused = |include: &[&str], exclude: &[&str]| {
            let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            Filter::new(&strings(include), &strings(exclude)).err()
        };
        assert!(matches!(refused(&[], &["- *.tmp"]), Some(FilterError::Pattern(PatternError::Rule(_)))));
        assert!(matches!(refused(&["+ *.jpg"], &[]), Some(FilterError::Pattern(PatternError::Rule(_)))));
        assert!(matches!(refused(&[], &["./sub"]), Some(FilterError::Pattern(PatternError::Never(_)))));
        for all in ["*", "/*", "**", "/**"] {
            assert!(matches!(refused(&["*.jpg"], &["!x", all]), Some(FilterError::NoWay(_))), "{all}");
            assert!(refused(&["*.jpg"], &[all, "!*/"]).is_none() && refused(&[], &[all]).is_none(), "{all}");
        }
        assert!(refused(&["*.jpg"], &["*/", "*.o", "\\- x", "-x"]).is_none());
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
