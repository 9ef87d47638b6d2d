//! Finds the snapshot that a user's text means.

use contract::{AS_OF, LATEST};

use crate::{
    entry::Time,
    snapshot::{
        store::{Roots, Snapshot, SnapshotError},
        typed_time,
    },
};

/// Finds the snapshot that `text` selects: an id or its first digits, a tag (its newest snapshot), `latest`, or
/// `as-of:TIME`. Forgotten snapshots are found by their full id only, and those from before a restore by id or tag.
///
/// # Errors
/// If no snapshot matches, or several do, or the time cannot be read.
pub fn select_snapshot<'r>(roots: &'r Roots, text: &str) -> Result<&'r Snapshot, SnapshotError> {
    if let Some(time) = text.strip_prefix(AS_OF) {
        return as_of(roots, typed_time::parse(time, jiff::Timestamp::now())?);
    }
    if let Some(whole) = text.parse().ok().and_then(|id| roots.get(id)) {
        return Ok(whole);
    }
    // The list is in the order of publication, which a wrong clock does not change.
    let named = match text {
        LATEST => roots.offered().next_back(),
        tag => roots.kept().filter(|snapshot| snapshot.tags.contains(tag)).last(),
    };
    if let Some(named) = named {
        return Ok(named);
    }
    one_of(roots.kept().filter(|snapshot| snapshot.id.begins_with(text)), text)?
        .ok_or_else(|| SnapshotError::Unknown(text.into()))
}

/// Finds the forgotten snapshot that `text` selects: an id or its first digits.
///
/// # Errors
/// If no forgotten snapshot matches, or several do.
pub fn select_forgotten<'r>(roots: &'r Roots, text: &str) -> Result<&'r Snapshot, SnapshotError> {
    let forgotten = roots.snapshots.iter().filter(|snapshot| snapshot.forgotten.is_some());
    one_of(forgotten.filter(|snapshot| snapshot.id.begins_with(text)), text)?
        .ok_or_else(|| SnapshotError::NotForgotten(text.into()))
}

/// Returns the only one of these snapshots, which fit a user's text; `None` if there are none.
fn one_of<'r>(
    fits: impl Iterator<Item = &'r Snapshot>,
    text: &str,
) -> Result<Option<&'r Snapshot>, SnapshotError> {
    let fits: Vec<&Snapshot> = fits.collect();
    match fits[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => {
            let fits = fits.iter().map(|snapshot| snapshot.id).collect();
            Err(SnapshotError::Ambiguous { text: text.into(), fits })
        }
    }
}

/// Finds the newest snapshot that was begun at this time or before.
fn as_of(roots: &Roots, time: Time) -> Result<&Snapshot, SnapshotError> {
    let before =
        roots.offered().filter(|snapshot| snapshot.began <= time).max_by_key(|snapshot| snapshot.began);
    before.ok_or_else(|| SnapshotError::Unknown("as old as that".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::store::snapshot_list::tests::sample;

    fn roots() -> Roots {
        let snapshots = [0xaa10, 0xaa20, 0xbb30].into_iter().enumerate().map(|(nth, id)| {
            let mut snapshot = sample(id << 48);
            snapshot.forgotten = None;
            snapshot.taken.seconds += nth as i64;
            snapshot.began.seconds += nth as i64;
            snapshot.tags = [format!("tag{}", nth / 2)].into();
            snapshot
        });
        Roots { snapshots: snapshots.collect(), ..Roots::default() }
    }

    #[test]
    fn ids_prefixes_tags_and_latest_are_found() {
        let roots = roots();
        let found = |text: &str| select_snapshot(&roots, text).map(|snapshot| snapshot.id.0 >> 48);
        for (text, id) in
            [("aa1", 0xaa10), ("b", 0xbb30), ("latest", 0xbb30), ("tag0", 0xaa20), ("tag1", 0xbb30)]
        {
            assert_eq!(found(text).unwrap(), id, "{text}");
        }
        assert!(matches!(found("aa"), Err(SnapshotError::Ambiguous { fits, .. }) if fits.len() == 2));
        for text in ["", "cc", "tag2"] {
            assert!(matches!(found(text), Err(SnapshotError::Unknown(_))), "{text}");
        }
    }

    #[test]
    fn a_forgotten_snapshot_needs_its_whole_id() {
        let mut roots = roots();
        roots.snapshots[2].forgotten = Some(Time::default());
        assert!(select_snapshot(&roots, "bb").is_err());
        assert_eq!(select_snapshot(&roots, "latest").unwrap().id.0 >> 48, 0xaa20);
        assert_eq!(select_snapshot(&roots, "bb30000000000000").unwrap().id.0 >> 48, 0xbb30);
    }

    #[test]
    fn what_is_brought_back_is_found_among_the_forgotten_only() {
        let mut roots = roots();
        let found = |roots: &Roots, text: &str| select_forgotten(roots, text).map(|it| it.id.0 >> 48);
        roots.snapshots[0].forgotten = Some(Time::default());
        assert_eq!(found(&roots, "aa").unwrap(), 0xaa10);
        for text in ["latest", "tag0", "aa2", "aa20000000000000", "as-of:2030-01-01"] {
            assert!(matches!(found(&roots, text), Err(SnapshotError::NotForgotten(_))), "{text}");
        }
        roots.snapshots[1].forgotten = Some(Time::default());
        assert!(matches!(found(&roots, "aa"), Err(SnapshotError::Ambiguous { .. })));
    }

    #[test]
    fn the_newest_before_a_time_is_found() {
        let roots = roots();
        let at = |seconds: i64| as_of(&roots, Time { seconds: 1_700_000_000 + seconds, nanos: 5 });
        assert_eq!(at(1).unwrap().id.0 >> 48, 0xaa20);
        assert_eq!(at(99).unwrap().id.0 >> 48, 0xbb30);
        assert!(at(-1).is_err());
        // The first two were begun at 22:13:20 and 22:13:21 on that day, and 5 ns.
        for (time, id) in
            [("2023-11-14T22:13:21Z", 0xaa10), ("2023-11-14T22:13:22Z", 0xaa20), ("2030-01-01", 0xbb30)]
        {
            assert_eq!(select_snapshot(&roots, &format!("as-of:{time}")).unwrap().id.0 >> 48, id, "{time}");
        }
        assert!(matches!(select_snapshot(&roots, "as-of:2000-01-01"), Err(SnapshotError::Unknown(_))));
        assert!(matches!(select_snapshot(&roots, "as-of:once"), Err(SnapshotError::Invalid(_))));
    }
}
