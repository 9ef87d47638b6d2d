//! Decides which extended attributes of an entry a run keeps, including access control lists.

use std::ops::BitOr;

use contract::Preserve;
use serde::{Deserialize, Serialize};

/// The access control list that decides access to an entry, in the kernel's encoding.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The access control list that new entries of a directory inherit.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
/// The label of SELinux.
pub const SELINUX_LABEL: &[u8] = b"security.selinux";

/// The names under which XFS also shows its access control lists to a process with `CAP_SYS_ADMIN`.
const XFS_ACCESS_ACL: &[u8] = b"trusted.SGI_ACL_FILE";
const XFS_DEFAULT_ACL: &[u8] = b"trusted.SGI_ACL_DEFAULT";

/// Kinds of attributes. Whether a process may read and set them is decided for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Classes(u8);

impl Classes {
    /// None.
    pub const NONE: Self = Self(0);
    /// `user.*`.
    pub const USER: Self = Self(1);
    /// POSIX access control lists.
    pub const ACL: Self = Self(2);
    /// `security.capability`: the rights that a program has, independent of its user.
    pub const CAPABILITY: Self = Self(4);
    /// `trusted.*`, which only a process with `CAP_SYS_ADMIN` sees.
    pub const TRUSTED: Self = Self(8);
    /// `security.selinux`, which runs of a process with `CAP_SYS_ADMIN` keep.
    pub const LABEL: Self = Self(16);
    /// Every kind.
    pub const EACH: [Self; 5] = [Self::USER, Self::ACL, Self::CAPABILITY, Self::TRUSTED, Self::LABEL];
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Returns the kinds that a run keeps. Access control lists follow permissions, because each implies the other.
    pub fn wanted(preserve: &Preserve) -> Self {
        let xattrs = if preserve.xattrs { Self::ALL.without(Self::ACL) } else { Self::NONE };
        let acls = if preserve.acls && preserve.permissions { Self::ACL } else { Self::NONE };
        xattrs | acls
    }

    /// Returns the kind of an attribute. `None` for one that is never kept, such as `security.ima`, or that another
    /// name covers.
    pub fn of(name: &[u8]) -> Option<Self> {
        match name {
            ACCESS_ACL | DEFAULT_ACL => Some(Self::ACL),
            CAPABILITY => Some(Self::CAPABILITY),
            SELINUX_LABEL => Some(Self::LABEL),
            XFS_ACCESS_ACL | XFS_DEFAULT_ACL => None,
            _ if name.len() > 5 && name.starts_with(b"user.") => Some(Self::USER),
            _ if name.len() > 8 && name.starts_with(b"trusted.") => Some(Self::TRUSTED),
            _ => None,
        }
    }

    /// Returns whether it contains no kind.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns whether all kinds of `other` are among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the kinds in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the kinds that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns a number for use in formats.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Reads a number of [`Self::bits`]. `None` if it names an unknown kind.
    pub fn from_bits(bits: u8) -> Option<Self> {
        Some(Self(bits)).filter(|classes| Self::ALL.contains(*classes))
    }

    /// Returns whether an attribute of this name is of one of these kinds.
    pub fn hold(self, name: &[u8]) -> bool {
        Self::of(name).is_some_and(|class| self.contains(class))
    }
}

impl BitOr for Classes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_control_lists_go_with_permissions() {
        let all = Preserve::default();
        assert_eq!(Classes::wanted(&all), Classes::ALL);
        let without = Preserve { permissions: false, ..all };
        assert_eq!(Classes::wanted(&without), Classes::ALL.without(Classes::ACL));
        assert_eq!(Classes::wanted(&Preserve { xattrs: false, ..all }), Classes::ACL);
    }
}
