//! Volferry and rsync make the same tree of the same tree, with any entries and after any edits, on every file system
//! that volumes commonly have.

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::copies::rsync;
use crate::common::{mount::Mounted, oracle::Kind, prelude::*, rng::Rng};

/// The number of trees on each file system.
const CASES: u32 = 5;

/// The edits of a tree between two runs.
type Edits = Vec<usize>;

#[test]
fn every_tree_arrives_as_rsync_makes_it() {
    for kind in FileSystem::ALL {
        let Some(mounted) = kind.mount() else { continue };
        let config =
            Config { cases: CASES, max_shrink_iters: 30, failure_persistence: None, ..Config::default() };
        let edits = || prop::collection::vec(0..Edit::ALL.len(), 0..25);
        let rounds = (any::<u64>(), [edits(), edits()]);
        let outcome = TestRunner::new(config).run(&rounds, |(seed, rounds)| {
            check(&mounted, seed, &rounds).map_err(|error| TestCaseError::fail(format!("{kind:?}: {error}")))
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
    }
}

fn check(mounted: &Mounted, seed: u64, rounds: &[Edits]) -> Result<(), String> {
    let local = Pair::in_dir(mounted.folder(), Way::Local);
    let way = if seed.is_multiple_of(2) { Way::SinkListens } else { Way::SourceListens };
    let mut network = Pair::in_dir(mounted.folder(), way);
    network.source.clone_from(&local.source);
    let by_rsync = local.dir().join("rsync");
    let mut rng = Rng::new(seed);
    tree::random(&local.source, &mut rng, 50, Shape::Everything);
    for edit in 0..6 {
        // These edits make links, attributes and holes, so later edits can change them from the first round on.
        let edit =
            [Edit::HardLink, Edit::HardLink, Edit::SetAcl, Edit::SetDirAcl, Edit::Punch, Edit::SetAttr][edit];
        edit.apply(&local.source, &mut rng);
    }
    for (round, edits) in (0..).zip([&Edits::new()].into_iter().chain(rounds)) {
        let done: Vec<_> = edits.iter().map(|edit| Edit::ALL[*edit]).collect();
        done.iter().for_each(|edit| drop(edit.apply(&local.source, &mut rng)));
        rsync(&local.source, &by_rsync);
        let (original, expected) = (Snapshot::of(&local.source), Snapshot::of(&by_rsync));
        for pair in [&local, &network] {
            pair.done(&["--delete", "--delete-limit=100"]);
            let copy = Snapshot::of(&pair.destination);
            let mut found = expected.differences(&copy, COPY);
            found.extend(original.differences(&copy, COPY));
            found.extend(filled_holes(&original, &copy));
            if !found.is_empty() {
                return Err(format!(
                    "{:?}, seed {seed}, round {round} after {done:?}:\n{}",
                    pair.way,
                    found.join("\n")
                ));
            }
            let again = pair.done(&["--delete"]);
            let work = again.report().work;
            if work.files_created + work.files_updated + work.files_deleted > 0 {
                return Err(format!(
                    "{:?}, seed {seed}, round {round}: not done after one run: {work:?}",
                    pair.way
                ));
            }
        }
    }
    Ok(())
}

/// Returns the files with large holes that have less than half of them in the copy.
fn filled_holes(original: &Snapshot, copy: &Snapshot) -> Vec<String> {
    let holes = |path: &[u8], tree: &Snapshot| match tree.at(path).map(|node| (&node.kind, node.allocated)) {
        Some((Kind::File(content), allocated)) => (content.len() as u64).saturating_sub(allocated),
        _ => 0,
    };
    let files = original.files().map(|(path, _)| (path, holes(path, original), holes(path, copy)));
    files
        .filter(|(_, had, has)| *had > 1 << 20 && *has < had / 2)
        .map(|(path, had, has)| format!("{}: {has} bytes of holes, not {had}", show(path)))
        .collect()
}

/// Attributes that a file system shows of itself are not copied to another one.
#[test]
fn one_of_everything_crosses_from_one_file_system_to_another() {
    let mounted: Vec<_> = FileSystem::ALL.into_iter().map(FileSystem::mount).collect();
    for (from, to) in mounted.iter().zip(mounted.iter().cycle().skip(2)) {
        let (Some(from), Some(to)) = (from, to) else { continue };
        let (mut pair, other) = (Pair::in_dir(to.folder(), Way::Local), from.folder());
        pair.source = other.path().join("source");
        std::fs::create_dir(&pair.source).unwrap();
        tree::gallery(&pair.source, Shape::Everything);
        // XFS keeps targets of at most 1023 bytes.
        let _ = std::fs::remove_file(pair.source.join("links/far"));
        pair.sync(&format!("from {from:?} to {to:?}"));
        pair.sync_unchanged("again");
    }
}

/// Larger trees than those of the proptest, once on each file system.
#[test]
fn one_of_everything_arrives_on_every_file_system() {
    for mounted in FileSystem::ALL.into_iter().filter_map(FileSystem::mount) {
        let pair = Pair::in_dir(mounted.folder(), Way::Local);
        tree::gallery(&pair.source, Shape::Everything);
        pair.sync("one of everything");
        let found = filled_holes(&Snapshot::of(&pair.source), &Snapshot::of(&pair.destination));
        assert_eq!(found, [""; 0]);
        pair.sync_unchanged("one of everything again");
    }
}
