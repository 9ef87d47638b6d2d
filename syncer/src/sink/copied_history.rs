//! The snapshots of the source that travel along with a run.

use std::path::Path;

use contract::{Demands, History, HistoryReport, Retention, RunParams};

use crate::{
    destination::Destination,
    plan::run_state::Run,
    session_error::SessionError,
    sink::source_end::SourceEnd,
    snapshot::{
        SnapshotError,
        around_runs::{HistoryRules, copy_for_run},
        copy::HistorySource,
        store::Writer,
    },
    transport::TransportError,
};

/// Refuses a run whose snapshots would not be as the owner of the destination demands, before it changes anything.
///
/// # Errors
/// [`SessionError::NotHeld`]; [`SessionError::Snapshot`] if no rules are given by which they are kept.
pub(crate) fn check_history(params: &RunParams) -> Result<(), SessionError> {
    let Demands { exclude, image, history, .. } = &params.demands;
    let demand = match params.history {
        History::None => return Ok(()),
        _ if !exclude.is_empty() => "exclude",
        _ if *image => "image",
        _ if *history == History::None => return Err(SessionError::HistoryNotTaken),
        _ if is_kept(params) && rules(params).is_none() => {
            let why = "history is to be kept by the rules of the destination, which has none\nhint: give it rules such as \
                       `--snapshot --snapshot-keep-daily 7`, or use `--history all`";
            return Err(SnapshotError::Invalid(why.into()).into());
        }
        _ => return Ok(()),
    };
    Err(SessionError::NotHeld { what: "the history", demand })
}

/// Returns whether the source or the owner of the destination wants only snapshots that rules keep.
fn is_kept(params: &RunParams) -> bool {
    [params.history, params.demands.history].contains(&History::Kept)
}

/// Returns the rules of the destination.
fn rules(params: &RunParams) -> Option<&Retention> {
    let asked = params.demands.snapshot.as_ref()?;
    Some(&asked.keep).filter(|keep| keep.has_rule())
}

/// Copies the snapshots of the source into the store of the destination at `path`. What cannot be copied is in the
/// report.
///
/// # Errors
/// If the source is lost, or the run was told to stop.
pub(crate) fn copy_from_source(
    destination: &Destination,
    path: &Path,
    source: &mut impl SourceEnd,
    run: &Run<'_>,
) -> Result<HistoryReport, SessionError> {
    let by = if run.params.run.is_empty() { "a run" } else { &run.params.run };
    let keep = rules(run.params).filter(|_| is_kept(run.params));
    // A source cannot ask for copies to be dropped.
    let drops = run.params.demands.history == History::Kept;
    let rules = HistoryRules { keep, drops, by, monitor: run.monitor };
    let writer = Writer::open(destination.state(), destination.root(), path, run.monitor);
    let copied = writer.map_err(SessionError::from).and_then(|mut writer| {
        source.history(&mut |from: &mut dyn HistorySource| copy_for_run(&mut writer, from, &rules), run)
    });
    match copied {
        Ok(done) => Ok(done.report()),
        Err(_) if run.monitor.cancelled() => Err(TransportError::Canceled.into()),
        Err(error @ SessionError::Snapshot(_)) => {
            Ok(HistoryReport::default().failed_by(&error.refusal().message))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use contract::SnapshotParams;

    use super::*;

    #[test]
    fn history_is_refused_where_a_demand_would_not_hold_for_it_or_no_rule_keeps_it() {
        let with = |history, demands| check_history(&RunParams { history, demands, ..RunParams::default() });
        let takes = |history| Demands { history, ..Demands::default() };
        let keeps = |history, last| {
            let keep = Retention { last, ..Retention::default() };
            Demands { snapshot: Some(SnapshotParams { keep, ..SnapshotParams::default() }), ..takes(history) }
        };
        let excludes = || Demands { exclude: vec!["a".into()], ..takes(History::All) };
        assert!(with(History::None, excludes()).is_ok());
        assert!(matches!(with(History::All, excludes()), Err(SessionError::NotHeld { .. })));
        assert!(matches!(with(History::All, Demands::default()), Err(SessionError::HistoryNotTaken)));
        assert!(with(History::All, takes(History::All)).is_ok());
        for (asked, demanded) in
            [(History::Kept, History::All), (History::All, History::Kept), (History::Kept, History::Kept)]
        {
            assert!(
                matches!(with(asked, takes(demanded)), Err(SessionError::Snapshot(_))),
                "{asked} {demanded}"
            );
            assert!(matches!(with(asked, keeps(demanded, 0)), Err(SessionError::Snapshot(_))));
            assert!(with(asked, keeps(demanded, 3)).is_ok());
        }
    }
}
