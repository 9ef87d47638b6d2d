//! The output and the effect of each command.

use crate::common::prelude::*;
use crate::volume::{Said, Volume};

fn three_versions() -> (Volume, Vec<String>) {
    let volume = Volume::new();
    let file = volume.path().join("dir/file");
    fs::create_dir(volume.path().join("dir")).unwrap();
    fs::write(volume.path().join("steady"), "steady").unwrap();
    let ids = (1..4).map(|version| {
        fs::write(&file, format!("version {version}")).unwrap();
        if version == 2 {
            fs::write(volume.path().join("dir/new"), vec![7; 200_000]).unwrap();
        }
        if version == 3 {
            fs::remove_file(volume.path().join("dir/new")).unwrap();
        }
        volume.create(&["--tag", &format!("v{version}"), "--note", "a note"])
    });
    let ids = ids.collect();
    (volume, ids)
}

#[test]
fn a_snapshot_can_be_looked_into() {
    let (volume, ids) = three_versions();
    assert_eq!(volume.ok("cat", &[&ids[0], "dir/file"]), "version 1");
    assert_eq!(volume.ok("cat", &["v2", "/dir/file"]), "version 2");
    assert_eq!(volume.ok("cat", &["latest", "./dir/file"]), "version 3");
    assert_eq!(volume.ok("cat", &["v2", "dir/new"]).len(), 200_000);
    let listed = volume.run("ls", &["v2", "-R", "--json"]).json();
    let paths: Vec<&str> =
        listed.as_array().unwrap().iter().map(|node| node["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["dir", "dir/file", "dir/new", "steady"]);
    assert_eq!(listed[2]["size"], 200_000);
    assert!(volume.ok("ls", &["v2", "dir"]).contains("dir/new"));
    assert!(volume.ok("show", &["v2"]).contains("a note"));
    for (args, error) in [
        (["v1", "dir/new"], "has no dir/new\nhint: `volferry snapshot ls"),
        (["v1", "dir"], "is no file, but a directory"),
        (["v9", "dir"], "there is no snapshot v9"),
    ] {
        let said = volume.run("cat", &args).exits(1);
        assert!(said.stderr.contains(error), "{said:?}");
    }
}

#[test]
fn two_snapshots_are_compared_and_a_path_has_a_history() {
    let (volume, ids) = three_versions();
    let text = volume.ok("diff", &["v1", "v2"]);
    assert!(text.contains("M dir/file\n") && text.contains("+ dir/new\n"), "{text}");
    assert!(!text.contains("steady"), "{text}");
    let json = volume.run("diff", &["v2", "v3", "--json"]).json();
    let removed = json.as_array().unwrap().iter().find(|change| change["change"] == "removed").unwrap();
    assert_eq!(removed["entry"]["path"], "dir/new");
    assert_eq!(volume.ok("diff", &["v1", "v1"]), "");
    let versions = volume.run("history", &["dir/new", "--json"]).json();
    let changes: Vec<_> =
        versions.as_array().unwrap().iter().map(|it| it["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["added", "removed"]);
    assert_eq!(versions[0]["first"], ids[1].as_str());
    assert_eq!(volume.run("history", &["steady", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn labels_change_and_every_change_is_in_the_log() {
    let (volume, ids) = three_versions();
    volume.ok("tag", &["v1", "gold", "silver"]);
    volume.ok("untag", &["v1", "silver", "v1"]);
    volume.ok("pin", &["gold"]);
    let first = volume.run("show", &["gold", "--json"]).json();
    assert_eq!((&first["tags"], &first["pinned"]), (&serde_json::json!(["gold"]), &true.into()));
    let said = volume.run("forget", &[&ids[0]]);
    assert!(said.code == Some(1) && said.stderr.contains("is pinned\nhint: "), "{said:?}");
    volume.ok("unpin", &["gold"]);
    volume.ok("forget", &[&ids[0]]);
    assert_eq!(volume.list().len(), 2);
    assert_eq!(volume.run("list", &["--all", "--json"]).json().as_array().unwrap().len(), 3);
    volume.ok("forget", &[&ids[0], "--undo"]);
    assert_eq!(volume.list().len(), 3);
    let log = volume.run("log", &["--json"]).json();
    let actions: Vec<_> = log.as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["create", "create", "create", "tag", "untag", "pin", "unpin", "forget", "unforget"]);
    assert_eq!(log[7]["snapshots"], serde_json::json!([ids[0]]));
}

#[test]
fn a_prune_says_why_and_gives_the_room_back() {
    let (volume, ids) = three_versions();
    let said = volume.run("prune", &[]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("hint: give a rule"), "{said:?}");
    let before = volume.allocated();
    let plan = volume.run("prune", &["--keep-last", "1", "--keep-tag", "v1", "-n", "--json"]).json();
    assert_eq!(plan["removed"], serde_json::json!([ids[1]]));
    let reason = serde_json::json!([{"rule": "tag v1", "until": {"event": "untagged"}}]);
    assert_eq!(plan["kept"][0]["reasons"], reason);
    assert!(plan["freedBytes"].as_u64().unwrap() >= 200_000, "{plan}");
    assert_eq!((volume.allocated(), volume.list().len()), (before, 3));
    let text = volume.ok("prune", &["--keep-last", "1", "--keep-tag", "v1"]);
    assert!(text.contains(&format!("remove  {}", ids[1])), "{text}");
    assert!(volume.allocated() + 190_000 < before, "{} of {before}", volume.allocated());
    assert_eq!(fs::read_dir(volume.store("trash")).unwrap().count(), 0);
    volume.ok("verify", &[]);
    assert_eq!(volume.ok("cat", &["v1", "dir/file"]), "version 1");
    assert!(volume.run("forget", &[&ids[1], "--undo"]).code == Some(1), "it was collected");
    let said = volume.run("prune", &["--forgotten", "--keep-last", "1"]);
    assert!(said.code == Some(2) && said.stderr.contains("cannot be used with"), "{said:?}");
}

#[test]
fn only_what_is_forgotten_can_be_brought_back() {
    let (volume, ids) = three_versions();
    let said = volume.run("forget", &["latest"]);
    assert!(said.stdout.contains(&ids[2]) && said.stderr.contains("hint: until the next prune"), "{said:?}");
    for text in ["latest", "v2", &ids[1], &ids[1][..5]] {
        let said = volume.run("forget", &["--undo", text]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.stderr.contains(&format!("there is no forgotten snapshot {text}\nhint: ")), "{said:?}");
    }
    let said = volume.run("forget", &["--undo", &ids[2][..12]]);
    assert!(said.code == Some(0) && said.stdout.contains(&ids[2]) && said.stderr.is_empty(), "{said:?}");
    volume.ok("prune", &["--forgotten"]);
    assert_eq!(volume.list().len(), 3);
}

#[test]
fn a_folder_without_snapshots_gets_no_store_by_a_change_and_an_empty_store_is_not_said_to_be_whole() {
    let volume = Volume::new();
    let prunes =
        [&["--keep-last", "1"][..], &["--forgotten"], &["--forgotten", "-n"]].map(|it| ("prune", it));
    let changes = [("tag", &["latest", "tag"][..]), ("pin", &["latest"]), ("forget", &["latest"])];
    for (command, args) in prunes.into_iter().chain(changes) {
        let said = volume.run(command, args);
        assert!(said.code == Some(1) && said.stderr.contains("has no snapshots\nhint: "), "{said:?}");
    }
    assert!(!volume.path().join(".volferry").exists());
    fs::write(volume.path().join("file"), "content").unwrap();
    let id = volume.create(&[]);
    volume.ok("forget", &[&id]);
    volume.ok("prune", &["--forgotten"]);
    let other = volume.path().with_file_name("other");
    for (command, args) in [("verify", &[][..]), ("copy", &[other.to_str().unwrap(), "--all"])] {
        let said = volume.run(command, args);
        assert!(said.code == Some(1) && said.stderr.contains("has no snapshots"), "{command}: {said:?}");
    }
    assert!(!other.exists());
}

#[test]
fn what_cannot_be_printed_is_an_error_and_a_reader_that_left_is_none() {
    let (volume, _) = three_versions();
    let commands: [(&str, &[&str]); 6] = [
        ("list", &[]),
        ("list", &["--json"]),
        ("create", &[]),
        ("show", &["v1"]),
        ("cat", &["v2", "dir/new"]),
        ("prune", &["--keep-last", "9", "-n"]),
    ];
    for (command, args) in commands {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let said: Said = volume.command(command, args).stdout(full).output().unwrap().into();
        assert_eq!(said.code, Some(1), "{command}: {said:?}");
        let told = said.stderr.matches("cannot write to standard output").count();
        assert!(told == 1 && !said.stderr.contains("hint: `volferry snapshot prune`"), "{command}: {said:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let said: Said = volume.command(command, args).stdout(writer).output().unwrap().into();
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{command}");
    }
    let other = volume.path().with_file_name("other");
    let ends = [volume.path().to_str().unwrap(), other.to_str().unwrap()];
    let sync = ["-v", "--progress=json"].map(|flag| vec!["sync", flag, ends[0], ends[1]]);
    for args in [vec!["config"]].into_iter().chain(sync) {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let said: Said = Command::new(program()).args(&args).stdout(full).output().unwrap().into();
        assert_eq!(said.code, Some(1), "{args:?}: {said:?}");
        assert_eq!(said.stderr.matches("cannot write to standard output").count(), 1, "{said:?}");
    }
    assert!(other.join("steady").exists(), "the run goes on");
}

#[test]
fn a_list_names_the_jobs_where_there_are_any() {
    let (volume, _) = three_versions();
    assert!(!volume.ok("list", &[]).contains("  JOB"));
    let from = scratch::scratch();
    let mut run = Command::new(program());
    run.arg("sync").arg(from.path()).arg(volume.path()).args(["--snapshot", "--snapshot-job=prod/web"]);
    assert!(run.output().unwrap().status.success());
    let listed = volume.ok("list", &[]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].contains("  JOB       TAGS"), "{listed}");
    assert!(lines[1].contains("            v1") && lines[4].contains("  prod/web  "), "{listed}");
}

#[test]
fn a_wrong_command_line_exits_with_2_as_everywhere() {
    let (volume, _) = three_versions();
    let commands: [(&str, &[&str]); 5] = [
        ("verify", &["--bandwidth-limit", "0"]),
        ("tag", &["latest", "a b"]),
        ("find", &["["]),
        ("create", &["--exclude", "["]),
        ("show", &["as-of:yesterday"]),
    ];
    for (command, args) in commands {
        let said = volume.run(command, args);
        assert_eq!(said.code, Some(2), "{command}: {said:?}");
    }
}

#[test]
fn a_forgotten_snapshot_is_collected_and_room_within_packs_comes_back() {
    let volume = Volume::new();
    tree::many(volume.path(), 200, 5000);
    let first = volume.create(&[]);
    for number in 0..200 {
        fs::write(volume.path().join(format!("d{:04}/f{number:06}", number / 100)), format!("{number}"))
            .unwrap();
    }
    let keep = volume.path().join("d0000/f000050");
    fs::write(&keep, vec![9; 5000]).unwrap();
    volume.create(&[]);
    let before = volume.allocated();
    volume.ok("forget", &[&first]);
    let freed = volume.run("prune", &["--forgotten", "--json"]).json()["freedBytes"].as_u64().unwrap();
    assert!(freed > 900_000 && volume.allocated() + 900_000 < before, "{freed} freed");
    volume.ok("verify", &[]);
    let again = volume.run("prune", &["--forgotten", "--json"]).json();
    assert_eq!(again["freedBytes"], 0);
}

/// Writes to the live tree, in place or otherwise, do not change a snapshot.
#[test]
fn foreign_writes_do_not_reach_a_snapshot() {
    use std::os::unix::fs::FileExt as _;
    for engine in ["auto", "copy"] {
        let volume = Volume::new();
        let [small, large] = ["small", "large"].map(|name| volume.path().join(name));
        fs::write(&small, "small").unwrap();
        fs::write(&large, vec![1; 1 << 20]).unwrap();
        volume.create(&["--engine", engine]);
        for path in [&small, &large] {
            fs::File::options().write(true).open(path).unwrap().write_all_at(b"XX", 0).unwrap();
        }
        assert_eq!(volume.ok("cat", &["latest", "small"]), "small");
        assert_eq!(volume.ok("cat", &["latest", "large"]).as_bytes(), vec![1; 1 << 20]);
        volume.ok("verify", &[]);
    }
}

#[test]
fn the_schema_describes_every_command() {
    let volume = Volume::new();
    let printed = |args: &[&str]| {
        let mut command = std::process::Command::new(crate::common::process::program());
        String::from_utf8(command.arg("snapshot").args(args).output().unwrap().stdout).unwrap()
    };
    let schema: serde_json::Value = serde_json::from_str(&printed(&["schema"])).unwrap();
    volume.create(&[]);
    let properties = schema["properties"].as_object().unwrap();
    let help = printed(&["--help"]);
    let commands =
        help.split_once("Commands:\n").unwrap().1.lines().map_while(|line| line.strip_prefix("  "));
    let commands = commands.filter_map(|line| line.split(' ').next().filter(|name| !name.is_empty()));
    let with_json: Vec<&str> =
        commands.filter(|command| printed(&[command, "--help"]).contains("\n      --json")).collect();
    assert!(with_json.len() >= 15, "{with_json:?}");
    let missing: Vec<_> = with_json.iter().filter(|command| !properties.contains_key(**command)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let list = &volume.list()[0];
    let described = schema["$defs"]["ListedJson"]["properties"].as_object().unwrap();
    assert!(list.as_object().unwrap().keys().all(|key| described.contains_key(key)), "{list}");
}

#[test]
fn hundreds_of_snapshots_are_listed_pruned_and_whole() {
    let volume = Volume::new();
    let file = volume.path().join("file");
    for nth in 0..150 {
        fs::write(&file, format!("{nth}")).unwrap();
        volume.create(&["--tag", &format!("t{nth}")]);
    }
    assert_eq!(volume.list().len(), 150);
    assert_eq!(volume.ok("cat", &["t77", "file"]), "77");
    volume.ok("prune", &["--keep-last", "10", "--keep-tag", "t77"]);
    assert_eq!(volume.list().len(), 11);
    assert_eq!(fs::read_dir(volume.store("packs")).unwrap().count(), 11);
    volume.ok("verify", &[]);
}

#[test]
fn a_path_that_no_snapshot_has_is_an_error_and_errors_follow_json() {
    let (volume, _) = three_versions();
    let said = volume.run("history", &["nowhere"]);
    assert!(said.code == Some(1) && said.stderr.contains("no snapshot has nowhere\nhint: "), "{said:?}");
    let said = volume.run("show", &["nothing", "--json"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:?}");
    let error: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(error["error"], "there is no snapshot nothing");
    assert!(error["hint"].as_str().unwrap().contains("snapshot list"), "{error}");
}

#[test]
fn a_snapshot_is_found_by_a_length_of_time() {
    let (volume, ids) = three_versions();
    assert!(volume.ok("show", &["as-of:0s ago"]).contains(&ids[2]));
    assert!(volume.run("show", &["as-of:2h ago"]).stderr.contains("as old as that"));
}

/// Holds the lock of the volume as a run does, until the command waits for it.
#[test]
fn a_command_waits_for_the_lock_as_long_as_it_is_told_to() {
    let (volume, _) = three_versions();
    let lock = fs::File::open(volume.path().join(".volferry/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let said = volume.run("create", &[]);
    assert!(said.code == Some(1) && said.stderr.contains("another run"), "{said:?}");
    let mut waiting = volume.command("create", &["--wait-lock", "10m"]);
    let mut waiting = waiting.stdout(std::process::Stdio::null()).spawn().unwrap();
    let fds = format!("/proc/{}/fd", waiting.id());
    // The command opens the lock, which this process holds, for a moment at each try: a pause between looks would miss
    // it.
    while waiting.try_wait().unwrap().is_none() && !opens(&fds, "lock") {
        std::thread::yield_now();
    }
    assert!(waiting.try_wait().unwrap().is_none());
    drop(lock);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(volume.list().len(), 4);
    // Without a snapshot, the room for the first one is looked at, once however often the lock is tried.
    let volume = Volume::new();
    fs::write(volume.path().join("file"), "content").unwrap();
    let id = volume.create(&["--engine", "copy"]);
    volume.ok("forget", &[&id]);
    volume.ok("prune", &["--forgotten"]);
    let lock = fs::File::open(volume.path().join(".volferry/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let said = volume.run("create", &["--engine", "copy", "--wait-lock", "1s"]);
    assert!(said.code == Some(1) && said.stderr.contains("another run"), "{said:?}");
    assert_eq!(said.stderr.matches("note: ").count(), 1, "{said:?}");
}

/// Returns whether a process has a file of this name open.
fn opens(fds: &str, name: &str) -> bool {
    let open = fs::read_dir(fds).into_iter().flatten().flatten();
    open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.ends_with(name)))
}
