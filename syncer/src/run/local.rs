//! Runs with both ends in one process.

use contract::{Demands, Phase, Report, RunParams};

use crate::{
    destination::Settings,
    ends::{
        local_source::{LocalDevice, LocalSource},
        opening::{CheckedSink, FoundSource, check_device_sink, check_tree_sink},
        overlap::{SourcePlace, is_same_tree, refuse_itself, refuse_same_tree},
        source_lock::SourceLock,
        stored_tree::Restore,
    },
    measure::report::Stopwatch,
    plan::{run_state::Run, single_file::Subject},
    run::{device_run, pipeline, restore::from_snapshot},
    session_error::SessionError,
    sink::{backup_place::sparing, open_destination::HeldDestination},
    sys::{
        block_device::Opened,
        root::{Root, TreeLocation},
        source_id::source_id,
    },
};

/// Syncs `from` onto `to`, whose lock the session may have `held`.
pub(crate) fn run(
    from: &TreeLocation,
    to: &TreeLocation,
    params: &RunParams,
    held: &mut HeldDestination,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    params.bandwidth_limit.iter().for_each(|limit| watch.monitor().limit_copies(*limit));
    if let Some(which) = &params.source_snapshot {
        let in_place = is_same_tree(from, to);
        if !in_place {
            refuse_same_tree(&Subject::of_tree(from), &Subject::of_tree(to), params)?;
        }
        let params = &sparing(to, params.clone())?;
        return from_snapshot(from, to, in_place, which, params, watch);
    }
    match FoundSource::at(from, params)? {
        FoundSource::Device(opened) => sync_device(from, &opened, to, params, watch),
        FoundSource::Tree(source) => sync_tree(from, &source, to, params, held, watch),
    }
}

/// Syncs the tree or file that was found at `from` onto `to`.
fn sync_tree(
    from: &TreeLocation,
    source: &Subject,
    to: &TreeLocation,
    params: &RunParams,
    held: &mut HeldDestination,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let asks = params.demands.other_source.is_some() && !source.is_file();
    let source_id = asks.then(|| source_id(&source.place)).flatten();
    // Whoever runs both ends takes what is asked for.
    let demands = Demands { history: params.history, ..params.demands.clone() };
    let asked = RunParams { source_id, demands, ..params.clone() };
    let checked = check_tree_sink(to, &SourcePlace::Here(source, from), asked, params.image)?;
    let CheckedSink { subject: sink, params } = checked;
    watch.enter(Phase::Scan);
    let root = Root::enter(&source.place).map_err(SessionError::Source)?;
    // A file that gets another name in its folder: this run itself takes the lock on that.
    let mut lock = if is_same_tree(&source.place, &sink.place) {
        None
    } else {
        Some(SourceLock::hold(&root, &source.place)?)
    };
    let run = Run::new(&params, watch.monitor());
    let settings = Settings::resolve(&params.preserve)?;
    let local = LocalSource::new(from, source, &root, &sink, &run);
    run.note(lock.as_mut().and_then(|lock| lock.note.take()));
    pipeline::run(local, &sink, settings, held, None, &run, watch)
}

/// Syncs the device that was found at `from` onto the device or image at `to`.
fn sync_device(
    from: &TreeLocation,
    opened: &Opened,
    to: &TreeLocation,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    watch.enter(Phase::Scan);
    let name = format!("the source {}", from.path().display());
    let found = check_device_sink(to, &name, params, params.image)?;
    refuse_itself(opened, from, to, found)?;
    let run = Run::new(params, watch.monitor());
    device_run::run(LocalDevice::new(opened, &run), to, opened.len(), &run, watch)
}

/// Restores a snapshot, unless the tree that gets it contains the volume or lies in it.
pub(crate) fn restore(
    restore: &Restore<'_>,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    if !restore.before.in_place {
        refuse_same_tree(&Subject::of_tree(&restore.from), &Subject::of_tree(&restore.to), params)?;
    }
    restore.run(&sparing(&restore.to, params.clone())?, watch)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::measure::monitor::Monitor;

    const ENTRIES: usize = 3000;

    struct Trees {
        dir: tempfile::TempDir,
    }

    impl Trees {
        /// Makes a source and a destination, one with many symbolic links, the other with one file.
        fn new(with_links: &str, other: &str) -> Self {
            let trees = Self { dir: tempfile::tempdir().unwrap() };
            [with_links, other].iter().for_each(|name| fs::create_dir(trees.path(name)).unwrap());
            let links = trees.path(with_links);
            (0..ENTRIES).for_each(|n| std::os::unix::fs::symlink("to", links.join(n.to_string())).unwrap());
            fs::write(trees.path(other).join("file"), "content").unwrap();
            trees
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().join(name)
        }

        fn sync(&self, monitor: &Monitor) -> Result<Report, SessionError> {
            let params = RunParams { delete: true, force: true, ..RunParams::default() };
            let [from, to] = ["source", "destination"].map(|name| TreeLocation::from(&*self.path(name)));
            run(&from, &to, &params, &mut HeldDestination::default(), &mut Stopwatch::start(monitor))
        }

        fn links_there(&self) -> usize {
            fs::read_dir(self.path("destination"))
                .unwrap()
                .filter(|it| is_link(&it.as_ref().unwrap().path()))
                .count()
        }
    }

    fn is_link(path: &Path) -> bool {
        fs::symlink_metadata(path).unwrap().is_symlink()
    }

    /// Relies on deletes being the last entries that a run checks for a stop at.
    #[test]
    fn deletes_end_at_once_when_a_run_is_told_to_stop() {
        let whole = Monitor::default();
        let trees = Trees::new("destination", "source");
        trees.sync(&whole).unwrap();
        assert_eq!(trees.links_there(), 0);
        let trees = Trees::new("destination", "source");
        let error = trees.sync(&Monitor::canceled_at(whole.checks() - ENTRIES as u64 / 2)).unwrap_err();
        assert!(error.is_canceled(), "{error}");
        let left = trees.links_there();
        assert!((ENTRIES / 2 - 10..=ENTRIES / 2 + 10).contains(&left), "{left} of {ENTRIES} are left");
    }

    #[test]
    fn a_folder_is_not_filled_to_its_end_when_a_run_is_told_to_stop() {
        let whole = Monitor::default();
        let trees = Trees::new("source", "destination");
        trees.sync(&whole).unwrap();
        assert_eq!(trees.links_there(), ENTRIES);
        let trees = Trees::new("source", "destination");
        let error = trees.sync(&Monitor::canceled_at(whole.checks() - ENTRIES as u64 / 2)).unwrap_err();
        assert!(error.is_canceled(), "{error}");
        let made = trees.links_there();
        assert!((ENTRIES / 2 - 10..=ENTRIES / 2 + 10).contains(&made), "{made} of {ENTRIES} were made");
    }
}
