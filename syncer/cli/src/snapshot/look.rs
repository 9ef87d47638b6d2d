//! `volferry snapshot status`, `find` and `stats`.

use contract::{ExitCode, human::bytes};

use super::{
    Looked,
    json::{VersionJson, change_name},
    look_flags::{FindFlags, StatsFlags, StatusFlags},
    look_json::{DifferenceJson, FoundJson, SnapshotStatsJson, StatsJson},
    open_for_reading, print, say, say_json,
};
use syncer::{
    failures::Failures,
    root::{Root, TreeLocation},
    snapshot::{
        Snapshot, SnapshotError,
        browse::{find_paths, live_status, pattern, select_snapshot, store_stats},
    },
};

pub(super) fn status(flags: &StatusFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open_for_reading(&flags.volume.dir)?;
    let snapshot = select_snapshot(&opened.roots, &flags.id)?;
    let root = Root::enter(&TreeLocation::from(&*flags.volume.dir))?;
    let (failures, mut all) = (Failures::default(), Vec::new());
    live_status(&opened.store, snapshot, &root, flags.checksum, &failures, &mut |change, path, kind| {
        if flags.volume.json {
            all.push(DifferenceJson { change: change_name(change), path: path.to_string(), kind });
        } else {
            say(&format!("{} {path}\n", change.sign()));
        }
    })?;
    if flags.volume.json {
        say_json(&all);
    }
    print::failures(&failures);
    Ok(if failures.count() == 0 { ExitCode::Done } else { ExitCode::Partial })
}

pub(super) fn find(store: Looked<'_>, flags: &FindFlags) -> Result<ExitCode, SnapshotError> {
    let snapshots: Vec<&Snapshot> = store.roots.kept().collect();
    let mut all = Vec::new();
    find_paths(store.objects, &snapshots, &pattern(&flags.pattern)?, &mut |path, versions| {
        if flags.volume.json {
            let versions = versions.iter().map(|version| VersionJson::new(path, version)).collect();
            all.push(FoundJson { path: path.to_string(), versions });
        } else {
            say(&format!("{path}\n"));
            versions.iter().for_each(|version| say(&print::version(version)));
        }
    })?;
    if flags.volume.json {
        say_json(&all);
    }
    Ok(ExitCode::Done)
}

pub(super) fn stats(flags: &StatsFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open_for_reading(&flags.volume.dir)?;
    let stats = store_stats(&opened.store, &opened.roots)?;
    let each = opened.roots.snapshots.iter().zip(&stats.snapshots);
    let each: Vec<SnapshotStatsJson> = each
        .map(|(snapshot, took)| SnapshotStatsJson {
            id: took.id.to_string(),
            added_bytes: snapshot.added_bytes,
            bytes: took.all,
            shared_bytes: took.all.saturating_sub(took.own),
            own_bytes: took.own,
        })
        .collect();
    if flags.volume.json {
        say_json(&StatsJson { snapshots: each, bytes: stats.all, file_bytes: stats.files });
        return Ok(ExitCode::Done);
    }
    say(&format!(
        "{:16}  {:>9}  {:>9}  {:>9}  {:>9}\n",
        "snapshot", "added", "takes", "shares", "would free"
    ));
    for SnapshotStatsJson { id, added_bytes, bytes: takes, shared_bytes, own_bytes } in &each {
        let [added, takes, shares, own] = [added_bytes, takes, shared_bytes, own_bytes].map(|it| bytes(*it));
        say(&format!("{id}  {added:>9}  {takes:>9}  {shares:>9}  {own:>9}\n"));
    }
    let (all, files) = (bytes(stats.all), bytes(stats.files));
    say(&format!("All together take {all}, for files of {files}\n"));
    Ok(ExitCode::Done)
}
