//! The capabilities that this process has.

use rustix::thread::{CapabilitySet, capabilities};

/// Returns whether this process may give files to other users.
pub(crate) fn may_change_owners() -> bool {
    has_capability(CapabilitySet::CHOWN)
}

/// Returns whether the calling thread has this capability.
pub(crate) fn has_capability(capability: CapabilitySet) -> bool {
    match capabilities(None) {
        Ok(own) => own.effective.contains(capability),
        Err(_) => rustix::process::geteuid().is_root(),
    }
}
