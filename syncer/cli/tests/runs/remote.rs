//! `volferry sync` with another machine, over a real sshd.

use std::{fs, net::TcpListener, path::Path, thread};

use contract::{Event, ExitCode, LinkKind, Report};

use crate::common::{
    oracle,
    pair::{Pair, Way, text},
    process::{Ended, Running, program},
    sshd::{Namespace, Sshd, command_in},
    tree::{self, Shape},
};

/// The direction of a run, as the near end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Push,
    Pull,
}

use Direction::{Pull, Push};

/// A source and a destination, one of which is reached by ssh.
pub(crate) struct Far {
    pub(crate) sshd: Sshd,
    pub(crate) pair: Pair,
}

impl Far {
    pub(crate) fn new() -> Self {
        Self::at(Sshd::start())
    }

    pub(crate) fn at(sshd: Sshd) -> Self {
        Self { sshd, pair: Pair::new(Way::Local) }
    }

    /// Starts a run with the program at the far end, and flags.
    pub(crate) fn start(&self, direction: Direction, flags: &[&str]) -> Running {
        let remote = format!("--remote-program={}", program().display());
        self.start_bare(direction, &[&[self.sshd.rsh().as_str(), &remote], flags].concat())
    }

    /// Starts a run with these flags only.
    pub(crate) fn start_bare(&self, direction: Direction, flags: &[&str]) -> Running {
        let (source, destination) = (text(&self.pair.source), text(&self.pair.destination));
        let ends = match direction {
            Push => [source.to_owned(), format!("far:{destination}")],
            Pull => [format!("far:{source}"), destination.to_owned()],
        };
        let mut command = self.sshd.command(&program());
        command.args(["sync", "--progress=json"]).args(ends).args(flags);
        Running::start(command)
    }

    #[track_caller]
    pub(crate) fn run(&self, direction: Direction, flags: &[&str]) -> Ended {
        self.start(direction, flags).wait()
    }

    /// Runs once with success; returns the report.
    #[track_caller]
    pub(crate) fn sync(&self, direction: Direction, flags: &[&str]) -> Report {
        let ended = self.run(direction, flags);
        ended.assert_exit(ExitCode::Done);
        ended.report().clone()
    }
}

fn kind(report: &Report) -> LinkKind {
    report.link.expect("the report names no link").kind
}

#[test]
fn ssh_uses_the_cipher_of_the_processor_unless_its_settings_name_one() {
    let has_aes = fs::read_to_string("/proc/cpuinfo").unwrap().contains(" aes ");
    let preferred = if has_aes { "aes128-gcm@openssh.com" } else { "chacha20-poly1305@openssh.com" };
    for (flags, cipher) in [("-v", preferred), ("-v -c aes256-ctr", "aes256-ctr")] {
        let far = Far::new();
        let remote = format!("--remote-program={}", program().display());
        let ended = far.start_bare(Push, &[&far.sshd.rsh_with(flags), &remote, "--link=ssh"]).wait();
        ended.assert_exit(ExitCode::Done);
        let expected = format!("client->server cipher: {cipher}");
        assert!(ended.stderr.contains(&expected), "{flags}: {}", ended.stderr);
    }
}

#[test]
fn a_tree_goes_to_another_machine_and_back_over_each_kind_of_link() {
    let links =
        [(&[][..], LinkKind::Udp), (&["--link=ssh"], LinkKind::Ssh), (&["--link=tcp"], LinkKind::Tcp)];
    let far = Far::new();
    tree::gallery(&far.pair.source, Shape::Everything);
    tree::file(&far.pair.source.join("large"), &vec![7; 9 << 20]);
    for direction in [Push, Pull] {
        for (flags, expected) in links {
            fs::remove_dir_all(&far.pair.destination).unwrap();
            let first = far.sync(direction, flags);
            assert_eq!(kind(&first), expected, "{direction:?}");
            far.pair.assert_copy(&format!("{direction:?} {expected:?}"));
            let again = far.sync(direction, &[flags, &["--delete"]].concat());
            assert_eq!(again.work.changed(), 0, "{direction:?} {expected:?}");
        }
    }
}

#[test]
fn a_run_goes_over_ssh_where_udp_is_blocked_and_needs_no_other_port() {
    let far = Far::at(Sshd::start_in(Some(Namespace::without("udp"))));
    tree::gallery(&far.pair.source, Shape::Everything);
    for direction in [Push, Pull] {
        let report = far.sync(direction, &["--delete"]);
        assert_eq!(kind(&report), LinkKind::Ssh, "{direction:?}");
    }
    far.pair.assert_copy("over ssh");
}

#[test]
fn a_listener_is_met_over_tcp_where_udp_is_blocked_and_over_udp_where_tcp_is() {
    for (blocked, expected) in [("udp", LinkKind::Tcp), ("tcp", LinkKind::Udp)] {
        let namespace = Namespace::without(blocked);
        let pair = Pair::new(Way::SinkListens);
        tree::gallery(&pair.source, Shape::Everything);
        let start = |args: &[&str]| {
            let mut command = command_in(Some(&namespace), program().as_os_str());
            command.args(args).arg("--progress=json");
            Running::start(command)
        };
        let keys = [pair.key("source"), pair.key("sink")];
        let mut sink = start(&[
            "receive",
            text(&pair.destination),
            "--identity",
            text(&keys[1]),
            "--once",
            "--listen=127.0.0.1:0",
        ]);
        let address = sink.listening().to_string();
        let source =
            start(&["send", text(&pair.source), "--identity", text(&keys[0]), "--connect", &address]).wait();
        source.assert_exit(ExitCode::Done);
        assert_eq!(kind(source.report()), expected);
        sink.wait().assert_exit(ExitCode::Done);
        pair.assert_copy(blocked);
    }
}

#[test]
fn a_far_end_without_the_program_is_said_with_the_flag_that_brings_it() {
    let far = Far::new();
    for direction in [Push, Pull] {
        let ended = far.start_bare(direction, &[&far.sshd.rsh()]).wait();
        ended.assert_exit(ExitCode::Failed);
        assert_eq!(ended.reason(), "NoRemoteProgram");
        assert!(ended.report().message.contains("far has no program `volferry`"), "{}", ended.stderr);
        assert!(ended.stderr.contains("hint: ") && ended.stderr.contains("--bootstrap"), "{}", ended.stderr);
    }
}

#[test]
fn a_far_end_of_another_version_is_said() {
    let far = Far::new();
    let other = far.sshd.script("other", "echo 'volferry/1 0'");
    let older = far.sshd.script("older", "echo \"error: unrecognized subcommand 'remote'\" >&2; exit 2");
    for program in [other, older] {
        let ended = far.start_bare(Push, &[&far.sshd.rsh(), &format!("--remote-program={program}")]).wait();
        ended.assert_exit(ExitCode::Failed);
        assert_eq!(ended.reason(), "OtherProtocol", "{}", ended.stderr);
        assert!(ended.stderr.contains("hint: run the same version"), "{}", ended.stderr);
    }
}

#[test]
fn errors_of_ssh_are_passed_on_with_a_hint() {
    let far = Far::new();
    let nobody = far.start_bare(Push, &[&far.sshd.rsh_with("-o PubkeyAuthentication=no")]).wait();
    nobody.assert_exit(ExitCode::PeerLost);
    assert_eq!(nobody.reason(), "SshFailed");
    assert!(nobody.stderr.contains("Permission denied") && nobody.stderr.contains("hint: "));
    far.sshd.expect_another_key();
    let wrong = far.start_bare(Pull, &[&far.sshd.rsh()]).wait();
    wrong.assert_exit(ExitCode::Identity);
    assert_eq!(wrong.reason(), "HostKeyRefused");
    assert!(wrong.stderr.contains("Host key verification failed"), "{}", wrong.stderr);
    assert!(wrong.report().message.contains("it is another one than the last time"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("`ssh-keygen -R far`"), "{}", wrong.stderr);
    let unknown = far.start_bare(Pull, &[&far.sshd.rsh_with("-o UserKnownHostsFile=/dev/null")]).wait();
    unknown.assert_exit(ExitCode::Identity);
    assert!(unknown.report().message.contains("the key of far: it is not known here"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("hint: `ssh far` once by hand"), "{}", unknown.stderr);
}

#[test]
fn a_command_that_is_not_on_this_machine_is_not_taken_for_a_program_of_the_other() {
    let far = Far::new();
    for rsh in ["/nonexistent/ssh", "nosuchssh -p 22"] {
        let missing = far.start_bare(Push, &[&format!("--rsh={rsh}")]).wait();
        assert_eq!(missing.reason(), "RemoteShellMissing", "{}", missing.stderr);
        assert!(missing.report().message.starts_with("cannot start `"), "{}", missing.stderr);
        assert!(missing.stderr.contains("hint: "), "{}", missing.stderr);
    }
}

#[test]
fn what_the_far_end_says_of_its_paths_begins_with_its_name() {
    let far = Far::new();
    fs::remove_dir_all(&far.pair.source).unwrap();
    let missing = far.start(Pull, &[]).wait();
    missing.assert_exit(ExitCode::Failed);
    let message = &missing.report().message;
    assert!(message.starts_with("far: ") && message.contains(" is not there"), "{message}");
}

/// The list of paths is more than fits into the pipe to ssh, which reads none of it before it is connected.
#[test]
fn a_machine_that_accepts_connections_and_says_nothing_is_given_up_after_the_connect_timeout() {
    let far = Far::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let list = far.pair.dir().join("list");
    fs::write(&list, "path\n".repeat(100_000)).unwrap();
    let rsh = far.sshd.rsh_with(&format!("-p {}", silent.local_addr().unwrap().port()));
    for direction in [Push, Pull] {
        let flags = [rsh.as_str(), "--connect-timeout=1", "--files-from", text(&list)];
        let ended = far.start_bare(direction, &flags).wait();
        ended.assert_exit(ExitCode::PeerLost);
        assert_eq!(ended.reason(), "SshFailed");
        assert!(
            ended.report().message.contains("far did not answer over ssh within 1 s"),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
    }
}

/// What the shell starts is not ended with it, and keeps its output open.
#[test]
fn a_script_in_the_place_of_ssh_that_waits_for_another_program_is_given_up_too() {
    let far = Far::new();
    for direction in [Push, Pull] {
        let ended =
            far.start_bare(direction, &["--rsh=sh -c 'sleep 30; true'", "--connect-timeout=1"]).wait();
        ended.assert_exit(ExitCode::PeerLost);
        assert!(
            ended.stderr.contains("did not answer") && ended.stderr.contains(" within 1 s"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_run_that_may_only_use_a_blocked_way_says_so_after_the_connect_timeout() {
    for blocked in ["udp", "tcp"] {
        let (namespace, pair) = (Namespace::without(blocked), Pair::new(Way::Local));
        // The way of the command is open, and its other end can be told from its variable, as with sshd.
        let rsh = "sh -c 'export SSH_CONNECTION=\"127.0.0.1 1 127.0.0.1 22\"; exec sh -c \"$1\"'";
        let (source, destination) = (text(&pair.source), text(&pair.destination));
        let ends = [
            [source.to_owned(), format!("far:{destination}")],
            [format!("far:{source}"), destination.to_owned()],
        ];
        for ends in ends {
            let mut command = command_in(Some(&namespace), program().as_os_str());
            command.args(["sync", "--progress=json", "--connect-timeout=1", "--rsh", rsh]).args(ends);
            command.arg(format!("--link={blocked}")).arg(format!("--remote-program={}", program().display()));
            let ended = Running::start(command).wait();
            ended.assert_exit(ExitCode::PeerLost);
            assert!(ended.report().message.contains("no answer from 127.0.0.1:"), "{}", ended.stderr);
            assert!(ended.stderr.contains("hint: ") && ended.stderr.contains("--link"), "{}", ended.stderr);
        }
    }
}

#[test]
fn a_far_end_whose_shell_prints_a_greeting_is_understood() {
    let far = Far::new();
    tree::file(&far.pair.source.join("file"), b"content");
    let chatty =
        far.sshd.script("chatty", &format!("echo Welcome; echo; exec {} \"$@\"", program().display()));
    let flags = [far.sshd.rsh(), format!("--remote-program={chatty}"), "--link=ssh".into()];
    far.start_bare(Push, &flags.each_ref().map(String::as_str)).wait().assert_exit(ExitCode::Done);
    far.pair.assert_copy("after a greeting");
}

#[test]
fn compression_can_be_chosen_for_a_run_with_another_machine() {
    for direction in [Push, Pull] {
        let far = Far::new();
        tree::file(&far.pair.source.join("file"), &b"words ".repeat(200_000));
        let plain = far.sync(direction, &["--compression=none"]).work.bytes_on_wire;
        fs::remove_dir_all(&far.pair.destination).unwrap();
        let packed = far.sync(direction, &["--compression=3"]).work.bytes_on_wire;
        assert!(packed * 4 < plain, "{direction:?}: {packed} of {plain}");
    }
}

#[test]
fn a_list_of_paths_is_read_at_the_near_end_and_limits_the_far_one() {
    for direction in [Push, Pull] {
        let far = Far::new();
        fs::create_dir(far.pair.source.join("b")).unwrap();
        ["a", "b/c", "b/d"].iter().for_each(|name| tree::file(&far.pair.source.join(name), name.as_bytes()));
        let list = far.pair.dir().join("list");
        fs::write(&list, "a\nb/c\n").unwrap();
        far.sync(direction, &[&format!("--files-from={}", list.display())]);
        assert!(far.pair.destination.join("a").exists() && far.pair.destination.join("b/c").exists());
        assert!(!far.pair.destination.join("b/d").exists());
    }
}

#[test]
fn rules_changes_of_permissions_and_moves_reach_a_far_source_and_a_far_destination() {
    for direction in [Push, Pull] {
        let far = Far::new();
        fs::create_dir(far.pair.source.join("sub")).unwrap();
        tree::file(&far.pair.source.join("sub/.rules"), b"- *.tmp\n");
        tree::file(&far.pair.source.join("sub/a.tmp"), b"stays");
        tree::file(&far.pair.source.join("b"), b"moves");
        let list = far.pair.dir().join("list");
        fs::write(&list, ": .rules\n").unwrap();
        let from = format!("--filter-from={}", list.display());
        let flags = [from.as_str(), "--chmod=F600", "--remove-source-files", "--size-only"];
        far.sync(direction, &[&flags[..], &["--dry-run"]].concat());
        assert!(
            far.pair.source.join("b").exists() && !far.pair.destination.join("b").exists(),
            "{direction:?}"
        );
        far.sync(direction, &flags);
        let names = |root: &Path| oracle::Snapshot::of(root).paths();
        assert_eq!(names(&far.pair.source), ["sub", "sub/a.tmp"], "{direction:?}");
        assert_eq!(names(&far.pair.destination), ["b", "sub", "sub/.rules"], "{direction:?}");
        let there = oracle::Snapshot::of(&far.pair.destination);
        assert_eq!(there.at(b"b").unwrap().mode, 0o600, "{direction:?}");
    }
}

#[test]
fn changes_are_shown_at_the_near_end_and_a_dry_run_makes_none() {
    for direction in [Push, Pull] {
        let far = Far::new();
        tree::file(&far.pair.source.join("file"), b"content");
        let planned = |ended: &Ended| {
            let planned = |event: &&Event| matches!(event, Event::Planned(action) if action.path == "file");
            ended.events.iter().filter(planned).count()
        };
        let dry = far.run(direction, &["--dry-run"]);
        dry.assert_exit(ExitCode::Done);
        assert!(dry.report().dry_run && planned(&dry) == 1, "{direction:?}: {:?}", dry.events);
        assert!(!far.pair.destination.join("file").exists());
        let real = far.run(direction, &["-v"]);
        real.assert_exit(ExitCode::Done);
        assert_eq!(planned(&real), 1, "{direction:?}: {:?}", real.events);
        assert!(real.stderr.contains("link: quic/"), "{}", real.stderr);
    }
}

#[test]
fn a_snapshot_of_the_far_end_is_copied_and_one_is_taken_there() {
    let far = Far::new();
    tree::file(&far.pair.source.join("file"), b"old");
    let taken = far.sync(Push, &["--snapshot", "--snapshot-tag=v1"]);
    assert!(taken.snapshot.is_some_and(|snapshot| snapshot.reason.is_none()));
    tree::file(&far.pair.source.join("file"), b"newer");
    far.sync(Push, &[]);
    let back = far.pair.dir().join("back");
    let there = format!("far:{}", far.pair.destination.display());
    let mut command = far.sshd.command(&program());
    command.args(["sync", "--progress=json", "--source-snapshot=v1", &far.sshd.rsh()]);
    command.arg(format!("--remote-program={}", program().display())).arg(there).arg(&back);
    Running::start(command).wait().assert_exit(ExitCode::Done);
    assert_eq!(fs::read(back.join("file")).unwrap(), b"old");
}

#[test]
fn images_and_single_files_cross_too() {
    let far = Far::new();
    let (image, file) = (far.pair.source.join("disk.img"), far.pair.source.join("notes"));
    tree::file(&image, &[7; 300_000]);
    tree::file(&file, b"text");
    let remote = format!("--remote-program={}", program().display());
    for (from, to, flags) in [(&image, "disk.img", &["--image"][..]), (&file, "", &[])] {
        let to = far.pair.destination.join(to);
        let mut command = far.sshd.command(&program());
        command.args(["sync", "--progress=json", &far.sshd.rsh(), &remote]).args(flags);
        command.arg(from).arg(format!("far:{}/", to.display()).replace("disk.img/", "disk.img"));
        Running::start(command).wait().assert_exit(ExitCode::Done);
    }
    assert_eq!(fs::read(far.pair.destination.join("disk.img")).unwrap(), [7; 300_000]);
    assert_eq!(fs::read(far.pair.destination.join("notes")).unwrap(), b"text");
}

#[test]
fn two_runs_at_once_do_not_meet_each_others_ends() {
    let far = Far::new();
    tree::gallery(&far.pair.source, Shape::Everything);
    let folders = ["one", "two"].map(|name| far.pair.dir().join(name));
    let start = |to: &Path| {
        let mut command = far.sshd.command(&program());
        command.args(["sync", "--progress=json", &far.sshd.rsh()]);
        command.arg(format!("--remote-program={}", program().display()));
        command.arg(&far.pair.source).arg(format!("far:{}", to.display()));
        Running::start(command)
    };
    let running = folders.each_ref().map(|to| start(to));
    thread::scope(|scope| {
        for running in running {
            scope.spawn(|| running.wait().assert_exit(ExitCode::Done));
        }
    });
    folders.iter().for_each(|to| oracle::assert_copy(to, &far.pair.source, "two at once"));
}

#[test]
fn the_program_is_copied_to_a_far_end_once_and_again_if_the_copy_was_changed() {
    let far = Far::new();
    tree::file(&far.pair.source.join("file"), b"content");
    let run = |direction| {
        let ended = far.start_bare(direction, &[&far.sshd.rsh(), "--bootstrap"]).wait();
        ended.assert_exit(ExitCode::Done);
        let copies: Vec<_> =
            fs::read_dir(far.sshd.cache()).unwrap().map(|copy| copy.unwrap().path()).collect();
        let [copy] = copies.as_slice() else { panic!("{copies:?}") };
        copy.clone()
    };
    let copy = run(Push);
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let first = inode(&copy);
    assert_eq!(inode(&run(Pull)), first, "it was there");
    fs::write(&copy, "#!/bin/sh\necho stolen").unwrap();
    run(Push);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(program()).unwrap());
    far.pair.assert_copy("by a copied program");
}

#[test]
fn a_place_that_could_be_a_flag_of_ssh_reaches_no_shell() {
    let far = Far::new();
    let ended = far.pair.output(&["sync", "--", "-oProxyCommand=id:/x", text(&far.pair.destination)]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("begins with a dash"));
}
