use serde::{Deserialize, Serialize};

/// What the process that ran one end of a run says with its exit status. Scripts rely on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum ExitCode {
    /// The destination now equals the source.
    Done = 0,
    /// The run did not get to its end, for a reason at one of the ends: the source cannot be read, the destination
    /// cannot be written to, or the run was stopped. Most such runs have changed nothing; one that was stopped, or that
    /// failed in mid-transfer, leaves each file wholly old or wholly new, and keeps the parts of large files that had
    /// arrived for the next run. A block device may be partly old and partly new.
    Failed = 1,
    /// The command line was wrong, or one end has files and the other a block device.
    Usage = 2,
    /// The run went through, but some files failed, or differ when they are read back; the report names the first of
    /// them.
    Partial = 3,
    /// A guard refused the run: too many deletes, a source that looks emptied, or another destination than expected, or
    /// no room. Nothing was changed.
    Guard = 4,
    /// The peer or the network was lost. As after a run that was stopped, the next one goes on from the files that are
    /// there, and from the parts of large files that had arrived.
    PeerLost = 5,
    /// The peer is not who the identity file says. Not a byte of the tree was read.
    Identity = 6,
}

impl ExitCode {
    /// The meaning of a process's exit status, or `None` for a status that `volferry` never returns.
    pub fn from_status(status: i32) -> Option<Self> {
        Some(match status {
            0 => Self::Done,
            1 => Self::Failed,
            2 => Self::Usage,
            3 => Self::Partial,
            4 => Self::Guard,
            5 => Self::PeerLost,
            6 => Self::Identity,
            _ => return None,
        })
    }

    /// Whether another try without any change by a person could end differently.
    pub fn may_retry(self) -> bool {
        matches!(self, Self::Failed | Self::Partial | Self::PeerLost)
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
