//! `volferry snapshot create`.

use contract::{ExitCode, human};
use syncer::{
    failures::Failures,
    root::TreeLocation,
    snapshot::{
        SnapshotError,
        create::{FirstCopy, create_snapshot, first_copy},
        store::Labels,
    },
};

use super::{flags::CreateFlags, json, print, say, say_json, user, wait_for_volume::waiting};

/// Takes a snapshot, and prints its id.
pub(super) fn run(flags: &CreateFlags) -> Result<ExitCode, SnapshotError> {
    let CreateFlags { volume, tags, note, pin, exclude, engine } = flags.clone();
    let labels =
        Labels { tags: tags.into_iter().collect(), note, user: user(), pinned: pin, ..Labels::default() };
    labels.check()?;
    let place = TreeLocation::from(&volume.dir);
    if let Some(FirstCopy { bytes, free }) = first_copy(&place, engine, &exclude)? {
        let (dir, bytes, free) = (volume.dir.display(), human::bytes(bytes), human::bytes(free));
        print::complain(&format!(
            "note: {dir} cannot clone files, so its first snapshot copies {bytes}, and {free} are free\n"
        ));
    }
    let failures = Failures::default();
    let create = || create_snapshot(&place, labels.clone(), engine, &exclude, &failures);
    let snapshot = waiting(volume.wait_lock, create)?;
    if volume.json {
        say_json(&json::SnapshotJson::from(&snapshot));
    } else {
        say(&format!("{}\n", snapshot.id));
    }
    print::failures(&failures);
    let in_motion = failures.in_motion();
    in_motion.first.iter().for_each(|path| {
        print::complain(&format!("error: {path}: it kept changing while it was read, and may be a mix\n"));
    });
    Ok(if snapshot.is_whole() && in_motion.count == 0 { ExitCode::Done } else { ExitCode::Partial })
}
