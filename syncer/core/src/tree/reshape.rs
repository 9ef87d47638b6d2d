//! Changes of permissions and owners: a source lists its entries with those that their copies are to get.

use contract::{Chmod, Chown, ModeChange, RunParams};

use crate::tree::{
    attrs::Attrs,
    entry::{Meta, Owner},
    kept_xattrs::ACCESS_ACL,
};

/// The changes that a run makes to the metadata of entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reshape {
    chmod: Option<ModeChange>,
    chown: Option<Chown>,
}

/// The kinds of entries that differ in how their permissions change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeOf {
    /// A directory.
    Dir,
    /// A symbolic link, whose permissions never change.
    Link,
    /// Any other entry.
    File,
}

impl Reshape {
    /// Returns the changes that the parameters of a run ask for.
    pub fn of(params: &RunParams) -> Self {
        Self { chmod: params.chmod.as_ref().map(Chmod::change), chown: params.chown }
    }

    /// Returns the metadata that an entry gets. One with an access control list keeps the permissions of that.
    pub fn apply(&self, meta: Meta, of: ModeOf, attrs: Attrs<'_>) -> Meta {
        let chmod = self.chmod.filter(|_| of != ModeOf::Link && !attrs.has(ACCESS_ACL));
        let mode = chmod.map_or(meta.mode, |change| change.apply(meta.mode, of == ModeOf::Dir));
        let Chown { uid, gid } = self.chown.unwrap_or(Chown { uid: None, gid: None });
        let owner = Owner { uid: uid.unwrap_or(meta.owner.uid), gid: gid.unwrap_or(meta.owner.gid) };
        Meta { mode, owner, ..meta }
    }
}
