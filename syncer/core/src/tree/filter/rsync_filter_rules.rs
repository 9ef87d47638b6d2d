//! Filter rules of rsync: the first rule that matches an entry decides whether it takes part.

use contract::gitignore_pattern::matches_wild;
use thiserror::Error;

/// The most rules of a run. Each is tried on every entry.
pub(super) const MAX_RULES: usize = 5000;

/// The most merge files that are looked for in each directory.
pub(super) const MAX_MERGES: usize = 16;

/// The longest pattern, in bytes. No path is longer.
const MAX_BYTES: usize = 4096;

/// Why a filter rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The rule cannot be read.
    #[error(
        "the filter rule `{}` {why}\nhint: write `+ PATTERN`, `- PATTERN`, `. FILE`, `: NAME` or `!`", start_of(.rule)
    )]
    Unusable {
        /// The rule.
        rule: String,
        /// The problem with it.
        why: &'static str,
    },
    /// There are too many rules.
    #[error("there are {0} filter rules, and there may be {MAX_RULES}: join some")]
    TooMany(usize),
    /// There are too many files to look for.
    #[error("there are more than {MAX_MERGES} rules that look for a file in each folder: join some")]
    TooManyMerges,
}

/// Returns enough of a rule to recognise it, because the message crosses to the peer.
fn start_of(rule: &str) -> String {
    rule.chars().take(80).collect()
}

/// A line of filter rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleLine {
    /// Forgets all rules before it.
    Clear,
    /// Includes or excludes entries.
    Decide(RulePattern),
    /// Reads rules from a file, once.
    Merge(MergeFile),
    /// Reads rules from a file of this name in each directory.
    DirMerge(MergeFile),
}

/// A file of rules that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeFile {
    /// Its path, or its name in each directory.
    pub name: String,
    /// Whether its lines are patterns, which include (`true`) or exclude; otherwise they are rules.
    pub patterns: Option<bool>,
    /// Whether the file itself is excluded.
    excludes_itself: bool,
    /// Whether its rules count for the directory's own entries only.
    is_local: bool,
}

impl MergeFile {
    /// Returns a file of this name whose lines are rules.
    pub fn of_rules(name: String) -> Self {
        Self { name, patterns: None, excludes_itself: false, is_local: false }
    }

    /// Returns the line of its file as a rule, and a rule as it is; `None` for comments and empty lines.
    pub fn rule_of(&self, line: &str) -> Option<String> {
        match self.patterns {
            _ if line.is_empty() || line.starts_with(['#', ';']) => None,
            Some(true) => Some(format!("+ {line}")),
            Some(false) => Some(format!("- {line}")),
            None => Some(line.into()),
        }
    }

    /// Returns the rule that excludes the file itself, if it is to be.
    pub fn itself(&self) -> Option<String> {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        self.excludes_itself.then(|| format!("- {name}"))
    }
}

impl RuleLine {
    /// Reads one rule.
    ///
    /// # Errors
    /// If it is none of the supported ones.
    pub fn parse(line: &str) -> Result<Self, RuleError> {
        let fail = |why| RuleError::Unusable { rule: line.into(), why };
        let (kind, rest) = kind_of(line).ok_or_else(|| fail("is of no kind"))?;
        if kind == '!' {
            return if rest.is_empty() { Ok(Self::Clear) } else { Err(fail("has something behind it")) };
        }
        let end = rest.find([' ', '_']).unwrap_or(rest.len());
        let (modifiers, pattern) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        match kind {
            _ if pattern.is_empty() => Err(fail("ends too early")),
            _ if pattern.len() > MAX_BYTES => Err(fail("is longer than any path")),
            '+' | '-' => match modifiers {
                "" | "!" => Ok(Self::Decide(RulePattern::new(pattern, kind == '+', !modifiers.is_empty()))),
                _ => Err(fail("has a modifier other than `!`")),
            },
            '.' => Ok(Self::Merge(merge_file(pattern, modifiers).ok_or_else(|| fail(OF_MERGES))?)),
            ':' if pattern.contains('/') => Err(fail("names a path, and a file name is needed")),
            ':' => Ok(Self::DirMerge(merge_file(pattern, modifiers).ok_or_else(|| fail(OF_MERGES))?)),
            _ => Err(fail("is for one side only, and rules count for both")),
        }
    }
}

const OF_MERGES: &str = "has a modifier other than `-`, `+`, `e` and `n`";

/// Splits a rule into its kind and the rest, which begins with modifiers.
fn kind_of(line: &str) -> Option<(char, &str)> {
    const WORDS: [(&str, char); 9] = [
        ("clear", '!'),
        ("dir-merge", ':'),
        ("exclude", '-'),
        ("hide", 'H'),
        ("include", '+'),
        ("merge", '.'),
        ("protect", 'P'),
        ("risk", 'R'),
        ("show", 'S'),
    ];
    for (word, kind) in WORDS {
        if let Some(rest) =
            line.strip_prefix(word).filter(|rest| rest.is_empty() || rest.starts_with([' ', '_', ',']))
        {
            return Some((kind, rest.strip_prefix(',').unwrap_or(rest)));
        }
    }
    let kind = line.chars().next().filter(|kind| "!:-H+.PRS".contains(*kind))?;
    let rest = &line[kind.len_utf8()..];
    Some((kind, rest.strip_prefix(',').unwrap_or(rest)))
}

fn merge_file(name: &str, modifiers: &str) -> Option<MergeFile> {
    let mut file = MergeFile::of_rules(name.into());
    for modifier in modifiers.chars() {
        match modifier {
            '-' | '+' if file.patterns.is_none() => file.patterns = Some(modifier == '+'),
            'e' => file.excludes_itself = true,
            'n' => file.is_local = true,
            _ => return None,
        }
    }
    Some(file)
}

/// The pattern of a rule, as rsync matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulePattern {
    glob: Box<[u8]>,
    /// Whether matching entries take part.
    includes: bool,
    /// Whether entries match that the pattern does not match.
    is_negated: bool,
    /// Whether it matches directories only.
    dirs_only: bool,
    /// Whether it begins at the root, or at the directory of its file.
    is_anchored: bool,
    /// The part of a path that it is compared with.
    compares: Part,
    /// Whether it ends with three stars, and so matches a directory and all of its content.
    takes_content: bool,
}

/// The part of a path that a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The end, byte by byte, from the start of a name.
    End,
    /// The last names, of this number.
    Last(usize),
    /// The path from the start of any name.
    FromAnyName,
    /// All of it.
    Whole,
    /// All of it, with a slash before it.
    WholeBehindSlash,
}

impl RulePattern {
    fn new(pattern: &str, includes: bool, is_negated: bool) -> Self {
        let (dirs_only, pattern) = match pattern.strip_suffix('/') {
            Some(rest) if !rest.is_empty() => (true, rest),
            _ => (false, pattern),
        };
        let (is_anchored, glob) = match pattern.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let slashes = glob.matches('/').count();
        let compares = match (pattern.contains(['*', '?', '[']), pattern.contains("**")) {
            (false, _) if is_anchored => Part::Whole,
            (false, _) => Part::End,
            (true, _) if is_anchored => Part::Whole,
            (true, false) => Part::Last(slashes + 1),
            (true, true) if pattern.starts_with("**") => Part::WholeBehindSlash,
            (true, true) => Part::FromAnyName,
        };
        let takes_content = glob.ends_with("***");
        Self {
            glob: glob.as_bytes().into(),
            includes,
            is_negated,
            dirs_only,
            is_anchored,
            compares,
            takes_content,
        }
    }

    /// Returns whether it decides on the entry at `path`; `start` is the length of the directory's path that anchored
    /// patterns begin at, with the slash behind it.
    fn decides(&self, path: &[u8], is_dir: bool, start: usize) -> bool {
        let is_match = (is_dir || !self.dirs_only) && self.matches(path, is_dir, start);
        is_match != self.is_negated
    }

    fn matches(&self, path: &[u8], is_dir: bool, start: usize) -> bool {
        let path = if self.is_anchored { path.get(start..).unwrap_or_default() } else { path };
        let before: &[u8] = if self.compares == Part::WholeBehindSlash { b"/" } else { b"" };
        let behind: &[u8] = if self.takes_content && is_dir { b"/" } else { b"" };
        let is_wild = self.glob.iter().any(|byte| b"*?[".contains(byte));
        let joined;
        let text = match before.len() + behind.len() {
            0 => path,
            _ => {
                joined = [before, path, behind].concat();
                &joined
            }
        };
        match self.compares {
            Part::Whole if !is_wild => text == &*self.glob,
            Part::Whole | Part::WholeBehindSlash => matches_wild(&self.glob, text),
            Part::End => {
                text.strip_suffix(&*self.glob).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"/"))
            }
            Part::Last(count) => last_names(text, count).is_some_and(|names| matches_wild(&self.glob, names)),
            Part::FromAnyName => {
                let starts = text.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
                std::iter::once(0).chain(starts).any(|at| matches_wild(&self.glob, &text[at..]))
            }
        }
    }
}

/// Returns the last `count` names of a path; `None` if it has fewer.
fn last_names(path: &[u8], count: usize) -> Option<&[u8]> {
    let mut slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
    match slashes.nth(count - 1) {
        Some(at) => Some(&path[at..]),
        None => (path.iter().filter(|byte| **byte == b'/').count() + 1 == count).then_some(path),
    }
}

/// The rules of one file, in their order.
#[derive(Debug, Default)]
pub(super) struct RuleList {
    patterns: Vec<RulePattern>,
    /// Whether it forgets the rules of the directories above.
    pub is_cleared: bool,
}

impl RuleList {
    /// Reads the text of a directory's merge file.
    ///
    /// # Errors
    /// If a line is no rule, or names another file.
    pub(super) fn parse(file: &MergeFile, text: &[u8]) -> Result<Self, RuleError> {
        let mut list = Self::default();
        let lines = text.split(|byte| matches!(byte, b'\n' | b'\r')).map(String::from_utf8_lossy);
        for rule in lines.filter_map(|line| file.rule_of(&line)) {
            match RuleLine::parse(&rule)? {
                RuleLine::Clear => list = Self { is_cleared: true, ..Self::default() },
                RuleLine::Decide(pattern) => list.patterns.push(pattern),
                RuleLine::Merge(_) | RuleLine::DirMerge(_) => {
                    let why = "names a file inside of a file that each folder may have";
                    return Err(RuleError::Unusable { rule, why });
                }
            }
        }
        match list.patterns.len() {
            0..=MAX_RULES => Ok(list),
            count => Err(RuleError::TooMany(count)),
        }
    }

    /// Returns the decision on the entry at `path`, if a rule decides; anchored patterns begin behind `start` bytes.
    pub(super) fn decide(&self, path: &[u8], is_dir: bool, start: usize) -> Option<bool> {
        let first = self.patterns.iter().find(|pattern| pattern.decides(path, is_dir, start));
        first.map(|pattern| pattern.includes)
    }

    /// Returns the memory that it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.patterns.iter().map(|pattern| size_of::<RulePattern>() + pattern.glob.len()).sum()
    }
}

/// The rules of a run, in their order.
#[derive(Debug, Default)]
pub struct FilterRules {
    steps: Vec<FilterStep>,
    /// The files that are looked for in each directory.
    merges: Vec<MergeFile>,
}

/// A rule, or the place of the rules of a merge file, by its number.
#[derive(Debug)]
enum FilterStep {
    Pattern(RulePattern),
    Merged(usize),
}

impl FilterRules {
    /// Reads rules, of which none names a file that is read once.
    ///
    /// # Errors
    /// If a rule cannot be used; the error names it.
    pub fn new(lines: &[String]) -> Result<Self, RuleError> {
        if lines.len() > MAX_RULES {
            return Err(RuleError::TooMany(lines.len()));
        }
        let mut rules = Self::default();
        for line in lines {
            match RuleLine::parse(line)? {
                RuleLine::Clear => rules = Self::default(),
                RuleLine::Decide(pattern) => rules.steps.push(FilterStep::Pattern(pattern)),
                RuleLine::DirMerge(file) => rules.add(file),
                RuleLine::Merge(_) => {
                    return Err(RuleError::Unusable {
                        rule: line.clone(),
                        why: "was not read where it was typed",
                    });
                }
            }
        }
        match rules.merges.len() {
            0..=MAX_MERGES => Ok(rules),
            _ => Err(RuleError::TooManyMerges),
        }
    }

    /// Adds a merge file of each directory. As in rsync, a name counts once.
    fn add(&mut self, file: MergeFile) {
        if let Some(itself) = file.itself() {
            self.steps.push(FilterStep::Pattern(RulePattern::new(&itself[2..], false, false)));
        }
        if self.merges.iter().all(|known| known.name != file.name) {
            self.steps.push(FilterStep::Merged(self.merges.len()));
            self.merges.push(file);
        }
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the files that are looked for in each directory.
    pub fn merges(&self) -> &[MergeFile] {
        &self.merges
    }

    /// Returns whether the rules of a merge file count for the directory's own entries only.
    pub fn is_local(&self, nth: usize) -> bool {
        self.merges.get(nth).is_some_and(|file| file.is_local)
    }

    /// Returns whether the entry at `path` is excluded. `merged` decides by the rules of a merge file, by its number.
    pub fn exclude(&self, path: &[u8], is_dir: bool, merged: impl Fn(usize) -> Option<bool>) -> bool {
        let decide = |step: &FilterStep| match step {
            FilterStep::Pattern(pattern) => pattern.decides(path, is_dir, 0).then_some(pattern.includes),
            FilterStep::Merged(nth) => merged(*nth),
        };
        self.steps.iter().find_map(decide) == Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(lines: &[&str], path: &str, is_dir: bool) -> bool {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        FilterRules::new(&lines).unwrap().exclude(path.as_bytes(), is_dir, |_| None)
    }

    #[test]
    fn patterns_mean_what_they_mean_to_rsync() {
        for (rule, path, is_dir, expected) in [
            ("- *.o", "a/b.o", false, true),
            ("- /a", "a", true, true),
            ("- /a", "b/a", true, false),
            ("- a/b", "q/a/b", false, true),
            ("- a/*.o", "q/a/x.o", false, true),
            ("- a/*.o", "a/q/x.o", false, false),
            ("- a/", "q/a", true, true),
            ("- a/", "q/a", false, false),
            ("- /a/***", "a", true, true),
            ("- /a/***", "a/b/c", false, true),
            ("- /a/**", "a", true, false),
            ("- **/x", "x", false, true),
            ("- a**z", "q/a/b/z", false, true),
            ("-! */", "file", false, true),
            ("-! */", "dir", true, false),
            ("exclude,! *.c", "a.h", false, true),
            ("exclude_a", "a", false, true),
            ("- a\\*", "a*", false, true),
            ("- a\\b", "a\\b", false, true),
        ] {
            assert_eq!(excluded(&[rule], path, is_dir), expected, "{rule} on {path}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_a_clear_forgets() {
        assert!(!excluded(&["+ keep.o", "- *.o"], "keep.o", false));
        assert!(excluded(&["- *.o", "+ keep.o"], "keep.o", false));
        assert!(!excluded(&["- *.o", "!"], "a.o", false));
        assert!(!excluded(&["- *.o", "clear"], "a.o", false));
    }

    #[test]
    fn a_rule_that_is_none_of_ours_says_why() {
        for (line, why) in [
            ("", "of no kind"),
            ("a", "of no kind"),
            ("-", "ends too early"),
            ("- ", "ends too early"),
            ("H a", "one side"),
            ("protect a", "one side"),
            ("-s a", "modifier"),
            ("-/ a", "modifier"),
            (":w a", "modifier"),
            (": a/b", "file name"),
            ("! a", "behind it"),
            (". a", "was not read"),
        ] {
            let error = FilterRules::new(&[line.into()]).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("\nhint: "), "{line:?}: {error}");
        }
        let many = vec!["- a".to_string(); MAX_RULES + 1];
        assert!(matches!(FilterRules::new(&many), Err(RuleError::TooMany(5001))));
        let merges: Vec<String> = (0..=MAX_MERGES).map(|nth| format!(": {nth}")).collect();
        assert!(matches!(FilterRules::new(&merges), Err(RuleError::TooManyMerges)));
    }

    #[test]
    fn a_file_of_patterns_has_no_rules_and_one_of_rules_no_files() {
        let file = |line: &str| match RuleLine::parse(line).unwrap() {
            RuleLine::DirMerge(file) => file,
            other => panic!("{other:?}"),
        };
        let list = RuleList::parse(&file(":- ignore"), b"# a\n;b\n\n*.o\n+ x\n").unwrap();
        assert_eq!(list.decide(b"a.o", false, 0), Some(false));
        assert_eq!(list.decide(b"+ x", false, 0), Some(false));
        let list = RuleList::parse(&file(": rules"), b"- /top\r\n!\n+ /a\n").unwrap();
        assert!(list.is_cleared && list.decide(b"d/top", false, 2).is_none());
        assert_eq!(list.decide(b"d/a", false, 2), Some(true));
        assert!(RuleList::parse(&file(": rules"), b": other\n").is_err());
    }
}
