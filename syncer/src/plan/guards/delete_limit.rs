//! Refuses a run that would delete more of the destination than the limits allow.

use contract::{Reason, RunParams};

use crate::{
    measure::monitor::Monitor,
    plan::{
        guards::{counted_deletes::CountedDeletes, empty_source, first_run_deletes, refused::Refused},
        planned::Planned,
    },
    session_error::SessionError,
    sys::root::Root,
};

/// Checks the deletes of a plan: that the source is not empty, that the destination is known, and the limits. Returns
/// notes of overridden guards.
pub(super) fn check_deletes(
    params: &RunParams,
    plan: &Planned,
    root: Option<&Root>,
    monitor: &Monitor,
) -> Result<Vec<String>, SessionError> {
    let deletes = CountedDeletes::of(params, plan, monitor)?;
    if deletes.count == 0 {
        return Ok(Vec::new());
    }
    let is_empty = plan.head.totals.entries == 0;
    let mut notes = if is_empty { empty_source::refusal(deletes).unless(params.force)? } else { Vec::new() };
    notes.extend(first_run_deletes::check(params, root, deletes, plan)?);
    let limited = [above_number(params, deletes), above_limit(params, deletes).filter(|_| !is_empty)];
    for refused in limited.into_iter().flatten() {
        notes.extend(refused.unless(params.force)?);
    }
    above_demanded(params, deletes).map_or(Ok(notes), |refused| refused.unless(false))
}

fn above_number(params: &RunParams, CountedDeletes { count, .. }: CountedDeletes) -> Option<Refused> {
    let most = params.max_delete.filter(|most| count > *most)?;
    Some(Refused {
        reason: Reason::DeleteLimitExceeded,
        problem: format!("the run would delete {count} entries, more than the {most} of --max-delete"),
        remedy: "raise the number if that is what you want",
    })
}

fn above_limit(params: &RunParams, deletes: CountedDeletes) -> Option<Refused> {
    let (limit, CountedDeletes { count, of }) = (params.delete_limit, deletes);
    deletes.exceed(limit).then(|| Refused {
        reason: Reason::DeleteLimitExceeded,
        problem: format!(
            "the run would delete {count} of {of} entries, more than the limit of {} %",
            limit.0
        ),
        remedy: "raise the limit if that is what you want",
    })
}

/// Returns the objection of the destination's owner, which `--force` does not override.
fn above_demanded(params: &RunParams, deletes: CountedDeletes) -> Option<Refused> {
    let limit = params.demands.delete_limit.filter(|limit| deletes.exceed(*limit))?;
    let CountedDeletes { count, of } = deletes;
    Some(Refused {
        reason: Reason::DeleteLimitExceeded,
        problem: format!(
            "the run would delete {count} of {of} entries, more than the limit of {} % that the receiving end sets",
            limit.0
        ),
        remedy: "raise the limit there if that is what you want; --force at the source does not",
    })
}

#[cfg(test)]
mod tests {
    use contract::{DeleteLimit, Demands};

    use super::*;
    use crate::{
        attrs::Attrs,
        compare_entries::{DirPlan, Step},
        entry::{Entry, Kind, Meta},
        listing::ListingBuilder,
        path::RelPath,
        plan::planned::{Checked, Compared, PlannedDir, SparedEntries},
        tree::{
            Tree,
            dir::{Dir, Totals},
        },
        wire::TreeHead,
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

    fn check_deletes(deletes: Vec<u32>, entries: u64, params: &RunParams) -> Result<usize, Reason> {
        check_plan(DirPlan { deletes, ..DirPlan::default() }, entries, params)
    }

    /// Returns the number of notes. The source's listing is one file `d`.
    fn check_plan(plan: DirPlan, entries: u64, params: &RunParams) -> Result<usize, Reason> {
        check_keeping(plan, entries, params, SparedEntries::new())
    }

    fn check_keeping(
        plan: DirPlan,
        entries: u64,
        params: &RunParams,
        kept: SparedEntries,
    ) -> Result<usize, Reason> {
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
        let plan = Planned {
            head: TreeHead { totals: Totals { entries, ..Totals::default() }, ..TreeHead::default() },
            compared: Compared { dirs: vec![planned], kept, ..Compared::default() },
            sink: sink(),
            checked: Checked::default(),
        };
        Refused::reason_of(super::check_deletes(&params, &plan, None, &Monitor::default()))
    }

    #[test]
    fn deletes_up_to_the_limit_pass_and_one_more_does_not() {
        let half = RunParams { delete_limit: DeleteLimit(25), ..RunParams::default() };
        assert_eq!(check_deletes(vec![1], 9, &half), Ok(0));
        assert_eq!(check_deletes(vec![0], 9, &half), Err(Reason::DeleteLimitExceeded));
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
        assert_eq!(check_deletes(vec![1], 9, &limit(24)), Err(Reason::DeleteLimitExceeded));
    }

    #[test]
    fn all_that_is_below_a_directory_counts() {
        let most = RunParams { delete_limit: DeleteLimit(74), ..RunParams::default() };
        assert_eq!(check_deletes(vec![0], 9, &most), Err(Reason::DeleteLimitExceeded));
        let most = RunParams { delete_limit: DeleteLimit(75), ..RunParams::default() };
        assert_eq!(check_deletes(vec![0], 9, &most), Ok(0));
    }

    #[test]
    fn all_that_is_below_a_directory_counts_when_a_file_takes_its_place() {
        let replace = || DirPlan { steps: vec![(0, Step::Replace { was_dir: true })], ..DirPlan::default() };
        let most = RunParams { delete_limit: DeleteLimit(49), ..RunParams::default() };
        assert_eq!(check_plan(replace(), 9, &most), Err(Reason::DeleteLimitExceeded));
        let most = RunParams { delete_limit: DeleteLimit(50), ..RunParams::default() };
        assert_eq!(check_plan(replace(), 9, &most), Ok(0));
    }

    #[test]
    fn what_stays_of_a_directory_does_not_count() {
        let delete = || DirPlan { deletes: vec![0], ..DirPlan::default() };
        let half = RunParams { delete_limit: DeleteLimit(50), ..RunParams::default() };
        assert_eq!(check_keeping(delete(), 9, &half, SparedEntries::new()), Err(Reason::DeleteLimitExceeded));
        assert_eq!(check_keeping(delete(), 9, &half, SparedEntries::from([(1, 0)])), Ok(0));
    }

    #[test]
    fn an_empty_source_is_refused_unless_forced() {
        let all = RunParams { delete_limit: DeleteLimit(100), ..RunParams::default() };
        assert_eq!(check_deletes(vec![0, 1], 0, &all), Err(Reason::SourceEmpty));
        assert_eq!(check_deletes(vec![0, 1], 0, &RunParams { force: true, ..all }), Ok(1));
    }
}
