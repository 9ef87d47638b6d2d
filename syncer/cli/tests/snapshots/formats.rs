//! Whole stores of each version of the format, as the programs of their time wrote them. Today's program reads and
//! restores them, and continues them.

use std::os::unix::fs::FileTypeExt as _;

use crate::common::prelude::*;
use crate::volume::Volume;

/// The fixtures of stored formats. That of the changes has directories that are stored as differences from others.
const VERSIONS: [&str; 4] = ["store-1", "store-2", "store-2-changes", "store-3"];

/// The version of the list that today's program writes.
const NEWEST: u8 = 3;

/// The content of the only file that is not in a pack, and the path of that content in the store.
static LARGE: [u8; 70_000] = [b'x'; 70_000];
const LARGE_NAME: &str = "content/07/07876663625233f0fdb11bcd1d90741d6e1809e1f03a7de70fff5046cfa8829b";

fn volume_of(version: &str) -> Volume {
    let volume = Volume::new();
    let fixture = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("tests/snapshots/fixtures")
        .join(version);
    let own = volume.path().join(".volferry");
    fs::create_dir(&own).unwrap();
    for folder in ["", "packs", "content", "content/07"] {
        fs::create_dir(volume.store(folder)).unwrap();
        fs::set_permissions(volume.store(folder), fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    // By its id a folder without a mark of its maker is known as Volferry's.
    fs::write(own.join("volume"), format!("{}\n", "07".repeat(16))).unwrap();
    fs::set_permissions(own.join("volume"), fs::Permissions::from_mode(0o600)).unwrap();
    let place = |name: &str| {
        fs::copy(fixture.join(name), volume.store(name)).unwrap();
        fs::set_permissions(volume.store(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    ["roots", "audit"].into_iter().for_each(place);
    if fixture.join("roots.copy").exists() {
        place("roots.copy");
    }
    for pack in fs::read_dir(fixture.join("packs")).unwrap() {
        place(&format!("packs/{}", pack.unwrap().file_name().to_str().unwrap()));
    }
    fs::write(volume.store(LARGE_NAME), &LARGE[..]).unwrap();
    volume
}

fn tags(volume: &Volume) -> Vec<(String, bool, bool)> {
    let listed = volume.run("list", &["--all", "--json"]).json();
    let told = listed.as_array().unwrap().iter().map(|one| {
        let tag = one["tags"][0].as_str().unwrap().to_owned();
        (tag, one["pinned"].as_bool().unwrap(), one["forgotten"].is_string())
    });
    told.collect()
}

#[test]
fn a_store_of_every_version_is_read_and_restored() {
    for version in VERSIONS {
        let volume = volume_of(version);
        let expected = [("first", false, false), ("second", true, false), ("third", false, true)];
        let expected = expected.map(|(tag, pinned, forgotten)| (tag.to_owned(), pinned, forgotten));
        assert_eq!(tags(&volume), expected, "{version}");
        assert_eq!(volume.ok("cat", &["first", "dir/deep/file"]), "one\n");
        assert_eq!(volume.ok("cat", &["second", "dir/deep/file"]), "two\n");
        let changed = volume.ok("diff", &["first", "second"]);
        assert_eq!(changed, "m .\nm dir/deep\nM dir/deep/file\n- small\n", "{version}");
        volume.ok("verify", &["--no-heal"]);
        volume.ok("restore", &["first", "--no-safety"]);
        let at = |path: &str| volume.path().join(path);
        assert_eq!(fs::read(at("large")).unwrap(), LARGE);
        assert_eq!(fs::read_to_string(at(".READY")).unwrap(), "ordinary\n");
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("dir/deep/file"));
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo(), "{version}");
        assert_eq!(fs::metadata(at("hard")).unwrap().ino(), fs::metadata(at("small")).unwrap().ino());
        assert_eq!(fs::metadata(at("dir")).unwrap().mode() & 0o7777, 0o750);
        assert_eq!(fs::metadata(at("empty")).unwrap().len(), 0);
    }
}

#[test]
fn a_store_of_every_version_goes_on_in_the_newest() {
    for version in VERSIONS {
        let volume = volume_of(version);
        volume.ok("restore", &["second", "--no-safety"]);
        volume.create(&["--tag", "fourth"]);
        volume.ok("forget", &[volume.list()[0]["id"].as_str().unwrap()]);
        assert_eq!(fs::read(volume.store("roots")).unwrap()[8..12], [NEWEST, 0, 0, 0], "{version}");
        volume.ok("prune", &["--forgotten"]);
        let left: Vec<String> = tags(&volume).into_iter().map(|(tag, ..)| tag).collect();
        assert_eq!(left, ["second", "fourth"]);
        assert_eq!(volume.ok("cat", &["fourth", "dir/deep/file"]), "two\n");
        volume.ok("verify", &["--no-heal"]);
        let log = volume.run("log", &["--json"]).json();
        let actions: Vec<_> =
            log.as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
        let expected = ["create", "create", "create", "forget", "restore", "create", "forget", "collect"];
        assert_eq!(actions, expected, "{version}: the old lines count on");
    }
}
