//! Copies into object storage that are killed at any request, or refused for want of room: what is listed there is
//! whole, and the next copy sends the rest.

use std::{
    fs,
    process::Stdio,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use crate::{
    bucket::{command, count, ok, run, text},
    common::{
        mount::FileSystem,
        object_storage::{Bucket, Fault},
        rng::Rng,
    },
    copy::digests,
    volume::Volume,
};

/// The number of copies to kill. `VOLFERRY_KILLS` sets another number.
const KILLS: usize = 40;

/// Makes a volume with snapshots of which each has packs of its own.
fn with_three() -> Volume {
    let volume = Volume::new();
    fs::create_dir(volume.path().join("dir")).unwrap();
    for nth in 0..3_u64 {
        fs::write(volume.path().join("dir/small"), nth.to_string()).unwrap();
        fs::write(volume.path().join("large"), Rng::new(nth).bytes(3 << 20)).unwrap();
        volume.create(&[]);
    }
    volume
}

/// Checks that the store lists no snapshot but whole ones of the volume, and returns their number.
#[track_caller]
fn whole(bucket: &Bucket, url: &str, from: &Volume) -> usize {
    let listed = ok(bucket, &["list", "--json", url]).json();
    let expected = digests(from);
    for one in listed.as_array().unwrap() {
        let [id, digest] = ["id", "digest"].map(|key| one[key].as_str().unwrap());
        assert_eq!(expected.get(id).map(String::as_str), Some(digest));
    }
    let count = listed.as_array().unwrap().len();
    if count > 0 {
        ok(bucket, &["verify", url]);
    }
    count
}

/// Copies what is missing, and checks that all of it comes back.
#[track_caller]
fn goes_on(bucket: &Bucket, url: &str, from: &Volume) {
    ok(bucket, &["copy", "--all", text(from), url]);
    assert_eq!(whole(bucket, url, from), digests(from).len());
    let to = Volume::new();
    ok(bucket, &["copy", "--all", url, text(&to)]);
    assert_eq!(digests(&to), digests(from));
}

/// Kills the program while it waits for the answer to a request, which the server gets not at all, in part, or as a
/// whole.
#[test]
fn a_copy_that_is_killed_at_any_request_leaves_whole_snapshots_and_is_continued() {
    let kills = std::env::var("VOLFERRY_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let (bucket, from, mut rng) = (Bucket::new(), with_three(), Rng::new(31));
    ok(&bucket, &["copy", "--all", text(&from), "s3://snapshots/usual"]);
    let requests = bucket.seen().len();
    let mut unlisted = 0;
    for round in 0..kills {
        let url = format!("s3://snapshots/of/{}", round / 3);
        let (at, fault) = (rng.below(requests as u64) as usize, rng.below(4));
        let ((reached, is_reached), (dead, is_dead)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let nth = AtomicUsize::new(0);
        bucket.fail(move |_| {
            if nth.fetch_add(1, SeqCst) != at {
                return Fault::None;
            }
            let _ = reached.send(());
            let _ = is_dead.recv();
            match fault {
                0 => Fault::CutRequest(0),
                1 => Fault::CutRequest(1000),
                _ => Fault::None,
            }
        });
        let mut copy = command(&bucket, &["copy", "--all", text(&from), &url]);
        let mut copy = copy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // A copy that goes on makes fewer requests, and may end before.
        let ended = loop {
            match is_reached.recv_timeout(Duration::from_millis(10)) {
                Ok(()) => break false,
                Err(_) if copy.try_wait().unwrap().is_some() => break true,
                Err(_) => {}
            }
        };
        copy.kill().unwrap();
        copy.wait().unwrap();
        drop(dead);
        assert!(!ended || round % 3 > 0, "round {round}: request {at} of {requests} did not come");
        bucket.fail(|_| Fault::None);
        unlisted += usize::from(whole(&bucket, &url, &from) < 3);
        if round % 3 == 2 {
            goes_on(&bucket, &url, &from);
        }
    }
    assert!(unlisted > kills / 4, "only {unlisted} of {kills} copies were cut off");
}

#[test]
fn a_store_without_room_lists_nothing_new_and_is_continued() {
    let (bucket, from) = (Bucket::new(), with_three());
    let url = "s3://snapshots/of/web";
    for room in 0..12 {
        // What has room is written, and all else is refused.
        let written = AtomicUsize::new(0);
        bucket.fail(move |request| {
            let is_full = request.method == "PUT" && written.fetch_add(1, SeqCst) >= room;
            if is_full { Fault::Refuse("QuotaExceeded") } else { Fault::None }
        });
        let said = run(&bucket, &["copy", "--all", text(&from), url]);
        bucket.fail(|_| Fault::None);
        if said.code == Some(0) {
            assert!(room > 3, "{room}");
            return goes_on(&bucket, url, &from);
        }
        assert_eq!(said.code, Some(1), "{room}: {said:?}");
        assert!(said.stderr.contains("QuotaExceeded") && said.stderr.contains("hint: "), "{said:?}");
        if room > 0 {
            whole(&bucket, url, &from);
        }
    }
    panic!("no copy found room");
}

#[test]
fn snapshots_leave_a_full_disk_for_object_storage_and_return_only_where_they_fit() {
    let Ok(mounted) = FileSystem::Tmpfs.mount_of("16m") else {
        eprintln!("skipped: only root may mount");
        return;
    };
    let (bucket, from) = (Bucket::new(), Volume::in_dir(mounted.folder()));
    fs::write(from.path().join("file"), Rng::new(5).bytes(5 << 20)).unwrap();
    from.create(&[]);
    let url = "s3://snapshots/of/web";
    let free =
        || rustix::fs::statvfs(from.path()).map(|stat| (stat.f_bavail * stat.f_frsize) as usize).unwrap();
    fs::write(from.path().join("rest"), vec![7; free()]).unwrap();
    assert_eq!(free(), 0);
    assert_eq!(count(&ok(&bucket, &["copy", "--all", "--json", text(&from), url]).json(), "copied"), 1);
    let small = FileSystem::Tmpfs.mount_of("4m").unwrap();
    let to = Volume::in_dir(small.folder());
    let said = run(&bucket, &["copy", "--all", url, text(&to)]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains(" are to be copied to") && said.stderr.contains("hint: "), "{said:?}");
    assert_eq!(to.list(), [] as [serde_json::Value; 0]);
    let to = Volume::new();
    ok(&bucket, &["copy", "--all", url, text(&to)]);
    assert_eq!(digests(&to), digests(&from));
}
