//! Folders of a `volferry serve`, for many peers at one port.

use contract::{FolderAccess, FolderRequest, Identity, OwnKey, Reason, RunParams, Side, service_job};
use syncer::{
    monitor::Monitor,
    session::{self, Endpoint, LinkMode, LinkOptions},
};

use crate::common::prelude::*;
use crate::common::{
    deaf_peer::{ATTEMPTS_IN_A_SECOND, DeafPeer},
    service::{Served, ServiceUser},
    watch::{FirstEntry, until_written},
};

/// A folder that is slow enough for other things to happen during a run, and the bytes of a file for it.
pub(crate) const SLOW: &str =
    "[folders.slow]\npath = \"slow\"\nread = [\"*\"]\nwrite = [\"*\"]\nbandwidth-limit = \"400k\"\n";
pub(crate) const SLOW_BYTES: usize = 2_000_000;

pub(crate) const PHOTOS: &str = "[folders.photos]\npath = \"photos\"\nread = [\"*\"]\nwrite = [\"*\"]\n";

/// Makes a folder with one file of random bytes.
pub(crate) fn made(served: &Served, name: &str, bytes: usize) -> PathBuf {
    let path = served.folder(name);
    tree::file(&path.join("file"), &Rng::new(bytes as u64).bytes(bytes));
    path
}

#[test]
fn a_user_sends_into_a_folder_and_gets_it_back() {
    for way in ["udp", "tcp"] {
        let mut served = Served::prepare(PHOTOS);
        let user = served.user("laptop");
        let [from, back] = ["from", "back"].map(|name| served.folder(name));
        tree::gallery(&from, Shape::Everything);
        served.start();
        let (photos, link) = (served.place("photos"), format!("--link={way}"));
        let sent = served.sync(&user, [text(&from), &photos], &["--delete", &link]);
        sent.assert_exit(ExitCode::Done);
        oracle::assert_copy(&served.path("photos"), &from, "sent");
        // The process of the service may have other runs at the same time.
        let usage = sent.report().usage;
        assert_eq!((usage.sink_cpu_ms, usage.sink_peak_rss), (0, 0), "{usage:?}");
        assert!(usage.source_peak_rss > 0, "{usage:?}");
        let got = served.sync(&user, [&photos, text(&back)], &["--delete", &link]);
        got.assert_exit(ExitCode::Done);
        oracle::assert_copy(&back, &from, "got");
        let usage = got.report().usage;
        assert_eq!((usage.source_cpu_ms, usage.source_peak_rss), (0, 0), "{usage:?}");
        assert!(usage.sink_peak_rss > 0, "{usage:?}");
        served.wait_for_metric(
            "volferry_serve_runs_total{folder=\"photos\",direction=\"write\",result=\"succeeded\"} 1",
        );
        let below = served.place("photos/new/below");
        tree::files(&from, &["new/below/file"], "below");
        served.sync(&user, [text(&from.join("new/below")), &below], &[&link]).assert_exit(ExitCode::Done);
        oracle::assert_copy(&served.path("photos/new/below"), &from.join("new/below"), "below a folder");
        served.stop().assert_exit(ExitCode::Done);
    }
}

#[test]
fn twenty_users_of_ten_folders_lose_nothing() {
    let folder = |at: usize| format!("[folders.f{at}]\npath = \"f{at}\"\nwrite = [\"*\"]\n");
    let mut served = Served::prepare(&(0..10).map(folder).collect::<String>());
    let users: Vec<_> = (0..20).map(|at| served.user(&format!("user{at}"))).collect();
    let sources: Vec<_> = (0..20).map(|at| made(&served, &format!("source{at}"), 100_000 + at)).collect();
    served.start();
    let running: Vec<Running> = (0..20)
        .map(|at| {
            // Two users have a subfolder each of every folder.
            let place = served.place(&format!("f{}/of{at}", at % 10));
            served.start_sync(&users[at], [text(&sources[at]), &place], &[])
        })
        .collect();
    running.into_iter().for_each(|running| running.wait().assert_exit(ExitCode::Done));
    for (at, source) in sources.iter().enumerate() {
        oracle::assert_copy(&served.path(&format!("f{}/of{at}", at % 10)), source, "of one user");
    }
}

#[test]
fn other_folders_go_on_beside_a_run_and_peers_of_its_own_wait_for_their_turn() {
    let mut served = Served::prepare(&format!("{SLOW}{PHOTOS}"));
    let [first, second, third] = ["first", "second", "third"].map(|name| served.user(name));
    let (large, small) = (made(&served, "large", SLOW_BYTES), made(&served, "small", 100));
    served.start();
    let (slow, photos) = (served.place("slow/a"), served.place("photos"));
    let mut one = served.start_sync(&first, [text(&large), &slow], &[]);
    one.moved();
    served.sync(&second, [text(&small), &photos], &[]).assert_exit(ExitCode::Done);
    let below = served.place("slow/b");
    let mut two = served.start_sync(&second, [text(&small), &below], &[]);
    let answer = two.waiting();
    assert_eq!((answer.peer.as_str(), answer.number), ("first", 1));
    let mut three = served.start_sync(&third, [text(&small), &served.place("slow/c")], &[]);
    assert_eq!(three.waiting().number, 2);
    for run in [one, two, three] {
        run.wait().assert_exit(ExitCode::Done);
    }
    for (copy, source) in [("slow/a", &large), ("slow/b", &small), ("slow/c", &small)] {
        oracle::assert_copy(&served.path(copy), source, copy);
    }
}

#[test]
fn fifty_peers_of_one_folder_all_have_their_turn_and_leave_an_empty_queue() {
    let folder = "[folders.slow]\npath = \"slow\"\nwrite = [\"*\"]\nbandwidth-limit = \"50k\"\nqueue = 50\n";
    let mut served = Served::prepare(folder);
    let users: Vec<_> = (0..50).map(|at| served.user(&format!("user{at}"))).collect();
    let [holder, late] = ["holder", "late"].map(|name| served.user(name));
    let (large, small) = (made(&served, "large", 4 * SLOW_BYTES), made(&served, "small", 100));
    served.start();
    let mut first = served.start_sync(&holder, [text(&large), &served.place("slow/large")], &[]);
    first.moved();
    let start =
        |(at, user)| served.start_sync(user, [text(&small), &served.place(&format!("slow/{at}"))], &[]);
    let running: Vec<Running> = users.iter().enumerate().map(start).collect();
    served.wait_for_metric("volferry_serve_waiting_peers{folder=\"slow\"} 50");
    let refused = served.sync(&late, [text(&small), &served.place("slow/late")], &[]);
    assert_eq!(refused.report().reason, Some(Reason::QueueFull), "{:?}", refused.report());
    first.signal(Signal::TERM);
    assert_eq!(first.wait().report().result, RunResult::Canceled);
    running.into_iter().for_each(|run| run.wait().assert_exit(ExitCode::Done));
    for at in 0..50 {
        oracle::assert_copy(&served.path(&format!("slow/{at}")), &small, "of one peer");
    }
    for gauge in ["sessions", "waiting_peers"] {
        served.wait_for_metric(&format!("volferry_serve_{gauge}{{folder=\"slow\"}} 0"));
    }
}

#[test]
fn a_key_that_is_revoked_ends_its_run_and_is_a_stranger_from_then_on() {
    let mut served = Served::prepare(SLOW);
    let [lost, other] = ["lost", "other"].map(|name| served.user(name));
    let large = made(&served, "large", SLOW_BYTES);
    served.start();
    let mut run = served.start_sync(&lost, [text(&large), &served.place("slow")], &[]);
    run.moved();
    served.edit_keys(|text| {
        text.lines().filter(|line| !line.contains(" lost")).map(|line| format!("{line}\n")).collect()
    });
    let ended = run.wait();
    assert_eq!(ended.report().result, RunResult::Canceled, "{:?}", ended.report());
    served.wait_for_metric("volferry_serve_authorized_keys 1");
    served.sync(&lost, [text(&large), &served.place("slow")], &[]).assert_exit(ExitCode::Identity);
    assert!(!served.path("slow/file").exists());
    served.sync(&other, [text(&large), &served.place("slow")], &[]).assert_exit(ExitCode::Done);
    oracle::assert_copy(&served.path("slow"), &large, "of the other user");
    let said = served.stop().stderr;
    let ended = said.lines().find(|line| line.contains("the run was canceled")).unwrap_or(&said);
    assert!(ended.contains("NotAllowed") && ended.contains("the right of its peer is gone"), "{ended}");
}

#[test]
fn a_key_is_replaced_without_a_gap() {
    let mut served = Served::prepare(PHOTOS);
    let user = served.user("laptop");
    let source = made(&served, "source", 100);
    served.start();
    let photos = served.place("photos");
    let mut renewed = served.stranger("new");
    renewed.name = "laptop".into();
    served.authorize(&renewed, "");
    served.wait_for_metric("volferry_serve_authorized_keys 2");
    for user in [&user, &renewed] {
        served.sync(user, [text(&source), &photos], &[]).assert_exit(ExitCode::Done);
    }
    served.edit_keys(|text| text.lines().skip(1).map(|line| format!("{line}\n")).collect());
    served.wait_for_metric("volferry_serve_authorized_keys 1");
    served.sync(&user, [text(&source), &photos], &[]).assert_exit(ExitCode::Identity);
    served.sync(&renewed, [text(&source), &photos], &[]).assert_exit(ExitCode::Done);
}

#[test]
fn strangers_and_users_of_other_folders_get_nothing() {
    let mut served = Served::prepare(
        "[folders.photos]\npath = \"photos\"\nwrite = [\"writer\"]\n[folders.docs]\npath = \"docs\"\nread = [\"writer\"]\n",
    );
    let (stranger, writer, granted) =
        (served.stranger("x"), served.user("writer"), served.stranger("granted"));
    served.authorize(&granted, "write=docs");
    let (source, docs) = (made(&served, "source", 100), made(&served, "docs", 50));
    served.start();
    let refused = |user: &ServiceUser, ends: [&str; 2], reason: &str| {
        let ended = served.sync(user, ends, &[]);
        ended.assert_exit(ExitCode::Identity);
        assert_eq!(ended.reason(), reason, "{ends:?}: {}", ended.stderr);
    };
    let [photos, of_docs, nowhere] = ["photos", "docs", "nowhere"].map(|name| served.place(name));
    let source = text(&source);
    refused(&stranger, [source, &photos], "KeyNotAccepted");
    refused(&granted, [source, &photos], "NotAllowed");
    refused(&writer, [source, &of_docs], "NotAllowed");
    refused(&writer, [&photos, text(&served.path("got"))], "NotAllowed");
    refused(&writer, [source, &nowhere], "NotAllowed");
    assert!(!served.path("photos").exists() && !served.path("got").exists());
    oracle::assert_copy(&served.path("docs"), &docs, "untouched");
    served.sync(&granted, [source, &of_docs], &[]).assert_exit(ExitCode::Done);
    served.sync(&writer, [source, &photos], &[]).assert_exit(ExitCode::Done);
}

#[test]
fn a_peer_that_waits_for_its_turn_does_not_go_on_with_another_key() {
    let mut served = Served::prepare(SLOW);
    let [first, second] = ["first", "second"].map(|name| served.user(name));
    let (large, small) = (made(&served, "large", SLOW_BYTES), made(&served, "small", 100));
    served.start();
    let mut runs = served.start_sync(&first, [text(&large), &served.place("slow/a")], &[]);
    runs.moved();
    let below = served.place("slow/b");
    let mut waits = served.start_sync(&second, [text(&small), &below], &["--connect-timeout=60"]);
    waits.waiting();
    served.stop().assert_exit(ExitCode::Done);
    assert_eq!(runs.wait().report().message, "the other end was stopped on request");
    fs::remove_file(served.path("service.key")).unwrap();
    OwnKey::generate().unwrap().write(&served.path("service.key")).unwrap();
    served.start();
    let ended = waits.wait();
    ended.assert_exit(ExitCode::Identity);
    assert_eq!(ended.reason(), "IdentityRefused", "{}", ended.stderr);
    assert!(!served.path("slow/b").exists());
}

#[test]
fn a_service_that_shows_another_key_is_refused() {
    let mut served = Served::prepare(PHOTOS);
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    served.start();
    let other = OwnKey::generate().unwrap().public().to_string();
    let photos = served.place("photos");
    served.key = other.parse().unwrap();
    let ended = served.sync(&user, [text(&source), &photos], &[]);
    ended.assert_exit(ExitCode::Identity);
    let expected = format!("{} showed another key than the one that this end accepts", served.address);
    assert_eq!(ended.report().message, expected);
    assert!(!served.path("photos").exists());
}

#[test]
fn a_run_that_a_restart_cut_off_continues_with_what_had_arrived() {
    let mut served = Served::prepare(&SLOW.replace("400k", "2M"));
    let user = served.user("laptop");
    let large = served.folder("large");
    tree::many(&large, 400, SLOW_BYTES / 100);
    let copy = served.folder("slow");
    served.start();
    let slow = served.place("slow");
    let first = FirstEntry::of(&copy);
    let run = served.start_sync(&user, [text(&large), &slow], &[]);
    first.wait();
    until_written(&copy.join("d0000"), || fs::read_dir(copy.join("d0000")).unwrap().next().is_some());
    served.stop().assert_exit(ExitCode::Done);
    let ended = run.wait();
    assert_ne!(ended.exit, Some(ExitCode::Done));
    served.configure(&SLOW.replace("400k", "1G"));
    served.start();
    let again = served.sync(&user, [text(&large), &slow], &[]);
    again.assert_exit(ExitCode::Done);
    let work = again.report().work;
    assert!(work.bytes_changed < 4 * SLOW_BYTES as u64, "all crossed again: {work:?}");
    oracle::assert_copy(&served.path("slow"), &large, "after the restart");
}

#[test]
fn a_reload_takes_new_folders_and_a_broken_file_changes_nothing() {
    let mut served = Served::prepare(PHOTOS);
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    served.start();
    served.configure(&format!("{PHOTOS}[folders.docs]\npath = \"docs\"\nwrite = [\"laptop\"]\n"));
    served.signal(Signal::HUP);
    let second = served.stranger("second");
    served.authorize(&second, "");
    served.wait_for_metric("volferry_serve_authorized_keys 2");
    served.sync(&user, [text(&source), &served.place("docs")], &[]).assert_exit(ExitCode::Done);
    served.configure("[folders.photos]\npath = 5\n");
    served.signal(Signal::HUP);
    served.edit_keys(|text| text + "no line of a key\n");
    served.sync(&user, [text(&source), &served.place("photos")], &[]).assert_exit(ExitCode::Done);
    let ended = served.stop();
    ended.assert_exit(ExitCode::Done);
    assert!(
        ended.stderr.contains("serve.toml:4: `folders.photos.path`: write a text in quotes"),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_demands_of_a_folders_owner_hold_whatever_a_user_asks() {
    let mut served = Served::prepare(
        "[folders.photos]\npath = \"photos\"\nread = [\"*\"]\nwrite = [\"*\"]\nno-delete = true\nexclude = [\"*.key\"]\n",
    );
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    let photos = served.folder("photos");
    tree::files(&photos, &["own.key", "old"], "of the owner");
    tree::files(&source, &["own.key", "new"], "of the user");
    served.start();
    let place = served.place("photos");
    let flags = ["--delete", "--adopt", "--force", "--exclude=!own.key"];
    served.sync(&user, [text(&source), &place], &flags).assert_exit(ExitCode::Done);
    let read = |path: &Path| fs::read_to_string(path).ok();
    assert_eq!(read(&photos.join("own.key")).as_deref(), Some("of the owner"));
    assert_eq!(read(&photos.join("new")).as_deref(), Some("of the user"));
    assert!(photos.join("old").exists());
    let got = served.path("got");
    let flags = ["--exclude=!own.key", "--filter=+ own.key"];
    served.sync(&user, [&place, text(&got)], &flags).assert_exit(ExitCode::Done);
    assert!(got.join("new").exists() && !got.join("own.key").exists());
    for (ends, flag) in
        [([text(&source), &place], "--snapshot"), ([&place, text(&got)], "--remove-source-files")]
    {
        let refused = served.sync(&user, ends, &[flag]).stderr;
        assert!(refused.contains(&format!("{flag} with a folder of a service")), "{refused}");
    }
}

#[test]
fn a_peer_that_may_only_read_cannot_have_the_service_remove_its_files() {
    let mut served = Served::prepare("[folders.photos]\npath = \"photos\"\nread = [\"*\"]\n");
    let (key, photos) = (OwnKey::generate().unwrap(), made(&served, "photos", 100));
    let user = ServiceUser { key: key.public(), ..served.stranger("evil") };
    served.authorize(&user, "");
    served.start();
    let params = RunParams { remove_source_files: true, ..RunParams::default() };
    let request = FolderRequest { access: FolderAccess::Read, params, ..request("") };
    let got = served.path("got");
    let link = link(&served, key, Side::Sink, request);
    let demands = Default::default();
    let outcome = session::receive(&got, &link, &demands, &Monitor::default(), true, &mut |_| ());
    assert_eq!(outcome.report.result, RunResult::Succeeded, "{:?}", outcome.report);
    oracle::assert_copy(&got, &photos, "with all files at the source");
}

/// Returns a request of a peer that may be hostile.
pub(crate) fn request(path: &str) -> FolderRequest {
    let (folder, path, access) = ("photos".into(), path.into(), FolderAccess::Write);
    FolderRequest {
        folder,
        path,
        access,
        params: RunParams::default(),
        source_snapshot: None,
        paths: None,
        history: None,
    }
}

/// Returns the link of a peer that asks what its own program would not.
pub(crate) fn link(served: &Served, key: OwnKey, side: Side, request: FolderRequest) -> LinkOptions {
    let service = served.key.fingerprint();
    LinkOptions {
        others: Vec::new(),
        endpoint: Endpoint::Ask { address: served.address.clone(), request: Box::new(request) },
        mode: LinkMode::Auto,
        identity: Identity::of_key(key, side, &service_job(service), service).unwrap(),
        connect_timeout: PATIENCE,
    }
}

#[test]
fn only_paths_of_a_list_and_snapshots_are_read_from_a_folder() {
    let mut served = Served::prepare(PHOTOS);
    let user = served.user("laptop");
    let photos = served.folder("photos");
    tree::files(&photos, &["a", "b", "c/d"], "content");
    let list = served.path("list");
    fs::write(&list, "c\nb\n").unwrap();
    served.start();
    let (place, got) = (served.place("photos"), served.path("got"));
    let flag = format!("--files-from={}", text(&list));
    served.sync(&user, [&place, text(&got)], &[&flag]).assert_exit(ExitCode::Done);
    assert!(got.join("c/d").exists() && got.join("b").exists() && !got.join("a").exists());
    let missing = served.sync(&user, [&place, text(&got)], &["--source-snapshot=latest"]);
    assert_eq!(missing.reason(), "SnapshotNotFound", "{}", missing.stderr);
}

#[test]
fn a_list_of_more_paths_than_a_service_takes_is_refused_before_it_is_asked() {
    let served = Served::prepare(PHOTOS);
    let (user, list) = (served.user("laptop"), served.path("list"));
    let paths: String = (0..=FolderRequest::MAX_PATHS).map(|number| format!("{number}\n")).collect();
    fs::write(&list, paths).unwrap();
    let flag = format!("--files-from={}", text(&list));
    let refused = served.sync(&user, [&served.place("photos"), text(&served.path("got"))], &[&flag]);
    refused.assert_exit(ExitCode::Usage);
    assert!(refused.stderr.contains("has more than 131,072 paths, so divide it"), "{}", refused.stderr);
}

#[test]
fn a_service_that_does_not_answer_is_given_up_when_the_time_is_over() {
    let mut served = Served::prepare(PHOTOS);
    let (user, source) = (served.user("laptop"), made(&served, "source", 100));
    let deaf = DeafPeer::bind();
    served.address = deaf.address();
    let (photos, got) = (served.place("photos"), served.path("got"));
    for ends in [[text(&source), &photos], [&photos, text(&got)]] {
        let ended = served.sync(&user, ends, &["--connect-timeout=1"]);
        ended.assert_exit(ExitCode::PeerLost);
        let report = ended.report();
        assert!(report.message.starts_with(&format!("no answer from {}", served.address)), "{report:?}");
        let attempts = deaf.attempts();
        assert!((1..=ATTEMPTS_IN_A_SECOND).contains(&attempts), "{attempts} attempts");
        assert!(ended.stderr.contains("\nhint: "), "{}", ended.stderr);
    }
    assert!(!got.exists());
}

#[test]
fn a_path_that_leads_out_of_a_folder_is_refused() {
    let mut served = Served::prepare(PHOTOS);
    let (key, source) = (OwnKey::generate().unwrap(), made(&served, "source", 100));
    let user = ServiceUser { name: "evil".into(), key: key.public(), ..served.stranger("evil") };
    served.authorize(&user, "");
    served.start();
    for path in ["../out", ".volferry/staging", "/../out", "a/../../out"] {
        let link = link(&served, key.clone(), Side::Source, request(path));
        let outcome = session::send(&source, &link, &Default::default(), &Monitor::default());
        assert_eq!(outcome.report.reason.as_deref(), Some("NotAllowed"), "{:?}", outcome.report);
    }
    assert!(!served.path("out").exists() && !served.path("photos").exists());
}

#[test]
fn a_wrong_configuration_is_refused_with_file_line_and_field() {
    let served = Served::prepare(PHOTOS);
    for (folders, expected) in [
        ("[folders.photos]\n", "serve.toml:3: `folders.photos.path` is missing"),
        ("", "serve.toml:1: `folders` is missing"),
        ("[folders.\"../x\"]\npath = \"x\"\n", "serve.toml:3: `folders.../x`: a folder's name has"),
        ("[folders.a]\npath = \"x\"\nread = \"x\"\n", "serve.toml:5: `folders.a.read`: write a list"),
        (
            "[folders.a]\npath = \"x\"\nqueue = -1\n",
            "serve.toml:5: `folders.a.queue`: write a number from 0 to 1000",
        ),
        (
            "[folders.a]\npath = \"x\"\nbandwidth-limit = \"0\"\n",
            "serve.toml:5: `folders.a.bandwidth-limit`: 0 would never",
        ),
        ("[folders.a]\npath = \"x\"\ndelete-limit = 101\n", "serve.toml:5: `folders.a.delete-limit`: "),
        (
            "[folders.a]\npath = \"x\"\ndelete-limit = 9\nsnapshot-keep-daily = 7\n",
            "serve.toml:6: `folders.a.snapshot-keep-daily`: it needs `snapshot = true`",
        ),
        (
            "[folders.a]\npath = \"x\"\nsnapshot = true\nsnapshot-verify-bandwidth-limit = 7\n",
            "serve.toml:6: `folders.a.snapshot-verify-bandwidth-limit`: it needs `snapshot-verify`:",
        ),
        (
            "[folders.a]\npath = \"x\"\nsnapshot = \"yes\"\n",
            "serve.toml:5: `folders.a.snapshot`: write true or false",
        ),
        (
            "[folders.a]\npath = \"x\"\nbackup-dir = true\n",
            "serve.toml:5: `folders.a.backup-dir`: write a text or a number",
        ),
        (
            "[folders.a]\npath = \"x\"\nexclude = [\"[\"]\n",
            "serve.toml:5: `folders.a.exclude`: the pattern `[` can match nothing",
        ),
        ("[folders.a]\npath = \"x\"\nwrit = []\n", "serve.toml:5: `folders.a.writ`: there is no such field"),
        ("link = \"ssh\"\n[folders]\n", "serve.toml:3: `link`: write auto, udp or tcp"),
        ("[folders.a]\npath = \"~/x\"\n", "serve.toml:4: `folders.a.path`: write the whole path"),
        (
            "[folders.a]\npath = \"x\"\n[folders.b]\npath = \"./x\"\n",
            "`folders.a.path`: the folder is or contains that of `folders.b`",
        ),
        (
            "[folders.b]\npath = \"x/y\"\n[folders.a]\npath = \"x\"\n",
            "`folders.a.path`: the folder is or contains that of `folders.b`",
        ),
        ("[folders.a]\npath = \".\"\n", "`folders.a.path`: the folder contains the configuration"),
        ("colour = 1\n[folders]\n", "serve.toml:3: `colour`: there is no such field"),
        ("[folders.a\n", "serve.toml:3: "),
    ] {
        served.configure(folders);
        let mut command = std::process::Command::new(program());
        command.arg("serve").arg(served.path("serve.toml")).arg("--check");
        let ended = Running::start(command).wait();
        assert_eq!(ended.exit, Some(ExitCode::Usage), "{folders}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{folders}: {}", ended.stderr);
    }
}

#[test]
fn a_check_warns_of_folders_that_are_not_there() {
    let served = Served::prepare("");
    served.configure("identity = \"nosuch/key\"\n[folders.a]\npath = \"absent\"\n");
    let mut command = std::process::Command::new(program());
    command.arg("serve").arg(served.path("serve.toml")).arg("--check");
    let ended = Running::start(command).wait();
    ended.assert_exit(ExitCode::Done);
    for missing in ["`folders.a.path`: there is no folder ", "`identity`: there is no folder "] {
        assert!(ended.stderr.contains(&format!("warning: {missing}")), "{}", ended.stderr);
    }
}
