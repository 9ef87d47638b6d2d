//! The metadata that a run sets on the entries that it makes.

use contract::{Ownership, Preserve};
use rustix::process::{getegid, geteuid};

use crate::{
    destination::destination_error::ApplyError,
    entry::{Entry, Kind, Meta, Owner},
    kept_mode_bits::{SET_IDS, kept_mode},
    kept_xattrs::Classes,
    sys::{process_capabilities::may_change_owners, read_xattrs::within_rights},
    tree::kept_times::KeptTimes,
};

/// The mode of new files, as far as the umask lets.
const DEFAULT_FILE_MODE: u16 = 0o644;

/// The kinds of metadata that are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Whether owners and groups are set.
    pub owners: bool,
    /// The owner of the files that this process makes.
    pub user: Owner,
    /// Whether to count the entries whose owner would be kept if this process were allowed to.
    pub count_owners: bool,
    /// Whether permission bits are set.
    pub permissions: bool,
    /// The mode of new files where permissions are not kept, less what the process's umask takes away.
    pub new_file_mode: u16,
    /// Whether modification times are set.
    pub times: bool,
    /// The times that the destination's file system can keep.
    pub kept_times: KeptTimes,
    /// Whether holes in files are kept.
    pub holes: bool,
    /// Whether large files are written in place.
    pub in_place: bool,
    /// The kinds of extended attributes that are set.
    pub attrs: Classes,
    /// Those of them that a policy of the destination's machine gives to new files, too: they are set with what a run
    /// writes, and not compared, because the policy may give an entry another one at any time.
    pub by_policy: Classes,
}

impl Settings {
    /// Returns the settings that `preserve` requests, as far as this process has the rights.
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
            new_file_mode: if preserve.permissions { 0 } else { DEFAULT_FILE_MODE & !umask() },
            times: preserve.times,
            kept_times: KeptTimes::ALL,
            holes: preserve.sparse,
            in_place: false,
            attrs: within_rights(Classes::wanted(preserve)),
            by_policy: Classes::NONE,
        })
    }

    /// Returns the mode that an entry gets where permissions are kept. Files whose owner is not kept lose their set-id
    /// bits, which would let others act as the user of this process.
    pub fn mode_of(&self, kind: Kind<'_>, wanted: &Meta) -> u16 {
        let is_given = self.owners || wanted.owner == self.user;
        kept_mode(kind, wanted, is_given)
    }

    /// Returns whether setting the metadata of a file, which has `now`, would give its content new rights: another
    /// owner, set-id bits or capabilities.
    pub fn grants(&self, wanted: &Entry<'_>, now: &Meta) -> bool {
        let owner = self.owners && wanted.meta.owner != now.owner;
        let set_ids = self.permissions && self.mode_of(wanted.kind, &wanted.meta) & SET_IDS & !now.mode != 0;
        let classes = wanted.attrs.classes().and(self.attrs);
        owner || set_ids || classes.contains(Classes::CAPABILITY)
    }
}

/// Returns the rights that the process's umask takes from new files, all but the owner's where it is not known. To ask
/// the kernel would change it for a moment.
fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u16::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}
