//! Runs of `volferry sync` whose destination is object storage: what arrives, what is read and sent again, what goes.

use std::{
    process::Stdio,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::SystemTime,
};

use contract::{Reason, VerifyReport};

use crate::common::prelude::*;
use crate::{
    bucket::{URL, command as snapshot_command, ok, pull, push, run, text},
    bucket_faults::is_new_list,
    common::{
        object_storage::{Bucket, Fault},
        secure_way::SecureWay,
    },
    volume::{Said, Volume},
};

/// Long enough ago that a file which kept its time has not changed.
fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

/// Returns `volferry sync FROM URL ARGS`, with the key of the store.
fn command(bucket: &Bucket, from: &Volume, args: &[&str]) -> Command {
    // The key is made with the first command.
    let of_snapshots = snapshot_command(bucket, &[]);
    let mut command = Command::new(program());
    command.args(["sync", text(from), URL]).args(args);
    for (name, value) in of_snapshots.get_envs() {
        command.env(name, value.unwrap());
    }
    command
}

fn sync(bucket: &Bucket, from: &Volume, args: &[&str]) -> Said {
    command(bucket, from, args).output().unwrap().into()
}

/// Runs a sync that ends with this exit code, and returns its report.
#[track_caller]
fn report(bucket: &Bucket, from: &Volume, exit: i32, args: &[&str]) -> Report {
    let said = sync(bucket, from, &[&["--report=-"], args].concat());
    assert_eq!(said.code, Some(exit), "{args:?}: {said:?}");
    serde_json::from_str(&said.stdout).unwrap()
}

fn write(volume: &Volume, name: &str, content: &str, time: SystemTime) {
    let path = volume.path().join(name);
    fs::write(&path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Brings the newest snapshot into a folder, and returns that.
fn restored(bucket: &Bucket) -> (Volume, PathBuf) {
    let to = Volume::new();
    pull(bucket, &to);
    let folder = to.path().with_file_name("restored");
    to.ok("restore", &["latest", "--trust-store", "--to", folder.to_str().unwrap()]);
    (to, folder)
}

#[test]
fn a_folder_arrives_as_it_is_and_nothing_is_written_at_the_source() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    tree::gallery(from.path(), Shape::Everything);
    let large = Rng::new(5).bytes(5 << 20);
    fs::write(from.path().join("large"), &large).unwrap();
    let sparse = fs::File::create(from.path().join("sparse")).unwrap();
    sparse.write_all_at(b"end", 40 << 20).unwrap();
    let before = Snapshot::of(from.path());
    let made = report(&bucket, &from, 0, &["--snapshot", "--snapshot-tag=gold", "--run=web-1"]);
    assert!(!from.path().join(".volferry").exists());
    Snapshot::of(from.path()).assert_like(&before, UNTOUCHED, "the source");
    assert_eq!((made.result, made.run.as_str()), (RunResult::Succeeded, "web-1"));
    assert!(made.work.files_created > 0 && made.work.bytes_on_wire > 5 << 20, "{:?}", made.work);
    let snapshot = made.snapshot.unwrap();
    assert_eq!((snapshot.count, snapshot.reason), (1, None));
    assert_eq!(snapshot.made.unwrap().tags, ["gold"]);
    ok(&bucket, &["verify", URL]);
    let (_to, folder) = restored(&bucket);
    Snapshot::of(&folder).assert_like(&before, COPY, "what came back");
}

#[test]
fn what_has_not_changed_is_neither_read_nor_sent_again() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::create_dir(from.path().join("folder")).unwrap();
    for nth in 0..300 {
        write(&from, &format!("folder/{nth}"), &format!("content of {nth}"), long_ago());
    }
    assert_eq!(report(&bucket, &from, 0, &[]).work.files_created, 300);
    bucket.seen();
    let next = report(&bucket, &from, 0, &[]);
    assert_eq!((next.work.files_created, next.work.files_updated, next.work.bytes_on_wire), (0, 0, 0));
    assert_eq!(next.snapshot.unwrap().count, 2);
    let mut put = bucket.seen().into_iter().filter(|request| request.method == "PUT");
    assert!(put.all(|request| request.is_conditional), "a list, and the head that is not replaced");
    write(&from, "folder/7", "another content", SystemTime::now());
    write(&from, "new", "a new file", SystemTime::now());
    let next = report(&bucket, &from, 0, &[]).work;
    assert_eq!((next.files_created, next.files_updated, next.bytes_changed), (1, 1, 25));
    let (_to, folder) = restored(&bucket);
    Snapshot::of(&folder).assert_like(&Snapshot::of(from.path()), COPY, "what came back");
}

#[test]
fn an_empty_source_pushes_out_no_history_unless_forced() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    write(&from, "file", "content", long_ago());
    report(&bucket, &from, 0, &[]);
    fs::remove_file(from.path().join("file")).unwrap();
    let keep = ["--snapshot", "--snapshot-keep-last=1"];
    for _ in 0..2 {
        let refused = report(&bucket, &from, 4, &keep);
        assert_eq!(refused.reason, Some(Reason::SourceEmpty));
    }
    assert_eq!(fs::read_to_string(restored(&bucket).1.join("file")).unwrap(), "content");
    let forced = report(&bucket, &from, 0, &[&keep[..], &["--force"]].concat());
    assert!(forced.notes.iter().any(|note| note.starts_with("overrode a guard")), "{forced:?}");
    assert_eq!(report(&bucket, &from, 0, &keep).snapshot.unwrap().dropped_count, 1);
}

#[test]
fn a_change_that_left_size_and_time_is_seen_if_it_was_recent_or_contents_are_compared() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    // A time to come is recent, however long the test takes.
    let now = SystemTime::now() + Duration::from_secs(3600);
    write(&from, "recent", "one", now);
    write(&from, "old", "one", long_ago());
    report(&bucket, &from, 0, &[]);
    write(&from, "recent", "two", now);
    write(&from, "old", "two", long_ago());
    let content = |name: &str| fs::read_to_string(restored(&bucket).1.join(name)).unwrap();
    report(&bucket, &from, 0, &[]);
    assert_eq!((content("recent").as_str(), content("old").as_str()), ("two", "one"));
    report(&bucket, &from, 0, &["--compare=content"]);
    assert_eq!(content("old"), "two");
}

/// Makes a store with one snapshot of a volume, which has a file in a pack of its own.
fn with_large() -> (Bucket, Volume) {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::create_dir(from.path().join("folder")).unwrap();
    write(&from, "folder/file", "content", long_ago());
    let large: String = Rng::new(4).bytes(3 << 20).into_iter().map(|byte| char::from(byte & 0x7f)).collect();
    write(&from, "folder/large", &large, long_ago());
    report(&bucket, &from, 0, &[]);
    (bucket, from)
}

#[test]
fn what_the_store_has_lost_is_sent_again_and_the_new_snapshot_is_whole() {
    // With the contents alone, the directories and the list of the large file's pieces are still there.
    for lost in ["all packs", "the contents"] {
        let (bucket, from) = with_large();
        let packs = bucket.objects("of/web/packs");
        assert!(packs.len() >= 2, "{packs:?}");
        for (name, _) in packs.into_iter().filter(|(_, len)| lost == "all packs" || *len > 1 << 20) {
            fs::remove_file(bucket.path(&format!("of/web/packs/{name}"))).unwrap();
        }
        let next = report(&bucket, &from, 0, &[]);
        assert_eq!(next.snapshot.unwrap().count, 2);
        let (_to, folder) = restored(&bucket);
        Snapshot::of(&folder).assert_like(&Snapshot::of(from.path()), COPY, lost);
    }
}

/// Damages the first blob of each pack of contents, or of each other pack.
fn damage_packs(bucket: &Bucket, is_of_contents: bool) {
    let packs = bucket.objects("of/web/packs").into_iter();
    for (name, _) in packs.filter(|(_, len)| (*len > 1 << 20) == is_of_contents) {
        let path = bucket.path("of/web/packs").join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[30] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn what_a_verify_has_found_damaged_is_sent_again_by_the_next_run() {
    for (args, is_of_contents) in [(&[][..], true), (&["--compare=content"], true), (&[], false)] {
        let (bucket, from) = with_large();
        damage_packs(&bucket, is_of_contents);
        assert_eq!(run(&bucket, &["verify", URL]).code, Some(3));
        let next = report(&bucket, &from, 0, args);
        assert!(next.work.bytes_on_wire > 0 && next.snapshot.unwrap().count == 2);
        ok(&bucket, &["verify", URL]);
        let (_to, folder) = restored(&bucket);
        Snapshot::of(&folder).assert_like(&Snapshot::of(from.path()), COPY, "what came back");
    }
}

/// Runs, with a check of the next of two parts of the store. Returns the exit code, the reason, and what was found.
fn run_and_check(bucket: &Bucket, from: &Volume) -> (Option<i32>, Option<Reason>, VerifyReport) {
    let said = sync(bucket, from, &["--report=-", "--snapshot", "--snapshot-verify=2"]);
    let report: Report = serde_json::from_str(&said.stdout).unwrap();
    (said.code, report.reason, report.snapshot.unwrap().verify.unwrap())
}

#[test]
fn a_part_of_the_store_is_checked_after_each_run_and_what_is_damaged_is_sent_again() {
    let (bucket, from) = with_large();
    let (code, reason, found) = run_and_check(&bucket, &from);
    assert_eq!((code, reason, found.part.as_str(), found.damaged), (Some(0), None, "1/2", 0));
    assert!(found.checked > 0);
    damage_packs(&bucket, true);
    // The damage is in one of the two parts.
    let turns = [0, 1].map(|_| run_and_check(&bucket, &from));
    assert_eq!(turns.each_ref().map(|(.., found)| found.part.as_str()), ["2/2", "1/2"]);
    let damaged: Vec<_> = turns.iter().filter(|(code, ..)| *code == Some(3)).collect();
    let [(_, reason, found)] = damaged[..] else { panic!("{turns:?}") };
    assert_eq!(reason.as_deref(), Some("SnapshotsDamaged"));
    assert!(found.damaged == 1 && found.files[0].starts_with("folder/"), "{found:?}");
    report(&bucket, &from, 0, &[]);
    ok(&bucket, &["verify", URL, "--in-turn", "1"]);
}

#[test]
fn damage_that_no_run_can_mend_is_told_after_each_of_them_whatever_part_has_its_turn() {
    let (bucket, from) = with_large();
    damage_packs(&bucket, true);
    fs::remove_dir_all(from.path().join("folder")).unwrap();
    write(&from, "other", "another content", long_ago());
    let turns = [0; 5].map(|_| run_and_check(&bucket, &from).2.damaged);
    // It is in one of the two parts.
    assert!(turns[0] <= 1 && turns[1..] == [1; 4], "{turns:?}");
}

#[test]
fn the_rules_judge_the_snapshots_of_the_job_and_what_only_dropped_ones_need_goes() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    let keep = ["--snapshot", "--snapshot-job=prod/web", "--snapshot-keep-last=2"];
    fs::write(from.path().join("large"), Rng::new(1).bytes(3 << 20)).unwrap();
    report(&bucket, &from, 0, &["--snapshot", "--snapshot-job=prod/other"]);
    fs::write(from.path().join("large"), Rng::new(2).bytes(3 << 20)).unwrap();
    for nth in 0..2 {
        let made = report(&bucket, &from, 0, &keep).snapshot.unwrap();
        assert_eq!((made.count, made.dropped_count), (nth + 1, 0));
    }
    let packs = |bucket: &Bucket| bucket.objects("of/web/packs").values().sum::<u64>();
    let before = packs(&bucket);
    // The tree is that of others, so only the list changes.
    let made = report(&bucket, &from, 0, &keep).snapshot.unwrap();
    assert_eq!((made.count, made.dropped_count, made.freed_bytes), (2, 1, 0));
    assert_eq!(packs(&bucket), before);
    fs::write(from.path().join("large"), "small now").unwrap();
    report(&bucket, &from, 0, &keep);
    let made = report(&bucket, &from, 0, &keep).snapshot.unwrap();
    assert_eq!(made.dropped_count, 1);
    assert!(made.freed_bytes > 2 << 20 && packs(&bucket) < before - (2 << 20), "{made:?}");
    assert_eq!(made.kept.len(), 2);
    let listed = ok(&bucket, &["list", "--json", URL]).json();
    let jobs: Vec<&str> = listed.as_array().unwrap().iter().map(|it| it["job"].as_str().unwrap()).collect();
    assert_eq!(jobs, ["prod/other", "prod/web", "prod/web"]);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn a_store_that_refuses_or_is_lost_ends_the_run_with_its_reason_and_the_next_one_goes_on() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("large"), Rng::new(3).bytes(18 << 20)).unwrap();
    bucket.fail(|request| {
        if request.method == "PUT" && request.path.contains("/indexes/") {
            Fault::Refuse("AccessDenied")
        } else {
            Fault::None
        }
    });
    let refused = report(&bucket, &from, 1, &[]);
    assert_eq!((refused.result, refused.reason.as_deref()), (RunResult::Failed, Some("ObjectStoreUnusable")));
    assert!(refused.message.contains("AccessDenied"), "{}", refused.message);
    bucket.fail(|_| Fault::None);
    let next = report(&bucket, &from, 0, &[]);
    assert!(next.work.bytes_on_wire < 1 << 20, "what has arrived is not sent again: {:?}", next.work);
    ok(&bucket, &["verify", URL]);

    let other = bucket.beside("other");
    let made = Command::new(program()).args(["snapshot", "key"]).arg(&other).output().unwrap();
    assert!(made.status.success());
    let refused = report(&bucket, &from, 1, &["--key-file", other.to_str().unwrap()]);
    assert_eq!(refused.reason.as_deref(), Some("ObjectStoreUnusable"));
    assert!(refused.message.contains("the key does not fit"), "{}", refused.message);
    let nobody = command(&bucket, &from, &[]).env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    let said = Said::from(nobody);
    assert!(said.code == Some(1) && said.stderr.contains("no credentials for s3://"), "{said:?}");
}

#[test]
fn others_prune_and_a_first_snapshot_goes_on_with_all_that_was_sent_however_long_ago() {
    let (bucket, from, other) = (Bucket::new(), Volume::new(), Volume::new());
    fs::write(other.path().join("file"), Rng::new(1).bytes(300_000)).unwrap();
    let dropped = other.create(&[]);
    push(&bucket, &other);
    fs::write(from.path().join("large"), Rng::new(2).bytes(18 << 20)).unwrap();
    bucket.fail(|request| {
        let is_index = request.method == "PUT" && request.path.contains("/indexes/");
        if is_index { Fault::Refuse("AccessDenied") } else { Fault::None }
    });
    report(&bucket, &from, 1, &[]);
    // What it has sent is so old that a prune removes it, unless a run says that it needs it.
    let old = SystemTime::now() - Duration::from_secs(30 * 3600);
    for name in bucket.objects("of/web/packs").into_keys() {
        let pack = fs::File::options().write(true).open(bucket.path("of/web/packs").join(name)).unwrap();
        pack.set_modified(old).unwrap();
    }
    let ((tell, told), is_first) = (mpsc::channel(), AtomicBool::new(true));
    bucket.fail(move |request| {
        if !is_new_list(request) || !is_first.swap(false, SeqCst) {
            return Fault::None;
        }
        let _ = tell.send(());
        Fault::Hold
    });
    let mut run = command(&bucket, &from, &["--report=-"]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    told.recv_timeout(PATIENCE).unwrap();
    ok(&bucket, &["forget", URL, &dropped]);
    let pruned = ok(&bucket, &["prune", "--forgotten", "--json", URL]).json();
    assert!(pruned["freedBytes"].as_u64() > Some(300_000), "{pruned}");
    bucket.seen();
    bucket.release();
    let said = Said::from(run.wait_with_output().unwrap()).exits(0);
    let done: Report = serde_json::from_str(&said.stdout).unwrap();
    assert!(done.work.files_created == 1 && done.work.bytes_on_wire < 1 << 20, "{:?}", done.work);
    let again = bucket.seen().into_iter().filter(|it| it.method == "PUT" && it.path.contains("/packs/"));
    assert_eq!(again.count(), 0, "nothing is sent again");
    assert!(bucket.objects("of/web/sending").is_empty(), "the mark is gone");
    ok(&bucket, &["verify", URL]);
    let (_to, folder) = restored(&bucket);
    Snapshot::of(&folder).assert_like(&Snapshot::of(from.path()), COPY, "what came back");
}

#[test]
fn a_store_is_reached_by_tls_if_its_certificate_is_trusted() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    let way = SecureWay::to(&bucket);
    write(&from, "file", "content", long_ago());
    let run = |authorities: &Path| {
        let mut command = command(&bucket, &from, &["--report=-"]);
        command.env("AWS_ENDPOINT_URL", way.url()).env_remove("AWS_ALLOW_HTTP");
        command.env("SSL_CERT_FILE", authorities).env_remove("SSL_CERT_DIR");
        Said::from(command.output().unwrap())
    };
    // What is named and has none is not replaced by those of the program.
    let said = run(Path::new("/dev/null"));
    assert!(said.code == Some(1) && said.stderr.contains("/dev/null has no certificates"), "{said:?}");
    let elsewhere = Bucket::new();
    let said = run(&SecureWay::to(&elsewhere).certificate);
    let refused: Report = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code, refused.reason.as_deref()), (Some(1), Some("ObjectStoreUnusable")), "{said:?}");
    assert!(refused.message.contains("is not accepted: "), "{said:?}");
    assert_eq!(way.connections(), 1, "another try gets the same certificate");
    assert!(!said.stderr.contains("platform_verifier") && bucket.seen().is_empty(), "{said:?}");
    let said = run(&way.certificate);
    assert!(said.code == Some(0) && !bucket.seen().is_empty(), "{said:?}");
}

#[test]
fn flags_that_mean_nothing_to_a_snapshot_are_refused() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    for args in [
        &["--delete"][..],
        &["--min-size=1"],
        &["--write=in-place"],
        &["--backup-dir=old"],
        &["--destination-path=x"],
        &["--snapshot", "--snapshot-min-keep=3"],
        &["--dry-run"],
        &["--compression=none"],
    ] {
        let said = sync(&bucket, &from, args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        let last = args.last().unwrap().split('=').next().unwrap();
        assert!(said.stderr.contains(last), "{args:?}: {said:?}");
    }
    let here = Command::new(program()).args(["sync", text(&from), "copy", "--key-file=k"]).output().unwrap();
    assert!(Said::from(here).stderr.contains("--key-file without s3://"));
    assert!(bucket.objects("").is_empty());
}
