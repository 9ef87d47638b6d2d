//! No Rust file of the workspace is above 500 lines, and no function above 60.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::repository;

const LONGEST_FILE_LINES: usize = 500;
const LONGEST_FUNCTION_LINES: usize = 60;

/// The words before `fn`.
const QUALIFIERS: [&str; 10] = [
    "pub",
    "pub(crate)",
    "pub(super)",
    "pub(in",
    "super::super)",
    "const",
    "async",
    "unsafe",
    "extern",
    "\"C\"",
];

#[test]
fn no_file_and_no_function_is_longer_than_the_limit() {
    let (mut files, mut functions, mut long) = (Vec::new(), 0, Vec::new());
    for folder in ["syncer", "operator", "e2e", "benches"] {
        rust_files(&repository().join(folder), &mut files);
    }
    for file in &files {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines = text.lines().count();
        if lines > LONGEST_FILE_LINES {
            long.push(format!("{}: {lines} lines", file.display()));
        }
        let found = function_lengths(&text);
        functions += found.len();
        let found = found.into_iter().filter(|(_, lines)| *lines > LONGEST_FUNCTION_LINES);
        long.extend(found.map(|(first, lines)| format!("{}: {lines} lines: {first}", file.display())));
    }
    assert!(files.len() > 1000 && functions > 10_000, "{} files, {functions} functions", files.len());
    assert!(long.is_empty(), "too long:\n{}", long.join("\n"));
}

#[test]
fn functions_are_measured_from_their_first_line_to_their_closing_brace() {
    let text = "trait A {\n    fn declared(\n        a: u8,\n    );\n    fn given(&self) {\n        b();\n    }\n}\n\
        // fn comment() {\nstatic C: fn(u8) = d;\npub(crate) const unsafe fn e() {}\n\
        pub async fn f<T>(\n    g: T,\n) -> u8\nwhere\n    T: A,\n{\n    if h {\n    }\n    fn() {}\n}\n\
        #[rustfmt::skip]\nfn i() {\n}\n";
    let lengths: Vec<_> = function_lengths(text).into_iter().map(|(_, lines)| lines).collect();
    assert_eq!(lengths, [3, 3, 1, 10], "{:?}", function_lengths(text));
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap_or_else(|error| panic!("{error}")).path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, files);
        } else if path.is_file() && name.ends_with(".rs") {
            files.push(path);
        }
    }
}

/// Returns the first line and the number of lines of each function that rustfmt formats: its last line has the
/// indentation of its first.
fn function_lengths(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_formatted = |at: usize| at == 0 || !lines[at - 1].contains("rustfmt::skip");
    let begins = (0..lines.len()).filter(|at| begins_function(lines[*at]) && is_formatted(*at));
    let measure = |at: usize| {
        let inside = lines[at..].iter().take_while(|line| !ends_item(line, indentation(lines[at])));
        (lines[at].trim(), inside.count() + 1)
    };
    begins.map(measure).collect()
}

fn begins_function(line: &str) -> bool {
    line.split_whitespace().find(|word| !QUALIFIERS.contains(word)) == Some("fn")
}

fn ends_item(line: &str, at_indentation: usize) -> bool {
    indentation(line) == at_indentation && line.ends_with(['}', ';'])
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
