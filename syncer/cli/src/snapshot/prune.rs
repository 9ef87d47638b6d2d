//! `volferry snapshot prune`.

use std::time::SystemTime;

use contract::{ExitCode, Retention};
use jiff::tz::TimeZone;

use super::{
    enter,
    flags::PruneFlags,
    json::{PruneJson, VerdictJson},
    print, say, say_json, user,
};
use syncer::{
    monitor::Monitor,
    root::TreeLocation,
    snapshot::{
        Roots, Snapshot, SnapshotError,
        create::lock_volume,
        retention::{Collected, Verdict, collect_garbage, judge, plan_collection, removed_by},
        store::Writer,
        typed_time::time_of,
    },
};

impl PruneFlags {
    fn policy(&self) -> Retention {
        Retention {
            last: self.keep_last,
            hourly: self.keep_hourly,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
            monthly: self.keep_monthly,
            yearly: self.keep_yearly,
            within_seconds: self.keep_within,
            tags: self.keep_tag.iter().cloned().collect(),
            max_bytes: self.max_bytes,
        }
    }

    /// Applies the policy to the snapshots that are not forgotten.
    pub(super) fn judge(&self, roots: &Roots) -> Result<Vec<Verdict>, SnapshotError> {
        if self.forgotten {
            return Ok(Vec::new());
        }
        let is_judged = |snapshot: &&Snapshot| self.job.as_ref().is_none_or(|job| snapshot.job == *job);
        let judged: Vec<&Snapshot> = roots.kept().filter(is_judged).collect();
        let zone = self.time_zone.clone().unwrap_or_else(TimeZone::system);
        judge(&judged, &self.policy(), time_of(SystemTime::now()), &zone)
    }
}

/// Applies the policy, collects, and prints the removed snapshots and the reasons for the others.
pub(super) fn run(flags: &PruneFlags) -> Result<ExitCode, SnapshotError> {
    let dir = &flags.volume.dir;
    // A writer would make a store where there is none.
    enter(dir)?;
    let destination = lock_volume(&TreeLocation::from(dir))?;
    let mut writer = Writer::open(destination.state(), destination.root(), dir, &Monitor::default())?;
    let verdicts = flags.judge(&writer.roots)?;
    let gone = removed_by(&writer.roots, &verdicts);
    let plan = plan_collection(&writer.store, &writer.roots, &gone)?;
    let before = writer.roots.clone();
    let mut collected = if plan.damaged_records > 0 { Collected::Damaged } else { Collected::All };
    if !flags.dry_run {
        collected = collect_garbage(&mut writer, &plan, &user())?;
        writer.empty_trash(flags.rate, &Monitor::default())?;
    }
    if flags.volume.json {
        say_json(&PruneJson {
            dry_run: flags.dry_run,
            removed: plan.snapshots.iter().map(ToString::to_string).collect(),
            kept: verdicts.iter().filter(|verdict| verdict.is_kept()).map(VerdictJson::from).collect(),
            freed_bytes: plan.bytes,
            freed_files: plan.files(),
            deferred: collected != Collected::All,
        });
    } else {
        let done = match collected {
            _ if flags.dry_run => print::WOULD_FREE,
            Collected::All => print::FREED,
            Collected::Later | Collected::Damaged => print::FREED_LATER,
        };
        say(&print::prune(&before, &verdicts, &plan.snapshots, plan.bytes, done));
    }
    match collected {
        Collected::All => Ok(ExitCode::Done),
        Collected::Later => {
            print::complain(
                "note: a command reads from the store: the room is given back by the next prune\n",
            );
            Ok(ExitCode::Done)
        }
        Collected::Damaged => {
            print::complain(
                "error: the list of snapshots has damaged records, and nobody knows what they need: no room is given back\n\
                 hint: `volferry snapshot repair DIR` shows what it would bring back and what it would forget\n",
            );
            Ok(ExitCode::Partial)
        }
    }
}
