//! Reads the documents of files with manifests, for commands that are given some. Errors say where in the file they
//! are.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde_json::Value;
use thiserror::Error;

/// The maximum number of bytes read from one file.
const MAX_BYTES: u64 = 64 << 20;

/// The reasons why a file has no documents.
#[derive(Debug, Error)]
pub enum ManifestFileError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is too long.
    #[error("{} has more than {MAX_BYTES} bytes", .0.display())]
    TooLong(PathBuf),
    /// The file is neither YAML nor JSON.
    #[error("{}:{line}:{column}: {problem}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The line of the problem, from 1.
        line: u64,
        /// Its column, from 1.
        column: u64,
        /// The problem.
        problem: String,
    },
}

/// Reads the documents of a file of YAML or JSON; `-` is standard input.
///
/// # Errors
/// If it cannot be read, is longer than 64 MiB, or is neither.
pub fn documents(path: &Path) -> Result<Vec<Value>, ManifestFileError> {
    let failed = |source| ManifestFileError::Read { path: path.into(), source };
    let mut text = String::new();
    let length = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_string(&mut text)
    };
    if length.map_err(failed)? as u64 > MAX_BYTES {
        return Err(ManifestFileError::TooLong(path.into()));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_multiple_with_options(&text, options).map_err(|error| invalid(path, &error))
}

/// Reads the objects of all documents of a file, including the items of lists.
///
/// # Errors
/// Those of [`documents`].
pub fn objects(path: &Path) -> Result<Vec<Value>, ManifestFileError> {
    let items = documents(path)?.into_iter().flat_map(|document| match document {
        Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
            list.remove("items").and_then(|items| serde_json::from_value(items).ok()).unwrap_or_default()
        }
        object => vec![object],
    });
    Ok(items.collect())
}

/// Names the place of a problem. The library's own sentence ends with that place, and with advice to its callers.
fn invalid(path: &Path, error: &serde_saphyr::Error) -> ManifestFileError {
    let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or_default();
    let problem = problem.split(", set DuplicateKeyPolicy").next().unwrap_or_default().into();
    ManifestFileError::Yaml { path: path.into(), line, column, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Value>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        let name = format!("{}:", file.path().display());
        objects(file.path()).map_err(|error| error.to_string().replace(&name, ""))
    }

    #[test]
    fn items_of_lists_are_objects_and_a_problem_has_its_place() {
        assert_eq!(read("a: 1\n---\nitems: [{b: 2}, {c: 3}]\n").unwrap().len(), 3);
        assert_eq!(read("foo\n---\n- items\n"), Ok(vec!["foo".into(), serde_json::json!(["items"])]));
        assert_eq!(read("a:\n  b: 1\n  b: 2\n").unwrap_err(), "3:3: duplicate mapping key: b");
        assert!(read("a: [b\nc: d\n").unwrap_err().starts_with("2:2: illegal placement"));
    }
}
