//! What a snapshot was taken for, which decides how it is found and which rules judge it.

use crate::codec::DecodeError;

/// The bits of a record's flags: a run without a name and a job took the snapshot, or a restore did.
const BY_UNNAMED_RUN: u8 = 4;
const BY_RESTORE: u8 = 8;

/// What a snapshot was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Purpose {
    /// A person asked for it. The rules of runs do not judge it.
    #[default]
    Manual,
    /// It has the result of a run. The rules of the run's job judge it.
    AfterRun,
    /// It has the state before a restore. It is found by its id and its tags only, and no rule judges it.
    Safety,
}

impl Purpose {
    /// Returns its bits of a record's flags. `is_named` says that the record has a run or a job.
    pub(crate) fn flags(self, is_named: bool) -> u8 {
        match self {
            Self::AfterRun if !is_named => BY_UNNAMED_RUN,
            Self::Manual | Self::AfterRun => 0,
            Self::Safety => BY_RESTORE,
        }
    }

    /// Takes its bits off a record's flags. Only runs give a record a run or a job.
    pub(crate) fn read_flags(flags: &mut u8, is_named: bool) -> Result<Self, DecodeError> {
        let own = *flags & (BY_UNNAMED_RUN | BY_RESTORE);
        *flags &= !own;
        match own {
            0 if is_named => Ok(Self::AfterRun),
            0 => Ok(Self::Manual),
            BY_UNNAMED_RUN => Ok(Self::AfterRun),
            BY_RESTORE => Ok(Self::Safety),
            _ => Err(DecodeError::Invalid("it was taken both after a run and before a restore")),
        }
    }

    /// Returns the word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::AfterRun => "afterRun",
            Self::Safety => "safety",
        }
    }
}
