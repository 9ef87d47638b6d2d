//! Peers of a `volferry serve` that are silent, curious, or strangers in great number.

use std::{
    io::Write as _,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use contract::{FolderRequest, OwnKey, RunParams, Side};
use syncer::{
    monitor::Monitor,
    session::{self, LinkOptions, SendSession},
};

use super::service::{PHOTOS, link, made, request};
use crate::common::prelude::*;
use crate::common::service::{Served, ServiceUser};

/// Makes a user whose key the service accepts and who does not use this program.
fn other_program(served: &Served, name: &str) -> (ServiceUser, OwnKey) {
    let key = OwnKey::generate().unwrap();
    let user = ServiceUser { name: name.into(), key: key.public(), ..served.stranger(name) };
    served.authorize(&user, "");
    (user, key)
}

#[test]
fn a_peer_that_sends_nothing_loses_its_place_to_the_next() {
    // Longer than the next peer takes to come, also on a busy machine.
    let mut served = Served::prepare(&format!("{PHOTOS}idle-timeout = 4\n"));
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    let (_, key) = other_program(&served, "silent");
    served.start();
    let hold = || {
        let link = link(&served, key.clone(), Side::Source, request(""));
        SendSession::connect(source.as_path(), &link, None, &Monitor::default()).unwrap()
    };
    // Before the first run, and between two runs.
    for runs in [0, 1] {
        let mut silent = hold();
        for _ in 0..runs {
            let outcome = silent.run(&RunParams::default(), &Monitor::default());
            assert_eq!(outcome.report.result, RunResult::Succeeded, "{:?}", outcome.report);
        }
        let mut next = served.start_sync(&user, [text(&source), &served.place("photos")], &[]);
        assert_eq!(next.waiting().peer, "silent");
        next.wait().assert_exit(ExitCode::Done);
        let outcome = silent.run(&RunParams::default(), &Monitor::default());
        assert_eq!(outcome.report.result, RunResult::Failed, "its session goes on: {:?}", outcome.report);
    }
    oracle::assert_copy(&served.path("photos"), &source, "of the next peer");
    let ended = served.stop();
    assert!(ended.stderr.contains("it sent nothing for 4 s"), "{}", ended.stderr);
}

#[test]
fn a_run_that_goes_on_is_not_silent() {
    let slow = format!("{PHOTOS}idle-timeout = 3\nbandwidth-limit = \"400k\"\n");
    let mut served = Served::prepare(&slow);
    let (user, source) = (served.user("laptop"), made(&served, "source", 2_000_000));
    served.start();
    served.sync(&user, [text(&source), &served.place("photos")], &[]).assert_exit(ExitCode::Done);
    oracle::assert_copy(&served.path("photos"), &source, "longer than the limit");
}

#[test]
fn a_folder_that_does_not_exist_and_one_that_is_forbidden_have_one_answer() {
    let mut served = Served::prepare("[folders.secret]\npath = \"secret\"\nwrite = [\"nobody\"]\n");
    let (_, key) = other_program(&served, "curious");
    let source = made(&served, "source", 100);
    served.start();
    let long = "x".repeat(100_000);
    let names = ["secret", "nowhere", "", ".", "..", "../secret", "/", "a/b", "secret\0", "a\nb", &long];
    let answers = names.map(|name| {
        let request = FolderRequest { folder: name.into(), ..request("") };
        let link = link(&served, key.clone(), Side::Source, request);
        let report = session::send(&source, &link, &Default::default(), &Monitor::default()).report;
        assert_eq!(report.reason.as_deref(), Some("NotAllowed"), "{name:.20}: {report:?}");
        report.message.replacen(name, "NAME", usize::from(!name.is_empty()))
    });
    assert!(answers[0].contains("curious") && answers[0].contains("NAME"), "{}", answers[0]);
    assert_eq!(answers[1], answers[0]);
    assert!(!served.path("secret").exists());
    served.stop().assert_exit(ExitCode::Done);
}

#[test]
fn a_flood_of_strangers_does_not_keep_out_a_peer_that_is_known() {
    let mut served = Served::prepare(PHOTOS);
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    served.start();
    let strangers: Vec<_> =
        (0..16).map(|_| link(&served, OwnKey::generate().unwrap(), Side::Source, request(""))).collect();
    let (is_over, source) = (AtomicBool::new(false), &source);
    thread::scope(|scope| {
        let flood = |link: &LinkOptions| {
            let mut refused = 0;
            while !is_over.load(SeqCst) {
                let report = session::send(source, link, &Default::default(), &Monitor::default()).report;
                assert_eq!(report.result, RunResult::Failed, "{report:?}");
                refused += usize::from(report.reason.as_deref() == Some("KeyNotAccepted"));
            }
            refused
        };
        let strangers: Vec<_> = strangers.iter().map(|link| scope.spawn(move || flood(link))).collect();
        for round in 0..5 {
            let place = served.place(&format!("photos/{round}"));
            served.sync(&user, [text(source), &place], &["--connect-timeout=60"]).assert_exit(ExitCode::Done);
        }
        is_over.store(true, SeqCst);
        let refused: usize = strangers.into_iter().map(|stranger| stranger.join().unwrap()).sum();
        assert!(refused > 16, "the strangers hardly came: {refused}");
    });
    oracle::assert_copy(&served.path("photos/4"), source, "of the known peer");
}

#[test]
fn files_that_every_user_may_write_to_decide_nothing() {
    let whole = |served: &Served, name: &str| match name {
        "" => served.path("serve.toml").parent().unwrap().to_owned(),
        name => served.path(name),
    };
    for (name, mode, what) in [
        ("serve.toml", 0o666, "every user may write to it"),
        ("authorized", 0o666, "every user may write to it"),
        ("", 0o777, "every user may replace it"),
    ] {
        let served = Served::prepare(PHOTOS);
        let path = whole(&served, name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = std::process::Command::new(program());
        command.arg("serve").arg(served.path("serve.toml")).arg("--check");
        let ended = Running::start(command).wait();
        assert_eq!(ended.exit, Some(ExitCode::Usage), "{}", ended.stderr);
        let expected = format!("{what}\nhint: run `chmod o-w {}`", text(&path));
        assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    }
}

#[test]
fn a_folder_that_is_open_to_all_and_mounted_read_only_is_as_kubernetes_has_it() {
    let Some(()) = scratch::needs_root() else { return };
    let served = Served::prepare(PHOTOS);
    let folder = served.path("serve.toml").parent().unwrap().to_owned();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let place = scratch::scratch();
    let at = scratch::dir(place.path(), "config");
    let _mount = Mount::bind(&folder, &at);
    let check = || {
        let mut command = std::process::Command::new(program());
        command.arg("serve").arg(at.join("serve.toml")).arg("--check");
        Running::start(command).wait().exit
    };
    assert_eq!(check(), Some(ExitCode::Usage));
    let mount = std::process::Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&at).status();
    assert!(mount.unwrap().success());
    assert_eq!(check(), Some(ExitCode::Done));
}

#[test]
fn a_client_that_sends_its_request_byte_by_byte_keeps_no_other_from_the_metrics() {
    let mut served = Served::prepare(PHOTOS);
    served.start();
    let (is_over, mut slow) = (AtomicBool::new(false), TcpStream::connect(served.metrics).unwrap());
    slow.write_all(b"G").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Ends when the service closes the connection.
            while !is_over.load(SeqCst) && slow.write_all(b"G").is_ok() {
                thread::sleep(Duration::from_millis(200));
            }
        });
        served.wait_for_metric("volferry_serve_authorized_keys 0");
        is_over.store(true, SeqCst);
    });
}
