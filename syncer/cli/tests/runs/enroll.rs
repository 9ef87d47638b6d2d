//! `volferry enroll` and `volferry peers`: a user becomes known to a service over a real sshd, and is revoked.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
};

use contract::{ExitCode, OwnKey};

use crate::common::{
    oracle,
    pair::text,
    process::{Running, program},
    service::Served,
    sshd::Sshd,
    tree,
};

const FOLDERS: &str = "[folders.photos]\npath = \"photos\"\n[folders.docs]\npath = \"docs\"\n";

/// A service, and a machine that reaches it by ssh.
struct Near {
    sshd: Sshd,
    served: Served,
    home: PathBuf,
    source: PathBuf,
}

impl Near {
    fn new() -> Self {
        let mut served = Served::prepare(FOLDERS);
        served.start();
        served.configure(FOLDERS);
        let (home, source) = (served.folder("home"), served.folder("source"));
        tree::files(&source, &["a", "b/c"], "content");
        Self { sshd: Sshd::start(), served, home, source }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.env("XDG_CONFIG_HOME", &self.home).env("USER", "me").args(args);
        command
    }

    fn enroll(&self, folder: &str, flags: &[&str]) -> Output {
        let remote = format!("--remote-program={}", program().display());
        let (rsh, config) = (self.sshd.rsh(), format!("--config={}", text(&self.served.path("serve.toml"))));
        let place = format!("{}{folder}", self.served.address);
        let config =
            if flags.iter().any(|flag| flag.starts_with("--config=")) { None } else { Some(config.as_str()) };
        let own = ["enroll", &place, &rsh, &remote].into_iter().chain(config);
        self.command(&own.chain(flags.iter().copied()).collect::<Vec<_>>()).output().unwrap()
    }

    fn peers(&self, words: &[&str]) -> Output {
        let config = format!("--config={}", text(&self.served.path("serve.toml")));
        self.command(&[&["peers"], words, &[&config]].concat()).output().unwrap()
    }

    /// Runs a line as it was printed, with the real source.
    #[track_caller]
    fn run_line(&self, line: &str, exit: ExitCode) {
        let destination = self.served.path("got");
        let words = line.split(' ').skip(1).map(|word| match word {
            "SRC" => text(&self.source),
            "DST" => text(&destination),
            word => word,
        });
        let words: Vec<_> = words.chain(["--progress=json"]).collect();
        Running::start(self.command(&words)).wait().assert_exit(exit);
    }
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn refused(output: &Output, exit: ExitCode, why: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit as i32), "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
}

#[test]
fn the_line_that_enroll_prints_works_until_the_user_is_revoked_by_one_line() {
    let near = Near::new();
    let line = said(&near.enroll("::photos", &["--name=me@laptop"]));
    assert_eq!(line, format!("volferry sync SRC {}::photos\n", near.served.address));
    near.served.wait_for_metric("volferry_serve_authorized_keys 1");
    near.run_line(line.trim(), ExitCode::Done);
    oracle::assert_copy(&near.served.path("photos"), &near.source, "by the printed line");
    near.run_line(&line.trim().replace("photos", "docs"), ExitCode::Identity);
    let again = said(&near.enroll("::docs", &["--name=me@laptop", "--access=both"]));
    assert_eq!(again.lines().count(), 2, "{again}");
    let keys = near.served.path("authorized");
    assert_eq!(fs::read_to_string(&keys).unwrap().lines().count(), 1, "one key, one line");
    let listed = said(&near.peers(&["list"]));
    assert!(
        listed.starts_with("me@laptop ") && listed.ends_with(" read=docs write=docs,photos\n"),
        "{listed}"
    );
    let revoked = said(&near.peers(&["revoke", "me@laptop"]));
    assert!(revoked.starts_with("revoked me@laptop "), "{revoked}");
    near.served.wait_for_metric("volferry_serve_authorized_keys 0");
    near.run_line(line.trim(), ExitCode::Identity);
    refused(&near.peers(&["revoke", "me@laptop"]), ExitCode::Usage, "no peer and no key `me@laptop`");
}

#[test]
fn the_key_lies_in_a_file_of_the_user_alone_and_never_on_a_command_line() {
    let near = Near::new();
    said(&near.enroll("::photos", &["--name=me"]));
    let (host, _) = near.served.address.split_once(':').unwrap();
    let key = near.home.join("volferry/services").join(host).join("key");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o600, 0o700));
    let public = OwnKey::read(&key).unwrap().public().to_string();
    let lines = fs::read_to_string(near.served.path("authorized")).unwrap();
    assert_eq!(lines, format!("ed25519 {public} me write=photos\n"));
}

#[test]
fn a_key_is_renewed_and_the_old_one_is_gone() {
    let mut near = Near::new();
    refused(&near.enroll("::photos", &["--renew"]), ExitCode::Failed, "there is no key to renew");
    let line = said(&near.enroll("::photos", &["--name=me"]));
    let before = fs::read_to_string(near.served.path("authorized")).unwrap();
    said(&near.enroll("::photos", &["--renew"]));
    let after = fs::read_to_string(near.served.path("authorized")).unwrap();
    assert_ne!(before, after);
    assert!(after.ends_with(" me write=photos\n") && after.lines().count() == 1, "{after}");
    let new = near.peers(&["list"]);
    assert!(said(&new).starts_with("me "));
    near.served.restart();
    near.run_line(line.trim(), ExitCode::Done);
}

#[test]
fn a_renewed_key_shows_that_it_works_before_the_old_one_is_revoked() {
    let mut near = Near::new();
    let line = said(&near.enroll("::photos", &["--name=me"]));
    near.served.stop();
    let unproven = near.enroll("::photos", &["--renew", "--connect-timeout=1"]);
    refused(&unproven, ExitCode::Failed, "did not accept the new key, so the old one stays in use");
    let authorized = near.served.path("authorized");
    let keys = || fs::read_to_string(&authorized).unwrap();
    let both = keys();
    assert!(
        both.lines().count() == 2 && both.lines().all(|line| line.ends_with(" me write=photos")),
        "{both}"
    );
    near.served.start();
    near.run_line(line.trim(), ExitCode::Done);
    said(&near.enroll("::photos", &["--renew"]));
    assert_eq!(keys().lines().collect::<Vec<_>>(), [both.lines().nth(1).unwrap()], "the new key alone");
    near.run_line(line.trim(), ExitCode::Done);
}

#[test]
fn without_ssh_the_printed_line_goes_into_the_file_of_keys() {
    let near = Near::new();
    let place = format!("{}::photos", near.served.address);
    let key = format!("--service-key={}", near.served.key);
    let output = said(&near.command(&["enroll", &place, &key, "--name=me"]).output().unwrap());
    let lines: Vec<_> = output.lines().collect();
    near.served.edit_keys(|text| format!("{text}{}\n", lines[1].trim()));
    near.served.wait_for_metric("volferry_serve_authorized_keys 1");
    near.run_line(lines[2], ExitCode::Done);
}

#[test]
fn what_stands_in_the_way_is_named() {
    let near = Near::new();
    let unknown = near.enroll("::music", &["--name=me"]);
    let stderr = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(stderr.contains("the service has no folder `music`: it has docs, photos"), "{stderr}");
    let nowhere = near.served.folder("nowhere");
    let config = format!("--config={}", text(&nowhere.join("serve.toml")));
    let missing = near.enroll("::photos", &["--name=me", &config]);
    assert!(!missing.status.success());
    let place = format!("{}::photos", near.served.address);
    let other = OwnKey::generate().unwrap().public();
    said(&near.command(&["enroll", &place, &format!("--service-key={other}")]).output().unwrap());
    refused(&near.enroll("::photos", &["--name=me"]), ExitCode::Identity, "somebody may be in between");
    let stranger = near.served.folder("stranger");
    let mut command = near.command(&["sync", text(&near.source), &place]);
    let asked = command.env("XDG_CONFIG_HOME", &stranger).output().unwrap();
    refused(&asked, ExitCode::Identity, "hint: `volferry enroll 127.0.0.1`");
}
