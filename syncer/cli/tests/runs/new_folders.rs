//! New folders of small files: each becomes visible once all of its files are there.

use std::os::unix::fs::chown;

use crate::common::prelude::*;
use crate::common::wait;

const FOLDERS: usize = 40;
const FILES: usize = 25;

/// The size of each file: all of them together take a quarter of a minute at 1 MiB per second.
const FILE_BYTES: usize = 16_000;

/// Makes folders of small files below one folder; returns their paths.
fn folders(pair: &Pair) -> Vec<PathBuf> {
    let mut rng = Rng::new(7);
    let all: Vec<PathBuf> = (0..FOLDERS).map(|number| format!("above/f{number:02}").into()).collect();
    for folder in &all {
        for file in 0..FILES {
            let path = pair.source.join(folder).join(format!("{file:02}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            tree::file(&path, &rng.bytes(FILE_BYTES));
        }
    }
    all
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn a_folder_has_none_of_its_files_or_all_whenever_a_run_is_killed() {
    for full in [1, 4, 8] {
        let pair = Pair::new(Way::SinkListens);
        let folders = folders(&pair);
        let (source, sink) = pair.start_both(&["--bandwidth-limit=1Mi"], &[]);
        let look =
            || folders.iter().map(|folder| entries(&pair.destination.join(folder))).collect::<Vec<_>>();
        let has_arrived = || look().iter().filter(|&&files| files == FILES).count() >= full;
        wait::poll(has_arrived, || format!("too little has arrived: {:?}", look()));
        sink.kill();
        source.kill();
        let there = look();
        assert!(there.iter().all(|&files| files == 0 || files == FILES), "{there:?}");
        assert!(there.contains(&0), "{there:?}");
        pair.sync("after a run that was killed");
    }
}

#[test]
fn files_that_cannot_be_read_do_not_keep_the_others_of_a_new_folder_out_of_sight() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let mut pair = Pair::unprivileged(way);
        pair.user = if way == Way::Local { User::Nobody } else { User::Same };
        let folder = pair.source.join("folder");
        fs::create_dir(&folder).unwrap();
        (0..FILES).for_each(|number| tree::file(&folder.join(number.to_string()), b"content"));
        scratch::give_to_nobody(&pair.source);
        for name in ["3", "17"] {
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o000)).unwrap();
        }
        let run = pair.run_to(ExitCode::Partial, &[]);
        assert_eq!(run.report().work.files_failed, 2, "{way:?}");
        assert_eq!(entries(&pair.destination.join("folder")), FILES - 2, "{way:?}");
        pair.assert_staging_empty();
    }
}

#[test]
fn a_new_folder_inherits_what_folders_at_its_place_do() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let pair = Pair::new(way);
        folders(&pair);
        let above = scratch::dir(&pair.destination, "above");
        chown(&above, None, Some(4321)).unwrap();
        fs::set_permissions(&above, fs::Permissions::from_mode(0o2770)).unwrap();
        pair.done(&["--ownership=never", "--no-permissions"]);
        let folder = fs::metadata(above.join("f03")).unwrap();
        let file = fs::metadata(above.join("f03/07")).unwrap();
        assert_eq!((folder.gid(), folder.mode() & 0o7777), (4321, 0o2755), "{way:?}");
        assert_eq!((file.gid(), file.mode() & 0o7777), (4321, 0o644), "{way:?}");
    }
}
