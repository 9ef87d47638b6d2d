//! Runs with both ends in one process.

use std::os::fd::AsFd as _;

use contract::{Phase, Report, RunParams, Side};

use crate::{
    destination::Settings,
    ends::{
        local_source::{LocalDevice, LocalSource},
        match_kinds,
        source_lock::SourceLock,
        stored_tree::Restore,
    },
    measure::report::Stopwatch,
    plan::{
        scan_params::reach,
        single_file::{Subject, last_name},
    },
    run::{
        choose_sink::{onto_device, onto_tree},
        restore::from_snapshot,
    },
    session_error::SessionError,
    sink::{
        backup_place::{self, sparing},
        copied_history::check_history,
        open_destination::HeldDestination,
        traits::Run,
    },
    sys::{
        block_device::{Opened, PathKind},
        locate::{self, Reach},
        root::{Root, TreeLocation},
    },
};

/// Syncs `from` onto `to`, whose lock the session may have `held`.
pub(crate) fn run(
    (from, to): (&TreeLocation, &TreeLocation),
    params: &RunParams,
    held: &mut HeldDestination,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    params.bandwidth_limit.iter().for_each(|limit| watch.monitor().limit_copies(*limit));
    if let Some(which) = &params.source_snapshot {
        let in_place = is_same_tree(from, to);
        if !in_place {
            refuse_overlap(&Subject::of_tree(from), &Subject::of_tree(to), params)?;
        }
        let params = &sparing(to, params)?;
        return from_snapshot(from, (to, in_place), which, params, watch);
    }
    let found = match_kinds::look(from, "--source-path", params.image)?;
    if found.is_device() {
        return sync_device(from, to, params, watch);
    }
    match_kinds::refuse_image(from, found, params)?;
    let source = Subject::of_source(from, found, params)?;
    let there = match_kinds::look(to, "--destination-path", params.image)?;
    if !source.is_file() {
        match_kinds::refuse_tree(to, there, &format!("the source {}", from.path().display()))?;
    }
    let sink = Subject::of_destination(to, source.is_file().then(|| last_name(from)))?;
    sink.find_folder(to)?;
    watch.enter(Phase::Scan);
    let root = Root::enter(&source.place).map_err(SessionError::Source)?;
    refuse_backup(&source, &sink.place, params)?;
    refuse_overlap(&source, &sink, params)?;
    // A file that gets another name in its folder: this run itself takes the lock on that.
    let mut lock = match is_same_tree(&source.place, &sink.place) {
        true => None,
        false => Some(SourceLock::hold(&root, &source.place)?),
    };
    let asks = params.demands.other_source.is_some() && !source.is_file();
    let source_id = asks.then(|| locate::source_id(&source.place)).flatten();
    let mut params = RunParams { source_id, ..sparing(&sink.place, params)? };
    // Whoever runs both ends takes what is asked for.
    params.demands.history = params.history;
    let params = &params;
    check_history(params)?;
    let run = Run::new(params, watch.monitor());
    let settings = Settings::resolve(&params.preserve)?;
    let source = LocalSource::new((from, &source, &root), &sink, &run);
    run.note(lock.as_mut().and_then(|lock| lock.note.take()));
    onto_tree(source, (&sink, settings), held, None, &run, watch)
}

/// Syncs the device at `from` onto the device or image at `to`.
fn sync_device(
    from: &TreeLocation,
    to: &TreeLocation,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    watch.enter(Phase::Scan);
    let found = match_kinds::look(to, "--destination-path", params.image)?;
    match_kinds::refuse_folder(to, found, &format!("the source {}", from.path().display()), params.image)?;
    match_kinds::check_params(params)?;
    let opened = Opened::to_read(from).map_err(SessionError::SourceDevice)?;
    refuse_itself(&opened, from, to, found)?;
    let run = Run::new(params, watch.monitor());
    onto_device(LocalDevice::new(&opened, &run), (to, opened.len()), &run, watch)
}

/// Restores a snapshot, unless the tree that gets it contains the volume or lies in it.
pub(crate) fn restore(
    restore: &Restore<'_>,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    if !restore.before.in_place {
        refuse_overlap(&Subject::of_tree(&restore.from), &Subject::of_tree(&restore.to), params)?;
    }
    restore.run(&sparing(&restore.to, params)?, watch)
}

/// Returns whether both paths lead to one folder, also through a mount. A volume's own snapshot can be restored there.
pub fn is_same_tree(from: &TreeLocation, to: &TreeLocation) -> bool {
    let identity = |place: &TreeLocation| {
        let stat = rustix::fs::fstat(Root::enter(place).ok()?.as_fd()).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    identity(from).is_some_and(|from| identity(to) == Some(from))
}

/// Refuses to sync a tree onto itself, into itself or onto a folder that contains it, because it would grow or vanish.
/// The destination need not exist yet. Two files of one folder differ if their names do.
fn refuse_overlap(source: &Subject, sink: &Subject, params: &RunParams) -> Result<(), SessionError> {
    let (Some(from), Some(to)) = (source.place.real_path(), sink.place.real_path()) else { return Ok(()) };
    let overlap = |what: &str| {
        Err(SessionError::SameTree(format!(
            "the destination {} {what} the source {}: choose folders that do not contain one another",
            to.display(),
            from.display()
        )))
    };
    match () {
        () if source.is_file() && (from != to || source.only != sink.only) => Ok(()),
        () if source.is_file() => Err(SessionError::SameTree(format!(
            "the destination is the source, the file {} of {}: name another destination",
            String::from_utf8_lossy(source.only.as_deref().unwrap_or_default()),
            from.display()
        ))),
        () if from == to => overlap("is"),
        () if to.starts_with(&from) => overlap("lies in"),
        () if from.starts_with(&to) => overlap("contains"),
        () => {
            let from = reach(&source.place, params, Side::Source)?;
            let to = reach(&sink.place, params, Side::Sink)?;
            match locate::overlap(&from, &to) {
                true => overlap("shows, through a mount, folders of"),
                false => Ok(()),
            }
        }
    }
}

/// Refuses a backup folder that is the source, lies in it or contains it: old versions would replace its files.
fn refuse_backup(source: &Subject, sink: &TreeLocation, params: &RunParams) -> Result<(), SessionError> {
    if params.demands.backup_dir.is_none() {
        return Ok(());
    }
    let tree = match source.is_file() {
        true => Reach::all(&source.place),
        false => reach(&source.place, params, Side::Source)?,
    };
    let whereabouts = locate::locate(&tree, locate::nonce());
    backup_place::refuse_source(sink, params, (&whereabouts, source.is_file()))
}

fn refuse_itself(
    opened: &Opened,
    from: &TreeLocation,
    to: &TreeLocation,
    found: PathKind,
) -> Result<(), SessionError> {
    let is_same = found.is_device() && Opened::look(to).is_ok_and(|there| there.is_same(opened));
    match is_same {
        true => Err(SessionError::SameTree(format!(
            "the destination {} is the source {}: name another destination",
            to.path().display(),
            from.path().display()
        ))),
        false => Ok(()),
    }
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
            run((&from, &to), &params, &mut HeldDestination::default(), &mut Stopwatch::start(monitor))
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
