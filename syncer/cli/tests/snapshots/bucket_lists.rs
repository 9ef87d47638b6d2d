//! A store in object storage whose list is missing or damaged: nobody takes it for an empty one, or undoes changes
//! unseen, and a repair goes on.

use std::{collections::BTreeSet, time::SystemTime};

use crate::common::prelude::*;
use crate::{
    bucket::{URL, command, count, ok, pull, push, run, text},
    bucket_kills::with_snapshots,
    bucket_upkeep::{flip, with_two},
    common::object_storage::Bucket,
    copy::digests,
    volume::{Said, Volume},
};

/// Returns the list of this number, from the newest.
pub fn list(bucket: &Bucket, nth: usize) -> String {
    format!("lists/{}", bucket.objects("of/web/lists").into_keys().nth(nth).unwrap())
}

/// Damages an object of the store.
pub fn damage(bucket: &Bucket, name: &str) {
    let path = bucket.path("of/web").join(name);
    flip(&path, path.metadata().unwrap().len() / 2);
}

fn listed(said: &Said) -> Vec<String> {
    said.json().as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn is_there(steps: &Said, step: &str) -> bool {
    steps.json()["steps"].as_array().unwrap().iter().any(|one| one["step"] == step)
}

fn remove_lists(bucket: &Bucket) {
    fs::remove_dir_all(bucket.path("of/web/lists")).unwrap();
}

/// Runs `volferry sync`, as a job that drops all but its last snapshot.
fn sync(bucket: &Bucket, from: &Volume) -> Said {
    let mut sync = Command::new(program());
    sync.args(["sync", text(from), URL, "--snapshot", "--snapshot-keep-last=1"]);
    for (name, value) in command(bucket, &[]).get_envs() {
        sync.env(name, value.unwrap());
    }
    sync.output().unwrap().into()
}

/// Checks that no command changes the store, and that each says the same and ends with 3, but for `sync` with 1.
#[track_caller]
fn all_refuse(bucket: &Bucket, commands: &[&[&str]], from: &Volume, words: &str) {
    let before = bucket.objects("");
    for args in commands {
        let said = run(bucket, args);
        assert_eq!(said.code, Some(3), "{args:?}: {said:?}");
        assert!(said.stderr.contains(words) && said.stderr.contains("volferry snapshot repair"), "{said:?}");
        assert_eq!(bucket.objects(""), before, "{args:?}");
    }
    let said = sync(bucket, from);
    assert!(said.code == Some(1) && said.stderr.contains(words), "{said:?}");
    assert!(said.stderr.contains("volferry snapshot repair"), "{said:?}");
    assert_eq!(bucket.objects(""), before);
}

#[test]
fn packs_without_a_list_are_damage_and_nothing_removes_them() {
    let (bucket, from, ids) = with_two();
    let old = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    for folder in ["packs", "indexes"] {
        for name in bucket.objects(&format!("of/web/{folder}")).into_keys() {
            let path = bucket.path("of/web").join(folder).join(name);
            fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
    }
    remove_lists(&bucket);
    let (to, words) = (Volume::new(), "the list of snapshots is missing in s3://snapshots/of/web");
    let commands: &[&[&str]] = &[
        &["list", URL],
        &["verify", URL],
        &["forget", URL, &ids[0]],
        &["prune", URL, "--keep-last", "10"],
        &["prune", URL, "--forgotten", "-n"],
        &["copy", URL, text(&to), "--all"],
        &["copy", text(&from), URL, "--all"],
    ];
    all_refuse(&bucket, commands, &from, words);
    // So are indexes alone.
    fs::rename(bucket.path("of/web/packs"), bucket.beside("packs")).unwrap();
    all_refuse(&bucket, commands, &from, words);
    fs::rename(bucket.beside("packs"), bucket.path("of/web/packs")).unwrap();

    let before = bucket.objects("");
    let plan = run(&bucket, &["repair", "--json", URL]);
    assert!(plan.code == Some(3) && is_there(&plan, "beginList"), "{plan:?}");
    assert_eq!(bucket.objects(""), before, "a plan");
    ok(&bucket, &["repair", "--apply", URL]);
    assert_eq!(listed(&ok(&bucket, &["list", "--json", URL])), [""; 0]);
    let said = push(&bucket, &from);
    let sent = said["bytes"].as_u64().unwrap();
    assert!(count(&said, "copied") == 2 && sent < 100_000, "contents are taken as they are: {said}");
    ok(&bucket, &["verify", URL]);
    ok(&bucket, &["prune", "--keep-last", "2", URL]);
    pull(&bucket, &to);
    assert_eq!(digests(&to), digests(&from));
    assert!(ok(&bucket, &["repair", URL]).stdout.contains("Nothing needs a repair"));
}

#[test]
fn a_first_copy_has_a_list_before_it_has_a_pack() {
    let (bucket, from) = (Bucket::new(), with_snapshots(1));
    push(&bucket, &from);
    let written = bucket.seen().into_iter().filter(|request| request.method == "PUT");
    let written: Vec<String> = written.map(|request| request.path).collect();
    let first = |folder: &str| written.iter().position(|path| path.contains(folder)).unwrap();
    assert!(first("/lists/") < first("/packs/"), "{written:?}");
}

#[test]
fn an_older_list_is_read_in_the_place_of_a_damaged_one_and_changed_by_a_repair_alone() {
    let (bucket, from, ids) = with_two();
    fs::write(from.path().join("changed"), "once more").unwrap();
    from.create(&[]);
    push(&bucket, &from);
    let (newest, older) = (list(&bucket, 0), list(&bucket, 1));
    damage(&bucket, &newest);
    // What can be read is, and says by what list.
    let said = run(&bucket, &["list", "--json", URL]);
    assert_eq!((said.code, listed(&said)), (Some(3), ids.clone()), "{said:?}");
    let (to, words) = (Volume::new(), format!("{older} is read in its place"));
    let back = run(&bucket, &["copy", "--all", "--json", URL, text(&to)]);
    assert_eq!((back.code, count(&back.json(), "copied")), (Some(3), 2), "{back:?}");
    assert_eq!(digests(&to).keys().collect::<BTreeSet<_>>(), ids.iter().collect());
    let found = run(&bucket, &["verify", URL]);
    assert_eq!(found.code, Some(3), "{found:?}");
    for told in [&said.stderr, &back.stderr, &found.stdout] {
        assert!(told.contains(&newest) && told.contains(&words), "{told}");
    }
    let commands: &[&[&str]] = &[
        &["forget", URL, &ids[0]],
        &["prune", URL, "--keep-last", "1"],
        &["copy", text(&from), URL, "--all"],
    ];
    all_refuse(&bucket, commands, &from, &format!("{newest} in s3://snapshots/of/web is damaged"));

    let plan = run(&bucket, &["repair", URL]);
    assert!(
        plan.code == Some(3) && plan.stdout.contains(&older) && plan.stdout.contains(&newest),
        "{plan:?}"
    );
    let applied = ok(&bucket, &["repair", "--apply", "--json", URL]);
    assert!(is_there(&applied, "olderList") && !is_there(&applied, "notWhole"), "{applied:?}");
    assert_eq!(listed(&ok(&bucket, &["list", "--json", URL])), ids);
    let said = push(&bucket, &from);
    assert_eq!((count(&said, "present"), count(&said, "copied")), (2, 1), "{said}");
    ok(&bucket, &["verify", URL]);
    ok(&bucket, &["prune", "--keep-last", "1", URL]);
    assert_eq!(count(&pull(&bucket, &to), "copied"), 1);
    assert_eq!(digests(&to), digests(&from));
}

#[test]
fn lists_that_are_all_damaged_are_not_none() {
    let (bucket, from, ids) = with_two();
    for nth in 0..bucket.objects("of/web/lists").len() {
        damage(&bucket, &list(&bucket, nth));
    }
    let commands: &[&[&str]] = &[
        &["list", URL],
        &["verify", URL],
        &["forget", URL, &ids[0]],
        &["prune", URL, "--keep-last", "10"],
        &["copy", text(&from), URL, "--all"],
    ];
    all_refuse(
        &bucket,
        commands,
        &from,
        &format!("{} in s3://snapshots/of/web is damaged", list(&bucket, 0)),
    );
    ok(&bucket, &["repair", "--apply", URL]);
    assert_eq!(count(&push(&bucket, &from), "copied"), 2);
    ok(&bucket, &["verify", URL]);
}

#[test]
fn the_list_before_a_prune_finds_what_that_has_moved_and_names_what_is_gone() {
    let (bucket, from) = (Bucket::new(), with_snapshots(10));
    push(&bucket, &from);
    ok(&bucket, &["prune", "--keep-last", "9", URL]);
    damage(&bucket, &list(&bucket, 0));
    let to = Volume::new();
    let back = run(&bucket, &["copy", "--all", "--json", URL, text(&to)]);
    assert_eq!((back.code, count(&back.json(), "copied")), (Some(3), 9), "{back:?}");
    to.ok("verify", &["--no-heal"]);
    let oldest = from.list()[0]["id"].as_str().unwrap().to_owned();
    let applied = ok(&bucket, &["repair", "--apply", "--json", URL]).json();
    let not_whole: Vec<_> =
        applied["steps"].as_array().unwrap().iter().filter_map(|it| it["snapshot"].as_str()).collect();
    assert_eq!(not_whole, [oldest.as_str()], "{applied}");
    assert_eq!(run(&bucket, &["verify", URL]).code, Some(3));
    ok(&bucket, &["forget", URL, &oldest]);
    ok(&bucket, &["prune", "--forgotten", URL]);
    ok(&bucket, &["verify", URL]);
    assert_eq!(count(&pull(&bucket, &to), "present"), 9);
}

#[test]
fn a_name_that_no_list_can_follow_is_that_of_none() {
    let (bucket, from, ids) = with_two();
    fs::write(bucket.path("of/web/lists/0000000000000000"), "something else").unwrap();
    assert_eq!(listed(&ok(&bucket, &["list", "--json", URL])), ids);
    assert_eq!(count(&push(&bucket, &from), "present"), 2);
    fs::remove_file(bucket.path("of/web/lists/0000000000000000")).unwrap();
    fs::write(bucket.path("of/web/lists/0000000000000001"), "something else").unwrap();
    let said = run(&bucket, &["repair", "--apply", URL]);
    assert!(said.code == Some(5) && said.stderr.contains("what was just written is not there"), "{said:?}");
}
