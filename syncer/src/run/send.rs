//! The source's end of a run: describes its tree, before it answers the sink.

use std::collections::VecDeque;

use contract::{Phase, Report, RunParams, Side};

use crate::{
    destination::visible_attrs,
    ends::{
        opening::FoundSource,
        source_lock::SourceLock,
        tree_head::{done, last_run},
    },
    kept_xattrs::Classes,
    measure::failures::Failures,
    plan::{
        compare_params::work_of,
        scan_params::{ScanTimes, reach, scan_tree},
        single_file::{check_found, last_name},
    },
    report::{Counters, Stopwatch},
    run::answer_sink::{list, serve},
    session_error::SessionError,
    source::source_file::Origin,
    sys::{
        block_device::Opened,
        locate::{locate, locate_file, nonce},
        root::{Root, TreeLocation},
        source_id::source_id,
    },
    transport::{Control, Peer, TransportError},
    tree::{Tree, dir::ROOT},
    wire::{Hello, Message, SourceDone, TreeHead},
};

/// The bytes of listings that are sent before the sink requests them, to save a round trip where the trees differ. A
/// connection may send about as much before the first acknowledgement, and it costs little where the trees are equal.
const PUSH_BYTES: usize = 64 << 10;

/// Runs the source's end over a connection; returns the sink's report.
pub(crate) fn run(
    place: &TreeLocation,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let control = &peer.control;
    watch.of_source();
    watch.enter(Phase::Scan);
    let subject = match FoundSource::at(place, params)? {
        FoundSource::Device(opened) => return send_device(&opened, peer, params, watch),
        FoundSource::Tree(subject) => subject,
    };
    let file = subject.is_file().then(|| last_name(place).to_vec());
    let whereabouts = match &subject.only {
        Some(name) => locate_file(&subject.place, name, nonce()),
        None => locate(&reach(&subject.place, params, Side::Source)?, nonce()),
    };
    let last = peer.is_last();
    let source_id = file.is_none().then(|| source_id(&subject.place)).flatten();
    let told = RunParams { source_id, ..params.clone() };
    let hello = Hello { params: told, attrs: visible_attrs(), device: None, file, whereabouts, last };
    control.send(&Message::Hello(Box::new(hello)))?;
    let failures = Failures::default();
    let root = Root::enter(&subject.place).map_err(SessionError::Source)?;
    let _reading = SourceLock::hold(&root, &subject.place)?;
    let tree =
        scan_tree(&subject, &root, params, Side::Source, ScanTimes::default(), &failures, watch.monitor())?;
    check_found(&subject, &place.path(), &tree)?;
    // This is all that this end knows of the run if the sink is lost.
    watch.did(work_of(&tree.totals, &Counters::default()));
    push(control, &tree)?;
    let head = TreeHead {
        last_run: last_run(&root),
        source: SourceDone { patterns: tree.patterns.clone(), ..done(&failures, watch) },
        ..TreeHead::of(&tree)
    };
    control.send(&Message::Tree(Box::new(head)))?;
    watch.enter(Phase::Plan);
    serve(Origin::Tree(&root), &tree, peer, params, watch)
}

/// Sends listings level by level from the root, up to [`PUSH_BYTES`].
pub(crate) fn push(control: &Control, tree: &Tree) -> Result<(), TransportError> {
    let mut sent = 0;
    let mut next = VecDeque::from([ROOT]);
    while let Some(id) = next.pop_front() {
        let dir = &tree.dirs[id as usize];
        sent += dir.listing.encoded_len() + dir.rules.len();
        if sent > PUSH_BYTES {
            return Ok(());
        }
        list(control, tree, &[id])?;
        next.extend(dir.first_child..dir.first_child + dir.listing.dirs());
    }
    Ok(())
}

/// Runs the source's end of a device over a connection; returns the sink's report.
fn send_device(
    opened: &Opened,
    peer: &Peer,
    params: &RunParams,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    let hello = Hello {
        params: params.clone(),
        attrs: Classes::NONE,
        device: Some(opened.len()),
        file: None,
        whereabouts: Default::default(),
        last: peer.is_last(),
    };
    peer.control.send(&Message::Hello(Box::new(hello)))?;
    watch.enter(Phase::Plan);
    serve(Origin::Device(opened), &opened.tree(), peer, params, watch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::monitor::Monitor,
        transport::memory_link,
        wire::{Forecast, Welcome},
    };

    #[test]
    fn the_source_knows_how_much_it_will_send_before_it_is_asked_for_the_first_file() {
        let (source, sink) = memory_link::pair();
        let welcome = Welcome { version: String::new(), dry_run: false };
        let forecast = Forecast { files: 7, bytes: 99 };
        for message in
            [Message::Welcome(welcome), Message::Forecast(forecast), Message::Report(Box::default())]
        {
            sink.control.send(&message).unwrap();
        }
        let (dir, monitor) = (tempfile::tempdir().unwrap(), Monitor::default());
        run(&dir.path().into(), &source, &RunParams::default(), &mut Stopwatch::start(&monitor)).unwrap();
        let progress = monitor.snapshot();
        assert_eq!((progress.files_total, progress.bytes_total), (7, 99));
    }
}
