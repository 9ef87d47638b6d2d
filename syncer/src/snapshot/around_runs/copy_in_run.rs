//! Copies of the source's snapshots that a run makes: all of them, or those that the destination's rules keep.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use contract::{CopySelection, Retention};
use jiff::tz::TimeZone;

use crate::{
    entry::Time,
    monitor::Monitor,
    snapshot::{
        copy::{CopiedHistory, HistorySource, OfferedHistory, copy_selected, selected, staying_away},
        retention::{collect_garbage, judge, plan_collection},
        store::{Roots, Snapshot, SnapshotError, SnapshotId, Writer},
        typed_time::time_of,
    },
};

/// What a run copies, and for whom.
#[derive(Debug)]
pub(crate) struct HistoryRules<'a> {
    /// The rules that keep copies; `None` copies all, and drops none.
    pub keep: Option<&'a Retention>,
    /// Whether copies of earlier runs are dropped that the rules do not keep any more.
    pub drops: bool,
    /// The run that the log names.
    pub by: &'a str,
    pub monitor: &'a Monitor,
}

/// Copies the snapshots of the source that the rules keep, and drops copies of earlier runs that they do not keep any
/// more.
///
/// # Errors
/// If the source does not answer, or the store cannot be written to. What was copied before stays.
pub(crate) fn copy_for_run(
    writer: &mut Writer<'_>,
    source: &mut dyn HistorySource,
    rules: &HistoryRules<'_>,
) -> Result<CopiedHistory, SnapshotError> {
    let HistoryRules { keep, drops, by, monitor } = *rules;
    let offer = source.offer()?;
    let all = selected(&offer, &CopySelection::All)?;
    let away = staying_away(writer, &CopySelection::All)?;
    let Some(keep) = keep else { return copy_selected(writer, source, &offer, &all, &away, by, monitor) };
    let now = time_of(SystemTime::now());
    let JudgedCopies { kept, gone } =
        judge_copies(&writer.roots, &offer, &all, keep, now, &TimeZone::system())?;
    let wanted: Vec<&Snapshot> = all.into_iter().filter(|offered| kept.contains(&offered.id)).collect();
    let mut done = copy_selected(writer, source, &offer, &wanted, &away, by, monitor)?;
    let gone = if drops { gone } else { BTreeSet::new() };
    if !gone.is_empty() {
        let plan = plan_collection(&writer.store, &writer.roots, &gone)?;
        collect_garbage(writer, &plan, by)?;
        writer.empty_trash(None, monitor)?;
    }
    done.dropped = gone.len() as u64;
    Ok(done)
}

/// The copies that the rules keep, of those here and those that are offered, and the copies here that they do not keep.
struct JudgedCopies {
    kept: BTreeSet<SnapshotId>,
    gone: BTreeSet<SnapshotId>,
}

/// Judges the copies here and `all` that are offered together. Snapshots of this volume itself, and copies of another
/// one's, are not judged.
fn judge_copies(
    roots: &Roots,
    offer: &OfferedHistory,
    all: &[&Snapshot],
    keep: &Retention,
    now: Time,
    zone: &TimeZone,
) -> Result<JudgedCopies, SnapshotError> {
    let is_copy = |own: &&Snapshot| own.origin.is_some() && own.origin == offer.volume;
    let copies: BTreeMap<SnapshotId, &Snapshot> =
        roots.kept().filter(is_copy).map(|own| (own.id, own)).collect();
    // What is here is known, and only the rest is believed.
    let offered = all.iter().copied().filter(|offered| !copies.contains_key(&offered.id));
    let judged: Vec<&Snapshot> = copies.values().copied().chain(offered).collect();
    let verdicts = judge(&judged, keep, now, zone)?;
    let kept: BTreeSet<SnapshotId> =
        verdicts.iter().filter(|verdict| verdict.is_kept()).map(|verdict| verdict.id).collect();
    let gone = copies.into_keys().filter(|id| !kept.contains(id)).collect();
    Ok(JudgedCopies { kept, gone })
}
