//! `volferry snapshot repair`.

use contract::ExitCode;

use super::{damage_json::RepairJson, enter, flags::RepairFlags, print, say, say_json, user};
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
    let is_left = !flags.apply && !repair.steps.is_empty();
    if flags.volume.json {
        say_json(&RepairJson::new(&repair, flags.apply));
    } else {
        say(&print::repair(&repair, flags.apply));
    }
    if is_left {
        print::complain("hint: --apply does this\n");
    }
    Ok(if is_left { ExitCode::Partial } else { ExitCode::Done })
}
