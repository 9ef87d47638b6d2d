//! Snapshots as tar archives: GNU tar is the judge of those that are written, and the source of those that are read.

use std::{io::Write as _, process::Stdio};

use crate::common::prelude::*;
use crate::{
    common::oracle::assert_copy,
    volume::{Said, Volume},
};

/// Exports a snapshot, and returns the archive.
#[track_caller]
fn export(volume: &Volume, id: &str) -> Vec<u8> {
    let output = volume.command("export", &[id, "--tar"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn import(volume: &Volume, archive: &[u8], args: &[&str]) -> Said {
    let mut command = volume.command("import", &[&["--tar"], args].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that refuses an archive may end before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(archive);
    child.wait_with_output().unwrap().into()
}

#[track_caller]
fn import_ok(volume: &Volume, archive: &[u8]) -> String {
    let said = import(volume, archive, &[]).exits(0);
    said.stdout.trim().to_owned()
}

fn digest(volume: &Volume, id: &str) -> String {
    volume.run("show", &[id, "--json"]).json()["digest"].as_str().unwrap().to_owned()
}

/// Runs GNU tar.
#[track_caller]
fn gnu_tar(args: &[&str]) -> Vec<u8> {
    let output = Command::new("tar").args(args).output().unwrap();
    assert!(output.status.success(), "tar {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

const ALL: [&str; 4] = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"];

/// Has GNU tar write an archive of a volume's files.
fn archive_of(volume: &Volume, args: &[&str]) -> Vec<u8> {
    let of = ["--exclude=./.volferry", "-C", text(volume.path()), "-cf", "-", "."];
    gnu_tar(&[args, &ALL[..], &of].concat())
}

/// Makes a volume with every kind of entry, attribute, time and hole that this user may make.
fn everything(seed: u64) -> Volume {
    let (volume, mut rng) = (Volume::new(), Rng::new(seed));
    tree::random(volume.path(), &mut rng, 80, Shape::Everything);
    tree::gallery(volume.path(), Shape::Everything);
    volume
}

#[test]
fn an_exported_snapshot_has_the_same_bytes_twice_and_comes_back_with_the_same_digest() {
    for seed in 1..4 {
        let volume = everything(seed);
        let id = volume.create(&[]);
        let archive = export(&volume, &id);
        assert!(archive == export(&volume, &id), "seed {seed}: the same bytes twice");
        let other = Volume::new();
        let imported = import_ok(&other, &archive);
        assert_eq!(digest(&other, &imported), digest(&volume, &id), "seed {seed}");
        assert!(archive == export(&other, &imported), "seed {seed}: the same bytes of another store");
        other.ok("verify", &[]);
        let shown = [&volume, &other].map(|volume| volume.run("show", &["latest", "--json"]).json());
        for field in ["entries", "bytes"] {
            assert_eq!(shown[0][field], shown[1][field], "seed {seed}: {field}");
        }
    }
}

#[test]
fn gnu_tar_makes_of_an_exported_snapshot_what_it_was_taken_of() {
    let volume = everything(7);
    // By their bytes, `links-` comes before `links/first`, and after it in a walk.
    tree::files(volume.path(), &["links-", "links/other"], "content");
    for name in ["first", "last"] {
        fs::hard_link(volume.path().join("links-"), volume.path().join("links").join(name)).unwrap();
    }
    volume.create(&[]);
    let place = scratch::scratch();
    let (archive, to) = (place.path().join("archive.tar"), scratch::dir(place.path(), "to"));
    volume.ok("export", &["latest", "--tar", text(&archive)]);
    gnu_tar(&[&["-p", "--same-owner", "-C", text(&to), "-xf", text(&archive)], &ALL[..]].concat());
    assert_copy(&to, volume.path(), "what GNU tar unpacked");
    let listed = gnu_tar(&["-tf", text(&archive)]);
    assert!(listed.starts_with(b"./\n"));
}

#[test]
fn archives_of_gnu_tar_in_each_of_its_forms_are_read() {
    let volume = everything(11);
    // GNU tar makes two pipes of one with two names.
    fs::remove_file(volume.path().join("hard links/below/pipe")).unwrap();
    let id = volume.create(&[]);
    let forms: [&[&str]; 5] = [
        &["--format=pax"],
        &["--format=pax", "--sparse"],
        &["--format=pax", "--sparse", "--sparse-version=0.1"],
        &["--format=pax", "--sparse", "--sparse-version=0.0"],
        &["--format=pax", "--sort=name", "-S", "-b1"],
    ];
    for form in forms {
        let other = Volume::new();
        let imported = import_ok(&other, &archive_of(&volume, form));
        let to = Volume::new();
        other.ok("restore", &[&imported, "--trust-store", "--to", text(to.path())]);
        assert_copy(to.path(), volume.path(), form[0]);
        assert_eq!(digest(&other, &imported), digest(&volume, &id), "{form:?}");
    }
}

#[test]
fn forms_without_nanoseconds_and_attributes_are_read_too() {
    let volume = Volume::new();
    tree::files(volume.path(), &["a/one", &format!("{}/two", "long name ".repeat(15)), "b/three"], "content");
    fs::hard_link(volume.path().join("b/three"), volume.path().join("a/link")).unwrap();
    tree::sparse(&volume.path().join("sparse"), &mut Rng::new(3));
    // So many holes that they do not fit into a header.
    let fragments = fs::File::create(volume.path().join("fragments")).unwrap();
    for nth in 0..60 {
        std::os::unix::fs::FileExt::write_all_at(&fragments, &[7; 100], nth * 100_000).unwrap();
    }
    for path in ["", "a", "b", "a/one", "b/three", "sparse", "fragments", &"long name ".repeat(15)] {
        tree::set_mtime(&volume.path().join(path), 1_700_000_000, 0);
    }
    let id = volume.create(&[]);
    for form in [&["--format=gnu", "--sparse"][..], &["--format=gnu"], &["--format=oldgnu", "-S"]] {
        let other = Volume::new();
        let of = ["--exclude=./.volferry", "--mtime=@1700000000", "-C", text(volume.path()), "-cf", "-", "."];
        let imported = import_ok(&other, &gnu_tar(&[form, &of].concat()));
        let there = export(&other, &imported);
        let place = Volume::new();
        other.ok("restore", &[&imported, "--trust-store", "--to", text(place.path())]);
        Snapshot::of(place.path()).assert_like(&Snapshot::of(volume.path()), NO_TIMES, "unpacked");
        assert!(there.len() < 2 << 20, "{form:?}: holes stay holes, {}", there.len());
    }
    assert!(!id.is_empty());
}

const NO_TIMES: crate::common::oracle::Aspects = crate::common::oracle::Aspects { times: false, ..COPY };

#[test]
fn an_imported_snapshot_is_restored_without_what_gives_rights_unless_the_archive_is_trusted() {
    let volume = Volume::new();
    tree::file(&volume.path().join("program"), b"#!/bin/sh\n");
    tree::set_mode(&volume.path().join("program"), 0o4755);
    let id = volume.create(&[]);
    let other = Volume::new();
    let imported = import_ok(&other, &export(&volume, &id));
    assert!(other.ok("list", &[]).contains("(not trusted)"));
    let mode = |path: PathBuf| std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).unwrap()) & 0o7777;
    let place = scratch::scratch();
    for (name, flags, expected) in [("doubted", &[][..], 0o755), ("trusted", &["--trust-store"], 0o4755)] {
        let to = scratch::dir(place.path(), name);
        other.ok("restore", &[&[imported.as_str(), "--to", text(&to)], flags].concat());
        assert_eq!(mode(to.join("program")), expected, "{name}");
    }
}

#[test]
fn an_import_leaves_the_volumes_files_and_its_other_snapshots_as_they_are_and_takes_labels() {
    let (from, to) = (everything(2), everything(3));
    let archive = export(&from, &from.create(&[]));
    let before = (to.create(&[]), Snapshot::of(to.path()));
    let said = import(&to, &archive, &["--tag", "from-tar", "--note", "a note", "--pin", "--json"]);
    let imported = said.json();
    assert_eq!(imported["tags"][0], "from-tar", "{imported}");
    assert_eq!((&imported["note"], &imported["pinned"]), (&"a note".into(), &true.into()));
    assert_eq!(imported["leftOut"], 0);
    Snapshot::of(to.path()).assert_like(&before.1, UNTOUCHED, "the volume's files");
    assert_eq!(to.list().len(), 2);
    assert_eq!(to.run("diff", &[&before.0, &before.0]).code, Some(0));
    let after = to.create(&[]);
    assert_eq!(digest(&to, &after), digest(&to, &before.0), "the next snapshot is of the files");
    to.ok("verify", &[]);
}

/// Makes a header by hand, as no honest program does.
fn header(kind: u8, path: &str, link: &str, len: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    [(100, "0000644"), (108, "0000000"), (116, "0000000")].iter().for_each(|(at, number)| put(*at, number));
    put(124, &format!("{len:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(157, link);
    put(257, "ustar\x0000");
    block[156] = kind;
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn data(bytes: &[u8]) -> Vec<u8> {
    let mut data = bytes.to_vec();
    data.resize(data.len().next_multiple_of(512), 0);
    data
}

/// Returns a pax header with these records.
fn records(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        text.push_str(&format!("{} {key}={value}\n", rest + (rest + 2).to_string().len()));
    }
    [header(b'x', "pax", "", text.len() as u64), data(text.as_bytes())].concat()
}

const END: [u8; 1024] = [0; 1024];

/// Returns hostile archives, each with a part of what is said of it.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let file = |path: &str| [header(b'0', path, "", 3), data(b"abc")].concat();
    let sparse = |len: &str| {
        let map = [("GNU.sparse.major", "1"), ("GNU.sparse.name", "hole"), ("GNU.sparse.realsize", len)];
        [records(&map), header(b'0', "GNUSparseFile.0/hole", "", 512), data(b"0\n")].concat()
    };
    let mut damaged = file("file");
    damaged[0] = b'g';
    vec![
        ("leads out of the tree", file("../outside")),
        ("leads out of the tree", file("a/../../outside")),
        ("leads out of the tree", file("/etc/passwd")),
        ("leads out of the tree", [records(&[("path", "/etc/cron.d/x")]), file("x")].concat()),
        ("leads out of the tree", [file("x"), header(b'1', "y", "../x", 0)].concat()),
        ("does not have before it", header(b'1', "link", "etc/passwd", 0)),
        ("does not have before it", header(b'1', "link", "link", 0)),
        ("a hard link to a folder", [header(b'5', "dir/", "", 0), header(b'1', "link", "dir", 0)].concat()),
        ("in it twice", [file("same"), file("./same")].concat()),
        ("in it twice", [header(b'5', "dir", "", 0), header(b'5', "dir/", "", 0)].concat()),
        ("something else", [header(b'2', "link", "/etc", 0), file("link/passwd")].concat()),
        ("something else", [file("file"), header(b'5', "file/", "", 0)].concat()),
        ("Volferry keeps for itself", file(".volferry/snapshots/roots")),
        ("Volferry keeps for itself", header(b'2', "./.volferry", "/etc", 0)),
        ("without a target", header(b'2', "link", "", 0)),
        ("the root, and no folder", file("./")),
        ("of a kind that is not read", header(b'V', "label", "", 0)),
        ("longer than", sparse("9223372036854775807")),
        ("ends in the middle", header(b'0', "large", "", 0o77_777_777_777)),
        (
            "not in order",
            [records(&[("GNU.sparse.size", "10"), ("GNU.sparse.map", "0,5,3,5")]), file("x")].concat(),
        ),
        (
            "other data than",
            [records(&[("GNU.sparse.size", "10"), ("GNU.sparse.map", "0,5")]), file("x")].concat(),
        ),
        ("records of an entry are longer", header(b'x', "pax", "", 1 << 30)),
        ("a number cannot be read", [records(&[("uid", "root")]), file("x")].concat()),
        ("no system has", [records(&[("gid", "4294967295")]), file("x")].concat()),
        ("a time cannot be read", [records(&[("mtime", "9223372036854775807")]), file("x")].concat()),
        ("no file has", [records(&[("SCHILY.xattr.user.\0", "x")]), file("x")].concat()),
        ("no tar archive", damaged),
        ("no tar archive", vec![7; 512]),
        ("ends in the middle", Vec::new()),
    ]
}

#[test]
fn a_hostile_archive_is_refused_with_its_reason_and_nothing_is_left_of_it() {
    let volume = Volume::new();
    tree::files(volume.path(), &["own"], "content");
    volume.create(&[]);
    let before = (volume.run("list", &["--json"]).stdout, Snapshot::of(volume.path()), all_of(&volume));
    for (reason, archive) in hostile() {
        let large = [header(b'0', "large before it", "", 300_000), data(&vec![9; 300_000])].concat();
        let end = if archive.is_empty() { &[][..] } else { &END };
        let said = import(&volume, &[&large, &archive[..], end].concat(), &[]);
        assert_eq!(said.code, Some(1), "{reason}: {said:?}");
        assert!(said.stderr.contains(reason), "{reason}: {said:?}");
        let after = (volume.run("list", &["--json"]).stdout, Snapshot::of(volume.path()), all_of(&volume));
        assert_eq!((&after.0, &after.2), (&before.0, &before.2), "{reason}");
        after.1.assert_like(&before.1, UNTOUCHED, reason);
    }
}

/// Lists the files of a store.
fn all_of(volume: &Volume) -> Vec<String> {
    let found =
        Command::new("find").arg(volume.store("")).args(["-type", "f", "-printf", "%P %s\n"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let mut files: Vec<String> = found.lines().map(Into::into).collect();
    files.sort();
    files
}

#[test]
fn an_archive_that_is_cut_off_anywhere_is_refused_and_nothing_is_left_of_it() {
    let (from, to) = (Volume::new(), Volume::new());
    tree::files(from.path(), &["a/one", "a/two", "three"], "content");
    fs::write(from.path().join("large"), vec![5; 300_000]).unwrap();
    let archive = export(&from, &from.create(&[]));
    to.create(&[]);
    let before = (to.run("list", &["--json"]).stdout, all_of(&to));
    let ends = (0..archive.len() - 1024).step_by(512).filter(|at| *at < 4096 || at % 51_200 == 0);
    for end in ends.flat_map(|at| [at, at + 7]) {
        let said = import(&to, &archive[..end], &[]);
        assert!(said.code == Some(1) && said.stderr.contains("ends in the middle"), "cut at {end}: {said:?}");
        assert_eq!((to.run("list", &["--json"]).stdout, all_of(&to)), before, "cut at {end}");
    }
}

#[test]
fn an_archive_of_longer_files_than_are_allowed_is_refused_before_they_are_read() {
    let volume = Volume::new();
    fs::File::create(volume.path().join("hole")).unwrap().set_len(1 << 30).unwrap();
    let archive = export(&volume, &volume.create(&[]));
    assert!(archive.len() < 8192, "{}", archive.len());
    let said = import(&Volume::new(), &archive, &["--max-bytes", "1023Mi"]);
    assert!(said.code == Some(1) && said.stderr.contains("--max-bytes"), "{said:?}");
    assert_eq!(import(&Volume::new(), &archive, &["--max-bytes", "1Gi"]).code, Some(0));
}

#[test]
fn a_damaged_object_ends_an_export_and_leaves_no_file() {
    let volume = Volume::new();
    fs::write(volume.path().join("large"), vec![5; 300_000]).unwrap();
    volume.create(&["--tag", "first"]);
    crate::damage::flip(&crate::damage::only_file_below(&volume.store("content")), 1000);
    let place = scratch::scratch();
    let to = place.path().join("archive.tar");
    fs::write(&to, "an older archive").unwrap();
    let said = volume.run("export", &["first", "--tar", text(&to)]);
    assert!(said.code == Some(1) && said.stderr.contains("damaged"), "{said:?}");
    assert_eq!(fs::read_to_string(&to).unwrap(), "an older archive");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn an_export_goes_on_where_one_was_killed_and_not_where_one_writes_or_somebody_else_has_a_file() {
    let volume = Volume::new();
    tree::files(volume.path(), &["one"], "content");
    volume.create(&[]);
    let place = scratch::scratch();
    let (to, part) = (place.path().join("a.tar"), place.path().join("a.tar.part"));
    let export = || volume.run("export", &["latest", "--tar", text(&to)]);
    fs::write(&part, vec![7; 1 << 20]).unwrap();
    assert_eq!(export().code, Some(0));
    let whole = fs::read(&to).unwrap();
    assert!(whole.len() < 1 << 20 && fs::metadata(&to).unwrap().mode() & 0o777 == 0o600);
    assert!(!part.exists());
    let other = fs::File::create(&part).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let said = export();
    assert!(said.code == Some(1) && said.stderr.contains("another export"), "{said:?}");
    drop(other);
    fs::remove_file(&part).unwrap();
    tree::files(place.path(), &["mine"], "kept");
    let plants: [fn(PathBuf, PathBuf) -> std::io::Result<()>; 3] =
        [fs::hard_link, std::os::unix::fs::symlink, |_, part| {
            tree::pipe(&part);
            Ok(())
        }];
    for plant in plants {
        plant(place.path().join("mine"), part.clone()).unwrap();
        assert_eq!(export().code, Some(1));
        assert_eq!(fs::read_to_string(place.path().join("mine")).unwrap(), "kept");
        fs::remove_file(&part).unwrap();
    }
    assert_eq!(fs::read(&to).unwrap(), whole);
}

#[test]
fn an_import_onto_a_full_file_system_says_so_and_leaves_nothing() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("8m") else { return };
    let (from, to) = (Volume::new(), Volume::in_dir(mounted.folder()));
    fs::write(from.path().join("large"), Rng::new(1).bytes(12 << 20)).unwrap();
    let archive = export(&from, &from.create(&[]));
    to.create(&[]);
    let before = (to.run("list", &["--json"]).stdout, all_of(&to));
    let said = import(&to, &archive, &["--max-bytes", "1G"]);
    assert!(said.code == Some(1) && said.stderr.contains("are free"), "{said:?}");
    assert_eq!((to.run("list", &["--json"]).stdout, all_of(&to)), before);
}
