//! The names by which a snapshot of a volume can be called, for a shell that completes them.

use std::path::Path;

use super::enter;
use crate::snapshot::time::rfc3339;

/// Returns the id and the tags of each snapshot of a volume, the newest first, each with a description; none if the
/// volume has no list that can be read.
pub(crate) fn of_volume(dir: &Path) -> Vec<(String, String)> {
    let Ok(roots) = enter(dir).and_then(|store| store.roots()) else { return Vec::new() };
    let kept: Vec<_> = roots.offered().rev().collect();
    let ids = kept.iter().map(|snapshot| {
        let of = if snapshot.note.is_empty() { &snapshot.job } else { &snapshot.note };
        (snapshot.id.to_string(), format!("{} {of}", rfc3339(snapshot.taken)).trim_end().to_owned())
    });
    let tags = kept.iter().flat_map(|snapshot| {
        snapshot.tags.iter().map(|tag| (tag.clone(), format!("the newest with this tag, {}", snapshot.id)))
    });
    ids.chain(tags).chain(kept.first().map(|newest| ("latest".into(), newest.id.to_string()))).collect()
}
