//! Files with a pattern on each line, as `--exclude-from` and `--include-from` take them.

use std::{
    io,
    path::{Path, PathBuf},
};

use syncer::filter::{PatternError, read_pattern};
use thiserror::Error;

use crate::list_file::read_at_most;

/// The longest file, in bytes. The engine takes some thousands of patterns.
const MAX_BYTES: u64 = 8 << 20;

/// Why the patterns of a file cannot be used.
#[derive(Debug, Error)]
pub(super) enum PatternFileError {
    #[error("cannot read the patterns in {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not UTF-8, as patterns are", path = .0.display())]
    Text(PathBuf),
    #[error("{path} has more than {} MiB of patterns: join some", MAX_BYTES >> 20, path = .0.display())]
    TooLong(PathBuf),
    #[error(
        "{path}, line {line}: {source}\nhint: patterns are those of .gitignore; `+ ` and `- ` at the start of a line are rsync's",
        path = .path.display()
    )]
    Pattern { path: PathBuf, line: usize, source: PatternError },
}

/// Reads the patterns of these files, in their order. `-` is standard input.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<String>, PatternFileError> {
    let lists = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(lists.concat())
}

fn read(path: &Path) -> Result<Vec<String>, PatternFileError> {
    let bytes = read_at_most(path, MAX_BYTES)
        .map_err(|source| PatternFileError::Read { path: path.into(), source })?
        .ok_or_else(|| PatternFileError::TooLong(path.into()))?;
    let text = String::from_utf8(bytes).map_err(|_| PatternFileError::Text(path.into()))?;
    let checked = |(line, pattern): (usize, &str)| match read_pattern(pattern) {
        Ok(_) => Ok(pattern.into()),
        Err(source) => Err(PatternFileError::Pattern { path: path.into(), line, source }),
    };
    patterns(&text).map(checked).collect()
}

/// Yields the lines of a `.gitignore` file that are patterns, with their numbers, without empty lines and comments.
fn patterns(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.trim_start_matches('\u{feff}').lines());
    lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_patterns_is_read_as_git_reads_one() {
        let text = "\u{feff}*.o\r\n# a comment\n\n   \n\\#name\n!keep.o\n /top \nlast";
        let found: Vec<_> = patterns(text).collect();
        assert_eq!(found, [(1, "*.o"), (5, "\\#name"), (6, "!keep.o"), (7, " /top "), (8, "last")]);
    }

    #[test]
    fn a_file_that_is_no_list_of_patterns_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("patterns");
        let error = |path: &Path| read(path).unwrap_err().to_string();
        assert!(error(&path).contains("patterns: No such file"), "{}", error(&path));
        assert!(error(dir.path()).contains("Is a directory"), "{}", error(dir.path()));
        std::fs::write(&path, b"*.o\n\xff\n").unwrap();
        assert!(error(&path).contains("is not UTF-8"), "{}", error(&path));
        std::fs::write(&path, "# of rsync\n\n- *.tmp\n").unwrap();
        assert!(
            error(&path).contains("patterns, line 3: the pattern `- *.tmp` is a rule"),
            "{}",
            error(&path)
        );
        std::fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(error(&path).contains("more than 8 MiB"), "{}", error(&path));
    }
}
