//! `volferry enroll` and `volferry peers`: a user becomes known to a service over a real sshd, and is revoked.

use std::process::Output;

use contract::OwnKey;

use crate::common::prelude::*;
use crate::common::service::Served;

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
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
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
    let unproven = near.enroll("::photos", &["--renew", "--connect-timeout=6"]);
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
fn a_name_that_only_ssh_knows_leads_to_the_service_too() {
    let near = Near::new();
    let port = near.served.address.rsplit_once(':').unwrap().1;
    let remote = format!("--remote-program={}", program().display());
    let config = format!("--config={}", text(&near.served.path("serve.toml")));
    let place = format!("far:{port}::photos");
    let line = said(&near.command(&["enroll", &place, &near.sshd.rsh(), &remote, &config]).output().unwrap());
    assert_eq!(line, format!("volferry sync SRC {place}\n"));
    near.served.wait_for_metric("volferry_serve_authorized_keys 1");
    near.run_line(line.trim(), ExitCode::Done);
    oracle::assert_copy(&near.served.path("photos"), &near.source, "by the name in ssh's settings");
}

#[test]
fn what_the_service_refuses_is_told_once_with_its_exit_code() {
    let near = Near::new();
    let enroll = near.enroll("::nosuch", &["--name=me"]);
    refused(&enroll, ExitCode::Usage, "the service has no folder `nosuch`");
    let stderr = String::from_utf8_lossy(&enroll.stderr);
    assert_eq!(stderr.matches("error: ").count(), 1, "{stderr}");
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
fn a_machine_that_does_not_answer_over_ssh_is_given_up_and_nothing_of_it_is_noted() {
    let near = Near::new();
    let silent = near.sshd.script("silent", "exec sleep 600");
    let place = format!("{}::photos", near.served.address);
    let rsh = format!("--rsh={silent}");
    let enroll = near.command(&["enroll", &place, &rsh, "--connect-timeout=1"]).output().unwrap();
    refused(&enroll, ExitCode::PeerLost, "127.0.0.1 did not answer over ssh within 1 s");
    let (host, port) = near.served.address.split_once(':').unwrap();
    assert!(!near.home.join("volferry/services").join(host).join(format!("{port}.pub")).exists());
}

#[test]
fn keys_and_their_folders_are_for_their_owners_alone() {
    let near = Near::new();
    let (host, _) = near.served.address.split_once(':').unwrap();
    let services = near.home.join("volferry/services");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::create_dir_all(services.join(host)).unwrap();
    fs::set_permissions(&services, fs::Permissions::from_mode(0o755)).unwrap();
    let enrolled = near.enroll("::photos", &["--name=me"]);
    let line = said(&enrolled);
    let told = String::from_utf8_lossy(&enrolled.stderr).into_owned();
    assert!(told.contains("services had mode 755: now only its owner may use it"), "{told}");
    assert_eq!((mode(&services), mode(&services.join(host))), (0o700, 0o700));
    fs::set_permissions(services.join(host), fs::Permissions::from_mode(0o733)).unwrap();
    let hint = "hint: run `chmod go-rwx ";
    refused(&near.enroll("::photos", &["--name=me"]), ExitCode::Failed, hint);
    let [_, _, source, place] = line.trim().split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert_eq!(source, "SRC");
    let sync = near.command(&["sync", text(&near.source), place]).output().unwrap();
    refused(&sync, ExitCode::Identity, hint);
    assert!(!near.served.path("photos").exists());
}

#[test]
fn a_key_that_root_makes_for_a_service_of_another_user_belongs_to_that_user() {
    let served = Served::prepare(FOLDERS);
    let key = served.path("service.key");
    fs::remove_file(&key).unwrap();
    let folder = key.parent().unwrap();
    scratch::give_to_nobody(folder);
    let user = OwnKey::generate().unwrap().public().to_string();
    let config = format!("--config={}", text(&served.path("serve.toml")));
    let added =
        Command::new(program()).args(["peers", "add", &user, "me", "--json", &config]).output().unwrap();
    let answer = said(&added);
    let found = fs::metadata(&key).unwrap();
    assert_eq!((found.uid(), found.permissions().mode() & 0o777), (User::Nobody.id(), 0o600));
    assert!(answer.contains(&OwnKey::read(&key).unwrap().public().to_string()), "{answer}");
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{names:?}");
}

#[test]
fn no_key_is_written_to_a_volumes_own_folder() {
    let served = Served::prepare(FOLDERS);
    let own = served.folder(".volferry");
    let key = OwnKey::generate().unwrap().public().to_string();
    let service_key = format!("--service-key={key}");
    let mut command = Command::new(program());
    command.env("XDG_CONFIG_HOME", own.join("config")).args(["enroll", "nas::photos", &service_key]);
    refused(
        &command.output().unwrap(),
        ExitCode::Failed,
        "is in a folder .volferry, which is a volume's own",
    );
    served.configure(&format!("identity = \"{}\"\n{FOLDERS}", text(&own.join("service.key"))));
    let config = format!("--config={}", text(&served.path("serve.toml")));
    let add = Command::new(program()).args(["peers", "add", &key, "me", &config]).output().unwrap();
    refused(&add, ExitCode::Failed, "is in a folder .volferry, which is a volume's own");
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
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
