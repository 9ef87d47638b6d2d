//! Object storage, and volumes beside it, without room: what is there stays whole, and what did not fit comes later.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::{
    bucket::{count, ok, run, text},
    bucket_kills::with_snapshots,
    common::{
        mount::FileSystem,
        object_storage::{Bucket, Fault},
        oracle::{COPY, Snapshot},
        rng::Rng,
    },
    copy::digests,
    volume::Volume,
};

#[test]
fn a_store_without_room_lists_nothing_new_and_is_continued() {
    let (bucket, from) = (Bucket::new(), with_snapshots(3));
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
            let to = Volume::new();
            ok(&bucket, &["copy", "--all", url, text(&to)]);
            return assert_eq!(digests(&to), digests(&from));
        }
        assert_eq!(said.code, Some(1), "{room}: {said:?}");
        assert!(said.stderr.contains("QuotaExceeded") && said.stderr.contains("hint: "), "{said:?}");
        if room > 0 {
            let listed = ok(&bucket, &["list", "--json", url]).json();
            let listed = listed.as_array().unwrap().iter().map(|one| one["digest"].as_str().unwrap());
            assert!(listed.into_iter().all(|tree| digests(&from).values().any(|known| known == tree)));
            run(&bucket, &["verify", url]).assert_undamaged();
        }
    }
    panic!("no copy found room");
}

#[test]
fn snapshots_leave_a_full_disk_for_object_storage_and_return_only_where_they_fit() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("16m") else { return };
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
    let said = run(&bucket, &["copy", "--all", url, text(&to)]).exits(1);
    assert!(said.stderr.contains(" are to be copied to") && said.stderr.contains("hint: "), "{said:?}");
    assert_eq!(to.list(), [] as [serde_json::Value; 0]);
    let to = Volume::new();
    ok(&bucket, &["copy", "--all", url, text(&to)]);
    assert_eq!(digests(&to), digests(&from));
}

#[test]
fn a_restore_of_what_came_back_without_room_is_refused_and_leaves_no_file_in_part() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("9m") else { return };
    let (bucket, from) = (Bucket::new(), Volume::new());
    for nth in 0..5 {
        fs::write(from.path().join(format!("file{nth}")), Rng::new(nth).bytes(1 << 20)).unwrap();
    }
    from.create(&[]);
    let url = "s3://snapshots/of/web";
    ok(&bucket, &["copy", "--all", text(&from), url]);
    let to = Volume::in_dir(mounted.folder());
    ok(&bucket, &["copy", "--all", url, text(&to)]);
    // The store has 5 MiB of 9 MiB, so that the files do not fit beside it.
    let said = to.run("restore", &["latest", "--trust-store", "--no-safety"]);
    assert!(said.code == Some(4) && said.stderr.contains("free"), "{said:?}");
    assert!((0..5).all(|nth| !to.path().join(format!("file{nth}")).exists()), "{said:?}");
    to.ok("verify", &["--no-heal"]);
    let other = from.path().with_file_name("restored");
    to.ok("restore", &["latest", "--trust-store", "--to", other.to_str().unwrap()]);
    Snapshot::of(&other).assert_like(&Snapshot::of(from.path()), COPY, "what came back");
}
