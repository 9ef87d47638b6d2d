use serde::{Deserialize, Serialize};

/// The exit status of the process that ran one end of a run. Scripts rely on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum ExitCode {
    /// The destination has everything of the source that takes part, and with deletes nothing else that does.
    Done = 0,
    /// The run failed, for a reason at one of the ends: the source cannot be read, the destination cannot be written
    /// to, or the run was stopped. Most such runs have changed nothing; one that was stopped, or that failed during the
    /// transfer, leaves each file wholly old or wholly new, and keeps the parts of large files that had arrived for the
    /// next run. A block device may be partly old and partly new.
    Failed = 1,
    /// The command line was wrong, or one end has files and the other a block device.
    Usage = 2,
    /// The run was completed, but some files failed, or differ when they are read back; the report names the first of
    /// them.
    Partial = 3,
    /// A guard refused the run: too many deletes, a source that looks emptied, another destination than expected, or
    /// not enough room. Nothing was changed.
    Guard = 4,
    /// The peer or the network was lost. As after a run that was stopped, the next one continues with the files that
    /// are complete, and with the parts of large files that had arrived.
    PeerLost = 5,
    /// The peer's key is not the one in the identity file. No byte of the tree was read.
    Identity = 6,
}

impl ExitCode {
    /// Returns the meaning of a process's exit status, or `None` for a status that `volferry` never returns.
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

    /// Returns whether another try could succeed without a change by a person.
    pub fn may_retry(self) -> bool {
        matches!(self, Self::Failed | Self::Partial | Self::PeerLost)
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
