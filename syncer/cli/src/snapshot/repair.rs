//! `volferry snapshot repair`.

use contract::ExitCode;

use super::{
    damage_flags::RepairFlags,
    damage_json::{RepairJson, RepairStepJson},
    enter, print, say, say_json, user,
};
use syncer::{
    root::TreeLocation,
    snapshot::{
        SnapshotError,
        check::{Repair, plan_repair},
        create::lock_volume,
    },
};

/// Shows what a repair would do, or carries it out.
pub(super) fn run(flags: &RepairFlags) -> Result<ExitCode, SnapshotError> {
    let dir = &flags.volume.dir;
    let store = enter(dir)?;
    let repair = if flags.apply {
        Repair::carry_out(&lock_volume(&TreeLocation::from(dir))?, dir, &user())?
    } else {
        plan_repair(&store)?
    };
    Ok(show(&repair.steps.iter().map(RepairStepJson::from).collect::<Vec<_>>(), flags))
}

/// Prints the steps of a repair, and returns the exit code.
pub(super) fn show(steps: &[RepairStepJson], flags: &RepairFlags) -> ExitCode {
    if flags.volume.json {
        say_json(&RepairJson { applied: flags.apply, steps });
    } else {
        say(&print::repair(steps, flags.apply));
    }
    let is_left = !flags.apply && !steps.is_empty();
    if is_left {
        print::complain("hint: --apply does this\n");
    }
    if is_left { ExitCode::Partial } else { ExitCode::Done }
}
