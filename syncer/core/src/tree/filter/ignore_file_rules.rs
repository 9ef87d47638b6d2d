//! The patterns of a tree's ignore files, or the rules of its merge files. Pure: their text comes in as bytes.
//!
//! They are read at the source only, and apply to both trees. The source sends their text with the listing of a
//! directory, and matching entries at the sink are neither changed nor deleted.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use contract::gitignore_pattern::{Pattern, Patterns};
use thiserror::Error;

use super::rsync_filter_rules::{FilterRules, MergeFile, RuleError, RuleList};
use crate::{
    codec::{DecodeError, Reader, put_bytes, put_varint},
    tree::path::RelPath,
};

/// The names of ignore files. Their patterns apply as if they were in one file, in this order, so a later one
/// overrides.
pub const IGNORE_FILES: [&[u8]; 2] = [b".gitignore", b".volferryignore"];

/// The most text of one directory's ignore files, in bytes.
pub const MAX_RULES_BYTES: usize = 256 << 10;

/// The most patterns of one directory's ignore files.
pub(super) const MAX_PATTERNS: usize = 1000;

/// The most memory that the patterns of directories in a walk may take at once.
pub(super) const MAX_BYTES_IN_USE: usize = 256 << 20;

/// Why the patterns of a directory's ignore files cannot be used.
#[derive(Debug, Error)]
pub enum RulesError {
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
    /// A rule of a merge file cannot be used.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The texts of merge files cannot be told apart.
    #[error("the texts of merge files cannot be told apart")]
    Text(#[from] DecodeError),
}

/// The first byte of the text of merge files, with which no ignore file's pattern begins.
const OF_MERGE_FILES: u8 = 0;

/// Adds the text of a directory's merge file, by its number among the rules, to the text of all of them.
pub fn put_merge_file(out: &mut Vec<u8>, nth: usize, text: &[u8]) {
    if out.is_empty() {
        out.push(OF_MERGE_FILES);
    }
    put_varint(out, nth as u64);
    put_bytes(out, text);
}

/// Counts the memory of patterns, shared by all rules of one walk.
#[derive(Debug, Clone, Default)]
pub struct InUse(Arc<AtomicUsize>);

impl InUse {
    /// Counts more bytes, unless that exceeds the limit.
    fn take(&self, bytes: usize) -> Result<HeldMemory, RulesError> {
        let before = self.0.fetch_add(bytes, Relaxed);
        // Dropping `held` releases them.
        let held = HeldMemory { in_use: self.clone(), bytes };
        if before + bytes > MAX_BYTES_IN_USE { Err(RulesError::TooManyInUse) } else { Ok(held) }
    }
}

/// Memory that counts as in use until it is dropped.
struct HeldMemory {
    in_use: InUse,
    bytes: usize,
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.in_use.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// The patterns of a directory's ignore files and of those above it. As in git, the last matching pattern decides, and
/// deeper ones come later.
pub struct Rules {
    above: Option<Arc<Self>>,
    dir: RelPath,
    own: OwnRules,
    _held: Option<HeldMemory>,
}

/// The rules of one directory.
enum OwnRules {
    /// Those of ignore files.
    Ignored(Patterns),
    /// Those of merge files, and the rules of the run among which they are.
    Merged(Arc<FilterRules>, Vec<(usize, RuleList)>),
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("dir", &self.dir).field("above", &self.above).finish_non_exhaustive()
    }
}

impl Rules {
    /// Reads the text of the ignore files of `dir`, at most [`MAX_RULES_BYTES`], and counts its memory as `in_use`
    /// until it is dropped.
    ///
    /// # Errors
    /// If the patterns exceed their limits.
    pub fn new(
        above: Option<Arc<Self>>,
        dir: &RelPath,
        text: &[u8],
        in_use: &InUse,
    ) -> Result<Self, RulesError> {
        if let Some((&OF_MERGE_FILES, text)) = text.split_first() {
            return Self::merged(above, dir, text, in_use);
        }
        let patterns: Vec<Pattern> = text.split(|byte| *byte == b'\n').filter_map(pattern_of).collect();
        if patterns.len() > MAX_PATTERNS {
            return Err(RulesError::TooMany(patterns.len()));
        }
        let held = in_use.take(patterns.iter().map(Pattern::memory).sum())?;
        Ok(Self { above, dir: dir.clone(), own: OwnRules::Ignored(Patterns(patterns)), _held: Some(held) })
    }

    /// Starts at the root of a tree, with rules of a run that look for files in the directories.
    pub fn of_run(filter: Arc<FilterRules>) -> Self {
        Self { above: None, dir: RelPath::root(), own: OwnRules::Merged(filter, Vec::new()), _held: None }
    }

    fn merged(
        above: Option<Arc<Self>>,
        dir: &RelPath,
        text: &[u8],
        in_use: &InUse,
    ) -> Result<Self, RulesError> {
        let filter = match above.as_deref().map(|above| &above.own) {
            Some(OwnRules::Merged(filter, _)) => Arc::clone(filter),
            _ => return Err(DecodeError::Invalid("no rule asks for merge files").into()),
        };
        let (mut reader, mut lists) = (Reader::new(text), Vec::new());
        while !reader.is_empty() {
            let nth = reader.varint32()? as usize;
            let file: Option<&MergeFile> = filter.merges().get(nth);
            let file = file.ok_or(DecodeError::Invalid("no rule asks for a merge file"))?;
            lists.push((nth, RuleList::parse(file, reader.bytes(MAX_RULES_BYTES)?)?));
        }
        let held = in_use.take(lists.iter().map(|(_, list)| list.memory()).sum())?;
        Ok(Self { above, dir: dir.clone(), own: OwnRules::Merged(filter, lists), _held: Some(held) })
    }

    /// Returns whether the entry at `path`, below the directory of these rules, is excluded. Callers do not ask about
    /// entries of excluded directories.
    pub fn excludes(&self, path: &RelPath, is_dir: bool) -> bool {
        match &self.own {
            OwnRules::Ignored(patterns) => {
                let above = || self.above.as_deref().is_some_and(|above| above.excludes(path, is_dir));
                let below = path.as_bytes().get(self.start()..).unwrap_or_default();
                patterns.decide(below, is_dir).unwrap_or_else(above)
            }
            OwnRules::Merged(filter, _) => {
                let merged = |nth| self.decide_merged(path, is_dir, nth, filter.is_local(nth));
                filter.exclude(path.as_bytes(), is_dir, merged)
            }
        }
    }

    /// Decides by the merge files of one name, from the directory upwards.
    fn decide_merged(&self, path: &RelPath, is_dir: bool, nth: usize, is_local: bool) -> Option<bool> {
        let mut at = Some(self);
        while let Some(rules) = at {
            let counts = !is_local || path.split_last().is_some_and(|(dir, _)| dir == rules.dir);
            if let OwnRules::Merged(_, lists) = &rules.own
                && let Some((_, list)) = lists.iter().find(|(of, _)| *of == nth).filter(|_| counts)
            {
                let decided = list.decide(path.as_bytes(), is_dir, rules.start());
                if decided.is_some() || list.is_cleared {
                    return decided;
                }
            }
            at = rules.above.as_deref();
        }
        None
    }

    /// Returns the length of the directory's path, with the slash behind it.
    fn start(&self) -> usize {
        match self.dir.as_bytes().len() {
            0 => 0,
            len => len + 1,
        }
    }
}

/// Reads a line of an ignore file, which may begin with a byte order mark and end as on Windows.
fn pattern_of(line: &[u8]) -> Option<Pattern> {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    Pattern::parse(line.strip_suffix(b"\r").unwrap_or(line))
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
    fn a_line_that_matches_nothing_does_not_keep_the_others_from_counting() {
        let rules = rules(&[("", "\u{feff}*.tmp\r\n[z-a]\nback\\\\\n\u{fffd}\n*.o")]);
        assert!(rules.excludes(&rel("a.tmp"), false) && rules.excludes(&rel("a.o"), false));
        assert!(!rules.excludes(&rel("y"), false));
        let bytes = Rules::new(None, &RelPath::root(), b"\xff*.o\n*.tmp", &InUse::default()).unwrap();
        assert!(bytes.excludes(&RelPath::parse(b"\xffa.o").unwrap(), false), "names need not be UTF-8");
    }

    #[test]
    fn more_patterns_than_memory_should_hold_are_refused_for_a_folder_and_for_all_in_use() {
        let in_use = InUse::default();
        let new = |text: &str| Rules::new(None, &RelPath::root(), text.as_bytes(), &in_use);
        let most = "x*.ext\n\n# a comment\n".repeat(MAX_PATTERNS);
        assert!(matches!(new(&format!("{most}y")), Err(RulesError::TooMany(1001))));
        let memory = pattern_of(b"x*.ext").unwrap().memory();
        let held = in_use.take(MAX_BYTES_IN_USE - memory * MAX_PATTERNS + 1).unwrap();
        assert!(matches!(new(&most), Err(RulesError::TooManyInUse)));
        drop(held);
        assert!(new(&most).is_ok(), "what is dropped is not in use any more");
    }
}
