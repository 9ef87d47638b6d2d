//! What a run sets on the entries that it makes.

use contract::{Ownership, Preserve};
use rustix::process::{getegid, geteuid};

use super::{apply_error::ApplyError, capability::may_change_owners};
use crate::{
    attrs::Classes,
    entry::{Entry, Kind, Meta, Owner, SET_IDS, kept_mode},
};

/// Which attributes are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Owner and group.
    pub owners: bool,
    /// Who owns what this process makes.
    pub user: Owner,
    /// Count the entries whose owner would be kept if this process might.
    pub count_owners: bool,
    /// Permission bits.
    pub permissions: bool,
    /// Modification times.
    pub times: bool,
    /// Holes in files.
    pub holes: bool,
    /// Large files are written in place.
    pub in_place: bool,
    /// Extended attributes of these kinds.
    pub attrs: Classes,
    /// Count the entries that have attributes of these kinds, which would be kept if this process could set them.
    pub count_attrs: Classes,
}

impl Settings {
    /// What `preserve` asks for, as far as this process may.
    ///
    /// # Errors
    /// [`ApplyError::Owners`] where owners must be kept and cannot.
    pub fn resolve(preserve: &Preserve) -> Result<Self, ApplyError> {
        let owners = match preserve.ownership {
            Ownership::Never => false,
            Ownership::Auto => may_change_owners(),
            Ownership::Always if may_change_owners() => true,
            Ownership::Always => return Err(ApplyError::Owners),
        };
        let count_owners = preserve.ownership == Ownership::Auto && !owners;
        Ok(Self {
            owners,
            user: Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() },
            count_owners,
            permissions: preserve.permissions,
            times: preserve.times,
            holes: preserve.sparse,
            in_place: false,
            attrs: Classes::wanted(preserve),
            count_attrs: Classes::NONE,
        })
    }

    /// The mode that an entry gets where permissions are kept: files of owners who are not lose their set-id bits,
    /// which would let others act as the user of this process.
    pub fn mode_of(&self, kind: Kind<'_>, wanted: &Meta) -> u16 {
        let is_given = self.owners || wanted.owner == self.user;
        kept_mode(kind, wanted, is_given)
    }

    /// Whether setting the metadata of a file that is as it is `now` would vouch for what is in it: by another owner,
    /// set-id bits or capabilities.
    pub fn grants(&self, wanted: &Entry<'_>, now: &Meta) -> bool {
        let owner = self.owners && wanted.meta.owner != now.owner;
        let set_ids = self.permissions && self.mode_of(wanted.kind, &wanted.meta) & SET_IDS & !now.mode != 0;
        let classes = wanted.attrs.classes().and(self.attrs);
        owner || set_ids || classes.contains(Classes::CAPABILITY)
    }
}
