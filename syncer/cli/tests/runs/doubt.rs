//! Files in doubt, which look up to date and may not be: a run changed them, and ended before it made that durable.

use std::fs::File;

use crate::common::prelude::*;

const FILES: [(&str, usize); 3] = [("small", 3000), ("packed", 100_000), ("large", 3_000_000)];

/// Writes zeros to the end of a file and keeps its length and time, as after a crash of a machine whose file system
/// writes its journal before its data.
fn lose_the_end(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let before = file.metadata().unwrap();
    file.write_all_at(&[0; 1000], before.len() - 1000).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(path.metadata().unwrap().mtime_nsec(), before.mtime_nsec());
}

fn in_step(way: Way) -> Pair {
    let pair = Pair::new(way);
    fs::create_dir(pair.source.join("folder")).unwrap();
    for (seed, (name, len)) in (0..).zip(FILES) {
        tree::file(&pair.source.join("folder").join(name), &Rng::new(seed).bytes(len));
        tree::file(&pair.source.join(name), &Rng::new(seed + 10).bytes(len));
    }
    pair.sync("the first run");
    pair
}

#[test]
fn of_what_a_run_did_not_make_durable_the_next_believes_nothing() {
    for way in Way::ALL {
        let pair = in_step(way);
        File::create(pair.destination.join(".volferry/dirty-0")).unwrap();
        FILES.iter().for_each(|(name, _)| lose_the_end(&pair.destination.join("folder").join(name)));
        let Report { work, .. } = pair.sync("after a crash");
        assert_eq!(work.files_updated, FILES.len() as u64, "{way:?}: what was not changed since is believed");
        pair.sync_unchanged("after that");
    }
}

#[test]
fn a_run_that_compares_content_clears_the_doubt() {
    for way in Way::ALL {
        let pair = in_step(way);
        File::create(pair.destination.join(".volferry/dirty-0")).unwrap();
        for (name, _) in FILES {
            let path = pair.destination.join(name);
            File::open(&path).unwrap().set_modified(path.metadata().unwrap().modified().unwrap()).unwrap();
        }
        pair.done(&["--compare", "content"]);
        pair.sync_unchanged("after that");
    }
}

#[test]
fn a_run_that_is_killed_leaves_a_mark_and_the_next_removes_it() {
    let pair = in_step(Way::SinkListens);
    for seed in 0..20 {
        tree::file(&pair.source.join(format!("more {seed}")), &Rng::new(seed).bytes(300_000));
    }
    let (source, sink, relay) = pair.start_over(1_000_000, &[]);
    sink.signal(Signal::KILL);
    relay.release();
    drop([source.wait(), sink.wait()]);
    assert_eq!(pair.marks().len(), 1);
    pair.sync("after the kill");
    pair.sync_unchanged("after that");
}

#[test]
fn a_run_that_does_not_look_at_what_is_in_doubt_leaves_it_to_one_that_does() {
    for way in Way::EACH {
        for flags in [&["--ignore-existing"][..], &["--size-only"], &["--exclude", "/small"], &["-x"]] {
            let pair = in_step(way);
            File::create(pair.destination.join(".volferry/dirty-0")).unwrap();
            lose_the_end(&pair.destination.join("small"));
            let partial = pair.done(flags);
            assert_eq!(pair.marks().len(), 1, "{way:?} {flags:?}");
            let is_told = partial.report().notes.iter().any(|note| note.contains("was cut off"));
            assert!(is_told, "{way:?} {flags:?}: {:?}", partial.report().notes);
            pair.sync("all of it");
            assert!(pair.marks().is_empty(), "{way:?} {flags:?}");
        }
    }
}

#[test]
fn what_is_in_doubt_at_a_source_is_compared_again_once_it_was_repaired() {
    let pair = in_step(Way::Local);
    let next = pair.dir().join("next");
    let chained = || {
        let run = pair.output(&["sync", text(&pair.destination), text(&next)]);
        assert!(run.status.success(), "{run:?}");
        String::from_utf8(run.stdout).unwrap() + &String::from_utf8(run.stderr).unwrap()
    };
    File::create(pair.destination.join(".volferry/dirty-0")).unwrap();
    FILES.iter().for_each(|(name, _)| lose_the_end(&pair.destination.join(name)));
    let told = chained();
    assert!(told.contains("a run into the source was cut off"), "{told}");
    // Nothing tells the damaged files apart from whole ones yet.
    chained();
    pair.sync("the repair");
    chained();
    for (name, _) in FILES {
        assert!(fs::read(next.join(name)).unwrap() == fs::read(pair.source.join(name)).unwrap(), "{name}");
    }
    let told = chained();
    assert!(told.contains("Nothing to change") && !told.contains("cut off"), "{told}");
}

#[test]
fn a_source_with_a_half_written_file_is_not_read() {
    let pair = in_step(Way::Local);
    fs::write(pair.destination.join(".volferry/journal/0-f"), "").unwrap();
    let next = pair.dir().join("next");
    let run = pair.output(&["sync", text(&pair.destination), text(&next)]);
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(!run.status.success() && told.contains("cut off in the middle of a file"), "{told}");
    assert!(!next.join("small").exists());
}
