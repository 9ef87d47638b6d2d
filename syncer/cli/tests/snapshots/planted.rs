//! What another user who could write to the volume, as with an `fsGroup`, puts in the place of the store's own files
//! and folders leads no command out of it, and keeps none waiting.

use std::{
    os::unix::fs::PermissionsExt as _,
    process::{Child, Stdio},
    time::Instant,
};

use crate::common::prelude::*;
use crate::volume::{Said, Volume};

/// Far longer than any command here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a volume with two snapshots. Each has a small file and a large one of its own.
fn volume() -> Volume {
    let volume = Volume::new();
    for nth in 0..2 {
        change(&volume, nth);
        volume.create(&["--engine", "copy"]);
    }
    volume
}

fn change(volume: &Volume, nth: u64) {
    fs::write(volume.path().join("small"), format!("{nth}")).unwrap();
    fs::write(volume.path().join("large"), Rng::new(nth).bytes(100_000)).unwrap();
}

/// Runs a command that must not wait for anything.
#[track_caller]
fn run(volume: &Volume, command: &str, args: &[&str]) -> Said {
    let mut process = volume.command(command, args);
    let started: Child = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (pid, began) = (started.id(), Instant::now());
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(started.wait_with_output()));
    let Ok(output) = told.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        panic!("{command} waits after {:?}", began.elapsed());
    };
    output.unwrap().into()
}

/// The commands that write to a store.
const WRITING: [(&str, &[&str]); 6] = [
    ("create", &["--engine", "copy"]),
    ("prune", &["--keep-last", "1"]),
    ("pin", &["latest"]),
    ("restore", &["latest"]),
    ("verify", &[]),
    ("repair", &["--apply"]),
];

#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed_and_is_named() {
    for folder in ["content", "packs", "new", "trash"] {
        let volume = volume();
        let elsewhere = scratch::dir(volume.path().parent().unwrap(), "elsewhere");
        fs::rename(volume.store(folder), volume.store("aside")).unwrap();
        symlink(&elsewhere, volume.store(folder)).unwrap();
        for (command, args) in WRITING {
            change(&volume, 9);
            let said = run(&volume, command, args);
            if !["verify", "repair"].contains(&command) {
                assert_eq!(said.code, Some(1), "{folder}, {command}: {said:?}");
            }
            if ["create", "prune", "pin"].contains(&command) {
                let named = format!("{}: {folder} is a symbolic link", volume.store(folder).display());
                assert!(said.stderr.contains(&named) && said.stderr.contains("hint: "), "{said:?}");
            }
            assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{folder}, {command}");
        }
        fs::remove_file(volume.store(folder)).unwrap();
        fs::rename(volume.store("aside"), volume.store(folder)).unwrap();
        volume.create(&[]);
        volume.ok("verify", &["--no-heal"]);
    }
}

#[test]
fn a_link_in_the_place_of_a_folder_of_contents_is_not_followed() {
    let volume = volume();
    let elsewhere = volume.path().parent().unwrap().join("elsewhere");
    let folders: Vec<_> =
        fs::read_dir(volume.store("content")).unwrap().map(|it| it.unwrap().path()).collect();
    for folder in &folders {
        let there = elsewhere.join(folder.file_name().unwrap());
        fs::create_dir_all(&there).unwrap();
        for content in fs::read_dir(folder).unwrap().map(|it| it.unwrap()) {
            fs::copy(content.path(), there.join(content.file_name())).unwrap();
        }
        fs::remove_dir_all(folder).unwrap();
        symlink(&there, folder).unwrap();
    }
    let before = Snapshot::of(&elsewhere);
    assert_ne!(run(&volume, "cat", &["latest", "large"]).code, Some(0));
    for nth in [0, 1, 9] {
        for (command, args) in WRITING {
            change(&volume, nth);
            run(&volume, command, args);
            Snapshot::of(&elsewhere).assert_like(&before, UNTOUCHED, command);
        }
    }
}

#[test]
fn a_folder_that_others_may_write_to_is_closed_and_one_of_another_user_is_refused() {
    let volume = volume();
    for folder in ["content", "packs", "new", "trash"] {
        let path = volume.store(folder);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2770)).unwrap();
        volume.create(&[]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{folder}");
        if scratch::is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let said = run(&volume, "create", &[]);
            let refused = format!("{}: it belongs to user 65534", path.display());
            assert!(said.code == Some(1) && said.stderr.contains(&refused), "{said:?}");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
    }
}

fn make_fifo(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_pipe_in_the_place_of_a_new_file_is_replaced() {
    let volume = volume();
    for name in ["roots.new", "roots.copy.new"] {
        make_fifo(&volume.store(name));
        change(&volume, 9);
        let said = run(&volume, "create", &[]);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        assert!(!volume.store(name).exists(), "{name}");
    }
    volume.ok("verify", &["--no-heal"]);
}

#[test]
fn a_pipe_in_the_place_of_a_file_keeps_no_command_waiting() {
    let names = ["roots", "roots.copy", "audit", "reserve", "readers", "checked", "checked.new", "damaged"];
    for name in names.into_iter().chain(["damaged.new", "packs"]) {
        let volume = volume();
        if name == "packs" {
            for pack in fs::read_dir(volume.store(name)).unwrap().map(|it| it.unwrap().path()) {
                make_fifo(&pack);
            }
        } else {
            make_fifo(&volume.store(name));
        }
        let commands = [("list", &[][..]), ("verify", &[]), ("verify", &["--in-turn", "2"])];
        for (command, args) in commands.into_iter().chain(WRITING) {
            // What the newest snapshot has, from which damaged objects are healed.
            change(&volume, 1);
            run(&volume, command, args);
        }
    }
}

#[test]
fn a_further_name_of_another_file_in_the_place_of_the_log_is_refused() {
    let volume = volume();
    let other = volume.path().parent().unwrap().join("other");
    fs::write(&other, "another's\n").unwrap();
    fs::remove_file(volume.store("audit")).unwrap();
    fs::hard_link(&other, volume.store("audit")).unwrap();
    let said = run(&volume, "pin", &["latest"]);
    assert!(said.code == Some(1) && said.stderr.contains("audit: it has 2 names"), "{said:?}");
    assert_eq!(fs::read_to_string(other).unwrap(), "another's\n");
}
