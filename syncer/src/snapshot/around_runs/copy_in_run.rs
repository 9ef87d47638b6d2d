//! Copies of the source's snapshots that a run makes: all of them, or those that the destination's rules keep. Only
//! what has arrived pushes out copies of earlier runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use contract::{CopySelection, Retention, VolumeId};
use jiff::tz::TimeZone;

use crate::{
    entry::Time,
    monitor::Monitor,
    snapshot::{
        copy::{CopiedHistory, HistorySource, copy_selected, selected, staying_away},
        retention::{collect_garbage, judge, not_kept, plan_collection},
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
/// more beside those that have arrived.
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
    let judging = CopyJudge { origin: offer.volume, keep, now, zone: TimeZone::system() };
    let wanted = judging.wanted(&writer.roots, &all, &away)?;
    let mut done = copy_selected(writer, source, &offer, &wanted, &away, by, monitor)?;
    if drops {
        done.dropped = drop_copies(writer, &judging.superseded(&writer.roots)?, by, monitor)?;
    }
    Ok(done)
}

/// Drops copies, frees their room, and returns their number.
fn drop_copies(
    writer: &mut Writer<'_>,
    gone: &BTreeSet<SnapshotId>,
    by: &str,
    monitor: &Monitor,
) -> Result<u64, SnapshotError> {
    if !gone.is_empty() {
        let plan = plan_collection(&writer.store, &writer.roots, gone)?;
        collect_garbage(writer, &plan, by)?;
        writer.empty_trash(None, monitor)?;
    }
    Ok(gone.len() as u64)
}

/// Judges the snapshots of a source by the rules of the destination.
struct CopyJudge<'a> {
    /// The volume that the source is on.
    origin: Option<VolumeId>,
    keep: &'a Retention,
    now: Time,
    zone: TimeZone,
}

impl CopyJudge<'_> {
    /// Returns those of the offered snapshots that the rules keep beside the copies here. One that stays away pushes no
    /// other one out; it is returned, to be counted, if the rules would keep it as well.
    fn wanted<'o>(
        &self,
        roots: &Roots,
        offered: &[&'o Snapshot],
        away: &BTreeSet<SnapshotId>,
    ) -> Result<Vec<&'o Snapshot>, SnapshotError> {
        let copies: BTreeMap<SnapshotId, &Snapshot> = self.copies(roots).map(|own| (own.id, own)).collect();
        // What is here is known, and only the rest is believed. The destination's own snapshots are not judged.
        let is_own = |it: &Snapshot| roots.get(it.id).is_some_and(|own| own.origin.is_none());
        let believed = offered.iter().copied().filter(|it| !copies.contains_key(&it.id) && !is_own(it));
        // They are judged with the copies here, so as what they become by being copied.
        let copied = |it: &Snapshot| Snapshot { origin: it.origin.or(self.origin), ..it.clone() };
        let (back, new): (Vec<Snapshot>, Vec<Snapshot>) =
            believed.map(copied).partition(|it| away.contains(&it.id));
        let mut judged: Vec<&Snapshot> = copies.into_values().chain(&new).collect();
        let not_kept = self.not_kept(&judged)?;
        judged.extend(&back);
        let not_kept_if_back = self.not_kept(&judged)?;
        let is_wanted = |it: &&Snapshot| {
            let not_kept = if away.contains(&it.id) { &not_kept_if_back } else { &not_kept };
            !not_kept.contains(&it.id)
        };
        Ok(offered.iter().copied().filter(is_wanted).collect())
    }

    /// Returns the copies here that the rules do not keep any more.
    fn superseded(&self, roots: &Roots) -> Result<BTreeSet<SnapshotId>, SnapshotError> {
        self.not_kept(&self.copies(roots).collect::<Vec<_>>())
    }

    /// Yields the copies here of snapshots of this source. Those of another one are not judged.
    fn copies<'r>(&self, roots: &'r Roots) -> impl Iterator<Item = &'r Snapshot> {
        let origin = self.origin;
        roots.kept().filter(move |own| own.origin.is_some() && own.origin == origin)
    }

    fn not_kept(&self, judged: &[&Snapshot]) -> Result<BTreeSet<SnapshotId>, SnapshotError> {
        Ok(not_kept(&judge(judged, self.keep, self.now, &self.zone)?).collect())
    }
}
