//! What the patterns of a run match, so that a pattern with another effect than its author expects can be named.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

use contract::gitignore_pattern::Patterns;

/// The most patterns of each kind that a [`PatternUse`] names.
const MAX_NAMED: usize = 100;

/// What the patterns of a run matched in one tree. A pattern is named by its place among the include patterns and the
/// exclude patterns behind them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternUse {
    /// The first patterns that matched nothing.
    pub idle: Vec<u32>,
    /// The first patterns that match more as rsync reads them, each with an entry that only rsync would match.
    pub deeper: Vec<(u32, String)>,
}

impl PatternUse {
    /// Sums up what these lists, one after the other, have matched.
    pub(crate) fn of(lists: &[&WatchedPatterns]) -> Self {
        let all = || (0..).zip(lists.iter().flat_map(|list| &list.marks));
        let idle = all().filter(|(_, mark)| !mark.has_matched.load(Relaxed)).map(|(place, _)| place);
        let deeper = all().filter_map(|(place, mark)| Some((place, mark.deeper.get()?.clone())));
        Self { idle: idle.take(MAX_NAMED).collect(), deeper: deeper.take(MAX_NAMED).collect() }
    }
}

/// What one pattern has matched so far.
#[derive(Debug, Default)]
struct Mark {
    has_matched: AtomicBool,
    /// The first path that only rsync would match.
    deeper: OnceLock<String>,
}

/// Patterns that record what they match.
#[derive(Debug, Default)]
pub(crate) struct WatchedPatterns {
    patterns: Patterns,
    marks: Box<[Mark]>,
    /// The number of patterns that have matched nothing so far.
    idle: AtomicUsize,
}

impl From<Patterns> for WatchedPatterns {
    fn from(patterns: Patterns) -> Self {
        let marks: Box<[Mark]> = patterns.0.iter().map(|_| Mark::default()).collect();
        Self { idle: AtomicUsize::new(marks.len()), patterns, marks }
    }
}

impl WatchedPatterns {
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Decides as [`Patterns::decide`] does. Tries earlier patterns than the one that decides only until they have
    /// matched something.
    pub(crate) fn decide(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let mut decided = None;
        for (pattern, mark) in self.patterns.0.iter().zip(&self.marks).rev() {
            if decided.is_some() && self.idle.load(Relaxed) == 0 {
                break;
            }
            let is_known = mark.has_matched.load(Relaxed);
            if (decided.is_some() && is_known) || !pattern.matches(path, is_dir) {
                continue;
            }
            decided.get_or_insert(!pattern.is_negated);
            if !is_known && !mark.has_matched.swap(true, Relaxed) {
                self.idle.fetch_sub(1, Relaxed);
            }
        }
        if decided.is_none() {
            self.record_deeper(path, is_dir);
        }
        decided
    }

    /// Decides on the file at `path`, or else as on the closest directory above it that a pattern decides on.
    pub(crate) fn decide_with_parents(&self, path: &[u8]) -> Option<bool> {
        let above = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut dirs = above.map(|end| self.decide(&path[..end], true));
        self.decide(path, false).or_else(|| dirs.find_map(|decided| decided))
    }

    /// Records which patterns would match an entry that none matches, if rsync read them.
    fn record_deeper(&self, path: &[u8], is_dir: bool) {
        for (pattern, mark) in self.patterns.0.iter().zip(&self.marks) {
            if mark.deeper.get().is_none() && pattern.matches_deeper(path, is_dir) {
                // Another thread may have found one, too.
                let _ = mark.deeper.set(String::from_utf8_lossy(path).into_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::filter::read_pattern;

    fn watched(lines: &[&str]) -> WatchedPatterns {
        Patterns(lines.iter().map(|line| read_pattern(line).unwrap()).collect()).into()
    }

    #[test]
    fn a_pattern_whose_matches_a_later_one_decides_has_matched_all_the_same() {
        let list = watched(&["*.tmp", "a.tmp", "none", "!b.tmp"]);
        assert_eq!(PatternUse::of(&[&list]).idle, [0, 1, 2, 3]);
        assert_eq!(list.decide(b"a.tmp", false), Some(true));
        assert_eq!(PatternUse::of(&[&list]).idle, [2, 3]);
        assert_eq!(list.decide(b"b.tmp", false), Some(false));
        assert_eq!(list.decide(b"c", false), None);
        assert_eq!(PatternUse::of(&[&watched(&["x"]), &list]).idle, [0, 3]);
    }

    #[test]
    fn the_first_entry_that_only_rsync_would_match_is_named() {
        let list = watched(&["a/b", "q/x"]);
        for path in ["a/b", "q/a/b", "r/a/b", "q/x"] {
            list.decide(path.as_bytes(), true);
        }
        let found = PatternUse::of(&[&list]);
        assert_eq!((found.idle, found.deeper), (vec![], vec![(0, "q/a/b".to_string())]));
    }
}
