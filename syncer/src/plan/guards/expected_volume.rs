//! Refuses a destination that is not the expected volume, or whose copy is of another source.

use std::path::Path;

use contract::{OtherSource, Reason, RunParams, VolumeId};

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
        reason: Reason::OtherSource,
        problem: format!(
            "the copy at {} is of another source: of the volume {noted}, and this one is {own}",
            path.display()
        ),
        remedy: "see that the right volume is mounted as the source; if this one shall replace the copy, accept its id \
                 (--other-source)",
    };
    refused.unless(false)
}

#[cfg(test)]
mod tests {
    use contract::Demands;

    use super::*;

    #[test]
    fn a_copy_of_another_source_is_kept_if_its_owner_asks_for_that_whatever_the_source_says() {
        let (noted, other) = (VolumeId::new([1; 16]), VolumeId::new([2; 16]));
        let check = |rule: Option<OtherSource>, noted, own| {
            let demands = Demands { other_source: rule, ..Demands::default() };
            let params = RunParams { demands, source_id: own, force: true, ..RunParams::default() };
            Refused::reason_of(check_source(&params, Path::new("/copy"), noted))
        };
        let refuse = Some(OtherSource::Refuse);
        assert_eq!(check(refuse, Some(noted), Some(other)), Err(Reason::OtherSource));
        assert_eq!(check(Some(OtherSource::Only(noted)), Some(noted), Some(other)), Err(Reason::OtherSource));
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
