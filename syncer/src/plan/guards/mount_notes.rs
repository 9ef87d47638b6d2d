//! Notes what is mounted inside of the source or of the destination, which the user may have overlooked.

use contract::{RunParams, human::plural};

use crate::tree::dir::Mounts;

/// Returns a note about file systems that are mounted inside the source, which the user may have overlooked.
pub(super) fn mounts_note(params: &RunParams, mounts: &Mounts) -> Option<String> {
    let first = &mounts.first;
    let found = match mounts.count {
        0 => return None,
        1 => format!("another file system is mounted inside the source, at {first}"),
        count => format!("{count} other file systems are mounted inside the source, the first at {first}"),
    };
    Some(if params.one_file_system {
        format!("{found}: its entries were left out")
    } else {
        format!("{found}: what is in it belongs to the run; --one-file-system leaves it out")
    })
}

/// Returns a note about entries that stay because they are in other mounts inside the destination.
pub(super) fn stay_note(params: &RunParams, stay: &Mounts) -> Option<String> {
    let entries = plural(
        stay.count,
        "entry that the source does not have stays",
        "entries that the source does not have stay",
    );
    (stay.count > 0 && !params.one_file_system).then(|| {
        format!(
            "{entries}, in what is mounted inside the destination, the first at {}: --cross-mounts deletes there, too",
            stay.first
        )
    })
}
