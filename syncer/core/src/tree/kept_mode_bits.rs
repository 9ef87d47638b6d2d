//! Decides which bits of a mode a copy keeps: a file gets set-user-ID and set-group-ID bits only with its owner.

use crate::tree::entry::{Kind, Meta};

/// The bits of a mode by which a program runs as its owner or group.
pub const SET_IDS: u16 = 0o6000;

/// Returns the mode of a copy. Set-id bits of a file are kept only if `is_given`: the copy has the file's owner.
pub fn kept_mode(kind: Kind<'_>, wanted: &Meta, is_given: bool) -> u16 {
    if matches!(kind, Kind::File { .. }) && !is_given { wanted.mode & !SET_IDS } else { wanted.mode }
}
