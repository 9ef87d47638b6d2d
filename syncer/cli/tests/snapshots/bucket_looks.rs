//! Snapshots in object storage are looked into where they are, as those of a volume.

use crate::{
    bucket::{URL, command, ok, push, run, text},
    common::{object_storage::Bucket, prelude::*},
    volume::Volume,
};

/// A volume with two snapshots of many kinds of entries, and their copies in the bucket.
fn two_snapshots(bucket: &Bucket) -> Volume {
    let volume = Volume::new();
    tree::gallery(volume.path(), Shape::Everything);
    tree::files(volume.path(), &["deep/er/and/deeper/file", "deep/other/file", "deep/third/file"], "content");
    tree::file(&volume.path().join("deep/large"), &Rng::new(3).bytes(9 << 20));
    let holes = fs::File::create(volume.path().join("deep/holes")).unwrap();
    holes.write_all_at(b"after a hole", 3 << 20).unwrap();
    holes.set_len(12 << 20).unwrap();
    fs::write(volume.path().join("deep/text"), "one\ntwo\n").unwrap();
    fs::write(volume.path().join("another"), "another file with two names").unwrap();
    fs::hard_link(volume.path().join("another"), volume.path().join("deep/second name")).unwrap();
    volume.create(&["--tag", "first"]);
    fs::write(volume.path().join("deep/text"), "one\nthree\n").unwrap();
    fs::remove_file(volume.path().join("deep/third/file")).unwrap();
    tree::set_mode(&volume.path().join("deep/other"), 0o700);
    volume.create(&["--tag", "second"]);
    push(bucket, &volume);
    volume
}

#[test]
fn each_look_into_a_bucket_shows_what_the_same_look_into_the_volume_does() {
    let bucket = Bucket::new();
    let volume = two_snapshots(&bucket);
    for look in [
        "ls -R first",
        "ls --json second deep",
        "ls first deep/text",
        "cat first deep/text",
        "cat second deep/large",
        "cat latest deep/holes",
        "cat latest another",
        "diff first second",
        "diff --content first second deep",
        "diff --json second first",
        "history deep/text",
        "history --json deep/third/file",
        "find *file*",
        "find --json deep/",
        "export first --tar",
        "export latest --path deep --path another --tar",
        "export latest --path deep/large --tar",
    ] {
        let words: Vec<&str> = look.split(' ').collect();
        let of = |place: &str| {
            let at = words.iter().position(|word| !word.starts_with('-') && *word != words[0]).unwrap();
            let mut args = words.clone();
            args.insert(at, place);
            let done = command(&bucket, &args).output().unwrap();
            assert!(done.status.success(), "{look} of {place}: {done:?}");
            done.stdout
        };
        let (here, there) = (of(text(&volume)), of(URL));
        assert!(!here.is_empty(), "{look}");
        assert!(here == there, "{look}:\n{}\n{}", show_start(&here), show_start(&there));
    }
    let shown = |place: &str| ok(&bucket, &["show", "--json", place, "first"]).json();
    let (here, there) = (shown(text(&volume)), shown(URL));
    for field in ["id", "tags", "entries", "bytes", "began", "inMotion"] {
        assert_eq!(here[field], there[field], "{field}");
    }
}

fn show_start(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned()
}

#[test]
fn a_folder_of_a_bucket_comes_back_alone_through_tar_with_the_files_that_its_links_lead_to() {
    let bucket = Bucket::new();
    let volume = two_snapshots(&bucket);
    let (tar, to) = (bucket.beside("some.tar"), scratch::scratch());
    ok(&bucket, &["export", URL, "second", "--path", "deep", "--tar", tar.to_str().unwrap()]);
    run_tar(&tar, to.path());
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1);
    let expected = Snapshot::of(&volume.path().join("deep"));
    Snapshot::of(&to.path().join("deep")).assert_like(&expected, COPY, "the folder");
}

fn run_tar(tar: &Path, to: &Path) {
    let flags = [
        "--extract",
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--numeric-owner",
        "--preserve-permissions",
    ];
    let done =
        Command::new("tar").args(flags).arg("--file").arg(tar).arg("--directory").arg(to).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn what_a_look_does_not_find_and_what_is_damaged_is_named() {
    let bucket = Bucket::new();
    for look in [&["ls", URL, "latest"][..], &["cat", URL, "latest", "file"], &["find", URL, "file"]] {
        let said = run(&bucket, look);
        assert!(said.code == Some(1) && said.stderr.contains("has no snapshots"), "{look:?}: {said:?}");
    }
    two_snapshots(&bucket);
    for (look, named) in [
        (&["ls", URL, "third"][..], "there is no snapshot third"),
        (&["cat", URL, "first", "nosuch"], "has no nosuch"),
        (&["cat", URL, "first", "deep"], "is no file, but a directory"),
        (&["export", URL, "first", "--path", "nosuch", "--tar"], "has no nosuch"),
        (&["mount", URL, "/mnt"], "is no volume"),
    ] {
        let said = run(&bucket, look);
        assert!(said.code != Some(0) && said.stderr.contains(named), "{look:?}: {said:?}");
    }
    for name in bucket.objects("of/web/packs").keys() {
        let path = bucket.path("of/web/packs").join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
        fs::write(&path, bytes).unwrap();
    }
    let said = run(&bucket, &["cat", URL, "first", "deep/large"]);
    assert!(said.code != Some(0) && said.stdout.is_empty() && said.stderr.contains("is damaged"), "{said:?}");
}
