//! What the owner of a served folder demands holds for every path, for snapshots, and from the time when it is written.

use contract::{OwnKey, Side};
use syncer::{monitor::Monitor, session};

use super::service::{PHOTOS, SLOW, SLOW_BYTES, link, made, request};
use crate::common::prelude::*;
use crate::common::service::{Served, ServiceUser};

#[test]
fn a_path_or_a_snapshot_of_a_folder_does_not_shed_what_its_owner_excludes() {
    let mut served = Served::prepare(&format!("{PHOTOS}exclude = [\"private\"]\n"));
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    let photos = served.folder("photos");
    tree::files(&photos, &["private/secret", "open/file"], "of the owner");
    served.start();
    let (private, got) = (served.place("photos/private"), served.path("got"));
    let whole = served.place("photos");
    for (ends, flags) in [
        ([&private, text(&got)], vec![]),
        ([text(&source), &private], vec!["--delete", "--adopt"]),
        ([&whole, text(&got)], vec!["--source-snapshot=latest"]),
    ] {
        let ended = served.sync(&user, ends, &flags);
        assert_eq!(ended.reason(), "NotAllowed", "{ends:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("its owner's `exclude` would not hold there"), "{}", ended.stderr);
    }
    assert!(!got.exists());
    let secret = fs::read_to_string(photos.join("private/secret")).unwrap();
    assert_eq!(secret, "of the owner");
    let open = served.place("photos/open/");
    served.sync(&user, [&open, text(&got)], &[]).assert_exit(ExitCode::Done);
    assert!(got.join("file").exists());
    let (file, one) = (served.place("photos/open/file"), served.path("one"));
    served.sync(&user, [&file, text(&one)], &[]).assert_exit(ExitCode::Done);
    assert_eq!(fs::read_to_string(one).unwrap(), "of the owner");
}

#[test]
fn new_demands_reach_peers_that_run_and_peers_that_wait() {
    let mut served = Served::prepare(SLOW);
    let [first, second] = ["first", "second"].map(|name| served.user(name));
    let (large, small) = (made(&served, "large", SLOW_BYTES), made(&served, "small", 100));
    tree::files(&small, &["own.key"], "of a user");
    served.start();
    let (one, two) = (served.place("slow/a"), served.place("slow/b"));
    let mut runs = served.start_sync(&first, [text(&large), &one], &[]);
    runs.moved();
    let mut waits = served.start_sync(&second, [text(&small), &two], &[]);
    waits.waiting();
    served.configure(&format!("{SLOW}exclude = [\"*.key\"]\n"));
    served.signal(Signal::HUP);
    let ended = runs.wait();
    assert_eq!(ended.report().result, RunResult::Canceled, "{:?}", ended.report());
    waits.wait().assert_exit(ExitCode::Done);
    assert!(served.path("slow/b/file").exists() && !served.path("slow/b/own.key").exists());
}

#[test]
fn a_long_request_fills_no_log() {
    let mut served = Served::prepare(PHOTOS);
    let (key, source) = (OwnKey::generate().unwrap(), made(&served, "source", 100));
    let user = ServiceUser { key: key.public(), ..served.stranger("evil") };
    served.authorize(&user, "");
    served.start();
    let name = "flood".repeat(100_000);
    let asked = contract::FolderRequest { folder: name, ..request("") };
    let outcome = session::send(
        &source,
        &link(&served, key, Side::Source, asked),
        &Default::default(),
        &Monitor::default(),
    );
    assert_eq!(outcome.report.reason.as_deref(), Some("NotAllowed"), "{:?}", outcome.report);
    let ended = served.stop();
    assert!(ended.stderr.contains("a peer was refused"), "{}", ended.stderr);
    assert!(ended.stderr.len() < 10_000, "{} bytes", ended.stderr.len());
}

#[test]
fn a_subfolder_is_all_that_peers_get_and_no_link_leads_elsewhere() {
    let mut served = Served::prepare(&format!("{PHOTOS}subfolder = \"/in/side\"\n"));
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    let photos = served.folder("photos");
    tree::files(&photos, &["beside"], "of the owner");
    served.start();
    let place = served.place("photos");
    served.sync(&user, [text(&source), &place], &["--delete"]).assert_exit(ExitCode::Done);
    assert!(photos.join("in/side/file").exists() && photos.join("beside").exists());
    let below = served.place("photos/below");
    served.sync(&user, [text(&source), &below], &[]).assert_exit(ExitCode::Done);
    assert!(photos.join("in/side/below/file").exists());

    // A peer of another service with the same volume could put a link there.
    let elsewhere = served.folder("elsewhere");
    fs::remove_dir_all(photos.join("in")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, photos.join("in")).unwrap();
    let ended = served.sync(&user, [text(&source), &place], &[]);
    assert_ne!(ended.report().result, RunResult::Succeeded);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}
