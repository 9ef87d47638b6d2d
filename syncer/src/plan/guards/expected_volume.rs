//! Refuses a destination that is not the expected volume.

use std::path::Path;

use contract::{Reason, RunParams, VolumeId};

use crate::{plan::guards::refused::Refused, session_error::SessionError};

/// Checks that the destination at `path`, whose id is `found`, is the expected one.
///
/// # Errors
/// [`SessionError::Guard`] with `OtherDestination`.
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
        reason: Reason::OtherDestination,
        problem: format!(
            "the destination {path} is not the expected one: it has {found}, and {expected} is expected"
        ),
        remedy: "see that the right volume is mounted; if this is the one that you want, expect its id, or none",
    };
    refused.unless(forced)
}

#[cfg(test)]
mod tests {
    use contract::Demands;

    use super::*;

    #[test]
    fn only_the_expected_destination_passes_unless_forced() {
        let (expected, other) = (VolumeId::new([1; 16]), VolumeId::new([2; 16]));
        let mut params = RunParams { expect_volume: Some(expected), ..RunParams::default() };
        let check =
            |params: &RunParams, found| Refused::reason_of(check_volume(params, Path::new("/copy"), found));
        assert_eq!(check(&params, Some(expected)), Ok(0));
        assert_eq!(check(&params, Some(other)), Err(Reason::OtherDestination));
        assert_eq!(check(&params, None), Err(Reason::OtherDestination));
        params.force = true;
        assert_eq!(check(&params, Some(other)), Ok(1));
        assert_eq!(check(&params, Some(expected)), Ok(0));
        assert_eq!(check(&RunParams::default(), Some(other)), Ok(0));
        let demands = Demands { expect_volume: Some(expected), ..Demands::default() };
        let params = RunParams { demands, force: true, ..RunParams::default() };
        assert_eq!(check(&params, Some(expected)), Ok(0));
        assert_eq!(check(&params, Some(other)), Err(Reason::OtherDestination));
    }
}
