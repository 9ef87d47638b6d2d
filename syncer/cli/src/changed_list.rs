//! Files with the changed blocks of a device, as `--changed-blocks` takes them.

use std::{
    io,
    path::{Path, PathBuf},
};

use contract::{ChangedBlocks, ChangedRanges, ContentHash, ParseParamError, RangeError};
use thiserror::Error;

use crate::list_file::read_at_most;

/// The longest list, in bytes: some millions of ranges.
const MAX_BYTES: u64 = 64 << 20;

/// Why a list of changed blocks cannot be used.
#[derive(Debug, Error)]
pub(super) enum ChangedListError {
    #[error("cannot read the changed blocks in {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} has more than {} MiB of changed blocks: leave it out, and the run compares everything", MAX_BYTES >> 20, path = .0.display())]
    TooLong(PathBuf),
    #[error(
        "{path}, line {line}: {problem}\nhint: the first line is `base HASH`, with `content.hash` of the report of the run before; the others \
         are `OFFSET LENGTH` in bytes, in order", path = .path.display()
    )]
    Line { path: PathBuf, line: usize, problem: LineProblem },
    #[error("{path}: {source}", path = .path.display())]
    Ranges { path: PathBuf, source: RangeError },
}

/// What is wrong with a line.
#[derive(Debug, Error)]
pub(super) enum LineProblem {
    #[error("the first line is not `base HASH`")]
    NoBase,
    #[error(transparent)]
    Base(#[from] ParseParamError),
    #[error("`{0}` is not an offset and a length")]
    NoRange(String),
}

/// Reads the list in `file`. Lines that begin with # are comments.
pub(super) fn read(file: String) -> Result<ChangedBlocks, ChangedListError> {
    let path = Path::new(&file);
    let bytes = read_at_most(path, MAX_BYTES)
        .map_err(|source| ChangedListError::Read { path: path.into(), source })?
        .ok_or_else(|| ChangedListError::TooLong(path.into()))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let List { base, ranges } = parse(path, lines)?;
    let ranges = ChangedRanges::new(ranges)
        .map_err(|source| ChangedListError::Ranges { path: path.into(), source })?;
    Ok(ChangedBlocks { base, ranges, file })
}

/// What the lines of a list say.
struct List {
    base: ContentHash,
    /// Pairs of an offset and a length.
    ranges: Vec<(u64, u64)>,
}

/// Parses numbered lines.
fn parse<'a>(
    path: &Path,
    mut lines: impl Iterator<Item = (usize, &'a str)>,
) -> Result<List, ChangedListError> {
    let wrong = |line, problem| ChangedListError::Line { path: path.into(), line, problem };
    let (number, first) = lines.next().ok_or_else(|| wrong(1, LineProblem::NoBase))?;
    let hash = first.strip_prefix("base ").ok_or_else(|| wrong(number, LineProblem::NoBase))?;
    let base = hash.trim().parse::<ContentHash>().map_err(|error| wrong(number, LineProblem::Base(error)))?;
    let pair = |(number, line): (usize, &str)| {
        let mut words = line.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
        match (words.next().flatten(), words.next().flatten(), words.next()) {
            (Some(offset), Some(len), None) => Ok((offset, len)),
            _ => Err(wrong(number, LineProblem::NoRange(line.chars().take(80).collect()))),
        }
    };
    Ok(List { base, ranges: lines.map(pair).collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<ChangedBlocks, ChangedListError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        read(file.path().to_str().unwrap().into())
    }

    #[test]
    fn a_list_has_a_base_and_ranges() {
        let hash = ContentHash([7; 32]);
        let list = read_text(&format!("# of the storage\nbase {hash}\n\n0 4096\n8192\t512\r\n")).unwrap();
        assert_eq!((list.base, list.ranges.as_slice()), (hash, &[0..4096, 8192..8704][..]));
        assert_eq!(read_text(&format!("base {hash}")).unwrap().ranges.end(), 0);
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        let base = format!("base {}\n", ContentHash([7; 32]));
        for (text, told) in [
            (String::new(), "line 1: the first line is not `base HASH`"),
            ("0 4096\n".into(), "line 1: the first line is not"),
            ("base 77\n".into(), "line 1: `77` is not the hash"),
            (format!("{base}0\n"), "line 2: `0` is not an offset"),
            (format!("{base}0 1 2\n"), "line 2: `0 1 2` is not"),
            (format!("{base}-1 5\n"), "line 2: `-1 5` is not"),
            (format!("{base}0 18446744073709551616\n"), "line 2: `0 18446744073709551616`"),
            (format!("{base}8 8\n0 8\n"), "the range at 0 begins before the end"),
        ] {
            let error = read_text(&text).unwrap_err().to_string();
            assert!(error.contains(told), "{text:?}: {error}");
        }
        assert!(read("/nowhere".into()).unwrap_err().to_string().contains("/nowhere: No such file"));
    }
}
