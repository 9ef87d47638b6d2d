//! Decides what of a snapshot is not believed if other users could write to the list that it is in, unless the user of
//! the run says so (`--trust-store`): owners, set-id bits, capabilities, pipes and devices.

use contract::{Ownership, RunParams};

use crate::{
    attrs::{Attrs, put_attr},
    entry::Meta,
    kept_mode_bits::kept_mode,
    kept_xattrs::Classes,
    snapshot::{Snapshot, browse::Node},
};

/// The attributes that give no rights.
const HARMLESS: Classes =
    Classes::ALL.without(Classes::CAPABILITY).without(Classes::TRUSTED).without(Classes::LABEL);

/// Returns whether owners, set-id bits, capabilities and devices of a snapshot are believed: no other user could write
/// to the list that has it, or the user of this run says so.
pub(super) fn is_trusted(snapshot: &Snapshot, params: &RunParams) -> bool {
    params.trust_store || !snapshot.is_exposed
}

/// Returns the parameters of a run from a snapshot, without what an untrusted one may not decide.
pub(crate) fn as_trusted(snapshot: &Snapshot, params: &RunParams) -> RunParams {
    let mut params = params.clone();
    if !is_trusted(snapshot, &params) {
        (params.preserve.ownership, params.preserve.specials) = (Ownership::Never, false);
    }
    params
}

/// Returns a note on what an untrusted snapshot may not decide.
pub(crate) fn trust_note(snapshot: &Snapshot, params: &RunParams) -> Option<String> {
    (!is_trusted(snapshot, params)).then(|| {
        format!(
            "snapshot {} was imported, or other users could write to its list: owners, set-id bits, capabilities, pipes \
             and devices are left out; --trust-store restores them, too",
            snapshot.id
        )
    })
}

/// Returns the attributes out of `classes` that a run from the snapshot keeps.
pub(crate) fn trusted_attrs(snapshot: &Snapshot, params: &RunParams, classes: Classes) -> Classes {
    if is_trusted(snapshot, params) { classes } else { classes.and(HARMLESS) }
}

/// Takes set-id bits, and attributes that give rights, from an entry.
pub(super) fn harmless(node: Node) -> Node {
    let mut bytes = Vec::new();
    node.attrs.as_attrs().within(HARMLESS).for_each(|(name, value)| put_attr(&mut bytes, name, value));
    let mode = kept_mode(node.entry(b"").kind, &node.meta, false);
    Node { meta: Meta { mode, ..node.meta }, attrs: Attrs::trusted(&bytes).into(), ..node }
}
