//! Refuses to replace an entry by a file of another name.

use contract::{Reason, RunParams};

use crate::{
    compare_entries::Step,
    plan::{
        guards::refused::Refused,
        planned::{Compared, PlannedDir},
        single_file::Subject,
    },
    session_error::SessionError,
};

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
        reason: Reason::OtherFile,
        problem: format!(
            "the run would replace {name:?}, which has other content and another name than the source"
        ),
        remedy: "choose a name that does not exist, or a folder",
    };
    refused.unless(params.force)
}
