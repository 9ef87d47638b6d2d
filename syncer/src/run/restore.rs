//! A run whose source is a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use contract::{Compare, Phase, Report, RunParams};

use crate::{
    destination::Settings,
    ends::{
        stored_source::StoredSource,
        stored_tree::Restore,
        trust_in_store::{as_trusted, trust_note, trusted_attrs},
    },
    filter::escape,
    measure::report::Stopwatch,
    path::RelPath,
    plan::{plan_id::ExpectedPlan, run_state::Run, single_file::Subject},
    run::pipeline,
    session_error::SessionError,
    sink::open_destination::HeldDestination,
    snapshot::{SnapshotError, Store, around_runs::Before, browse::select_snapshot, store::hold_for_reading},
    sys::root::{Root, TreeLocation},
};

/// Returns patterns that exclude everything from a run except for these paths, the entries below them, and the folders
/// on the way to them.
///
/// # Errors
/// When a path is not UTF-8, which patterns are.
pub fn all_but(paths: &[RelPath]) -> Result<Vec<String>, SnapshotError> {
    // The names that each folder on the way keeps. Folders are sorted, so one comes before those in it.
    let mut kept: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths {
        let mut at = String::new();
        for name in path.names() {
            let name = std::str::from_utf8(name).map_err(|_| {
                SnapshotError::Invalid(format!("{path} is not UTF-8: restore the folder that it is in"))
            })?;
            let mut escaped = String::new();
            escape(name, &mut escaped);
            let below = format!("{at}/{escaped}");
            kept.entry(std::mem::replace(&mut at, below)).or_default().insert(escaped);
        }
    }
    let mut patterns = Vec::new();
    for (dir, names) in kept {
        patterns.push(format!("{dir}/*"));
        patterns.extend(names.into_iter().map(|name| format!("!{dir}/{name}")));
    }
    Ok(patterns)
}

/// Returns a path in a snapshot; `/` is its root, and slashes at the start or the end are ignored.
fn path_of(text: &str) -> Result<RelPath, SnapshotError> {
    match text.trim_matches('/') {
        "" => Ok(RelPath::root()),
        path => RelPath::parse(path.as_bytes())
            .map_err(|error| SnapshotError::Invalid(format!("--restore-path {text:?}: {error}"))),
    }
}

/// Returns the paths without those that are in others of them; the root alone if there are none.
pub fn outermost(paths: &[RelPath]) -> Vec<RelPath> {
    let mut paths = paths.to_vec();
    paths.sort_by_key(|path| path.names().count());
    let mut outermost: Vec<RelPath> = Vec::new();
    for path in paths {
        if !outermost.iter().any(|outer| path.starts_with(outer)) {
            outermost.push(path);
        }
    }
    if outermost.is_empty() { vec![RelPath::root()] } else { outermost }
}

/// Restores a snapshot of the volume at `from` to `to`. `which` names the snapshot by its id, a tag, or `latest`. Other
/// runs may write to `from` meanwhile, because a snapshot does not change. With `in_place`, both are one folder: a
/// snapshot keeps its previous state if the run requests that, and its audit log gets a line.
pub(crate) fn from_snapshot(
    from: &TreeLocation,
    to: &TreeLocation,
    in_place: bool,
    which: &str,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let root = Root::enter(from).map_err(SessionError::Source)?;
    let path = from.path();
    let store = Store::open(&root, &path)?.ok_or(SnapshotError::None(path))?;
    let _reading = hold_for_reading(&store)?;
    let roots = store.roots()?;
    let snapshot = select_snapshot(&roots, which)?;
    let before = Before {
        restored: snapshot.id,
        in_place,
        tag: params.snapshot_before.clone().filter(|_| in_place),
        once: true,
        run: params.run.clone(),
        by: if params.run.is_empty() { "a run".into() } else { params.run.clone() },
    };
    let paths = params.restore_paths.iter().map(|path| path_of(path)).collect::<Result<Vec<_>, _>>()?;
    let (from, to, paths) = (from.clone(), to.clone(), outermost(&paths));
    let params = &RunParams { exclude: all_but(&paths)?, ..params.clone() };
    let restore = Restore { from, store: &store, snapshot, to, paths, before, plan: None };
    let mut report = restore.run(params, watch)?;
    report.notes.insert(0, format!("the source is snapshot {} of {} entries", snapshot.id, snapshot.entries));
    Ok(report)
}

impl Restore<'_> {
    pub(crate) fn run(&self, params: &RunParams, watch: &mut Stopwatch<'_>) -> Result<Report, SessionError> {
        watch.enter(Phase::Scan);
        let note = trust_note(self.snapshot, params);
        let params = as_trusted(self.snapshot, params);
        let mut run = Run::new(&params, watch.monitor());
        run.restores_in_place = self.before.in_place;
        run.restores_paths = !self.paths.iter().any(RelPath::is_root);
        run.expected_plan = self.plan.as_ref().map(|id| ExpectedPlan {
            id,
            snapshot: self.snapshot.id,
            in_place: self.before.in_place,
        });
        run.note(note);
        let unread = "files of the snapshot's size and time were not compared by content: -c does that";
        run.note((params.compare != Compare::Content).then(|| unread.into()));
        let subject = Subject::of_tree(&self.to);
        let mut settings = Settings::resolve(&params.preserve)?;
        settings.attrs = trusted_attrs(self.snapshot, &params, settings.attrs);
        let held = &mut HeldDestination::default();
        pipeline::run(StoredSource::new(self, &run), &subject, settings, held, None, &run, watch)
    }
}
