//! What a restore changes, what it leaves alone, and what it keeps so that it can be undone.

use std::os::unix::{fs::FileExt as _, net::UnixListener};

use crate::common::prelude::*;
use crate::{
    common::mount::FileSystem,
    damage::{flip, only_file_below, position},
    volume::Volume,
};

/// Makes a volume whose file has changed since its only snapshot.
fn changed_since() -> (Volume, std::path::PathBuf) {
    let volume = Volume::new();
    let file = volume.path().join("file");
    fs::write(&file, "good").unwrap();
    volume.create(&["--tag", "mine"]);
    fs::write(&file, "bad, and longer").unwrap();
    (volume, file)
}

#[test]
fn a_dry_run_of_a_restore_counts_as_the_restore_does_where_names_of_a_file_come_and_go() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d/e"];
    let volume = Volume::new();
    let make = |dir: &Path, names: &[usize], content: u8, len: usize| {
        fs::create_dir_all(dir.join("d")).unwrap();
        for (nth, at) in names.iter().enumerate() {
            match nth {
                0 => fs::write(dir.join(NAMES[*at]), vec![content; len]).unwrap(),
                _ => fs::hard_link(dir.join(NAMES[names[0]]), dir.join(NAMES[*at])).unwrap(),
            }
        }
    };
    let sets: [&[usize]; 5] = [&[0], &[3], &[1, 2], &[0, 3], &[0, 1, 2, 3]];
    let cases = || sets.iter().flat_map(|kept| sets.iter().map(move |now| (kept, now))).zip(1..);
    for ((kept, _), nth) in cases() {
        make(&volume.path().join(nth.to_string()), kept, 1, 1000 + (1 << nth) % 99_991);
    }
    volume.create(&[]);
    for ((kept, now), nth) in cases() {
        let dir = volume.path().join(nth.to_string());
        let name = dir.join(NAMES[kept[0]]);
        match nth % 3 {
            0 => make(&scratch_of(&dir), now, 2, 1000 + (1 << nth) % 99_991),
            1 => fs::set_permissions(&name, fs::Permissions::from_mode(0o4711)).unwrap(),
            _ => {}
        }
        for (at, path) in NAMES.iter().map(|name| dir.join(name)).enumerate() {
            match now.contains(&at) {
                true if !path.exists() && name.exists() => fs::hard_link(&name, &path).unwrap(),
                false if path != name => drop(fs::remove_file(&path)),
                _ => {}
            }
        }
    }
    let counts = |flags: &[&str]| {
        let work = volume.run("restore", &[&["latest", "--json"], flags].concat()).json()["work"].take();
        ["filesCreated", "filesUpdated", "filesDeleted", "bytesChanged"]
            .map(|name| work[name].as_u64().unwrap())
    };
    let foretold = counts(&["-n"]);
    assert!(foretold.iter().all(|count| *count > 0), "{foretold:?}");
    assert_eq!(foretold, counts(&[]));
    assert_eq!(counts(&[]), [0; 4], "all is restored");
}

/// Empties a folder, and returns it.
fn scratch_of(dir: &Path) -> PathBuf {
    fs::remove_dir_all(dir).unwrap();
    dir.into()
}

fn purposes(volume: &Volume) -> Vec<String> {
    volume.list().iter().map(|it| it["purpose"].as_str().unwrap().into()).collect()
}

#[test]
fn the_state_before_a_restore_is_found_by_its_id_and_tag_only_and_no_rule_counts_it() {
    let (volume, file) = changed_since();
    for round in 0..2 {
        let said = volume.run("restore", &["latest"]).exits(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "good", "round {round}");
        assert_eq!(said.stderr.contains("the state before is kept in snapshot "), round == 0, "{said:?}");
    }
    assert_eq!(purposes(&volume), ["manual", "safety"], "a restore that changes nothing keeps no state");
    let safety = volume.list()[1]["id"].as_str().unwrap().to_owned();
    for text in ["as-of:2100-01-01", "latest"] {
        assert_eq!(volume.ok("cat", &[text, "file"]), "good");
    }
    for text in [&safety, "before-restore", &safety[..9]] {
        assert_eq!(volume.ok("cat", &[text, "file"]), "bad, and longer");
    }
    let plan = volume.run("prune", &["--keep-last", "1", "-n", "--json"]).json();
    assert_eq!(plan["removed"], serde_json::json!([]), "{plan}");
    volume.ok("restore", &[&safety]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "bad, and longer", "the restore is undone");
}

#[test]
fn a_volume_keeps_the_state_before_its_last_three_restores_and_those_that_are_pinned() {
    let (volume, file) = changed_since();
    let mut kept = Vec::new();
    for round in 0..5 {
        fs::write(&file, format!("bad {round}")).unwrap();
        volume.ok("restore", &["mine"]);
        kept.push(volume.list().last().unwrap()["id"].as_str().unwrap().to_owned());
        if round == 0 {
            volume.ok("pin", &[&kept[0]]);
        }
    }
    let ids = || volume.list().iter().skip(1).map(|it| it["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(), [&kept[0][..], &kept[2], &kept[3], &kept[4]]);
    volume.ok("restore", &[&kept[2]]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "bad 2");
    assert_eq!(ids()[..4], [&kept[0][..], &kept[2], &kept[3], &kept[4]], "the restored one stays");
    volume.ok("prune", &["--keep-last", "9"]);
    assert_eq!(ids()[..3], [&kept[0][..], &kept[3], &kept[4]]);
    volume.ok("verify", &["--no-heal"]);
    let log = volume.ok("log", &[]);
    assert!(log.lines().any(|line| line.contains("  collect ") && line.ends_with(&kept[1])), "{log}");
}

#[test]
fn a_restore_to_another_folder_adds_and_replaces_and_deletes_only_when_that_is_asked_for() {
    let (volume, _) = changed_since();
    let other = volume.path().parent().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    (0..9).for_each(|nth| fs::write(other.join(format!("own{nth}")), "own").unwrap());
    let restore =
        |more: &[&str]| volume.run("restore", &[&["mine", "--to", other.to_str().unwrap()], more].concat());
    restore(&[]).exits(0);
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "good");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 11, "with .volferry");
    assert!(!other.join(".volferry/snapshots").exists(), "nothing that was there has changed");
    fs::write(other.join("file"), "of another length").unwrap();
    assert!(restore(&[]).stderr.contains("the state before is kept in snapshot "));
    assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "good");
    let refused = restore(&["--delete"]).exits(4);
    assert!(refused.stderr.contains("more than the limit of 50 %"), "{refused:?}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 11);
    assert_eq!(restore(&["--delete", "--force"]).code, Some(0));
    assert_eq!(fs::read_dir(&other).unwrap().count(), 2);
    let missing = volume.run("restore", &["mine", "--delete"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("--to"), "{missing:?}");
}

#[test]
fn a_restore_is_refused_onto_a_folder_in_the_volume_or_around_it() {
    let (volume, _) = changed_since();
    let inside = volume.path().join("inside");
    let store = volume.store("");
    fs::create_dir(&inside).unwrap();
    let before = Snapshot::of(volume.path());
    for to in [&inside, volume.path().parent().unwrap(), Path::new("/"), &store] {
        let said = volume.run("restore", &["mine", "--to", to.to_str().unwrap()]).exits(1);
        assert!(said.stderr.contains("choose folders that do not contain one another"), "{said:?}");
    }
    Snapshot::of(volume.path()).assert_like(&before, oracle::UNTOUCHED, "refused");
    assert_eq!(volume.list().len(), 1);
}

/// Puts a socket and two destinations of other jobs, with files of their own, where the snapshot has something else.
#[test]
fn a_restore_in_place_deletes_no_socket_and_no_destination_of_another_job() {
    let volume = Volume::new();
    let at = |path: &str| volume.path().join(path);
    fs::create_dir(at("shared")).unwrap();
    fs::write(at("shared/old"), "old").unwrap();
    fs::write(at("file"), "old").unwrap();
    volume.create(&["--tag", "mine"]);
    fs::create_dir_all(at("gone/deep/.volferry")).unwrap();
    fs::create_dir_all(at("shared/.volferry")).unwrap();
    for path in ["gone/plain", "gone/deep/theirs", "gone/deep/.volferry/volume", "shared/theirs", "new"] {
        fs::write(at(path), "new").unwrap();
    }
    let _sockets = ["socket", "gone/socket"].map(|path| UnixListener::bind(at(path)).unwrap());
    let said = volume.run("restore", &["mine"]).exits(0);
    let stay =
        ["socket", "gone/socket", "gone/deep/theirs", "gone/deep/.volferry/volume", "shared/.volferry"];
    for path in stay.iter().chain(&["shared/theirs", "shared/old"]) {
        assert!(fs::symlink_metadata(at(path)).is_ok(), "{path}: {said:?}");
    }
    for path in ["gone/plain", "new"] {
        assert!(!at(path).exists(), "{path}");
    }
    assert_eq!(volume.run("restore", &["mine", "-n"]).stdout, "", "what stays is no difference");
}

#[test]
fn a_restore_in_place_leaves_a_volume_inside_its_later_snapshots() {
    let volume = Volume::new();
    let inside = volume.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let take = |content: &str| {
        fs::write(inside.join("file"), content).unwrap();
        let taken = Command::new(program()).args(["snapshot", "create"]).arg(&inside).output().unwrap();
        assert!(taken.status.success(), "{taken:?}");
    };
    take("old");
    volume.create(&["--tag", "mine"]);
    take("new");
    let list = fs::read(inside.join(".volferry/snapshots/roots")).unwrap();
    volume.run("restore", &["mine"]).exits(0);
    assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "old");
    assert!(fs::read(inside.join(".volferry/snapshots/roots")).unwrap() == list);
    let checked = Command::new(program()).args(["snapshot", "verify"]).arg(&inside).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_name_that_is_restored_alone_leaves_the_other_names_of_its_file_as_they_are() {
    let volume = Volume::new();
    let at = |path: &str| volume.path().join(path);
    ["d", "e"].iter().for_each(|dir| fs::create_dir(at(dir)).unwrap());
    for (first, others) in [("a", &["b", "c"][..]), ("d/x", &["d/y"]), ("e/x", &["e/y", "f"])] {
        tree::file(&at(first), b"content");
        others.iter().for_each(|other| fs::hard_link(at(first), at(other)).unwrap());
        tree::set_mode(&at(first), 0o644);
    }
    volume.create(&["--tag", "mine"]);
    ["a", "d/x", "e/x"].iter().for_each(|path| tree::set_mode(&at(path), 0o600));
    volume.run("restore", &["mine", "--path", "b", "--path", "d", "--path", "e"]).exits(0);
    let modes = ["a", "b", "c", "d/x", "d/y", "e/x", "e/y", "f"].map(|path| rights(&at(path)).1);
    assert_eq!(modes, [0o600, 0o644, 0o600, 0o644, 0o644, 0o644, 0o644, 0o600]);
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(at(path)).unwrap());
    assert!(inode("d/x") == inode("d/y") && inode("e/x") == inode("e/y") && inode("e/x") != inode("f"));
}

/// Returns the owner and the mode of a file.
fn rights(path: &Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::symlink_metadata(path).unwrap();
    (found.uid(), found.mode() & 0o7777)
}

/// Gives the store to another user, or lets a group write to it as Kubernetes does with an `fsGroup`.
#[test]
fn a_store_that_others_can_write_to_gives_content_and_names_but_no_rights() {
    let Some(()) = scratch::needs_root() else { return };
    let expose = |volume: &Volume, command: &[&str]| {
        let done = Command::new(command[0]).args(&command[1..]).arg(volume.path().join(".volferry")).status();
        assert!(done.unwrap().success());
    };
    for command in [&["chown", "-R", "1000"][..], &["chmod", "-R", "g+rwX"]] {
        let volume = Volume::new();
        let [tool, owned, pipe] = ["tool", "owned", "pipe"].map(|name| volume.path().join(name));
        fs::write(&tool, "a tool").unwrap();
        tree::set_mode(&tool, 0o4755);
        fs::write(&owned, "of another user").unwrap();
        std::os::unix::fs::chown(&owned, Some(1000), None).unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        volume.create(&["--tag", "first"]);
        expose(&volume, command);
        let target = |name: &str| volume.path().parent().unwrap().join(name);
        let restore = |name: &str, more: &[&str]| {
            let to = target(name);
            volume.run("restore", &[&["first", "--to", to.to_str().unwrap()], more].concat())
        };
        let said = restore("doubted", &[]).exits(0);
        assert!(said.stderr.contains("--trust-store restores them, too"), "{said:?}");
        let to = target("doubted");
        assert_eq!(fs::read_to_string(to.join("tool")).unwrap(), "a tool");
        assert_eq!((rights(&to.join("tool")), rights(&to.join("owned")).0), ((0, 0o755), 0));
        assert!(!to.join("pipe").exists());
        let sent = Command::new(program())
            .args(["sync", "--source-snapshot=first"])
            .args([volume.path(), &target("synced")])
            .status();
        assert_eq!(sent.unwrap().code(), Some(0));
        assert_eq!(rights(&target("synced").join("tool")), (0, 0o755));
        assert_eq!(restore("trusted", &["--trust-store"]).code, Some(0));
        let to = target("trusted");
        assert_eq!((rights(&to.join("tool")), rights(&to.join("owned")).0), ((0, 0o4755), 1000));
        assert!(to.join("pipe").exists());
    }
}

#[test]
fn what_was_once_exposed_stays_doubted_and_a_new_snapshot_does_not_build_on_it() {
    let volume = Volume::new();
    let tool = volume.path().join("tool");
    fs::write(&tool, "a tool").unwrap();
    tree::set_mode(&tool, 0o4755);
    let first = volume.create(&[]);
    tree::set_mode(&volume.store("roots"), 0o660);
    let second = volume.create(&[]);
    let exposed = volume.list().iter().map(|it| it["exposed"] == true).collect::<Vec<_>>();
    assert_eq!(exposed, [true, false]);
    for (id, mode) in [(first, 0o755), (second, 0o4755)] {
        let to = volume.path().parent().unwrap().join(&id);
        volume.ok("restore", &[&id, "--to", to.to_str().unwrap()]);
        assert_eq!(rights(&to.join("tool")).1, mode);
    }
    let packs = fs::read_dir(volume.store("packs")).unwrap().count();
    assert_eq!(packs, 2, "nothing had changed, and all was read and written again");
}

/// Damages two contents and a directory of a snapshot whose other files are whole.
#[test]
fn a_restore_that_keeps_going_restores_all_that_is_whole_and_names_the_rest() {
    let volume = Volume::new();
    let at = |path: &str| volume.path().join(path);
    for dir in ["bad", "good"] {
        fs::create_dir(at(dir)).unwrap();
        fs::write(at(dir).join("file"), format!("small, in {dir}")).unwrap();
    }
    fs::write(at("large"), vec![7; 100_000]).unwrap();
    fs::create_dir(at("lost")).unwrap();
    fs::write(at("lost/a name of its own"), "").unwrap();
    volume.create(&["--tag", "mine"]);
    flip(&only_file_below(&volume.store("content")), 5);
    let pack = only_file_below(&volume.store("packs"));
    let bytes = fs::read(&pack).unwrap();
    flip(&pack, position(&bytes, b"small, in bad"));
    flip(&pack, position(&bytes, b"a name of its own"));
    for path in ["bad/file", "good/file", "large"] {
        fs::write(at(path), "changed").unwrap();
    }
    fs::write(at("new"), "new").unwrap();
    fs::write(at("lost/later"), "").unwrap();
    let said = volume.run("restore", &["mine"]).exits(1);
    assert!(said.stderr.contains("--keep-going") && said.stderr.contains("--path"), "{said:?}");
    assert_eq!(volume.list().len(), 1, "nothing was to be changed");
    let said = volume.run("restore", &["mine", "--keep-going"]).exits(3);
    assert!(said.stderr.contains("large") && said.stderr.contains("bad/file"), "{said:?}");
    assert!(said.stderr.contains("lost: read: "), "{said:?}");
    let read = |path: &str| fs::read_to_string(at(path)).unwrap();
    assert_eq!(
        [read("bad/file"), read("good/file"), read("large")],
        ["changed", "small, in good", "changed"]
    );
    assert!(!at("new").exists(), "the snapshot is known to lack it");
    assert!(at("lost/later").exists() && at("lost/a name of its own").exists());
}

#[test]
fn a_restore_says_that_content_was_not_compared_and_does_so_when_asked_to() {
    let volume = Volume::new();
    let file = volume.path().join("file");
    fs::write(&file, vec![7; 1000]).unwrap();
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    volume.create(&["--tag", "mine"]);
    fs::write(&file, vec![8; 1000]).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    let said = volume.run("restore", &["mine"]);
    assert!(said.code == Some(0) && said.stderr.contains("were not compared by content"), "{said:?}");
    assert_eq!(fs::read(&file).unwrap(), vec![8; 1000]);
    let said = volume.run("restore", &["mine", "-c"]);
    assert!(said.code == Some(0) && !said.stderr.contains("were not compared"), "{said:?}");
    assert_eq!(fs::read(&file).unwrap(), vec![7; 1000]);
}

#[test]
fn what_a_snapshot_leaves_out_stays_when_it_is_restored() {
    let volume = Volume::new();
    let at = |path: &str| volume.path().join(path);
    fs::create_dir_all(at("cache/deep")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    for path in ["cache/deep/file", "dir/core.tmp", "dir/kept", "file"] {
        fs::write(at(path), "old").unwrap();
    }
    volume.create(&[]);
    let excluded = ["--exclude", "*.tmp", "--exclude", "/cache"];
    for tag in ["first", "second"] {
        volume.create(&[&excluded[..], &["--tag", tag]].concat());
    }
    let listed = volume.ok("ls", &["second", "-R"]);
    assert!(!listed.contains("tmp") && !listed.contains("cache") && listed.contains("dir/kept"), "{listed}");
    for path in ["dir/core.tmp", "dir/kept", "cache/deep/file"] {
        fs::write(at(path), "new").unwrap();
    }
    assert_eq!(volume.run("restore", &["second"]).code, Some(0));
    let read = |path: &str| fs::read_to_string(at(path)).unwrap();
    assert_eq!([read("dir/core.tmp"), read("dir/kept"), read("cache/deep/file")], ["new", "old", "new"]);
    let said = volume.run("create", &["--exclude", "a[b"]);
    assert!(said.code == Some(2) && said.stderr.contains("a[b"), "{said:?}");
}

#[test]
fn a_restore_elsewhere_without_room_is_refused_and_holes_need_none() {
    let Some(small) = FileSystem::Tmpfs.mount_of("4m") else { return };
    let volume = Volume::new();
    let sparse = fs::File::create(volume.path().join("sparse")).unwrap();
    sparse.write_all_at(b"end", 1 << 30).unwrap();
    volume.create(&["--tag", "holes"]);
    fs::write(volume.path().join("large"), vec![7; 6 << 20]).unwrap();
    volume.create(&["--tag", "large"]);
    let to = small.folder();
    let place = to.path().join("restored");
    let restore = |id: &str, more: &[&str]| {
        volume.run("restore", &[&[id, "--to", place.to_str().unwrap()], more].concat())
    };
    for more in [&[][..], &["-n"]] {
        let said = restore("large", more).exits(4);
        assert!(said.stderr.contains("needs at least") && said.stderr.contains("--force"), "{said:?}");
        assert!(!place.join("sparse").exists() && !place.join("large").exists());
    }
    restore("holes", &[]).exits(0);
    assert_eq!(fs::metadata(place.join("sparse")).unwrap().len(), (1 << 30) + 3);
    // What is there already needs no room, and a restore in place is not held back.
    assert_eq!(restore("large", &["--path", "sparse"]).code, Some(0));
    let said = volume.run("restore", &["holes"]);
    assert!(said.code == Some(0) && !said.stderr.contains("needs at least"), "{said:?}");
}

#[test]
fn a_path_that_the_snapshot_lacks_is_looked_for_in_the_snapshot() {
    let (volume, _) = changed_since();
    let said = volume.run("restore", &["mine", "--path", "nosuch"]).exits(1);
    assert!(said.stderr.contains("has no nosuch\nhint: `volferry snapshot ls DIR "), "{said:?}");
    assert_eq!(said.stderr.matches("hint: ").count(), 1, "{said:?}");
}
