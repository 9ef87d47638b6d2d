//! Patterns of gitignore syntax, matched byte by byte as git does (`dir.c` and `wildmatch.c`).

use std::mem::size_of;

use thiserror::Error;

/// The longest pattern, in bytes. No path is longer.
const MAX_BYTES: usize = 4096;

/// The number of tries from which failures are remembered, so that no pattern takes more time than its length times
/// that of the text.
const FEW_TRIES: usize = 256;

/// Why a pattern cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PatternError {
    /// A pattern matches nothing.
    #[error(
        "the pattern `{}` matches nothing: it is empty, a comment, or longer than any path; write \\# for a name that begins with #",
        start_of(.0)
    )]
    Nothing(String),
    /// A pattern is a rule of rsync.
    #[error(
        "the pattern `{}` is a rule of rsync, and patterns are those of .gitignore; write `\\{}` for a name that begins so",
        start_of(.0), start_of(.0)
    )]
    Rule(String),
    /// No path can match a pattern.
    #[error(
        "the pattern `{}` can match nothing: it has a name `.` or `..`, two slashes in a row, or a bracket or backslash \
         without its end",
        start_of(.0)
    )]
    Never(String),
}

/// Appends a name to a pattern, with its special characters escaped.
pub fn escape(name: &str, pattern: &mut String) {
    for c in name.chars() {
        if matches!(c, '\\' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '#' | ' ') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
}

/// A pattern of a line of gitignore syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    glob: Box<[u8]>,
    /// Whether it takes back matches of earlier patterns.
    pub is_negated: bool,
    /// Whether it matches directories only.
    dirs_only: bool,
    /// Whether it contains a slash, so that it is relative to the directory of the list; any other matches a name in
    /// any directory.
    is_path: bool,
    /// Whether it begins with a slash.
    is_rooted: bool,
    /// The number of bytes at its start that stand for themselves.
    literal: usize,
}

impl Pattern {
    /// Reads one line. `None` if it matches nothing: it is empty, a comment or longer than any path.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = trim_spaces(line);
        if line.starts_with(b"#") || line.len() > MAX_BYTES {
            return None;
        }
        let (is_negated, line) = match line.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (dirs_only, line) = match line.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let is_path = line.contains(&b'/');
        let (is_rooted, glob) = match line.strip_prefix(b"/") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let literal = glob.iter().take_while(|byte| !is_special(byte)).count();
        (!glob.is_empty()).then(|| Self {
            glob: glob.into(),
            is_negated,
            dirs_only,
            is_path,
            is_rooted,
            literal,
        })
    }

    /// Returns whether some path may match: all names are names, and each bracket and each backslash has its end.
    pub fn can_match(&self) -> bool {
        let mut rest = &*self.glob;
        while let Some((&first, behind)) = rest.split_first() {
            rest = match first {
                b'[' => match class(behind, b'a') {
                    Some(class) => class.behind,
                    None => return false,
                },
                b'\\' if behind.is_empty() => return false,
                b'\\' => &behind[1..],
                _ => behind,
            };
        }
        self.glob.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
    }

    /// Returns whether it takes every entry of a tree's root.
    pub fn takes_all(&self) -> bool {
        !self.is_negated && !self.dirs_only && matches!(&*self.glob, b"*" | b"**" | b"**/*" | b"**/**")
    }

    /// Returns whether rsync, but not git, matches the entry at `path`: rsync lets a pattern with a slash inside begin
    /// below any directory.
    pub fn matches_deeper(&self, path: &[u8], is_dir: bool) -> bool {
        if !self.is_path || self.is_rooted || self.is_negated || (self.dirs_only && !is_dir) {
            return false;
        }
        let (literal, glob) = self.glob.split_at(self.literal);
        let below = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[at + 1..]);
        let mut rests = below.filter_map(|below| below.strip_prefix(literal));
        rests.any(|text| Tries::new(text).wild(glob, text, true) == WildMatch::Match)
    }

    /// Returns the memory that it takes, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.glob.len()
    }

    /// Returns whether it matches the entry at `path`, relative to the directory of the list.
    pub fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.dirs_only && !is_dir {
            return false;
        }
        let name = match (self.is_path, path.iter().rposition(|byte| *byte == b'/')) {
            (false, Some(slash)) => &path[slash + 1..],
            _ => path,
        };
        // git compares these first, so a star behind them is at the start of the rest.
        let (literal, glob) = self.glob.split_at(self.literal);
        let Some(text) = name.strip_prefix(literal) else { return false };
        Tries::new(text).wild(glob, text, true) == WildMatch::Match
    }
}

/// Reads a pattern of a command line or a list.
///
/// # Errors
/// If no path can match it, or it is a rule of rsync, whose first character would be taken for one of a name.
pub fn read_pattern(line: &str) -> Result<Pattern, PatternError> {
    match Pattern::parse(line.as_bytes()) {
        _ if line.starts_with("- ") || line.starts_with("+ ") => Err(PatternError::Rule(line.into())),
        None => Err(PatternError::Nothing(line.into())),
        Some(pattern) if !pattern.can_match() => Err(PatternError::Never(line.into())),
        Some(pattern) => Ok(pattern),
    }
}

/// Returns enough of a pattern to recognise it, because the message crosses to the peer.
pub fn start_of(pattern: &str) -> String {
    pattern.chars().take(80).collect()
}

/// Removes the spaces at the end of a line that no backslash precedes.
fn trim_spaces(bytes: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b' ' => at += 1,
            b'\\' => {
                at = (at + 2).min(bytes.len());
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    &bytes[..end]
}

/// A list of patterns; the last one that matches decides.
#[derive(Debug, Clone, Default)]
pub struct Patterns(pub Vec<Pattern>);

impl Patterns {
    /// Returns whether the entry at `path`, relative to the directory of the list, is matched (`true`) or taken back;
    /// `None` if no pattern matches it.
    pub fn decide(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let last = self.0.iter().rev().find(|pattern| pattern.matches(path, is_dir));
        last.map(|pattern| !pattern.is_negated)
    }
}

/// Returns whether `glob` matches all of `text` as rsync does: a double star crosses slashes wherever it is.
pub fn matches_wild(glob: &[u8], text: &[u8]) -> bool {
    let mut tries = Tries { crosses_anywhere: true, ..Tries::new(text) };
    tries.wild(glob, text, true) == WildMatch::Match
}

/// The result of matching. The last two variants save useless tries of earlier stars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WildMatch {
    Match,
    Differs,
    /// The text has ended.
    AtEnd,
    /// A slash is at a position that a single star does not cross.
    AtSlash,
}

/// The tries to match one text.
struct Tries {
    made: usize,
    /// One more than the length of the text.
    width: usize,
    /// A bit for each pair of a rest of the pattern and a rest of the text that do not match; empty while there are few
    /// tries.
    failed: Vec<u64>,
    /// Whether a double star crosses slashes although it does not fill the room between two.
    crosses_anywhere: bool,
}

impl Tries {
    fn new(text: &[u8]) -> Self {
        Self { made: 0, width: text.len() + 1, failed: Vec::new(), crosses_anywhere: false }
    }

    /// Matches the rests of pattern and text, unless they are known not to match.
    fn again(&mut self, glob: &[u8], text: &[u8], begins: bool) -> WildMatch {
        let place = glob.len() * self.width + text.len();
        let (word, bit) = (place / 64, 1 << (place % 64));
        if self.failed.get(word).is_some_and(|failed| failed & bit != 0) {
            return WildMatch::Differs;
        }
        let found = self.wild(glob, text, begins);
        self.made += 1;
        if found != WildMatch::Match && self.made > FEW_TRIES {
            if self.failed.len() <= word {
                self.failed.resize(word + 1, 0);
            }
            self.failed[word] |= bit;
        }
        found
    }

    /// Matches all of `text`. `begins` tells that `glob` is at its start or behind a slash.
    fn wild(&mut self, mut glob: &[u8], mut text: &[u8], mut begins: bool) -> WildMatch {
        while let Some((&first, rest)) = glob.split_first() {
            if first == b'*' {
                return self.star(rest, text, begins);
            }
            let Some((&byte, after)) = text.split_first() else { return WildMatch::AtEnd };
            glob = match first {
                b'?' if byte != b'/' => rest,
                b'[' => match class(rest, byte) {
                    Some(Class { behind, matches: true }) if byte != b'/' => behind,
                    Some(_) => return WildMatch::Differs,
                    None => return WildMatch::AtEnd,
                },
                b'\\' if rest.first() == Some(&byte) => &rest[1..],
                literal if literal == byte && literal != b'\\' => rest,
                _ => return WildMatch::Differs,
            };
            (begins, text) = (first == b'/', after);
        }
        if text.is_empty() { WildMatch::Match } else { WildMatch::Differs }
    }

    /// Continues behind a star. Two stars that fill the room between slashes match any number of directories.
    fn star(&mut self, glob: &[u8], text: &[u8], begins: bool) -> WildMatch {
        let more = glob.iter().take_while(|byte| **byte == b'*').count();
        let rest = &glob[more..];
        let fills = begins && (rest.is_empty() || rest[0] == b'/' || rest.starts_with(b"\\/"));
        if more > 0 && (fills || self.crosses_anywhere) {
            let may_be_none = |_: &&[u8]| !self.crosses_anywhere;
            let below = rest.strip_prefix(b"/").filter(may_be_none).map(|rest| self.again(rest, text, true));
            return if below == Some(WildMatch::Match) || rest.is_empty() {
                WildMatch::Match
            } else {
                self.behind(rest, text, true)
            };
        }
        if rest.is_empty() || !rest.iter().any(is_special) {
            let is_last = text.strip_suffix(rest).is_some_and(|before| !before.contains(&b'/'));
            return if is_last { WildMatch::Match } else { WildMatch::Differs };
        }
        if rest[0] == b'/' {
            let Some(slash) = text.iter().position(|byte| *byte == b'/') else { return WildMatch::Differs };
            return self.again(rest, &text[slash..], false);
        }
        self.behind(rest, text, false)
    }

    /// Tries `rest` at each place of `text`, up to the next slash unless the star before is a double one.
    fn behind(&mut self, rest: &[u8], mut text: &[u8], is_deep: bool) -> WildMatch {
        while let Some((&byte, after)) = text.split_first() {
            match self.again(rest, text, false) {
                WildMatch::Differs => {}
                WildMatch::AtSlash if is_deep => {}
                found => return found,
            }
            if !is_deep && byte == b'/' {
                return WildMatch::AtSlash;
            }
            text = after;
        }
        WildMatch::AtEnd
    }
}

fn is_special(byte: &u8) -> bool {
    b"*?[\\".contains(byte)
}

/// A class that was compared with a byte, and the pattern behind it.
struct Class<'g> {
    behind: &'g [u8],
    matches: bool,
}

/// Compares a class with `byte`; returns `None` if the class has no end. `glob` begins behind its opening bracket.
fn class(glob: &[u8], byte: u8) -> Option<Class<'_>> {
    let is_not = matches!(glob.first(), Some(b'!' | b'^'));
    let mut at = usize::from(is_not);
    let (mut is_in, mut previous, mut is_first) = (false, None, true);
    loop {
        let mut next = *glob.get(at)?;
        if next == b']' && !is_first {
            return Some(Class { behind: &glob[at + 1..], matches: is_in != is_not });
        }
        is_first = false;
        match next {
            b'-' if previous.is_some() && glob.get(at + 1).is_some_and(|end| *end != b']') => {
                at += 1;
                if glob[at] == b'\\' {
                    at += 1;
                }
                let end = *glob.get(at)?;
                is_in |= previous.is_some_and(|start| (start..=end).contains(&byte));
                previous = None;
            }
            b'[' if glob.get(at + 1) == Some(&b':') => {
                let start = at + 2;
                let end = start + glob[start..].iter().position(|byte| *byte == b']')?;
                match glob[start..end].strip_suffix(b":") {
                    Some(name) => {
                        is_in |= is_of(name, byte)?;
                        at = end;
                    }
                    // It is not the name of a class: the bracket is one of the characters.
                    None => is_in |= byte == b'[',
                }
                previous = None;
            }
            _ => {
                if next == b'\\' {
                    at += 1;
                    next = *glob.get(at)?;
                }
                is_in |= next == byte;
                previous = Some(next);
            }
        }
        at += 1;
    }
}

/// Returns whether `byte` belongs to a POSIX class; `None` if there is no such class.
fn is_of(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => byte == b' ' || byte == b'\t',
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern.as_bytes()).unwrap().matches(path.as_bytes(), false)
    }

    #[test]
    fn braces_are_characters_like_any_other() {
        assert!(matches("{a,b}", "{a,b}") && matches("*.{c,h}", "x.{c,h}"));
        assert!(!matches("{a,b}", "a") && !matches("*.{c,h}", "x.c"));
    }

    #[test]
    fn a_line_that_matches_nothing_is_no_pattern() {
        for line in ["", "  ", "# a comment", "!", "/", "//", &"a".repeat(MAX_BYTES + 1)] {
            assert_eq!(Pattern::parse(line.as_bytes()), None, "{line:?}");
        }
        assert!(matches("\\#name", "#name") && matches("\\!name", "!name") && matches("a\\ ", "a "));
        assert!(!matches("[z-a]", "y"));
    }

    #[test]
    fn a_pattern_that_no_path_can_match_is_known_as_such() {
        let can = |line: &str| Pattern::parse(line.as_bytes()).unwrap().can_match();
        for never in ["./sub", "sub/./x", "../x", "a//b", "x[ab", "[[:none:]]", "a\\", ".", "/./"] {
            assert!(!can(never), "{never}");
        }
        for may in ["*.tmp", "a/**/b", "[]a]", "[!a]b", "\\[ab", "a\\\\", ".git", "..a", "-x", "{a,b}"] {
            assert!(can(may), "{may}");
        }
    }

    #[test]
    fn a_pattern_with_a_slash_inside_may_begin_below_any_folder_as_rsync_reads_it() {
        let deeper = |line: &str, path: &str| {
            Pattern::parse(line.as_bytes()).unwrap().matches_deeper(path.as_bytes(), false)
        };
        assert!(deeper("a/b", "q/a/b") && deeper("a/*.o", "q/r/a/x.o") && deeper("a/**", "q/a/b/c"));
        assert!(!deeper("a/b", "a/b") && !deeper("/a/b", "q/a/b") && !deeper("b", "q/a/b"));
        assert!(!deeper("a/b", "qa/b") && !deeper("a/b/", "q/a/b") && !deeper("!a/b", "q/a/b"));
    }

    #[test]
    fn no_pattern_takes_more_tries_than_its_length_times_that_of_the_path() {
        let path = "a/".repeat(300) + "a";
        let pattern = "**/a/".repeat(100) + "b";
        assert!(!matches(&pattern, &path));
        assert!(matches(&(pattern + "*"), &(path + "/b")));
    }
}
