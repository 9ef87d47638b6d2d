//! `volferry snapshot verify`.

use contract::{ExitCode, chain};

use super::{
    damage_flags::VerifyFlags, damage_json::VerifyJson, open_for_reading, print, say, say_json, user,
};
use syncer::{
    monitor::Monitor,
    root::TreeLocation,
    snapshot::{
        SnapshotError,
        check::{ListDamage, ReadPace, Turn, Verified, heal, verify},
        create::lock_volume,
        store::Writer,
    },
};

/// Checks the store, heals damaged objects, and prints the remaining damage.
pub(super) fn run(flags: &VerifyFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open_for_reading(&flags.volume.dir)?;
    let turn = match flags.in_turn {
        Some(of) => Turn::next(&opened.store, of)?,
        None => Turn::of(&opened.store, flags.part.unwrap_or_default())?,
    };
    let monitor = Monitor::default();
    let pace = ReadPace::new(flags.bandwidth_limit, &monitor);
    let mut verified = verify(&opened.store, &opened.roots, &turn, &pace)?;
    let part = turn.part;
    if opened.roots.snapshots.is_empty() && verified.objects == 0 && !verified.is_damaged() {
        return Err(SnapshotError::None(flags.volume.dir.clone()));
    }
    if verified.may_heal() && !flags.no_heal {
        put_right(flags, &mut verified);
    }
    let is_noted = flags.in_turn.is_some() || !flags.no_heal;
    let noted = is_noted.then(|| turn.note(&opened.store, verified.unhealed_contents()));
    if let Some(error) = noted.and_then(Result::err) {
        print::complain(&format!("note: the result of part {part} is not kept: {}\n", chain(&error)));
    }
    if flags.volume.json {
        let snapshots = print::damaged_snapshots(&verified, &opened.roots);
        say_json(&VerifyJson::new(part, &verified, &snapshots));
    } else {
        say(&print::verified(part, &verified, &opened.roots));
    }
    if verified.damaged_records > 0
        || verified.audit_broken_at.is_some()
        || verified.list == Some(ListDamage::OnlyCopy)
    {
        print::complain(
            "hint: `volferry snapshot repair DIR` shows what can be done about the list or the log\n",
        );
    }
    Ok(if verified.is_damaged() { ExitCode::Partial } else { ExitCode::Done })
}

/// Heals the damage, if the volume's lock can be taken. Otherwise the damage is only reported.
fn put_right(flags: &VerifyFlags, verified: &mut Verified) {
    let dir = &flags.volume.dir;
    let destination = match lock_volume(&TreeLocation::from(dir)) {
        Ok(destination) => destination,
        Err(error) => {
            print::complain(&format!("note: nothing is put right now: {error}\n"));
            return;
        }
    };
    let opened = Writer::open(destination.state(), destination.root(), dir, &Monitor::default());
    let healed = opened
        .and_then(|mut writer| heal(&mut writer, destination.root(), verified, &user(), &Monitor::default()));
    if let Err(error) = healed {
        print::complain(&format!("note: not all was put right: {}\n", chain(&error)));
    }
}
