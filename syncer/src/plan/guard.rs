//! Refuses a run that would empty a volume, or write to another volume than the one it is meant for, before anything is
//! changed.

use std::{collections::HashSet, path::Path};

use contract::{OtherSource, RunParams, VolumeId, human_bytes::bytes as human_bytes, plural};

use crate::{
    compare_entries::Step,
    entry::{Entry, Kind},
    measure::monitor::Monitor,
    path::OWN_DIR,
    plan::{
        free_space::Room,
        pattern_notes::pattern_notes,
        planned::{Compared, PlannedDir, SparedEntries, deletes_in, path_in},
        single_file::Subject,
    },
    session_error::{SessionError, go_on},
    tree::{
        Tree,
        dir::{DirId, Mounts, Totals},
    },
    wire::TreeHead,
};

/// Checks that the destination at `path`, whose id is `found`, is the expected one.
///
/// # Errors
/// The errors of [`check`].
pub(crate) fn check_volume(
    params: &RunParams,
    path: &Path,
    found: Option<VolumeId>,
) -> Result<Vec<String>, SessionError> {
    if let Some(expected) = params.demands.expect_volume {
        check_expected(expected, path, found, false)?;
    }
    let Some(expected) = params.expect_volume else { return Ok(Vec::new()) };
    check_expected(expected, path, found, params.force)
}

fn check_expected(
    expected: VolumeId,
    path: &Path,
    found: Option<VolumeId>,
    forced: bool,
) -> Result<Vec<String>, SessionError> {
    if found == Some(expected) {
        return Ok(Vec::new());
    }
    let found = found
        .map_or("no id: it was not a destination before, or was wiped".into(), |id| format!("the id {id}"));
    let path = path.display();
    let refused = Refused {
        reason: "OtherDestination",
        problem: format!(
            "the destination {path} is not the expected one: it has {found}, and {expected} is expected"
        ),
        remedy: "see that the right volume is mounted; if this is the one that you want, expect its id, or none",
    };
    refused.unless(forced)
}

/// Checks that the copy at `path` is of the run's own source, as far as the owner of the destination asks for that and
/// both are known. `noted` is the source of the copy.
///
/// # Errors
/// [`SessionError::Guard`] with `OtherSource`.
pub(crate) fn check_source(
    params: &RunParams,
    path: &Path,
    noted: Option<VolumeId>,
) -> Result<Vec<String>, SessionError> {
    let (Some(noted), Some(own)) = (noted, params.source_id) else { return Ok(Vec::new()) };
    let takes = match params.demands.other_source {
        None | Some(OtherSource::Accept) => true,
        Some(OtherSource::Refuse) => false,
        Some(OtherSource::Only(accepted)) => accepted == own,
    };
    if takes || noted == own {
        return Ok(Vec::new());
    }
    let refused = Refused {
        reason: "OtherSource",
        problem: format!(
            "the copy at {} is of another source: of the volume {noted}, and this one is {own}",
            path.display()
        ),
        remedy: "see that the right volume is mounted as the source; if this one shall replace the copy, accept its id \
                 (--other-source)",
    };
    refused.unless(false)
}

/// The objection of a guard to a run.
pub(crate) struct Refused {
    pub reason: &'static str,
    pub problem: String,
    pub remedy: &'static str,
}

impl Refused {
    /// Returns a note of the overridden guard if `forced`, else the error.
    pub(crate) fn unless(self, forced: bool) -> Result<Vec<String>, SessionError> {
        let Self { reason, problem, remedy } = self;
        match forced {
            true => Ok(vec![format!("--force overrode a guard: {problem}")]),
            false => Err(SessionError::Guard { reason, message: format!("{problem}: {remedy}") }),
        }
    }
}

/// Checks a plan before anything is changed. `room` is the state of the destination's file system, if known; `failed`
/// is the number of entries that could not be read or listed. Returns notes, also of overridden guards.
///
/// # Errors
/// [`SessionError::Guard`] with the next step.
pub(crate) fn check(
    params: &RunParams,
    head: &TreeHead,
    sink: &Tree,
    planned: &Compared,
    room: Option<&Room>,
    failed: u64,
    monitor: &Monitor,
) -> Result<Vec<String>, SessionError> {
    let deletes = failed == 0 || params.deletes_anyway();
    let refused = [
        other_job(params, sink, planned, monitor)?,
        wrong_direction(params, head, sink, planned, monitor)?,
        no_room(params, head, sink, planned, room.filter(|_| !planned.dirs.is_empty()), deletes, monitor)?,
    ];
    let mut notes = Vec::new();
    if head.last_run.is_some() {
        notes.push("the source has a folder .volferry: it is itself a destination of runs".to_owned());
    }
    notes.extend(mounts_note(params, &head.mounts));
    notes.extend(pattern_notes(params, head.source.patterns.as_ref(), sink.patterns.as_ref()));
    notes.extend(stay_note(params, &planned.beyond));
    notes.extend(check_deletes(params, &head.totals, sink, planned, monitor)?);
    for refused in refused.into_iter().flatten() {
        notes.extend(refused.unless(params.force)?);
    }
    Ok(notes)
}

/// Returns a note about file systems that are mounted inside the source, which the user may have overlooked.
fn mounts_note(params: &RunParams, mounts: &Mounts) -> Option<String> {
    let first = &mounts.first;
    let found = match mounts.count {
        0 => return None,
        1 => format!("another file system is mounted inside the source, at {first}"),
        count => format!("{count} other file systems are mounted inside the source, the first at {first}"),
    };
    Some(match params.one_file_system {
        true => format!("{found}: its entries were left out"),
        false => format!("{found}: what is in it belongs to the run; --one-file-system leaves it out"),
    })
}

/// Returns a note about entries that stay because they are in other mounts inside the destination.
fn stay_note(params: &RunParams, stay: &Mounts) -> Option<String> {
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

/// Refuses to replace an entry by a file of another name, which is usually a mistake. Returns notes of overridden
/// guards.
///
/// # Errors
/// [`SessionError::Guard`] with the next step.
pub(crate) fn check_renamed(
    subject: &Subject,
    params: &RunParams,
    planned: &Compared,
) -> Result<Vec<String>, SessionError> {
    if !subject.renames {
        return Ok(Vec::new());
    }
    let replaces = |step: &Step| matches!(step, Step::Update | Step::Replace { .. });
    let mut steps = planned.dirs.iter().flat_map(PlannedDir::steps);
    let replaced = steps.find(|(step, _)| replaces(step));
    let Some((_, entry)) = replaced else { return Ok(Vec::new()) };
    let name = String::from_utf8_lossy(entry.name);
    let refused = Refused {
        reason: "OtherFile",
        problem: format!(
            "the run would replace {name:?}, which has other content and another name than the source"
        ),
        remedy: "choose a name that does not exist, or a folder",
    };
    refused.unless(params.force)
}

/// Refuses to delete or replace another job's destination: a folder below the root that has a `.volferry` of its own.
fn other_job(
    params: &RunParams,
    sink: &Tree,
    planned: &Compared,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let mut found = None;
    for dir in planned.dirs.iter().filter(|_| params.delete) {
        for (name, id) in dir.gone_dirs(sink) {
            go_on(monitor)?;
            if found.is_none() && loses_own_dir(sink, &planned.kept, name, id) {
                found = Some(if name == OWN_DIR { dir.path.clone() } else { path_in(&dir.path, name) });
            }
        }
    }
    Ok(found.map(|path| Refused {
        reason: "OtherJobsDestination",
        problem: format!(
            "the run would delete or replace the folder {path}, or what Volferry keeps in it, and another job writes there: it holds a \
             folder .volferry"
        ),
        remedy: "choose another destination, exclude the folder, or remove its .volferry if no job uses it any more",
    }))
}

/// Returns whether a directory that is removed is a `.volferry`, or contains one that does not stay.
fn loses_own_dir(sink: &Tree, kept: &SparedEntries, name: &[u8], id: DirId) -> bool {
    let mut left = vec![id];
    let mut found = name == OWN_DIR;
    while let Some(id) = left.pop().filter(|_| !found) {
        let dir = &sink.dirs[id as usize];
        let dirs = (0..).zip(&dir.listing).filter(|(_, entry)| entry.kind == Kind::Dir);
        for ((index, entry), child) in dirs.zip(dir.first_child..) {
            if !kept.contains(&(id, index)) {
                found |= entry.name == OWN_DIR;
                left.push(child);
            }
        }
    }
    found
}

/// Refuses a run whose ends seem to be swapped: the source is itself a destination, and the run would delete or replace
/// files that are newer than its last run and all of its files.
fn wrong_direction(
    params: &RunParams,
    head: &TreeHead,
    sink: &Tree,
    planned: &Compared,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let Some(last_run) = head.last_run.filter(|_| params.delete) else { return Ok(None) };
    let newest = last_run.max(head.totals.newest);
    let is_newer = |entry: &Entry<'_>| matches!(entry.kind, Kind::File { .. }) && entry.meta.mtime > newest;
    let mut newer = 0;
    for dir in &planned.dirs {
        go_on(monitor)?;
        newer += newer_files(dir, sink, &planned.kept, is_newer);
    }
    Ok((newer > 0).then(|| Refused {
        reason: "WrongDirection",
        problem: format!(
            "the source is itself a destination of runs, and {newer} files that the run would delete or replace are newer than \
             anything in it"
        ),
        remedy: "see that source and destination are not the wrong way round",
    }))
}

/// Counts the newer files that a plan deletes or replaces in one directory and below.
fn newer_files(
    dir: &PlannedDir,
    sink: &Tree,
    kept: &SparedEntries,
    is_newer: impl Fn(&Entry<'_>) -> bool,
) -> usize {
    let Some(id) = dir.sink else { return 0 };
    let there = &sink.dirs[id as usize].listing;
    let replaced: HashSet<&[u8]> =
        dir.steps().filter(|(step, _)| *step != Step::Meta).map(|(_, entry)| entry.name).collect();
    let deleted = (0..).zip(there).filter(|(index, entry)| {
        let goes = dir.plan.deletes.binary_search(index).is_ok() || replaced.contains(entry.name);
        goes && is_newer(entry)
    });
    let mut newer = deleted.count();
    let mut left: Vec<DirId> = dir.gone_dirs(sink).into_iter().map(|(_, id)| id).collect();
    while let Some(id) = left.pop() {
        let below = &sink.dirs[id as usize];
        let goes = (0..).zip(&below.listing).filter(|(index, _)| !kept.contains(&(id, *index)));
        newer += goes.filter(|(_, entry)| is_newer(entry)).count();
        left.extend(below.children().map(|(_, child)| child));
    }
    newer
}

fn no_room(
    params: &RunParams,
    head: &TreeHead,
    sink: &Tree,
    planned: &Compared,
    room: Option<&Room>,
    deletes: bool,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let Some(room) = room else { return Ok(None) };
    let lacks = room.lacks(params, &head.totals, sink, planned, deletes, monitor)?;
    Ok(lacks.map(|(needed, free)| Refused {
        reason: "NotEnoughSpace",
        problem: format!(
            "the run needs at least {} at the destination, and {} are free",
            human_bytes(needed),
            human_bytes(free)
        ),
        remedy: "make room, or have deletes make it with --delete=before",
    }))
}

/// Checks the deletes of a plan against the limits. Returns notes of overridden guards.
fn check_deletes(
    params: &RunParams,
    source: &Totals,
    sink: &Tree,
    planned: &Compared,
    monitor: &Monitor,
) -> Result<Vec<String>, SessionError> {
    let mut deletes = 0;
    for dir in planned.dirs.iter().filter(|_| params.delete) {
        go_on(monitor)?;
        deletes += deletes_in(dir, sink, &planned.kept);
    }
    let entries = sink.totals.entries;
    let exceeds = |limit: &u64| deletes * 100 > limit * entries;
    if deletes == 0 {
        return Ok(Vec::new());
    }
    let limit = u64::from(params.delete_limit.0);
    let most = params.max_delete.filter(|most| deletes > *most);
    let refused = most.map(|most| Refused {
        reason: "DeleteLimitExceeded",
        problem: format!("the run would delete {deletes} entries, more than the {most} of --max-delete"),
        remedy: "raise the number if that is what you want",
    });
    let mut notes = refused.map_or(Ok(Vec::new()), |refused| refused.unless(params.force))?;
    let refused = match () {
        () if source.entries == 0 => Some(Refused {
            reason: "SourceEmpty",
            problem: format!(
                "the source is empty and the destination has {entries} entries: a volume that was not mounted or was wiped \
                 looks like this"
            ),
            remedy: "if the destination shall be emptied, remove its files yourself",
        }),
        () if exceeds(&limit) => Some(Refused {
            reason: "DeleteLimitExceeded",
            problem: format!(
                "the run would delete {deletes} of {entries} entries, more than the limit of {limit} %"
            ),
            remedy: "raise the limit if that is what you want",
        }),
        () => None,
    };
    notes.extend(refused.map_or(Ok(Vec::new()), |refused| refused.unless(params.force))?);
    let demanded = params.demands.delete_limit.map(|limit| u64::from(limit.0)).filter(exceeds);
    let Some(limit) = demanded else { return Ok(notes) };
    let refused = Refused {
        reason: "DeleteLimitExceeded",
        problem: format!(
            "the run would delete {deletes} of {entries} entries, more than the limit of {limit} % that the receiving end sets"
        ),
        remedy: "raise the limit there if that is what you want; --force at the source does not",
    };
    refused.unless(false)
}

#[cfg(test)]
mod tests {
    use contract::{DeleteLimit, Demands};

    use super::*;
    use crate::{
        attrs::Attrs, compare_entries::DirPlan, entry::Meta, listing::ListingBuilder, path::RelPath,
        tree::dir::Dir,
    };

    fn sink() -> Tree {
        let mut root = ListingBuilder::default();
        root.push(&Entry { name: b"d", kind: Kind::Dir, meta: Meta::default(), attrs: Attrs::default() });
        root.push(&Entry {
            name: b"f",
            kind: Kind::File { size: 1 },
            meta: Meta::default(),
            attrs: Attrs::default(),
        });
        let mut below = ListingBuilder::default();
        for name in ["a", "b"] {
            below.push(&Entry {
                name: name.as_bytes(),
                kind: Kind::File { size: 1 },
                meta: Meta::default(),
                attrs: Attrs::default(),
            });
        }
        Tree {
            dirs: vec![
                Dir { listing: root.finish(), first_child: 1, ..Dir::default() },
                Dir { listing: below.finish(), ..Dir::default() },
            ],
            totals: Totals { entries: 4, ..Totals::default() },
            ..Tree::default()
        }
    }

    fn check_deletes(deletes: Vec<u32>, entries: u64, params: &RunParams) -> Result<usize, &'static str> {
        check_plan(DirPlan { deletes, ..DirPlan::default() }, entries, params)
    }

    /// Returns the number of notes. The source's listing is one file `d`.
    fn check_plan(plan: DirPlan, entries: u64, params: &RunParams) -> Result<usize, &'static str> {
        check_keeping(plan, entries, params, SparedEntries::new())
    }

    fn check_keeping(
        plan: DirPlan,
        entries: u64,
        params: &RunParams,
        kept: SparedEntries,
    ) -> Result<usize, &'static str> {
        let mut listing = ListingBuilder::default();
        listing.push(&Entry {
            name: b"d",
            kind: Kind::File { size: 1 },
            meta: Meta::default(),
            attrs: Attrs::default(),
        });
        let planned = PlannedDir {
            source: 0,
            sink: Some(0),
            path: RelPath::root(),
            meta: Meta::default(),
            listing: listing.finish(),
            plan,
        };
        let params = RunParams { delete: true, ..params.clone() };
        let source = Totals { entries, ..Totals::default() };
        let planned = Compared { dirs: vec![planned], kept, ..Compared::default() };
        reason(super::check_deletes(&params, &source, &sink(), &planned, &Monitor::default()))
    }

    fn reason(result: Result<Vec<String>, SessionError>) -> Result<usize, &'static str> {
        result.map(|notes| notes.len()).map_err(|error| match error {
            SessionError::Guard { reason, .. } => reason,
            _ => "another error",
        })
    }

    #[test]
    fn deletes_up_to_the_limit_pass_and_one_more_does_not() {
        let half = RunParams { delete_limit: DeleteLimit(25), ..RunParams::default() };
        assert_eq!(check_deletes(vec![1], 9, &half), Ok(0));
        assert_eq!(check_deletes(vec![0], 9, &half), Err("DeleteLimitExceeded"));
    }

    #[test]
    fn what_the_receiving_end_demands_is_not_overridden_by_force() {
        let demands = |demands| RunParams {
            demands,
            force: true,
            delete_limit: DeleteLimit(100),
            ..RunParams::default()
        };
        let limit =
            |percent| demands(Demands { delete_limit: Some(DeleteLimit(percent)), ..Demands::default() });
        assert_eq!(check_deletes(vec![1], 9, &limit(25)), Ok(0));
        assert_eq!(check_deletes(vec![1], 9, &limit(24)), Err("DeleteLimitExceeded"));
        let (expected, other) = (VolumeId::new([1; 16]), VolumeId::new([2; 16]));
        let params = demands(Demands { expect_volume: Some(expected), ..Demands::default() });
        let check = |found| reason(check_volume(&params, Path::new("/copy"), Some(found)));
        assert_eq!((check(expected), check(other)), (Ok(0), Err("OtherDestination")));
    }

    #[test]
    fn all_that_is_below_a_directory_counts() {
        let most = RunParams { delete_limit: DeleteLimit(74), ..RunParams::default() };
        assert_eq!(check_deletes(vec![0], 9, &most), Err("DeleteLimitExceeded"));
        let most = RunParams { delete_limit: DeleteLimit(75), ..RunParams::default() };
        assert_eq!(check_deletes(vec![0], 9, &most), Ok(0));
    }

    #[test]
    fn all_that_is_below_a_directory_counts_when_a_file_takes_its_place() {
        let replace = || DirPlan { steps: vec![(0, Step::Replace { was_dir: true })], ..DirPlan::default() };
        let most = RunParams { delete_limit: DeleteLimit(49), ..RunParams::default() };
        assert_eq!(check_plan(replace(), 9, &most), Err("DeleteLimitExceeded"));
        let most = RunParams { delete_limit: DeleteLimit(50), ..RunParams::default() };
        assert_eq!(check_plan(replace(), 9, &most), Ok(0));
    }

    #[test]
    fn what_stays_of_a_directory_does_not_count() {
        let delete = || DirPlan { deletes: vec![0], ..DirPlan::default() };
        let half = RunParams { delete_limit: DeleteLimit(50), ..RunParams::default() };
        assert_eq!(check_keeping(delete(), 9, &half, SparedEntries::new()), Err("DeleteLimitExceeded"));
        assert_eq!(check_keeping(delete(), 9, &half, SparedEntries::from([(1, 0)])), Ok(0));
    }

    #[test]
    fn an_empty_source_is_refused_unless_forced() {
        let all = RunParams { delete_limit: DeleteLimit(100), ..RunParams::default() };
        assert_eq!(check_deletes(vec![0, 1], 0, &all), Err("SourceEmpty"));
        assert_eq!(check_deletes(vec![0, 1], 0, &RunParams { force: true, ..all }), Ok(1));
    }

    #[test]
    fn a_copy_of_another_source_is_kept_if_its_owner_asks_for_that_whatever_the_source_says() {
        let (noted, other) = (VolumeId::new([1; 16]), VolumeId::new([2; 16]));
        let check = |rule: Option<OtherSource>, noted, own| {
            let demands = Demands { other_source: rule, ..Demands::default() };
            let params = RunParams { demands, source_id: own, force: true, ..RunParams::default() };
            reason(check_source(&params, Path::new("/copy"), noted))
        };
        let refuse = Some(OtherSource::Refuse);
        assert_eq!(check(refuse, Some(noted), Some(other)), Err("OtherSource"));
        assert_eq!(check(Some(OtherSource::Only(noted)), Some(noted), Some(other)), Err("OtherSource"));
        for (rule, noted, own) in [
            (refuse, Some(noted), Some(noted)),
            (refuse, None, Some(other)),
            (refuse, Some(noted), None),
            (Some(OtherSource::Accept), Some(noted), Some(other)),
            (Some(OtherSource::Only(other)), Some(noted), Some(other)),
            (Some(OtherSource::Only(other)), Some(noted), Some(noted)),
            (None, Some(noted), Some(other)),
        ] {
            assert_eq!(check(rule, noted, own), Ok(0), "{rule:?} {noted:?} {own:?}");
        }
    }

    #[test]
    fn only_the_expected_destination_passes_unless_forced() {
        let (expected, other) = (VolumeId::new([1; 16]), VolumeId::new([2; 16]));
        let mut params = RunParams { expect_volume: Some(expected), ..RunParams::default() };
        let check = |params: &RunParams, found| reason(check_volume(params, Path::new("/copy"), found));
        assert_eq!(check(&params, Some(expected)), Ok(0));
        assert_eq!(check(&params, Some(other)), Err("OtherDestination"));
        assert_eq!(check(&params, None), Err("OtherDestination"));
        params.force = true;
        assert_eq!(check(&params, Some(other)), Ok(1));
        assert_eq!(check(&params, Some(expected)), Ok(0));
        assert_eq!(check(&RunParams::default(), Some(other)), Ok(0));
    }
}
