//! Files with filter rules, as `--filter-from` and rules such as `. FILE` name them.

use std::{
    io,
    path::{Path, PathBuf},
};

use syncer::filter::{FilterRules, MergeFile, RuleError, RuleLine};
use thiserror::Error;

use crate::list_file::read_at_most;

/// The longest file, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// How deep files may name one another.
const MAX_DEPTH: usize = 10;

/// Why filter rules cannot be used.
#[derive(Debug, Error)]
pub(super) enum FilterFileError {
    #[error("cannot read the filter rules in {path}: {source}", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not UTF-8, as filter rules are", path = .0.display())]
    Text(PathBuf),
    #[error("{path} has more than {} MiB of filter rules: join some", MAX_BYTES >> 20, path = .0.display())]
    TooLong(PathBuf),
    #[error("{path} is named by itself, or by more than {MAX_DEPTH} files of filter rules one inside of the other", path = .0.display())]
    TooDeep(PathBuf),
    #[error("{path}, line {line}: {source}", path = .path.display())]
    Rule { path: PathBuf, line: usize, source: RuleError },
    #[error(transparent)]
    Typed(#[from] RuleError),
}

/// Returns the rules of these files and the typed ones, in this order, with those of the files that they name. `-` is
/// standard input.
pub(super) fn read_all(files: &[PathBuf], typed: &[String]) -> Result<Vec<String>, FilterFileError> {
    let mut rules = Vec::new();
    for path in files {
        read(path, None, &mut rules, 0)?;
    }
    for rule in typed {
        add(rule, &mut rules, 0, FilterFileError::Typed)?;
    }
    FilterRules::new(&rules)?;
    Ok(rules)
}

/// Adds a rule, or those of the file that it names.
fn add(
    rule: &str,
    rules: &mut Vec<String>,
    depth: usize,
    fail: impl FnOnce(RuleError) -> FilterFileError,
) -> Result<(), FilterFileError> {
    match RuleLine::parse(rule).map_err(fail)? {
        RuleLine::Merge(file) => {
            rules.extend(file.itself());
            read(Path::new(&file.name), Some(&file), rules, depth + 1)
        }
        _ => {
            rules.push(rule.into());
            Ok(())
        }
    }
}

fn read(
    path: &Path,
    merge: Option<&MergeFile>,
    rules: &mut Vec<String>,
    depth: usize,
) -> Result<(), FilterFileError> {
    if depth > MAX_DEPTH {
        return Err(FilterFileError::TooDeep(path.into()));
    }
    let bytes = read_at_most(path, MAX_BYTES)
        .map_err(|source| FilterFileError::Read { path: path.into(), source })?
        .ok_or_else(|| FilterFileError::TooLong(path.into()))?;
    let text = String::from_utf8(bytes).map_err(|_| FilterFileError::Text(path.into()))?;
    let of_rules = MergeFile::of_rules(path.to_string_lossy().into_owned());
    let file = merge.unwrap_or(&of_rules);
    for (line, written) in (1..).zip(text.lines()) {
        let fail = |source| FilterFileError::Rule { path: path.into(), line, source };
        if let Some(rule) = file.rule_of(written.trim_end_matches('\r')) {
            add(&rule, rules, depth, fail)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_where_they_are_named_and_an_error_names_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("inner"), "*.tmp\n; no\n").unwrap();
        let inner = path("inner").display().to_string();
        std::fs::write(path("outer"), format!("# no\n+ keep\r\n.-e {inner}\n\n- /last\n")).unwrap();
        let rules = read_all(&[path("outer")], &["- typed".into()]).unwrap();
        assert_eq!(rules, ["+ keep", "- inner", "- *.tmp", "- /last", "- typed"]);
        std::fs::write(path("outer"), "- a\nP b\n").unwrap();
        let error = read_all(&[path("outer")], &[]).unwrap_err().to_string();
        assert!(error.contains("outer, line 2: ") && error.contains("\nhint: "), "{error}");
    }

    #[test]
    fn a_file_that_names_itself_or_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rules");
        let rule = format!(". {}", path.display());
        assert!(matches!(read_all(&[], std::slice::from_ref(&rule)), Err(FilterFileError::Read { .. })));
        std::fs::write(&path, &rule).unwrap();
        assert!(matches!(read_all(&[], &[rule]), Err(FilterFileError::TooDeep(_))));
    }
}
