//! The source's end of a run whose source is a snapshot: the listings are those of the snapshot, and the content of its
//! files comes from the store.

use contract::{Phase, Report, RunParams};

use crate::{
    ends::{
        stored_tree::StoredTree,
        tree_head::done,
        trust_in_store::{as_trusted, trust_note, trusted_attrs},
    },
    kept_xattrs::Classes,
    measure::failures::Failures,
    path::RelPath,
    plan::compare_params::work_of,
    report::{Counters, Stopwatch},
    run::{answer_sink::serve, send::push},
    session_error::SessionError,
    snapshot::{SnapshotError, Store, browse::select_snapshot, store::hold_for_reading},
    source::source_file::Origin,
    sys::{
        locate::{Reach, locate, nonce},
        root::{Root, TreeLocation},
    },
    transport::Peer,
    wire::{Hello, Message, SourceDone, TreeHead},
};

/// Serves a snapshot of the volume at `place`, which `which` names by its id, a tag, or `latest`; returns the sink's
/// report. Runs may write to the volume meanwhile, because a snapshot does not change.
pub(crate) fn send_snapshot(
    place: &TreeLocation,
    which: &str,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    watch.of_source();
    watch.enter(Phase::Scan);
    let root = Root::enter(place).map_err(SessionError::Source)?;
    let path = place.path();
    let store = Store::open(&root, &path)?.ok_or(SnapshotError::None(path))?;
    let _reading = hold_for_reading(&store)?;
    let roots = store.roots()?;
    let snapshot = select_snapshot(&roots, which)?;
    trust_note(snapshot, params).iter().for_each(|note| tracing::warn!("{note}"));
    let params = as_trusted(snapshot, params);
    let hello = Hello {
        params: params.clone(),
        attrs: trusted_attrs(snapshot, &params, Classes::ALL),
        device: None,
        file: None,
        whereabouts: locate(&Reach::all(place), nonce()),
        last: peer.is_last(),
    };
    peer.control.send(&Message::Hello(Box::new(hello)))?;
    let whole = RelPath::root();
    let stored = StoredTree::new(&store, snapshot, std::slice::from_ref(&whole), &params);
    let tree = stored.load(watch.monitor())?;
    watch.did(work_of(&tree.totals, &Counters::default()));
    push(&peer.control, &tree)?;
    let failures = Failures::default();
    stored.add_damaged_dirs(&failures);
    let source = SourceDone { snapshot: Some(snapshot.id.to_string()), ..done(&failures, watch) };
    let head = TreeHead {
        root_meta: tree.root_meta,
        root_attrs: tree.root_attrs.clone(),
        digest: stored.digest(),
        totals: tree.totals,
        source,
        ..TreeHead::default()
    };
    peer.control.send(&Message::Tree(Box::new(head)))?;
    watch.enter(Phase::Plan);
    serve(Origin::Stored(&stored), &tree, peer, &params, watch)
}
