//! `volferry generate`, whose output is read by the programs that it is for.

use std::{
    env, fs,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs a command that has to succeed.
pub(crate) fn volferry(args: &[&str]) -> Output {
    let output = crate::cli::volferry(args);
    assert!(output.status.success(), "{output:?}");
    output
}

/// A shell of a user with a configuration of ssh, a folder with snapshots, and the script of the completions.
struct Completed {
    dir: tempfile::TempDir,
}

impl Completed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at(".ssh/more")).unwrap();
        fs::write(at(".ssh/config"), "Include more/*.conf\nHost nas backup *.lan !no\n  User x\n").unwrap();
        fs::write(at(".ssh/more/a.conf"), "host=nova\n").unwrap();
        fs::write(at(".ssh/more/b.txt"), "Host nobody\n").unwrap();
        fs::create_dir(at("data")).unwrap();
        fs::write(at("nails"), "").unwrap();
        fs::write(at("script"), volferry(&["generate", "--completions", "bash"]).stdout).unwrap();
        Self { dir }
    }

    /// Returns what bash offers for the last of some words.
    fn bash(&self, words: &str) -> Vec<String> {
        let ask = format!(
            "source ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _clap_complete_volferry volferry \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; printf '%s\n' \"${{COMPREPLY[@]}}\""
        );
        let program = Path::new(env!("CARGO_BIN_EXE_volferry"));
        let path = format!("{}:{}", program.parent().unwrap().display(), env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command
            .args(["-c", &ask])
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("PATH", path);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words}");
        let offered = String::from_utf8(output.stdout).unwrap();
        offered.lines().filter(|line| !line.is_empty()).map(String::from).collect()
    }
}

#[test]
fn bash_completes_subcommands_and_flags() {
    let shell = Completed::new();
    assert_eq!(shell.bash("volferry sn"), ["snapshot"]);
    assert_eq!(shell.bash("volferry sync --delete-l"), ["--delete-limit"]);
    assert_eq!(shell.bash("volferry sync --progress j"), ["json"]);
}

#[test]
fn bash_completes_files_and_the_hosts_that_ssh_knows() {
    let shell = Completed::new();
    assert_eq!(shell.bash("volferry sync na"), ["nails", "nas:"]);
    assert_eq!(shell.bash("volferry sync data no"), ["nova:"]);
    assert_eq!(shell.bash("volferry sync 'me@ba'"), ["me@backup:"]);
    assert_eq!(shell.bash("volferry snapshot copy data na"), ["nails", "nas:"]);
    assert_eq!(shell.bash("volferry enroll n"), ["nas", "nova"]);
    assert_eq!(shell.bash("volferry send na"), ["nails"]);
    assert_eq!(shell.bash("volferry sync --files-from na"), ["nails"]);
    assert_eq!(shell.bash("volferry sync da"), ["data/"]);
}

#[test]
fn bash_completes_the_ids_and_tags_of_the_volume_that_was_named() {
    let shell = Completed::new();
    let names = |line: &str| {
        let mut offered = shell.bash(&format!("volferry {line} ''"));
        offered.retain(|word| !word.starts_with('-'));
        offered
    };
    assert_eq!(names("snapshot show data"), [""; 0]);
    let data = shell.dir.path().join("data");
    let created = volferry(&["snapshot", "create", data.to_str().unwrap(), "--tag", "before-upgrade"]);
    let id = String::from_utf8(created.stdout).unwrap().trim().to_owned();
    for line in ["snapshot show data", "snapshot diff '~/data' latest", "sync data /mnt --source-snapshot"] {
        assert_eq!(names(line), [id.as_str(), "before-upgrade", "latest"], "{line}");
    }
    assert_eq!(shell.bash("volferry snapshot restore data be"), ["before-upgrade"]);
}

#[test]
fn zsh_and_fish_offer_hosts_without_a_space_behind_the_colon() {
    let zsh = String::from_utf8(volferry(&["generate", "--completions", "zsh"]).stdout).unwrap();
    let own: Vec<_> = zsh.lines().map(str::trim).filter(|line| line.contains("_describe")).collect();
    let [dirs, hosts, others] = own[..] else { panic!("{own:?}") };
    assert!(
        dirs.ends_with(" -S '/' -r '/'") && hosts.ends_with(" hosts -S ''") && others.ends_with(" other")
    );
    let fish = String::from_utf8(volferry(&["generate", "--completions", "fish"]).stdout).unwrap();
    // fish adds no space behind a word that ends with a colon.
    assert!(fish.contains("VOLFERRY_COMPLETE=fish"), "{fish}");
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
