//! `volferry snapshot list`, `prune`, `verify` and `repair` of a store in object storage, and the changes of its list.

use std::{cell::RefCell, collections::BTreeSet, mem::take, sync::Arc};

use bucket::{
    BucketError, BucketHistory, CheckedTurn, ReadRoots, VerifiedStore, prune_store, repair_store,
    verify_in_turn, verify_store,
};
use contract::{BucketUrl, ExitCode, chain};
use syncer::{
    monitor::Monitor,
    snapshot::{
        Roots, SnapshotError, SnapshotId, check::ReadPace, copy::ObjectsElsewhere, retention::removed_by,
    },
};

use super::{
    Looked, archive, browse,
    bucket_site::{tell_around, url_of},
    change::ListChange,
    damage_flags::{RepairFlags, VerifyFlags},
    damage_json::{RepairStepJson, VerifyJson},
    flags::{ListFlags, PruneFlags, SnapshotCommand},
    json::{PruneJson, VerdictJson},
    key_flags::KeyFlags,
    list, look, print, repair, say, say_json,
};

/// Carries out a command if its place is in object storage.
pub(super) fn carry_out(command: &SnapshotCommand) -> Option<Result<ExitCode, BucketError>> {
    let url = url_of(command.dir()?)?;
    let json = command.is_json();
    Some(url.and_then(|url| {
        match command {
            SnapshotCommand::List(flags) => list(&url, flags),
            SnapshotCommand::Tag(flags) => ListChange::tag(flags).of_bucket(&url),
            SnapshotCommand::Untag(flags) => ListChange::untag(flags).of_bucket(&url),
            SnapshotCommand::Pin(flags) => ListChange::pin(flags, true).of_bucket(&url),
            SnapshotCommand::Unpin(flags) => ListChange::pin(flags, false).of_bucket(&url),
            SnapshotCommand::Forget(flags) => ListChange::forget(flags).of_bucket(&url),
            SnapshotCommand::Prune(flags) => prune(&url, flags),
            SnapshotCommand::Verify(flags) => verify(&url, flags),
            SnapshotCommand::Repair(flags) => mend(&url, flags),
            SnapshotCommand::Show(flags) => in_bucket(&url, &flags.key, json, |it| browse::show(it, flags)),
            SnapshotCommand::Ls(flags) => in_bucket(&url, &flags.key, json, |it| browse::ls(it, flags)),
            SnapshotCommand::Cat(flags) => in_bucket(&url, &flags.key, json, |it| browse::cat(it, flags)),
            SnapshotCommand::Diff(flags) => in_bucket(&url, &flags.key, json, |it| browse::diff(it, flags)),
            SnapshotCommand::History(flags) => {
                in_bucket(&url, &flags.key, json, |it| browse::history(it, flags))
            }
            SnapshotCommand::Find(flags) => in_bucket(&url, &flags.key, json, |it| look::find(it, flags)),
            SnapshotCommand::Export(flags) => {
                in_bucket(&url, &flags.key, json, |it| archive::export(it, flags))
            }
            _ => Err(SnapshotError::Invalid(format!(
                "{url} is no volume: copy its snapshots to one, or use list, show, ls, cat, diff, history, find, export, tag, \
                 untag, pin, unpin, forget, prune, verify or repair"
            ))
            .into()),
        }
    }))
}

/// Looks into the snapshots of a store.
fn in_bucket(
    url: &BucketUrl,
    key: &KeyFlags,
    json: bool,
    look: impl FnOnce(Looked<'_>) -> Result<ExitCode, SnapshotError>,
) -> Result<ExitCode, BucketError> {
    let store = key.open(url)?;
    let mut history = BucketHistory::open(&store)?;
    let (roots, around) = (history.roots().clone(), take(&mut history.around));
    if roots.snapshots.is_empty() {
        return Err(BucketError::NoStore(url.clone()));
    }
    let objects = ObjectsElsewhere::of(history);
    let looked = look(Looked { objects: &objects, roots: &roots });
    if let Some(error) = objects.into_source().failed {
        return Err(error);
    }
    let told = tell_around(&around, json);
    let exit = looked?;
    Ok(if told == ExitCode::Done { exit } else { told })
}

fn list(url: &BucketUrl, flags: &ListFlags) -> Result<ExitCode, BucketError> {
    let ReadRoots { roots, older } = flags.key.open(url)?.roots()?;
    list::show(&roots, flags);
    Ok(tell_around(older.as_slice(), flags.volume.json))
}

fn prune(url: &BucketUrl, flags: &PruneFlags) -> Result<ExitCode, BucketError> {
    let store = Arc::new(flags.key.open(url)?);
    let judged = RefCell::new((Roots::default(), Vec::new()));
    let judge = |roots: &Roots| {
        let verdicts = flags.judge(roots)?;
        let gone = removed_by(roots, &verdicts);
        *judged.borrow_mut() = (roots.clone(), verdicts);
        Ok(gone)
    };
    let pruned = prune_store(&store, &judge, flags.dry_run)?;
    let (before, verdicts) = judged.into_inner();
    let removed: Vec<SnapshotId> = pruned.snapshots.into_iter().collect();
    if flags.volume.json {
        say_json(&PruneJson {
            dry_run: flags.dry_run,
            removed: removed.iter().map(ToString::to_string).collect(),
            kept: verdicts.iter().filter(|verdict| verdict.is_kept()).map(VerdictJson::from).collect(),
            freed_bytes: pruned.bytes,
            freed_files: pruned.packs,
            deferred: false,
        });
    } else {
        let done = if flags.dry_run { print::WOULD_FREE } else { print::FREED };
        say(&print::prune(&before, &verdicts, &removed, pruned.bytes, done));
    }
    Ok(ExitCode::Done)
}

fn mend(url: &BucketUrl, flags: &RepairFlags) -> Result<ExitCode, BucketError> {
    let steps = repair_store(&flags.key.open(url)?, flags.apply)?;
    Ok(repair::show(&steps.iter().map(RepairStepJson::from).collect::<Vec<_>>(), flags))
}

fn verify(url: &BucketUrl, flags: &VerifyFlags) -> Result<ExitCode, BucketError> {
    let store = flags.key.open(url)?;
    let monitor = Monitor::default();
    let pace = ReadPace::new(flags.bandwidth_limit, &monitor);
    let CheckedTurn { part, checked, noted: turn_noted } = if let Some(of) = flags.in_turn {
        verify_in_turn(&store, of, &pace, !flags.no_heal)?
    } else {
        let part = flags.part.unwrap_or_default();
        CheckedTurn { part, checked: verify_store(&store, part, &pace, !flags.no_heal)?, noted: Ok(()) }
    };
    let VerifiedStore { verified, roots, noted, around } = checked;
    if roots.snapshots.is_empty() && !verified.is_damaged() {
        return Err(BucketError::NoStore(url.clone()));
    }
    if flags.volume.json {
        let snapshots = print::damaged_snapshots(&verified, &roots);
        say_json(&VerifyJson::new(part, &verified, &snapshots));
    } else {
        say(&print::verified(part, &verified, &roots));
    }
    let hints: BTreeSet<String> = around.iter().filter_map(BucketError::hint).collect();
    hints.iter().for_each(|hint| print::complain(&format!("hint: {hint}\n")));
    let is_noted = turn_noted.is_ok();
    if let Err(error) = turn_noted {
        print::complain(&format!("error: the next check in turn is of the same part: {}\n", chain(&error)));
    }
    if let Err(error) = noted {
        print::complain(&format!("error: no copy or run will replace what is damaged: {}\n", chain(&error)));
    } else if verified.damaged.iter().any(|damage| damage.count > 0) {
        print::complain(
            "hint: `volferry snapshot copy DIR s3://BUCKET/PREFIX --all`, from a volume that has the snapshots, and runs \
             that read the same files replace it; forget and prune the snapshots of which nothing else has the files\n",
        );
    }
    Ok(match (verified.is_damaged(), is_noted) {
        (true, _) => ExitCode::Partial,
        (false, true) => ExitCode::Done,
        // Else a timer would check the same part for ever.
        (false, false) => ExitCode::Failed,
    })
}
