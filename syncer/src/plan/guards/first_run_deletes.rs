//! Refuses a first run that would delete what a folder has had before any run: with a mistyped destination, that is
//! somebody's data.

use contract::{Reason, RunParams};

use crate::{
    destination,
    entry::Kind,
    plan::{
        guards::{counted_deletes::CountedDeletes, refused::Refused},
        planned::{Compared, Planned, PlannedDir, path_in},
    },
    session_error::SessionError,
    sys::root::Root,
    tree::Tree,
};

/// The most entries that a message names.
const MAX_NAMED: usize = 10;

/// Checks the `deletes` of a plan against a destination that no run has written to. Returns a note that names what the
/// run deletes, if the parameters allow it; nothing if the destination is known.
///
/// # Errors
/// [`SessionError::Guard`] with the first entries that would be deleted.
pub(super) fn check(
    params: &RunParams,
    root: Option<&Root>,
    deletes: CountedDeletes,
    plan: &Planned,
) -> Result<Vec<String>, SessionError> {
    if root.is_none_or(destination::is_adopted) {
        return Ok(Vec::new());
    }
    let CountedDeletes { count, of } = deletes;
    let named = named(&plan.compared, &plan.sink);
    if params.adopt {
        let note = format!(
            "the first run onto this destination deletes {count} of {of} entries that it had: {named}"
        );
        return Ok(vec![note]);
    }
    let refused = Refused {
        reason: Reason::NotAdopted,
        problem: format!(
            "no run has written to the destination yet, and this one would delete {count} of its {of} entries: {named}"
        ),
        remedy: if deletes.exceed(params.delete_limit) {
            "name another folder, or leave --delete out; --adopt together with --delete-limit=100 deletes them"
        } else {
            "name another folder, or leave --delete out; --adopt deletes them"
        },
    };
    refused.unless(params.force)
}

/// Names the first entries that are deleted, folders with a slash, without those below them.
fn named(planned: &Compared, sink: &Tree) -> String {
    let mut gone = planned.dirs.iter().flat_map(|dir| gone_in(dir, sink));
    let mut named: Vec<String> = gone.by_ref().take(MAX_NAMED).collect();
    match gone.count() {
        0 => {}
        more => named.push(format!("and {more} more")),
    }
    named.join(", ")
}

fn gone_in<'p>(dir: &'p PlannedDir, sink: &'p Tree) -> impl Iterator<Item = String> + 'p {
    let listing = dir.sink.map(|id| &sink.dirs[id as usize].listing);
    let replaced = dir.replaced_dirs();
    let entries = listing.into_iter().flat_map(|listing| (0..).zip(listing));
    entries.filter_map(move |(index, entry)| {
        let is_dir = entry.kind == Kind::Dir;
        let goes =
            dir.plan.deletes.binary_search(&index).is_ok() || (is_dir && replaced.contains(entry.name));
        goes.then(|| format!("{}{}", path_in(&dir.path, entry.name), if is_dir { "/" } else { "" }))
    })
}
