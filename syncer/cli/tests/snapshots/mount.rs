//! Snapshots that are mounted: what is seen there, and how a mount ends.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
};

use rustix::process::{Pid, kill_process};

use crate::common::prelude::*;
use crate::volume::Volume;

/// A mount, which ends with the test.
struct Mounted(Child);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Mounts the snapshots of a volume, and waits until they are there; `None` where nothing can be mounted.
fn mount(volume: &Volume, at: &Path) -> Option<Mounted> {
    if !scratch::is_root() || fs::File::open("/dev/fuse").is_err() {
        eprintln!("skipped: needs root and /dev/fuse");
        return None;
    }
    let child = volume.command("mount", &[at.to_str().unwrap()]).stdout(Stdio::piped()).spawn().unwrap();
    let (mut mounted, mut line) = (Mounted(child), String::new());
    BufReader::new(mounted.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("Mounted "), "{line}");
    Some(mounted)
}

#[track_caller]
fn end(mut mounted: Mounted, at: &Path) {
    kill_process(Pid::from_child(&mounted.0), Signal::TERM).unwrap();
    assert!(mounted.0.wait().unwrap().success());
    assert_eq!(fs::read_dir(at).unwrap().count(), 0, "nothing is mounted there any more");
}

#[test]
fn a_mounted_snapshot_is_what_it_was_taken_of_by_id_tag_and_time() {
    let (volume, mut rng) = (Volume::new(), Rng::new(9));
    tree::random(volume.path(), &mut rng, 60, Shape::Everything);
    let states = ["first", "second"].map(|tag| {
        tree::gallery(&scratch::dir(volume.path(), tag), Shape::Everything);
        (volume.create(&["--tag", tag]), Snapshot::of(volume.path()))
    });
    let place = scratch::scratch();
    let at = scratch::dir(place.path(), "mounted");
    let Some(mounted) = mount(&volume, &at) else { return };
    for ((id, state), tag) in states.iter().zip(["first", "second"]) {
        Snapshot::of(&at.join("by-id").join(id)).assert_like(state, COPY, id);
        Snapshot::of(&at.join("by-tag").join(tag)).assert_like(state, COPY, tag);
    }
    let link = |path: &str| fs::read_link(at.join(path)).unwrap();
    assert_eq!(link("latest"), Path::new("by-id").join(&states[1].0));
    let times: Vec<_> = fs::read_dir(at.join("by-time")).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(times.iter().any(|time| fs::read_link(time).unwrap().ends_with(&states[1].0)));
    let refused = fs::write(at.join("latest/new"), "new").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    end(mounted, &at);
}

#[test]
fn holes_and_hard_links_are_seen_by_programs_that_look_for_them() {
    let volume = Volume::new();
    tree::sparse(&volume.path().join("sparse"), &mut Rng::new(2));
    tree::files(volume.path(), &["one"], "content");
    fs::hard_link(volume.path().join("one"), volume.path().join("two")).unwrap();
    volume.create(&[]);
    let place = scratch::scratch();
    let at = scratch::dir(place.path(), "mounted");
    let Some(mounted) = mount(&volume, &at) else { return };
    let from = at.join("latest");
    let archive = Command::new("tar").args(["-S", "-cf", "-", "-C"]).arg(&from).arg(".").output().unwrap();
    assert!(archive.status.success() && archive.stdout.len() < 100_000, "{}", archive.stdout.len());
    let listed =
        Command::new("find").arg(from.join(".")).args(["-links", "2", "-name", "one"]).output().unwrap();
    assert!(listed.stdout.ends_with(b"/one\n"), "{listed:?}");
    end(mounted, &at);
}

#[test]
fn a_damaged_file_cannot_be_read_and_the_rest_can() {
    let volume = Volume::new();
    fs::write(volume.path().join("large"), vec![5; 300_000]).unwrap();
    tree::files(volume.path(), &["small"], "content");
    volume.create(&[]);
    crate::damage::flip(&crate::damage::only_file_below(&volume.store("content")), 1000);
    let place = scratch::scratch();
    let at = scratch::dir(place.path(), "mounted");
    let Some(mounted) = mount(&volume, &at) else { return };
    let error = fs::read(at.join("latest/large")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert_eq!(fs::read_to_string(at.join("latest/small")).unwrap(), "content");
    end(mounted, &at);
}

#[test]
fn nothing_is_mounted_in_the_volume_itself() {
    let volume = Volume::new();
    volume.create(&[]);
    let at = scratch::dir(volume.path(), "mounted");
    let said = volume.run("mount", &[at.to_str().unwrap()]);
    assert!(said.code == Some(2) && said.stderr.contains("outside of it"), "{said:?}");
    let missing = volume.path().with_file_name("missing");
    let said = volume.run("mount", &[missing.to_str().unwrap()]);
    assert!(said.code == Some(2) && said.stderr.contains("make that folder first"), "{said:?}");
}

#[test]
fn whoever_an_acl_keeps_out_of_a_file_is_kept_out_of_it_in_a_mount() {
    let volume = Volume::new();
    // A group without rights behind a mask; a user without those of all others.
    for (name, acl) in [("group", [6, 4, 0, 4, 0]), ("user", [6, 0, 4, 4, 4]), ("all", [6, 4, 4, 4, 4])] {
        fs::write(volume.path().join(name), "content").unwrap();
        tree::set_attr(&volume.path().join(name), tree::ACCESS_ACL, &tree::acl(acl));
    }
    volume.create(&[]);
    let place = scratch::scratch();
    let at = scratch::dir(place.path(), "mounted");
    let Some(mounted) = mount(&volume, &at) else { return };
    for (name, mode) in [("group", 0o600), ("user", 0o600), ("all", 0o644)] {
        let seen = fs::metadata(at.join("latest").join(name)).unwrap().mode();
        assert_eq!(seen & 0o777, mode, "{name}");
    }
    end(mounted, &at);
}

#[test]
fn a_tree_that_is_read_in_order_is_what_it_was_taken_of() {
    let volume = Volume::new();
    let mut rng = Rng::new(4);
    for dir in 0..6 {
        for file in 0..100 {
            let path = volume.path().join(format!("{dir}/{}/{file:03}", file % 3));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let len = rng.below(9000) as usize;
            fs::write(path, rng.bytes(len)).unwrap();
        }
    }
    volume.create(&[]);
    let state = Snapshot::of(volume.path());
    let place = scratch::scratch();
    let at = scratch::dir(place.path(), "mounted");
    let Some(mounted) = mount(&volume, &at) else { return };
    let from = at.join("latest/");
    // Several at once, while files are read ahead of each.
    let tar =
        || Command::new("tar").args(["-cf", "-", "-C"]).arg(&from).arg(".").stdout(Stdio::piped()).spawn();
    let archives = [(); 4].map(|()| tar().unwrap());
    for archive in archives {
        assert!(archive.wait_with_output().unwrap().status.success());
    }
    Snapshot::of(&from).assert_like(&state, COPY, "read ahead");
    end(mounted, &at);
}
