//! `volferry generate`, whose output is read by the programs that it is for.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

use std::{
    fs,
    process::{Command, Output, Stdio},
};

fn volferry(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_volferry")).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn bash_completes_subcommands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("volferry.bash");
    fs::write(&script, volferry(&["generate", "--completions", "bash"]).stdout).unwrap();
    let complete = |words: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _volferry volferry \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        String::from_utf8(Command::new("bash").args(["-c", &ask]).output().unwrap().stdout).unwrap()
    };
    assert_eq!(complete("volferry sn").trim(), "snapshot");
    assert_eq!(complete("volferry sync --delete-l").trim(), "--delete-limit");
}

#[test]
fn every_subcommand_has_a_manual_page_with_its_flags() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man");
    volferry(&["generate", "--man", folder.to_str().unwrap()]);
    for (page, flag) in [
        ("volferry.1", "volferry\\-sync(1)"),
        ("volferry-sync.1", "\\-\\-delete\\-limit"),
        ("volferry-snapshot-prune.1", "\\-\\-keep\\-daily"),
    ] {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.contains(".TH volferry") && text.contains(flag), "{page}: {text}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volferry"));
    let mut child = command
        .args(["generate", "--completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
