//! Files with the paths that a run is limited to, as `--files-from` takes them.

use std::{
    io,
    path::{Path, PathBuf},
};

use syncer::path::{OWN_DIR, RelPath, display};
use thiserror::Error;

use crate::list_file::read_at_most;

/// The longest list, in bytes: some millions of paths.
const MAX_BYTES: u64 = 256 << 20;

/// Why the paths of a list cannot be used.
#[derive(Debug, Error)]
pub(super) enum PathListError {
    #[error("cannot read the paths in {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} has more than {} MiB of paths: split it", MAX_BYTES >> 20, path = .0.display())]
    TooLong(PathBuf),
    #[error("{file}, path {number} `{path}`: {problem}\nhint: write paths below SRC, such as docs/a.txt", file = .file.display())]
    Path { file: PathBuf, number: usize, path: String, problem: String },
}

/// Reads the paths of a list: one on each line, or with `nul` each up to a NUL. `-` is standard input. `None` if the
/// whole tree is listed.
pub(super) fn read(file: &Path, nul: bool) -> Result<Option<Vec<Vec<u8>>>, PathListError> {
    let bytes = read_at_most(file, MAX_BYTES)
        .map_err(|source| PathListError::Read { path: file.into(), source })?
        .ok_or_else(|| PathListError::TooLong(file.into()))?;
    let mut paths = Vec::new();
    for (number, written) in (1..).zip(entries(&bytes, nul)) {
        let path = path(written).map_err(|problem| PathListError::Path {
            file: file.into(),
            number,
            path: display(written),
            problem,
        })?;
        if path.is_root() {
            return Ok(None);
        }
        paths.push(path.as_bytes().to_vec());
    }
    Ok(Some(paths))
}

/// Yields the entries of a list. In lists of lines, comments and empty lines are left out, as in rsync.
fn entries(bytes: &[u8], nul: bool) -> impl Iterator<Item = &[u8]> {
    let ends = move |byte: &u8| if nul { *byte == 0 } else { matches!(byte, b'\n' | b'\r' | 0) };
    let is_comment = move |entry: &[u8]| !nul && (entry.starts_with(b"#") || entry.starts_with(b";"));
    bytes.split(ends).filter(move |entry| !entry.is_empty() && !is_comment(entry))
}

/// Parses a path, which may contain slashes and dots without a meaning.
fn path(written: &[u8]) -> Result<RelPath, String> {
    let mut names = written.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let path =
        names.try_fold(RelPath::root(), |at, name| at.join(name)).map_err(|error| error.to_string())?;
    let is_own = path.names().next() == Some(OWN_DIR);
    if is_own { Err(".volferry is Volferry's own folder".into()) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8], nul: bool) -> Result<Option<Vec<Vec<u8>>>, PathListError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        read(file.path(), nul)
    }

    #[test]
    fn a_list_is_read_as_rsync_reads_one() {
        let lines = read_text(b"a\r\n# no\n; no\n\n/b//c/\n./d/./e\nlast", false).unwrap().unwrap();
        assert_eq!(lines, [b"a".as_slice(), b"b/c", b"d/e", b"last"]);
        let nul = read_text(b"#a\nb\0;c\0\0d", true).unwrap().unwrap();
        assert_eq!(nul, [b"#a\nb".as_slice(), b";c", b"d"]);
        assert_eq!(read_text(b"a\n.\n", false).unwrap(), None, "the whole tree");
        assert_eq!(read_text(b"", false).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn a_path_that_leads_out_is_refused_with_its_place_in_the_list() {
        for bad in ["../a", "a/../../b", ".volferry/epoch"] {
            let error = read_text(format!("ok\n{bad}\n").as_bytes(), false).unwrap_err().to_string();
            assert!(error.contains(&format!("path 2 `{bad}`: ")) && error.contains("\nhint: "), "{error}");
        }
    }
}
