use contract::{Compare, DeleteTiming, Ownership, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;

/// Which files are synced, and what makes them equal.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = rules::files()))]
pub struct Files {
    /// Remove from the destination what the source does not have. In the first run, that is also what others put there
    /// before, within `deleteLimit`: the status names the first entries that went.
    pub delete: bool,
    /// When `delete` removes entries. After: once all content has arrived. Before: before any content is written, which
    /// makes room for it.
    pub delete_timing: DeleteTiming,
    /// Delete even if something could not be read, listed or written. Without this, such a run deletes nothing, because
    /// an entry that failed may be the replacement of one to be deleted; the next run without a failure deletes.
    pub delete_anyway: bool,
    /// Refuses a run that would delete too much, or whose source is empty, before anything is touched.
    pub delete_limit: DeleteLimit,
    /// gitignore patterns; when there are any, only what they match is synced.
    #[schemars(length(max = 256), inner(length(min = 1, max = 4096)))]
    #[schemars(extend("x-kubernetes-validations" = rules::each_glob()))]
    pub include: Vec<String>,
    /// gitignore patterns; what they match is neither sent, changed nor deleted.
    #[schemars(length(max = 256), inner(length(min = 1, max = 4096)))]
    #[schemars(extend("x-kubernetes-validations" = rules::each_glob()))]
    pub exclude: Vec<String>,
    /// Also leave out matches of the source's `.gitignore` and `.volferryignore` files, each for its own folder and
    /// everything below, as in git. The files are read at the source; matching entries at the destination are neither
    /// changed nor deleted.
    pub ignore_files: bool,
    /// Files of fewer bytes are neither sent, changed nor deleted, for example `1k`. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::file_size()))]
    pub min_size: Option<String>,
    /// Files of more bytes are neither sent, changed nor deleted, for example `2Gi`. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = rules::file_size()))]
    pub max_size: Option<String>,
    /// What decides that a file at both ends is the same. Metadata: its size and modification time. Content: the hash
    /// of its content, computed at both ends.
    pub compare: Compare,
    /// Which attributes are compared and set.
    pub preserve: Preserve,
    /// How an existing file's content is replaced. Atomic: a staged file is renamed over the old one. InPlace: changes
    /// are written into the old file, by way of a journal; only for files of 1 MiB and more.
    pub write: WriteMode,
}

/// Refuses a run that would delete more than this, or whose source is empty, before anything is touched.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteLimit {
    /// The largest share of the destination's entries that a run may delete.
    #[schemars(range(min = 0, max = 100))]
    pub percent: i32,
}

impl Default for DeleteLimit {
    fn default() -> Self {
        Self { percent: contract::DeleteLimit::default().0.into() }
    }
}

/// Which attributes are compared and set.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Preserve {
    /// Owner and group, by number. Auto: kept if the pod may change owners, otherwise left alone. Always: kept; the run
    /// fails if the pod may not change owners. Never: ignored.
    pub ownership: Ownership,
    /// Permission bits.
    pub permissions: bool,
    /// Modification times, to the nanosecond.
    pub times: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// POSIX access control lists.
    pub acls: bool,
    /// Hard links within the tree.
    pub hard_links: bool,
    /// Holes in files.
    pub sparse: bool,
    /// FIFOs and device nodes.
    pub specials: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        contract::Preserve::default().into()
    }
}

impl From<contract::Preserve> for Preserve {
    fn from(it: contract::Preserve) -> Self {
        Self {
            ownership: it.ownership,
            permissions: it.permissions,
            times: it.times,
            xattrs: it.xattrs,
            acls: it.acls,
            hard_links: it.hard_links,
            sparse: it.sparse,
            specials: it.specials,
        }
    }
}

impl From<Preserve> for contract::Preserve {
    fn from(it: Preserve) -> Self {
        Self {
            ownership: it.ownership,
            permissions: it.permissions,
            times: it.times,
            xattrs: it.xattrs,
            acls: it.acls,
            hard_links: it.hard_links,
            sparse: it.sparse,
            specials: it.specials,
        }
    }
}
