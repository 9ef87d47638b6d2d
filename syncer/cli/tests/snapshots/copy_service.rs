//! Snapshots that are copied to and from a folder of a service: its rights, its owner's demands and its queue hold for
//! them as for runs.

use std::process::Stdio;

use crate::common::prelude::*;
use crate::{
    common::service::{Served, ServiceUser},
    copy::digests,
    volume::{Said, Volume},
};

const PHOTOS: &str =
    "[folders.photos]\npath = \"photos\"\nread = [\"*\"]\nwrite = [\"*\"]\nhistory = \"all\"\n";

/// The identity and guard codes of a process that failed.
const IDENTITY: Option<i32> = Some(ExitCode::Identity as i32);
const GUARD: Option<i32> = Some(ExitCode::Guard as i32);

fn command(served: &Served, user: &ServiceUser, [from, to]: [&str; 2], args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["snapshot", "copy", from, to, "--service-key", &served.key.to_string()]);
    command.arg("--identity").arg(user.home.join("key")).args(args);
    command
}

fn copy(served: &Served, user: &ServiceUser, ends: [&str; 2], args: &[&str]) -> Said {
    command(served, user, ends, args).output().unwrap().into()
}

/// Makes a volume with two snapshots, of which the second has a large file that changed little.
fn with_two() -> Volume {
    let (volume, mut rng) = (Volume::new(), Rng::new(9));
    tree::many(volume.path(), 30, 300);
    let mut large = rng.bytes(3 << 20);
    fs::write(volume.path().join("large"), &large).unwrap();
    volume.create(&["--tag", "first", "--note", "a note"]);
    large[2_000_000] ^= 1;
    fs::write(volume.path().join("large"), &large).unwrap();
    volume.create(&["--pin"]);
    volume
}

#[test]
fn snapshots_go_into_a_folder_of_a_service_and_come_back() {
    let mut served = Served::prepare(PHOTOS);
    let user = served.user("laptop");
    let (here, back) = (with_two(), Volume::new());
    served.start();
    let place = served.place("photos");
    let said = copy(&served, &user, [text(here.path()), &place], &["--all", "--json"]).exits(0).json();
    assert_eq!(said["copied"].as_array().unwrap().len(), 2, "{said}");
    let there = Volume::at(served.path("photos"));
    assert_eq!(digests(&there), digests(&here));
    there.ok("verify", &["--no-heal"]);
    assert_eq!(there.list()[0]["note"], "a note");
    assert!(there.ok("log", &[]).contains("laptop"), "the log names the peer");
    let said = copy(&served, &user, [text(here.path()), &place], &["--all", "--json"]).exits(0).json();
    assert_eq!((said["present"].as_array().unwrap().len(), said["bytes"].as_u64()), (2, Some(0)));
    let said = copy(&served, &user, [&place, text(back.path())], &["--all"]);
    assert_eq!((said.code, said.stdout.lines().count()), (Some(0), 2), "{said:?}");
    assert_eq!(digests(&back), digests(&here));
    back.ok("verify", &["--no-heal"]);
    let runs = |direction: &str, runs: u32| {
        let labels = format!("folder=\"photos\",direction=\"{direction}\",result=\"succeeded\"");
        format!("volferry_serve_runs_total{{{labels}}} {runs}")
    };
    served.wait_for_metric(&runs("write", 2));
    served.wait_for_metric(&runs("read", 1));
    served.stop().assert_exit(ExitCode::Done);
}

#[test]
fn a_path_below_a_folder_has_a_history_of_its_own() {
    let mut served = Served::prepare(PHOTOS);
    let (user, here) = (served.user("laptop"), with_two());
    served.folder("photos");
    served.start();
    let place = served.place("photos/own");
    copy(&served, &user, [text(here.path()), &place], &["first", "--json"]).exits(0);
    assert_eq!(Volume::at(served.path("photos/own")).list().len(), 1);
    assert!(!served.path("photos/.volferry").exists());
}

#[test]
fn who_may_only_read_copies_nothing_in_and_who_may_only_write_nothing_out() {
    let mut served = Served::prepare(
        "[folders.photos]\npath = \"photos\"\nread = [\"reader\"]\nwrite = [\"writer\"]\nhistory = \"all\"\n",
    );
    let [reader, writer] = ["reader", "writer"].map(|name| served.user(name));
    let (here, back) = (with_two(), Volume::new());
    served.start();
    let place = served.place("photos");
    let push =
        |served: &Served, user: &ServiceUser| copy(served, user, [text(here.path()), &place], &["--all"]);
    let pull =
        |served: &Served, user: &ServiceUser| copy(served, user, [&place, text(back.path())], &["--all"]);
    let refused = push(&served, &reader);
    assert_eq!(refused.code, IDENTITY, "{refused:?}");
    assert!(refused.stderr.contains("may not write to a folder `photos` here"), "{refused:?}");
    assert!(!served.path("photos").exists());
    let none = pull(&served, &reader);
    assert_eq!(none.code, Some(1), "the folder has no snapshots: {none:?}");
    assert_eq!(push(&served, &writer).code, Some(0));
    let refused = pull(&served, &writer);
    assert_eq!(refused.code, IDENTITY, "{refused:?}");
    assert_eq!(pull(&served, &reader).code, Some(0));
    served.configure("[folders.photos]\npath = \"photos\"\nread = [\"*\"]\nwrite = [\"*\"]\n");
    served.restart();
    let refused = push(&served, &writer);
    assert_eq!(refused.code, IDENTITY, "{refused:?}");
    assert!(refused.stderr.contains("takes no snapshots from others"), "{refused:?}");
    assert_eq!(pull(&served, &writer).code, Some(0), "that is for what comes in");
    let stranger = served.stranger("stranger");
    let refused = copy(&served, &stranger, [&place, text(back.path())], &["--all"]);
    assert_eq!(refused.code, IDENTITY, "{refused:?}");
}

#[test]
fn the_demands_of_the_owner_hold_for_history() {
    let (here, back) = (with_two(), Volume::new());
    for (demand, held, why) in [
        ("exclude = [\"private\"]", IDENTITY, "its owner's `exclude` would not hold"),
        ("dry-run = true", IDENTITY, "its owner's `dry-run` would not hold"),
        ("expect-volume = \"07070707070707070707070707070707\"", GUARD, "is not the expected one"),
    ] {
        let mut served = Served::prepare(&format!("{PHOTOS}{demand}\n"));
        let user = served.user("laptop");
        served.start();
        let place = served.place("photos");
        let refused = copy(&served, &user, [text(here.path()), &place], &["--all"]);
        assert_eq!(refused.code, held, "{demand}: {refused:?}");
        assert!(refused.stderr.contains(why), "{demand}: {refused:?}");
        assert!(!served.path("photos").exists(), "{demand}");
        // Another program took these, so that only the demand is in the way.
        let photos = Volume::at(served.folder("photos"));
        fs::create_dir(photos.path().join("private")).unwrap();
        photos.create(&[]);
        let pulled = copy(&served, &user, [&place, text(back.path())], &["--all"]);
        let is_held = demand.starts_with("exclude");
        assert_eq!(pulled.code, if is_held { IDENTITY } else { Some(0) }, "{demand}: {pulled:?}");
    }
}

/// A folder that is slow enough for other things to happen during a copy, and the bytes of a file for it.
const SLOW: &str = "[folders.slow]\npath = \"slow\"\nread = [\"*\"]\nwrite = [\"*\"]\nbandwidth-limit = \"400k\"\nhistory = \"all\"\n";
const SLOW_BYTES: usize = 8 << 20;

#[test]
fn a_copy_waits_for_its_turn_behind_a_run() {
    let mut served = Served::prepare(SLOW);
    let [runner, user] = ["runner", "user"].map(|name| served.user(name));
    let (source, here) = (served.folder("source"), with_two());
    fs::write(source.join("file"), Rng::new(1).bytes(SLOW_BYTES)).unwrap();
    served.start();
    let place = served.place("slow");
    let mut run = served.start_sync(&runner, [text(&source), &place], &[]);
    run.moved();
    let mut waits = command(&served, &user, [text(here.path()), &place], &["first"]);
    let waits = waits.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    served.wait_for_metric("volferry_serve_waiting_peers{folder=\"slow\"} 1");
    run.signal(Signal::TERM);
    run.wait();
    let said = Said::from(waits.wait_with_output().unwrap()).exits(0);
    assert!(said.stderr.contains("the other end is busy with a run of runner"), "{said:?}");
    assert_eq!(Volume::at(served.path("slow")).list().len(), 1);
}

#[test]
fn a_copy_ends_when_its_key_is_revoked_and_shows_nothing_that_is_not_whole() {
    let mut served = Served::prepare(SLOW);
    let (user, back) = (served.user("laptop"), Volume::new());
    let slow = Volume::at(served.folder("slow"));
    fs::write(slow.path().join("file"), Rng::new(1).bytes(SLOW_BYTES)).unwrap();
    slow.create(&[]);
    served.start();
    let mut pull = command(&served, &user, [&served.place("slow"), text(back.path())], &["--all"]);
    let pull = pull.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    served.wait_for_metric("volferry_serve_sessions{folder=\"slow\"} 1");
    served.edit_keys(|_| String::new());
    let said = Said::from(pull.wait_with_output().unwrap());
    assert!(said.code.is_some_and(|code| code != 0), "{said:?}");
    assert_eq!(back.list().len(), 0);
    served.wait_for_metric(
        "volferry_serve_runs_total{folder=\"slow\",direction=\"read\",result=\"canceled\"} 1",
    );
}

#[test]
fn what_does_not_fit_into_a_folder_is_refused_and_leaves_nothing() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("4m") else { return };
    let folder = mounted.folder();
    let path = folder.path().join("photos");
    let mut served =
        Served::prepare(&format!("[folders.photos]\npath = {path:?}\nwrite = [\"*\"]\nhistory = \"all\"\n"));
    let (user, here) = (served.user("laptop"), Volume::new());
    fs::write(here.path().join("file"), Rng::new(1).bytes(6 << 20)).unwrap();
    here.create(&[]);
    served.start();
    let said = copy(&served, &user, [text(here.path()), &served.place("photos")], &["--all"]).exits(1);
    assert!(said.stderr.contains(" are to be copied to"), "{said:?}");
    assert_eq!(Volume::at(path).list().len(), 0);
    served.stop();
}

#[test]
fn flags_of_ssh_and_two_services_are_refused() {
    let mut served = Served::prepare(PHOTOS);
    let user = served.user("laptop");
    served.start();
    let place = served.place("photos");
    for (ends, args, why) in [
        ([&*place, "here"], &["--all", "--rsh=x"][..], "a service is reached without ssh"),
        ([&place, &place], &["--all"], "one of FROM and TO has to be on this machine"),
        ([&format!("{place}/../x"), "here"], &["--all"], "write a folder below it"),
    ] {
        let said = copy(&served, &user, ends, args);
        assert!(said.code != Some(0) && said.stderr.contains(why), "{said:?}");
    }
}
