//! Tests of the state folder: its lock, its epoch, and what is left in staging.

use std::{
    fs,
    os::unix::fs::{FileExt as _, PermissionsExt as _},
};

use crate::{
    destination::{
        remove_old_versions::{EntryAt, Retire},
        staging::staged_file::Staged,
        state::{leftovers::Leftover, lock_still_held::LOOK_EVERY, state_dir::*},
    },
    measure::monitor::Monitor,
    path::RelPath,
};

struct TestStaging {
    dir: tempfile::TempDir,
}

impl TestStaging {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Result<StateDir, ApplyError> {
        StateDir::open(&Root::open(self.dir.path()).unwrap(), self.dir.path(), None, None)
    }

    fn state(&self, name: &str) -> PathBuf {
        let state = self.dir.path().join(".volferry");
        if name.is_empty() { state } else { state.join(name) }
    }

    fn staged(&self) -> usize {
        fs::read_dir(self.state("staging")).unwrap().count()
    }

    /// Opens the destination a second time, as if the file system had given its lock away.
    fn take_over(&self) -> StateDir {
        fs::remove_file(self.state("lock")).unwrap();
        self.open().unwrap()
    }
}

fn named(state: &StateDir) -> io::Result<Staged> {
    Staged::create(state, state.dir(), true, 0o600)
}

#[test]
fn what_is_staged_goes_with_the_run_and_the_rest_stays() {
    let place = TestStaging::new();
    let state = place.open().unwrap();
    let volume = state.volume();
    named(&state).unwrap();
    assert_eq!(place.staged(), 1);
    assert!(matches!(place.open(), Err(ApplyError::Busy { .. })));
    drop(state);
    assert_eq!(place.staged(), 0);
    assert_eq!(place.open().unwrap().volume(), volume);
}

#[test]
fn a_name_that_leads_to_the_folder_is_known_by_what_is_there() {
    let place = TestStaging::new();
    let state = place.open().unwrap();
    let other = place.dir.path().join(".VOLFERRY");
    fs::create_dir(&other).unwrap();
    assert!(state.is_named(OWN_DIR) && !state.is_named(b".VOLFERRY"));
    // Some file systems that fold case number their folders by name: then only the content is the same.
    fs::copy(place.state("epoch"), other.join("epoch")).unwrap();
    assert!(state.is_named(b".VOLFERRY"));
    drop(state);
    assert!(!place.open().unwrap().is_named(b".VOLFERRY"), "that was another run's stamp");
}

#[test]
fn what_a_killed_run_left_in_staging_is_removed_by_the_next() {
    let place = TestStaging::new();
    drop(place.open().unwrap());
    fs::write(place.state("staging/0"), "left").unwrap();
    fs::create_dir(place.state("staging/1")).unwrap();
    fs::write(place.state("staging/1/file"), "of a hidden directory").unwrap();
    fs::create_dir_all(place.state("staging/2/of/a/folder/kept/aside")).unwrap();
    fs::create_dir_all(place.state("staging/2/leaving-1/of")).unwrap();
    fs::write(place.state("staging/2/of/a/file"), "below").unwrap();
    let _own = place.open().unwrap();
    assert_eq!(place.staged(), 0);
}

#[test]
fn of_the_parts_of_one_file_the_one_with_most_in_it_is_left() {
    let place = TestStaging::new();
    drop(place.open().unwrap());
    let key = "0123456789abcdef".repeat(2);
    for (run, len) in [("1", 5_000), ("2", 500_000), ("3", 50_000), ("4", 0)] {
        fs::write(place.state(&format!("staging/{key}.{run}")), vec![1; len]).unwrap();
    }
    let state = place.open().unwrap();
    assert_eq!(place.staged(), 1);
    let Leftover { part: name, was_tried } = state.take_leftover(&key).unwrap();
    assert_eq!(fs::metadata(place.state(&format!("staging/{name}"))).unwrap().len(), 500_000);
    assert!(!state.has_leftover(&key) && !was_tried);
    drop(state);
    let state = place.open().unwrap();
    assert!(state.take_leftover(&key).unwrap().was_tried, "nothing better has come since");
    drop(state);
    fs::write(place.state(&format!("staging/{key}.5")), [1; 600_000]).unwrap();
    assert!(!place.open().unwrap().take_leftover(&key).unwrap().was_tried, "more has come");
}

#[test]
fn what_is_the_users_own_is_closed_to_others_again() {
    let place = TestStaging::new();
    let state = place.open().unwrap();
    state.adopt().unwrap();
    let volume = state.volume();
    drop(state);
    let mode = |name: &str| fs::metadata(place.state(name)).unwrap().permissions().mode() & 0o7777;
    let set = |name: &str, mode| {
        fs::set_permissions(place.state(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let names = [("", 0o2770), ("staging", 0o2770), ("journal", 0o777), ("lock", 0o660), ("volume", 0o666)];
    names.iter().for_each(|(name, mode)| set(name, *mode));
    assert_eq!(place.open().unwrap().volume(), volume);
    for (name, _) in names {
        assert_eq!(mode(name) & 0o077, 0, "{name}");
    }
    let state = place.open().unwrap();
    set("staging", 0o2770);
    state.stay_private().unwrap();
    assert_eq!(mode("staging"), 0o2700, "while a run works, too");
    fs::rename(place.state(""), place.dir.path().join("aside")).unwrap();
    let error = state.stay_private().unwrap_err().to_string();
    assert!(error.contains("moved or replaced"), "{error}");
}

#[test]
fn a_part_that_others_could_write_to_is_gone_on_from_in_a_new_file() {
    let place = TestStaging::new();
    drop(place.open().unwrap());
    let path = crate::path::RelPath::parse(b"large").unwrap();
    let name = format!("staging/{}.1", crate::destination::state::staging_names::part_key(&path));
    fs::write(place.state(&name), "what has arrived").unwrap();
    fs::set_permissions(place.state(&name), fs::Permissions::from_mode(0o660)).unwrap();
    let held = fs::OpenOptions::new().write(true).open(place.state(&name)).unwrap();
    let state = place.open().unwrap();
    let part = Staged::leftover(&state, &path, &Monitor::default()).unwrap().part;
    held.write_all_at(b"forged", 0).unwrap();
    let mut there = [0; 16];
    part.read_exact_at(&mut there, 0).unwrap();
    assert_eq!(&there, b"what has arrived");
    assert_eq!(place.staged(), 1);
}

#[test]
fn a_run_that_is_stopped_leaves_a_part_that_it_was_copying() {
    let place = TestStaging::new();
    drop(place.open().unwrap());
    let path = RelPath::parse(b"large").unwrap();
    let name = format!("staging/{}.1", crate::destination::state::staging_names::part_key(&path));
    fs::write(place.state(&name), vec![7; 100_000]).unwrap();
    fs::set_permissions(place.state(&name), fs::Permissions::from_mode(0o660)).unwrap();
    let (state, monitor) = (place.open().unwrap(), Monitor::default());
    monitor.cancel();
    assert!(Staged::leftover(&state, &path, &monitor).is_none());
    drop(state);
    assert_eq!(place.staged(), 1);
    let state = place.open().unwrap();
    let part = Staged::leftover(&state, &path, &Monitor::default()).unwrap().part;
    assert_eq!(part.basis_len().unwrap(), 100_000);
}

#[test]
fn a_file_that_a_stop_keeps_from_its_place_stays_for_the_next_run() {
    let place = TestStaging::new();
    fs::create_dir(place.dir.path().join("large")).unwrap();
    let root = Root::open(place.dir.path()).unwrap();
    let (parent, path) = (RelPath::root(), RelPath::parse(b"large").unwrap());
    for is_stopped in [false, true] {
        let (state, monitor) = (place.open().unwrap(), Monitor::default());
        let part = Staged::part(&state, &path).unwrap();
        part.write_at(&[7; 5000], 0).unwrap();
        if is_stopped {
            monitor.cancel();
        }
        let at = EntryAt::new(root.as_fd(), &parent, b"large", &monitor);
        part.publish(&state, &Retire::default(), at).unwrap_err();
        drop(state);
        assert_eq!(place.staged(), usize::from(is_stopped));
    }
}

#[test]
fn what_is_not_a_file_of_the_user_with_one_name_is_refused_and_named() {
    for name in ["epoch", "volume"] {
        let place = TestStaging::new();
        place.open().unwrap().adopt().unwrap();
        fs::hard_link(place.state(name), place.dir.path().join("another name")).unwrap();
        let Err(ApplyError::Own { source, .. }) = place.open() else { panic!("{name} was used") };
        let text = source.to_string();
        assert!(text.contains(name) && text.contains("2 names") && text.contains("remove it"), "{text}");
    }
    let place = TestStaging::new();
    fs::create_dir(place.dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", place.state("")).unwrap();
    let Err(ApplyError::Own { source, .. }) = place.open() else { panic!("a link was followed") };
    assert!(source.to_string().contains("is no folder"), "{source}");
}

#[test]
fn a_run_that_does_not_get_to_its_end_leaves_the_parts_that_have_anything_in_them() {
    let place = TestStaging::new();
    let path = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
    let stage = |state: &StateDir| {
        Staged::part(state, &path("large")).unwrap().write_at(&[7; 5000], 0).unwrap();
        Staged::part(state, &path("empty")).unwrap().set_len(5000).unwrap();
        named(state).unwrap().write_at(b"small", 0).unwrap();
    };
    let state = place.open().unwrap();
    stage(&state);
    drop(state);
    assert_eq!(place.staged(), 1);
    let state = place.open().unwrap();
    stage(&state);
    state.end();
    drop(state);
    assert_eq!(place.staged(), 0);
}

#[test]
fn leftovers_that_are_not_needed_go_and_the_others_stay() {
    let place = TestStaging::new();
    drop(place.open().unwrap());
    let keys = ["0", "1"].map(|digit| digit.repeat(32));
    keys.iter().for_each(|key| fs::write(place.state(&format!("staging/{key}.1")), [7; 5000]).unwrap());
    let state = place.open().unwrap();
    state.drop_leftovers(|key| key == keys[0]);
    assert_eq!(
        (state.has_leftover(&keys[0]), state.has_leftover(&keys[1]), place.staged()),
        (true, false, 1)
    );
}

#[test]
fn a_run_that_was_taken_over_publishes_nothing_and_leaves_staging_alone() {
    let place = TestStaging::new();
    let old = place.open().unwrap();
    let late = named(&old).unwrap();
    late.write_at(b"late", 0).unwrap();
    let new = place.take_over();
    named(&new).unwrap();
    // A run that checked a moment ago still believes that it owns the destination, but has no staged file left to
    // rename.
    let root = Root::open(place.dir.path()).unwrap();
    let at = EntryAt::staged(root.as_fd(), b"file");
    assert!(late.publish(&old, &Retire::default(), at).is_err());
    assert!(!place.dir.path().join("file").exists());
    // A run trusts its last check for this long.
    std::thread::sleep(LOOK_EVERY);
    assert!(old.check().is_err());
    assert!(old.is_lost());
    named(&old).unwrap();
    assert_eq!(place.staged(), 2);
    drop(old);
    assert_eq!(place.staged(), 1);
    new.check().unwrap();
}
