//! A store in object storage that answers late, wrongly or not at all, and others that write to it.

use std::{
    process::Stdio,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
        mpsc,
    },
};

use crate::common::prelude::*;
use crate::{
    bucket::{URL, assert_comes_back, command, count, ok, pull, push, run, text},
    bucket_kills::with_snapshots,
    common::{
        object_storage::{Bucket, Fault, Request},
        wait,
    },
    copy::digests,
    volume::{Said, Volume},
};

/// Makes a volume with a snapshot that has a file of so many MiB.
fn large_volume(seed: u64, mib: usize) -> Volume {
    let volume = Volume::new();
    tree::random(volume.path(), &mut Rng::new(seed), 40, Shape::Unprivileged);
    fs::write(volume.path().join("large"), Rng::new(seed).bytes(mib << 20)).unwrap();
    volume.create(&[]);
    volume
}

fn is_pack(request: &Request) -> bool {
    request.path.contains("/packs/")
}

/// Returns whether a request publishes a change.
pub fn is_new_list(request: &Request) -> bool {
    request.is_conditional && request.path.contains("/lists/")
}

#[test]
fn requests_that_fail_are_made_again() {
    let (bucket, from, to) = (Bucket::new(), large_volume(1, 18), Volume::new());
    let seen = AtomicU32::new(0);
    // Every third request is put off, and every seventh body is cut off, in turn for what is sent and what is answered.
    bucket.fail(move |request| match seen.fetch_add(1, SeqCst) {
        nth if nth % 3 == 1 => Fault::SlowDown,
        nth if nth % 7 == 2 && request.method == "PUT" => Fault::CutRequest(1000),
        nth if nth % 7 == 2 => Fault::CutAnswer(100_000),
        _ => Fault::None,
    });
    assert_eq!(count(&push(&bucket, &from), "copied"), 1);
    assert_eq!(count(&pull(&bucket, &to), "copied"), 1);
    assert_eq!(digests(&to), digests(&from));
    ok(&bucket, &["verify", URL]);
}

#[test]
fn an_answer_that_is_lost_is_no_second_change() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("file"), "content").unwrap();
    from.create(&[]);
    let lists = AtomicU32::new(0);
    // The first list and that with the snapshot are written, and the answers do not arrive.
    bucket.fail(move |request| {
        let is_cut = is_new_list(request) && lists.fetch_add(1, SeqCst) < 2;
        if is_cut { Fault::CutAnswer(0) } else { Fault::None }
    });
    assert_eq!(count(&push(&bucket, &from), "copied"), 1);
    assert_eq!(bucket.objects("of/web/lists").len(), 2);
    assert_eq!(ok(&bucket, &["list", "--json", URL]).json().as_array().unwrap().len(), 1);
}

#[test]
fn a_change_that_does_not_arrive_is_made_again() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("file"), "content").unwrap();
    from.create(&[]);
    let (head, list) = (AtomicU32::new(0), AtomicU32::new(0));
    bucket.fail(move |request| match request.is_conditional {
        true if request.path.contains("/lists/") && list.fetch_add(1, SeqCst) < 2 => Fault::CutRequest(20),
        true if request.path.ends_with("/volferry") && head.fetch_add(1, SeqCst) < 2 => Fault::CutRequest(20),
        _ => Fault::None,
    });
    assert_eq!(count(&push(&bucket, &from), "copied"), 1);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn a_server_that_ignores_conditions_gets_no_change() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("file"), "content").unwrap();
    let first = from.create(&[]);
    let overwrite = |request: &Request| {
        if request.is_conditional { Fault::Overwrite } else { Fault::None }
    };
    bucket.fail(overwrite);
    let copy = || command(&bucket, &["copy", "--all", text(&from), URL]);
    let words = ["s3://snapshots/of/web ignores If-None-Match", "none was changed"];
    fails(copy(), 1, &words);
    assert_eq!(bucket.objects("of/web").into_keys().collect::<Vec<_>>(), ["volferry", "volferry-copy"]);
    bucket.fail(|_| Fault::None);
    fs::write(from.path().join("file"), "another content").unwrap();
    from.create(&[]);
    push(&bucket, &from);
    // Another server has the bucket now.
    bucket.fail(overwrite);
    let before = bucket.objects("");
    assert_eq!(count(&push(&bucket, &from), "present"), 2, "nothing is written, so nothing is tried");
    fs::write(from.path().join("file"), "a third content").unwrap();
    from.create(&[]);
    fails(copy(), 1, &words);
    fails(command(&bucket, &["forget", URL, &first]), 1, &words);
    fails(command(&bucket, &["prune", "--keep-last", "1", URL]), 1, &words);
    assert_eq!(bucket.objects(""), before);
    bucket.fail(|_| Fault::None);
    push(&bucket, &from);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn a_copy_that_is_killed_shows_nothing_and_the_next_one_sends_the_rest() {
    let (bucket, from) = (Bucket::new(), large_volume(2, 36));
    let (tell, told) = mpsc::channel();
    let (keep, wait) = mpsc::channel::<()>();
    let (mut first, root) = (None, bucket.path(".."));
    bucket.fail(move |request| {
        if request.method == "PUT" && is_pack(request) {
            let first = first.get_or_insert_with(|| root.join(request.path.trim_start_matches('/')));
            if !request.path.ends_with(first.file_name().unwrap().to_str().unwrap()) {
                // Holds the second pack, and all that follows, from when the first one is there until the copy is dead.
                wait::poll(|| first.exists(), || "the first pack does not arrive".into());
                let _ = tell.send(());
                let _ = wait.recv();
            }
        }
        Fault::None
    });
    let mut copy = command(&bucket, &["copy", "--all", text(&from), URL]);
    let mut copy = copy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while told.recv_timeout(PATIENCE).is_err() {
        assert!(copy.try_wait().unwrap().is_none(), "the copy ended before its second pack");
    }
    copy.kill().unwrap();
    copy.wait().unwrap();
    drop(keep);
    bucket.fail(|_| Fault::None);
    assert_eq!(run(&bucket, &["list", "--json", URL]).json().as_array().unwrap().len(), 0);
    let there: u64 = bucket.objects("of/web/packs").values().sum();
    assert!(there > 10 << 20, "a pack arrived: {there}");
    let said = push(&bucket, &from);
    assert_eq!(count(&said, "copied"), 1);
    let sent = said["bytes"].as_u64().unwrap();
    assert!(sent < 25 << 20, "{sent} of 36 MiB, {there} were there");
    assert_comes_back(&bucket, &from);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn two_copies_at_once_lose_nothing_of_each_other() {
    let bucket = Bucket::new();
    let volumes: Vec<Volume> = (0..4)
        .map(|nth| {
            let volume = Volume::new();
            tree::many(volume.path(), 20, 500);
            for change in 0..3 {
                fs::write(volume.path().join("file"), format!("{nth} {change}")).unwrap();
                volume.create(&[]);
            }
            volume
        })
        .collect();
    // The key is made before they begin.
    drop(command(&bucket, &[]));
    thread::scope(|scope| {
        volumes.iter().for_each(|volume| drop(scope.spawn(|| push(&bucket, volume))));
    });
    let to = Volume::new();
    assert_eq!(count(&pull(&bucket, &to), "copied"), 12);
    let mut expected = digests(&volumes[0]);
    volumes.iter().for_each(|volume| expected.extend(digests(volume)));
    assert_eq!(digests(&to), expected);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn a_copy_sends_again_what_a_prune_has_removed_before_it_was_published() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("shared"), Rng::new(8).bytes(300_000)).unwrap();
    let first = from.create(&[]);
    push(&bucket, &from);
    fs::write(from.path().join("other"), "content").unwrap();
    let second = from.create(&[]);
    let (tell, told) = mpsc::channel();
    let is_first = AtomicBool::new(true);
    bucket.fail(move |request| {
        // The copy is about to publish the second snapshot.
        if !is_new_list(request) || !is_first.swap(false, SeqCst) {
            return Fault::None;
        }
        let _ = tell.send(());
        Fault::Hold
    });
    let mut copy = command(&bucket, &["copy", "--json", text(&from), URL, &second]);
    let copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    told.recv().unwrap();
    // The content of the first snapshot is needed by none that is published.
    ok(&bucket, &["forget", URL, &first]);
    let pruned = ok(&bucket, &["prune", "--forgotten", "--json", URL]).json();
    assert!(pruned["freedBytes"].as_u64() > Some(300_000), "{pruned}");
    bucket.release();
    let said = Said::from(copy.wait_with_output().unwrap()).exits(0);
    assert_eq!(count(&said.json(), "copied"), 1);
    ok(&bucket, &["verify", URL]);
    let to = Volume::new();
    pull(&bucket, &to);
    assert_eq!(digests(&to).into_keys().collect::<Vec<_>>(), [second]);
    to.ok("verify", &["--no-heal"]);
}

/// Runs a command that is held at its first read of a pack, until a prune has put all packs together.
#[track_caller]
fn beside_a_prune(bucket: &Bucket, mut command: Command) -> Said {
    let (tell, told) = mpsc::channel();
    let is_first = AtomicBool::new(true);
    bucket.fail(move |request| {
        if request.method != "GET" || !is_pack(request) || !is_first.swap(false, SeqCst) {
            return Fault::None;
        }
        let _ = tell.send(());
        Fault::Hold
    });
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    told.recv_timeout(PATIENCE).unwrap();
    let before = bucket.objects("of/web/packs");
    ok(bucket, &["prune", "--keep-last", "9", URL]);
    let after = bucket.objects("of/web/packs");
    assert!(after.keys().all(|name| !before.contains_key(name)), "each pack went");
    bucket.release();
    Said::from(child.wait_with_output().unwrap())
}

#[test]
fn a_copy_back_finds_what_a_prune_has_moved_meanwhile() {
    let (bucket, from, to) = (Bucket::new(), with_snapshots(10), Volume::new());
    push(&bucket, &from);
    let said = beside_a_prune(&bucket, command(&bucket, &["copy", "--all", "--json", URL, text(&to)]));
    // The oldest snapshot went, and is named as what cannot be copied.
    assert_eq!((said.code, count(&said.json(), "copied")), (Some(3), 9), "{said:?}");
    let newest = digests(&from).into_iter().filter(|(id, _)| digests(&to).contains_key(id));
    assert_eq!(digests(&to), newest.collect());
    to.ok("verify", &["--no-heal"]);
}

#[test]
fn a_verify_finds_no_damage_in_what_a_prune_moves_or_removes_meanwhile() {
    let (bucket, from) = (Bucket::new(), with_snapshots(10));
    push(&bucket, &from);
    beside_a_prune(&bucket, command(&bucket, &["verify", URL])).exits(0);
}

#[test]
fn blobs_come_back_in_their_order_where_a_range_of_them_is_refused() {
    let (bucket, from, to) = (Bucket::new(), Volume::new(), Volume::new());
    for nth in 0..12 {
        let folder = from.path().join(format!("d{nth}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), Rng::new(nth).bytes(900_000)).unwrap();
    }
    from.create(&[]);
    push(&bucket, &from);
    let refused = AtomicU32::new(0);
    // That of the 12 directories, which are then read one by one, and one of the contents.
    bucket.fail(move |request| {
        let is_range = request.is_range && is_pack(request);
        let is_it = is_range && [1, 14].contains(&refused.fetch_add(1, SeqCst));
        if is_it { Fault::Answer(INVALID_RANGE) } else { Fault::None }
    });
    assert_eq!(count(&pull(&bucket, &to), "copied"), 1);
    assert_eq!(digests(&to), digests(&from));
    to.ok("verify", &["--no-heal"]);
}

const INVALID_RANGE: &str = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Type: application/xml\r\n\
     Content-Length: 40\r\nConnection: close\r\n\r\n<Error><Code>InvalidRange</Code></Error> ";

/// Runs a command that has to fail with this code and these words, and which shows no secret.
#[track_caller]
fn fails(mut command: Command, code: i32, words: &[&str]) {
    let said = Said::from(command.output().unwrap());
    assert_eq!(said.code, Some(code), "{said:?}");
    words.iter().for_each(|words| assert!(said.stderr.contains(words), "{words}: {said:?}"));
    assert!(said.stderr.contains("hint: ") && !said.stderr.contains("a secret of the tests"), "{said:?}");
}

#[test]
fn what_is_wrong_is_named_with_the_next_step() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("file"), "content").unwrap();
    from.create(&[]);
    let copy = |url| command(&bucket, &["copy", "--all", text(&from), url]);
    fails(copy("s3://other/of/web"), 1, &["there is no bucket other"]);
    let list = || command(&bucket, &["copy", "--all", URL, text(&from)]);
    fails(list(), 1, &["s3://snapshots/of/web has no snapshots"]);
    push(&bucket, &from);

    let mut without_key = copy(URL);
    fails_with(
        &mut without_key,
        |it| it.env_remove("VOLFERRY_KEY_FILE"),
        1,
        "the key of the store is not named",
    );
    let mut other_key = copy(URL);
    let other = bucket.beside("other");
    assert!(Command::new(program()).args(["snapshot", "key"]).arg(&other).output().unwrap().status.success());
    fails_with(&mut other_key, |it| it.arg("--key-file").arg(&other), 6, "the key does not fit");
    let mut no_key = copy(URL);
    fs::copy(&other, bucket.beside("text")).unwrap();
    fs::write(bucket.beside("text"), "{}").unwrap();
    fails_with(
        &mut no_key,
        |it| it.arg("--key-file").arg(bucket.beside("text")),
        1,
        "has no key of object storage",
    );
    let mut nobody = copy(URL);
    fails_with(&mut nobody, |it| it.env_remove("AWS_ACCESS_KEY_ID"), 1, "has no credentials");
    let mut wrong = copy(URL);
    fails_with(&mut wrong, |it| it.env("AWS_SECRET_ACCESS_KEY", "wrong"), 1, "refuses to read volferry");

    let head = bucket.path("of/web/volferry");
    let mut newer = fs::read(&head).unwrap();
    newer[8] = 9;
    fs::write(&head, newer).unwrap();
    fails(copy(URL), 1, &["has format version 9", "newer volferry"]);
    let head_copy = bucket.path("of/web/volferry-copy");
    let right = fs::read(&head_copy).unwrap();
    for lost in [None, Some("something else")] {
        let _ = fs::remove_file(&head);
        lost.into_iter().for_each(|text| fs::write(&head, text).unwrap());
        from.create(&[]);
        push(&bucket, &from);
        assert_eq!(fs::read(&head).unwrap(), right, "what writes next brings the head back");
    }
    fs::remove_file(head_copy).unwrap();
    fs::write(&head, "something else").unwrap();
    fails(copy(URL), 1, &["has other objects"]);
    fails(command(&bucket, &["copy", "--all", text(&from), "s3://snapshots/of"]), 1, &["has other objects"]);
    fs::remove_file(&head).unwrap();
    for without_head in [copy(URL), command(&bucket, &["list", URL])] {
        fails(without_head, 1, &["has the objects of a store but one, `volferry`", "bring back"]);
    }
}

#[track_caller]
fn fails_with(
    command: &mut Command,
    change: impl FnOnce(&mut Command) -> &mut Command,
    code: i32,
    words: &str,
) {
    let said = Said::from(change(command).output().unwrap());
    assert_eq!(said.code, Some(code), "{said:?}");
    assert!(said.stderr.contains(words) && said.stderr.contains("hint: "), "{words}: {said:?}");
    assert!(!said.stderr.contains("a secret of the tests"), "{said:?}");
}

#[test]
fn a_store_whose_clock_is_another_says_so() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("file"), "content").unwrap();
    from.create(&[]);
    bucket.fail(|_| Fault::Refuse("RequestTimeTooSkewed"));
    fails(
        command(&bucket, &["copy", "--all", text(&from), URL]),
        1,
        &["the clock of this machine", "set the clock"],
    );
    bucket.fail(|_| Fault::Refuse("AccessDenied"));
    fails(command(&bucket, &["copy", "--all", text(&from), URL]), 1, &["AccessDenied", "rights"]);
}
