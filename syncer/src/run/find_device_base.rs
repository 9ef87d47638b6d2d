//! The base of a run that reads only the blocks that changed since: finds whether the destination has it, and tells the
//! hash of what is there afterwards.

use contract::{ContentHash, DeviceContent};

use crate::{
    destination::{Device, DeviceHash},
    plan::run_state::Run,
    session_error::SessionError,
    transport::TransportError,
};

/// Reads the destination, and returns its hash if that is the base of the run's changed blocks. If not, the run notes
/// why and has to compare everything. Without a list of changed blocks, reads nothing.
pub(crate) fn prove(device: &Device, run: &Run<'_>) -> Result<Option<DeviceHash>, SessionError> {
    let Some(changed) = &run.params.changed_blocks else { return Ok(None) };
    let why = if device.is_new() {
        "the destination is new".into()
    } else {
        match DeviceHash::read(device.opened(), run.monitor) {
            Ok(found) if found.hash() == changed.base => return Ok(Some(found)),
            Ok(found) => differs(changed.base, found.hash()),
            Err(_) if run.monitor.cancelled() => return Err(TransportError::Canceled.into()),
            Err(error) => format!("the destination cannot be hashed ({error})"),
        }
    };
    run.note([format!("{why}, so everything was compared, not only the changed blocks")]);
    Ok(None)
}

fn differs(base: ContentHash, found: ContentHash) -> String {
    format!(
        "the destination has other content (hash {found}) than the changed blocks are counted from ({base})"
    )
}

/// Returns the content of the device after a run that was asked for its hash, with the number of bytes that were listed
/// if the base was `proven`. Of a copy that is not whole, the hash would be the base of nothing.
pub(crate) fn content_of(
    device: &Device,
    proven: Option<DeviceHash>,
    run: &Run<'_>,
) -> Result<Option<DeviceContent>, SessionError> {
    let changed = run.params.changed_blocks.as_ref();
    if changed.is_none() && !run.params.content_hash || run.failures.count() > 0 {
        return Ok(None);
    }
    let hashed = match (proven, changed) {
        (Some(mut hash), Some(changed)) => {
            let again = hash.read_again(device.opened(), changed.ranges.as_slice(), run.monitor);
            again.map(|()| (hash, Some(changed.ranges.bytes())))
        }
        _ => DeviceHash::read(device.opened(), run.monitor).map(|hash| (hash, None)),
    };
    match hashed {
        Ok((hash, bytes_listed)) => Ok(Some(DeviceContent { hash: hash.hash(), bytes_listed })),
        Err(_) if run.monitor.cancelled() => Err(TransportError::Canceled.into()),
        Err(error) => {
            run.note([format!("the hash of the destination's content is not known: {error}")]);
            Ok(None)
        }
    }
}
