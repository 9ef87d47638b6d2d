//! Refuses a run onto a copy of another source, if the owner of the destination asks for that (`--other-source`).

use std::path::Path;

use contract::{OtherSource, Reason, RunParams, VolumeId};

use crate::{plan::guards::refused::Refused, session_error::SessionError};

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
}
