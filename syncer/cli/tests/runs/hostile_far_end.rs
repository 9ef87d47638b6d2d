//! A far end or a service that a user gets files from, and that asks for another run than the user did: what the user
//! asked for holds.

use std::sync::Arc;

use contract::{OwnKey, RunParams};
use syncer::{
    monitor::Monitor,
    session::{Guests, LinkMode, Service, Sockets},
};

use crate::common::prelude::*;

/// The content of the user's own files, of which the source has none, and of the one file that it has.
const OWN: &str = "of the user";
const SENT: &str = "sent";

/// Runs of a user: what the flags are, and the user's own files that stay.
const ASKED: [(&[&str], &[&str]); 4] = [
    (&[], &["own", "private/own", "sent.old"]),
    (&["--exclude=private", "--delete", "--adopt", "--delete-limit=100"], &["private/own"]),
    (&["--delete", "--adopt", "--delete-limit=10"], &["own", "private/own", "sent.old"]),
    (&["--include=/sent", "--delete", "--adopt", "--delete-limit=100"], &["own", "private/own", "sent.old"]),
];

/// Puts a far end's own flags in the place of the flags that it was asked for.
const REPLACE: &str = r#"s/"args":\[[^]]*\]/"args":["send","--delete","--adopt","--force","--link=udp"]/"#;

fn folders() -> Pair {
    let pair = Pair::new(Way::Local);
    tree::files(&pair.source, &["sent"], SENT);
    tree::files(&pair.destination, &["own", "private/own", "sent.old"], OWN);
    pair
}

#[track_caller]
fn assert_own(ended: &Ended, pair: &Pair, (flags, stay): (&[&str], &[&str])) {
    for name in stay {
        let own = fs::read_to_string(pair.destination.join(name)).ok();
        assert_eq!(own.as_deref(), Some(OWN), "{name} with {flags:?}: {}", ended.stderr);
    }
    let is_refused = flags.contains(&"--delete-limit=10");
    ended.assert_exit(if is_refused { ExitCode::Guard } else { ExitCode::Done });
    assert_eq!(pair.destination.join("sent").exists(), !is_refused, "with {flags:?}");
}

/// Serves one peer that reads with a run that deletes all that it can.
fn serve_hostile(source: &Path, service: &mut Service) {
    let visit = service.next(&Monitor::default()).unwrap().visit;
    let params = RunParams {
        delete: true,
        adopt: true,
        force: true,
        exclude: vec!["!private".into()],
        ..RunParams::default()
    };
    let monitor = Arc::new(Monitor::default());
    visit.send(source.into(), &params, Duration::from_secs(60), &monitor);
}

/// Runs `volferry sync` from a service that asks for another run.
fn get(pair: &Pair, flags: &[&str]) -> Ended {
    let (dir, keys) = (scratch::scratch(), [(); 2].map(|()| OwnKey::generate().unwrap()));
    keys[1].write(&dir.path().join("key")).unwrap();
    let guests = Guests::default();
    guests.replace([keys[1].public().fingerprint()]);
    let sockets = Sockets::bind("127.0.0.1:0".parse().unwrap(), LinkMode::Auto).unwrap();
    let address = sockets.address();
    let mut service = Service::listen(sockets, &keys[..1], &guests).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| serve_hostile(&pair.source, &mut service));
        let mut command = std::process::Command::new(program());
        command.args(["sync", "--progress=json", "--service-key", &keys[0].public().to_string()]);
        command.arg("--identity").arg(dir.path().join("key"));
        command.args([&format!("{address}::music"), text(&pair.destination)]).args(flags);
        Running::start(command).wait()
    })
}

#[test]
fn a_service_that_a_user_reads_decides_nothing_about_the_users_own_files() {
    for asked in ASKED {
        let pair = folders();
        let ended = get(&pair, asked.0);
        assert_own(&ended, &pair, asked);
    }
}

#[test]
fn a_dry_run_from_a_service_is_shown_and_changes_nothing() {
    let pair = folders();
    let ended = get(&pair, &["-n"]);
    ended.assert_exit(ExitCode::Done);
    let sent = |event: &Event| matches!(event, Event::Planned(action) if action.path == "sent");
    assert!(ended.events.iter().any(sent), "{:?}", ended.events);
    assert!(!pair.destination.join("sent").exists());
}

#[test]
fn a_far_end_that_ssh_started_decides_nothing_about_the_users_own_files() {
    for asked in ASKED {
        let pair = folders();
        let evil = pair.dir().join("evil");
        let script = format!(
            "#!/bin/sh\nread -r protocol length\nword=$(dd bs=1 count=$length 2>/dev/null | sed '{REPLACE}')\n\
             {{ printf '%s %s\\n%s' \"$protocol\" ${{#word}} \"$word\"; exec cat; }} | {} \"$@\"\n",
            program().display()
        );
        fs::write(&evil, script).unwrap();
        fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = std::process::Command::new(program());
        command.args(["sync", "--progress=json", "--link=ssh", "--rsh", "sh -c 'exec sh -c \"$1\"'"]);
        command.arg(format!("--remote-program={}", evil.display()));
        command.arg(format!("far:{}", text(&pair.source))).arg(&pair.destination).args(asked.0);
        let ended = Running::start(command).wait();
        assert_own(&ended, &pair, asked);
    }
}
