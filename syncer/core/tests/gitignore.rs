//! Compares patterns with git itself: random lists of patterns on random paths.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use volferry_core::tree::{filter::Filter, path::RelPath};

/// Parts of patterns: everything that has a meaning to git, and much that has one to other matchers.
const PARTS: [&str; 44] = [
    "a",
    "b",
    "ab",
    "*",
    "*",
    "**",
    "**",
    "?",
    "/",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[]a]",
    "[a-]",
    "[[:alpha:]]",
    "[[:digit:]b]",
    "[[:nope:]]",
    "[z-a]",
    "[\\]]",
    "[a\\-c]",
    "[[:a]",
    "[--0]",
    "{a,b}",
    "{",
    "}",
    "\\a",
    "\\*",
    "\\?",
    "\\[",
    "\\\\",
    "!",
    "#",
    " ",
    "\\ ",
    ".",
    ",",
    "-",
    "]",
    "[",
    "é",
    "*.",
];

const NAMES: [&str; 26] = [
    "a", "b", "c", "ab", "abc", "ba", "*", "?", "{a,b}", "{", "}", "[", "]", "a b", " ", "a ", "!", "#", "-",
    "\\", "a.b", "1", "é", ",", "**", "[ab]",
];

fn words(
    parts: &'static [&'static str],
    most: usize,
    between: &'static str,
) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(parts), 1..=most).prop_map(move |parts| parts.join(between))
}

/// Returns, for each of `paths`, whether git ignores it by `patterns`. All paths are those of files.
fn ignored_by_git(repository: &Path, patterns: &[String], paths: &[String]) -> Vec<bool> {
    fs::write(repository.join(".gitignore"), patterns.join("\n") + "\n").unwrap();
    let mut git = Command::new("git");
    git.args(["check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"]).current_dir(repository);
    let mut git = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = git.stdin.take().unwrap();
    input.write_all((paths.join("\0") + "\0").as_bytes()).unwrap();
    drop(input);
    let output = String::from_utf8(git.wait_with_output().unwrap().stdout).unwrap();
    // Four fields a path: the file, the line and the pattern that decide, and the path.
    let fields: Vec<&str> = output.split_terminator('\0').collect();
    fields.chunks(4).map(|found| !found[2].is_empty() && !found[2].starts_with('!')).collect()
}

#[test]
fn patterns_mean_what_they_mean_to_git() {
    let repository = tempfile::tempdir().unwrap();
    let git = Command::new("git").args(["init", "--quiet"]).current_dir(repository.path()).status().unwrap();
    assert!(git.success());
    let lists = prop::collection::vec(words(&PARTS, 6, ""), 1..4);
    let paths = prop::collection::vec(words(&NAMES, 4, "/"), 200);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(200) });
    let compared = runner.run(&(lists, paths), |(mut patterns, paths)| {
        // A pattern that matches nothing is an error here, but not in git.
        patterns.retain(|pattern| Filter::new(&[], std::slice::from_ref(pattern)).is_ok());
        let filter = Filter::new(&[], &patterns).unwrap();
        let expected = ignored_by_git(repository.path(), &patterns, &paths);
        for (path, expected) in paths.iter().zip(expected) {
            let excluded = filter.excludes_path(&RelPath::parse(path.as_bytes()).unwrap());
            prop_assert_eq!(excluded, expected, "{:?} on {:?}", patterns, path);
        }
        Ok(())
    });
    compared.unwrap();
}
