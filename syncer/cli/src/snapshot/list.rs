//! `volferry snapshot list`.

use std::{collections::HashMap, time::SystemTime};

use contract::ExitCode;
use jiff::tz::TimeZone;
use syncer::snapshot::{
    Roots, SnapshotError, SnapshotId,
    retention::{Verdict, explain},
    typed_time::time_of,
};

use super::{
    flags::ListFlags,
    json, open,
    print::{self, Listed},
    say, say_json,
};

/// Prints the snapshots that the flags select, and why each is kept.
pub(super) fn run(flags: &ListFlags) -> Result<ExitCode, SnapshotError> {
    let opened = match open(&flags.volume.dir) {
        Err(SnapshotError::None(_)) => None,
        result => Some(result?),
    };
    show(&opened.map(|opened| opened.roots).unwrap_or_default(), flags);
    Ok(ExitCode::Done)
}

pub(super) fn show(roots: &Roots, flags: &ListFlags) {
    let verdicts = explain(roots, time_of(SystemTime::now()), &TimeZone::system());
    let verdicts: HashMap<SnapshotId, Verdict> =
        verdicts.into_iter().map(|verdict| (verdict.id, verdict)).collect();
    let snapshots = roots.snapshots.iter();
    let listed: Vec<Listed<'_>> = snapshots
        .filter(|snapshot| flags.all || snapshot.forgotten.is_none())
        .filter(|snapshot| flags.tag.as_ref().is_none_or(|tag| snapshot.tags.contains(tag)))
        .filter(|snapshot| flags.job.as_ref().is_none_or(|job| snapshot.job == *job))
        .map(|snapshot| Listed { snapshot, verdict: verdicts.get(&snapshot.id) })
        .collect();
    if flags.volume.json {
        let listed = listed.into_iter().map(|it| json::ListedJson::new(it.snapshot, it.verdict));
        say_json(&listed.collect::<Vec<_>>());
    } else {
        say(&print::list(&listed));
    }
}
