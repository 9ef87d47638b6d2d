//! A run whose source is a snapshot.

use contract::{Phase, Report, RunParams};

use crate::{
    apply::Settings,
    path::RelPath,
    pattern::escape,
    report::{Failures, Stopwatch},
    root::{Root, TreeLocation},
    session::{
        local::{stored_source::StoredSource, stored_tree::Restore},
        plan::subject::Subject,
        run::choose_sink::onto_tree,
        session_error::SessionError,
        sink::{open::HeldDestination, traits::Run},
    },
    snapshot::{Snapshot, SnapshotError, Store, before::Before, collect::hold_for_reading, select},
};

/// Returns patterns that exclude everything from a run except for a path, the entries below it, and the folders on the
/// way to it.
///
/// # Errors
/// When the path is not UTF-8, which patterns are.
pub fn all_but(path: &RelPath) -> Result<Vec<String>, SnapshotError> {
    let mut patterns = Vec::new();
    let mut at = String::new();
    for name in path.names() {
        let name = std::str::from_utf8(name).map_err(|_| {
            SnapshotError::Invalid(format!("{path} is not UTF-8: restore the folder that it is in"))
        })?;
        patterns.push(format!("{at}/*"));
        at.push('/');
        escape(name, &mut at);
        patterns.push(format!("!{at}"));
    }
    Ok(patterns)
}

/// Restores a snapshot of the volume at `from` to `to`. `which` names the snapshot by its id, a tag, or `latest`. Other
/// runs may write to `from` meanwhile, because a snapshot does not change. With `in_place`, both are one folder: a
/// snapshot keeps its previous state if the run requests that, and its audit log gets a line.
pub(crate) fn from_snapshot(
    from: &TreeLocation,
    (to, in_place): (&TreeLocation, bool),
    which: &str,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let root = Root::enter(from).map_err(SessionError::Source)?;
    let path = from.path();
    let store = Store::open(&root, &path)?.ok_or(SnapshotError::None(path))?;
    let _reading = hold_for_reading(&store)?;
    let roots = store.roots()?;
    let snapshot = select::find(&roots, which)?;
    let by = if params.run.is_empty() { "a run" } else { &params.run };
    let tag = params.snapshot_before.as_deref().unwrap_or_default();
    let before = Before { place: to, restored: snapshot.id, tag, once: true, run: &params.run, by };
    let keeps = in_place && !params.dry_run && params.snapshot_before.is_some();
    let kept = if keeps { before.keep(&Failures::default(), watch.monitor())? } else { None };
    let restore = Restore { store: &store, snapshot, to: to.clone(), path: RelPath::root() };
    let restored = restore.run(params, watch);
    let logged = if in_place && !params.dry_run { before.log() } else { Ok(()) };
    let mut report = restored?;
    logged?;
    let note = |kept: &Snapshot| format!("the state before is kept in snapshot {}, which is pinned", kept.id);
    report.notes.splice(0..0, kept.as_ref().map(note));
    report.notes.insert(0, format!("the source is snapshot {} of {} entries", snapshot.id, snapshot.entries));
    Ok(report)
}

impl Restore<'_> {
    pub(crate) fn run(&self, params: &RunParams, watch: &mut Stopwatch<'_>) -> Result<Report, SessionError> {
        watch.enter(Phase::Scan);
        let (run, subject) = (Run::new(params, watch.monitor()), Subject::of_tree(&self.to));
        let settings = Settings::resolve(&params.preserve)?;
        onto_tree(
            StoredSource::new(self, &run),
            (&subject, settings),
            &mut HeldDestination::default(),
            None,
            &run,
            watch,
        )
    }
}
