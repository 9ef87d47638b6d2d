//! Snapshots in object storage: what arrives there and comes back, and what faults, damage and others leave of them.

use serde_json::Value;

use crate::common::prelude::*;
use crate::{
    common::object_storage::Bucket,
    copy::digests,
    volume::{Said, Volume},
};

/// The place of the store in the tests' bucket.
pub const URL: &str = "s3://snapshots/of/web";

/// Returns `volferry snapshot ARGS` with the key of the store, which is made with the first call.
pub fn command(bucket: &Bucket, args: &[&str]) -> Command {
    let key = bucket.beside("key");
    if !key.exists() {
        let made = Command::new(program()).args(["snapshot", "key"]).arg(&key).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let mut command = Command::new(program());
    command.arg("snapshot").args(args).env("VOLFERRY_KEY_FILE", &key);
    bucket.set(&mut command);
    command
}

pub fn run(bucket: &Bucket, args: &[&str]) -> Said {
    command(bucket, args).output().unwrap().into()
}

/// Runs a command that has to succeed.
#[track_caller]
pub fn ok(bucket: &Bucket, args: &[&str]) -> Said {
    let said = run(bucket, args);
    assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
    said
}

pub fn text(volume: &Volume) -> &str {
    volume.path().to_str().unwrap()
}

/// Copies all snapshots into the store, and returns what the command prints.
#[track_caller]
pub fn push(bucket: &Bucket, from: &Volume) -> Value {
    ok(bucket, &["copy", "--all", "--json", text(from), URL]).json()
}

/// Copies all snapshots of the store to a volume, and returns what the command prints.
#[track_caller]
pub fn pull(bucket: &Bucket, to: &Volume) -> Value {
    ok(bucket, &["copy", "--all", "--json", URL, text(to)]).json()
}

/// Checks that all snapshots in the bucket come back as those that `from` has.
#[track_caller]
pub fn assert_comes_back(bucket: &Bucket, from: &Volume) {
    let to = Volume::new();
    pull(bucket, &to);
    assert_eq!(digests(&to), digests(from));
}

pub fn count(said: &Value, field: &str) -> usize {
    said[field].as_array().unwrap().len()
}

#[test]
fn a_tree_of_everything_comes_back_as_it_was_and_the_bucket_learns_no_name() {
    let (bucket, from, to) = (Bucket::new(), Volume::new(), Volume::new());
    tree::gallery(from.path(), Shape::Everything);
    fs::write(from.path().join("a name that is secret"), "content that is secret".repeat(10)).unwrap();
    let id = from.create(&["--tag", "gold", "--note", "a note that is secret"]);
    let expected = Snapshot::of(from.path());
    assert_eq!(count(&push(&bucket, &from), "copied"), 1);
    for name in bucket.objects("").keys() {
        let bytes = fs::read(bucket.path(name)).unwrap();
        assert!(!bytes.windows(9).any(|some| some == b"is secret"), "{name}");
        assert!(!bytes.windows(8).any(|some| some == u64::from_str_radix(&id, 16).unwrap().to_le_bytes()));
    }
    assert_eq!(count(&pull(&bucket, &to), "copied"), 1);
    assert_eq!(digests(&to), digests(&from));
    for field in ["began", "taken", "entries", "bytes", "user", "note", "tags", "pinned"] {
        assert_eq!(to.list()[0][field], from.list()[0][field], "{field}");
    }
    to.ok("verify", &["--no-heal"]);
    let other = from.path().with_file_name("restored");
    to.ok("restore", &["gold", "--trust-store", "--to", other.to_str().unwrap()]);
    Snapshot::of(&other).assert_like(&expected, COPY, "the snapshot");
}

#[test]
fn a_key_is_never_overwritten_and_a_copy_of_nothing_makes_no_folder() {
    let bucket = Bucket::new();
    let key = bucket.beside("key");
    drop(command(&bucket, &[]));
    let before = fs::read(&key).unwrap();
    let said = run(&bucket, &["key", key.to_str().unwrap()]);
    assert!(said.code == Some(1) && said.stderr.contains("a key is never overwritten\nhint: "), "{said:?}");
    assert_eq!(fs::read(&key).unwrap(), before);
    let missing = bucket.beside("missing/key");
    let said = run(&bucket, &["key", missing.to_str().unwrap()]);
    assert!(said.stderr.contains("cannot make the key of the store") && said.stderr.contains("its folder"));
    let mut list = command(&bucket, &["list", URL]);
    let said: Said = list.env("VOLFERRY_KEY_FILE", &missing).output().unwrap().into();
    assert!(said.stderr.contains("cannot read the key of the store, ") && said.stderr.contains("--key-file"));

    let from = Volume::new();
    fs::write(from.path().join("file"), "content").unwrap();
    let id = from.create(&[]);
    push(&bucket, &from);
    let new = bucket.beside("new");
    for wanted in ["nosuch", "as-of:2001-01-01"] {
        let said = run(&bucket, &["copy", URL, new.to_str().unwrap(), wanted]);
        assert!(said.code == Some(1) && said.stderr.contains("there is no snapshot"), "{said:?}");
        assert!(!new.exists());
    }
    ok(&bucket, &["forget", URL, "latest"]);
    for text in ["latest", &id[..3]] {
        let said = run(&bucket, &["forget", "--undo", URL, text]);
        assert_eq!(said.code == Some(0), text != "latest", "{said:?}");
    }
    ok(&bucket, &["forget", URL, &id]);
    ok(&bucket, &["prune", "--forgotten", URL]);
    for args in [&["verify", URL][..], &["copy", "--all", URL, new.to_str().unwrap()]] {
        let said = run(&bucket, args);
        assert!(said.code == Some(1) && said.stderr.contains("has no snapshots"), "{said:?}");
    }
    assert!(!new.exists());
}

#[test]
fn a_snapshot_that_came_pinned_is_unpinned_and_tagged_where_it_is() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    fs::write(from.path().join("file"), "content").unwrap();
    let id = from.create(&["--pin"]);
    push(&bucket, &from);
    let said = run(&bucket, &["forget", URL, &id]);
    assert!(said.code == Some(1) && said.stderr.contains("is pinned"), "{said:?}");
    ok(&bucket, &["unpin", URL, &id]);
    ok(&bucket, &["tag", URL, &id, "gold"]);
    assert!(ok(&bucket, &["list", URL]).stdout.contains("gold"));
    ok(&bucket, &["untag", URL, "gold", "gold"]);
    ok(&bucket, &["pin", URL, &id]);
    ok(&bucket, &["unpin", URL, &id]);
    ok(&bucket, &["forget", URL, &id]);
}

#[test]
fn volumes_that_share_a_store_keep_their_snapshots_apart() {
    let (bucket, one, other) = (Bucket::new(), Volume::new(), Volume::new());
    for volume in [&one, &other] {
        for text in ["first", "second"] {
            fs::write(volume.path().join("file"), text).unwrap();
            volume.create(&[]);
        }
        push(&bucket, volume);
    }
    ok(&bucket, &["prune", URL, "--keep-last", "1"]);
    let list = ok(&bucket, &["list", "--json", URL]).json();
    let list = list.as_array().unwrap();
    let mut origins: Vec<&str> = list.iter().map(|it| it["origin"].as_str().unwrap()).collect();
    origins.dedup();
    assert_eq!((list.len(), origins.len()), (2, 2), "the newest of each volume: {list:#?}");
}

#[test]
fn only_what_changed_is_sent_and_what_is_there_is_not_sent_again() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    tree::many(from.path(), 400, 3000);
    fs::write(from.path().join("large"), crate::common::rng::Rng::new(3).bytes(20 << 20)).unwrap();
    from.create(&[]);
    let first = push(&bucket, &from)["bytes"].as_u64().unwrap();
    assert!(first > 20 << 20, "{first}");
    let packs = bucket.objects("of/web/packs").len();
    assert!(packs <= 4, "{packs} packs");
    let mut large = fs::read(from.path().join("large")).unwrap();
    large.splice(5 << 20..5 << 20, *b"inserted");
    fs::write(from.path().join("large"), large).unwrap();
    fs::write(from.path().join("d0001/f000150"), "changed").unwrap();
    from.create(&[]);
    let said = push(&bucket, &from);
    assert_eq!((count(&said, "copied"), count(&said, "present")), (1, 1));
    let next = said["bytes"].as_u64().unwrap();
    assert!((1..7 << 20).contains(&next), "{next}");
    let before = bucket.objects("");
    let said = push(&bucket, &from);
    assert_eq!((count(&said, "present"), said["bytes"].as_u64()), (2, Some(0)));
    assert_eq!(bucket.objects(""), before, "nothing is written");
    assert_comes_back(&bucket, &from);
}

#[test]
fn what_was_forgotten_in_a_bucket_stays_away_unless_it_is_named() {
    let (bucket, from) = (Bucket::new(), Volume::new());
    let taken = (0..3).map(|nth| {
        fs::write(from.path().join("file"), format!("content {nth}")).unwrap();
        from.create(&[])
    });
    let all: Vec<String> = taken.collect();
    push(&bucket, &from);
    ok(&bucket, &["forget", URL, &all[0], &all[1]]);
    let counts = |said: &Value| ["copied", "present", "forgotten"].map(|field| count(said, field));
    assert_eq!(counts(&push(&bucket, &from)), [0, 1, 2]);
    let name = |id: &str| ok(&bucket, &["copy", "--json", text(&from), URL, id]).json();
    let said = name(&all[0]);
    assert_eq!((counts(&said), said["bytes"].as_u64()), ([1, 0, 0], Some(0)), "{said}");
    assert_eq!(counts(&name(&all[0])), [0, 1, 0], "it is there");
    ok(&bucket, &["prune", "--forgotten", URL]);
    let listed = ok(&bucket, &["list", "--all", "--json", URL]).json();
    let listed: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(listed, [&all[0], &all[2]]);
    assert_eq!(counts(&push(&bucket, &from)), [0, 2, 1]);
    assert_eq!(counts(&name(&all[1])), [1, 0, 0], "a prune has removed it");
    let to = Volume::new();
    pull(&bucket, &to);
    assert_eq!(digests(&to), digests(&from));
}
