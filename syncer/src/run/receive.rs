//! The sink's end of a run over the network, until both ends are open.

use contract::{Demands, Ownership, Phase, Report, RunParams, Side};

use crate::{
    destination::Settings,
    ends::{match_kinds, remote_source::RemoteSource},
    measure::report::Stopwatch,
    plan::{scan_params::reach, single_file::Subject},
    run::choose_sink::{onto_device, onto_tree},
    session_error::SessionError,
    sink::{
        backup_place::{self, sparing},
        copied_history::check_history,
        open_destination::HeldDestination,
        traits::Run,
    },
    sys::{
        block_device::{self, MAX_BYTES},
        locate::locate,
        root::TreeLocation,
    },
    transport::{Control, Peer, TransportError},
    wire::{Hello, Message, Welcome},
};

/// Greets the source, and waits for its request for a run, which it limits by `demands`.
pub(crate) fn await_run(control: &Control, demands: &Demands) -> Result<Hello, SessionError> {
    let version = env!("CARGO_PKG_VERSION").into();
    control.send(&Message::Welcome(Welcome { version, dry_run: demands.dry_run }))?;
    Ok(demanded(expect_hello(control)?, demands))
}

/// Runs the sink's end of the run that the `hello` requests. `bytes_on_wire` is called when the report is made.
pub(crate) fn run(
    place: &TreeLocation,
    peer: &Peer,
    mut hello: Hello,
    held: &mut HeldDestination,
    watch: &mut Stopwatch<'_>,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    watch.enter(Phase::Scan);
    held.stays = !hello.last;
    let subject = match hello.device {
        Some(_) => Subject::of_tree(place),
        None => Subject::of_destination(place, hello.file.as_deref())?,
    };
    if hello.device.is_none() {
        hello.params = sparing(&subject.place, &hello.params)?;
        let source = (&hello.whereabouts, hello.file.is_some());
        backup_place::refuse_source(&subject.place, &hello.params, source)?;
    }
    check_history(&hello.params)?;
    let run = Run::new(&hello.params, watch.monitor());
    if let Some(len) = hello.device {
        check_device(place, len, &run)?;
        let source = RemoteSource::of_device(peer, &subject, block_device::totals(len), bytes_on_wire);
        return onto_device(source, (place, len), &run, watch);
    }
    let found = match_kinds::look(place, "--destination-path", hello.params.demands.image)?;
    if hello.file.is_none() {
        match_kinds::refuse_tree(place, found, "the source")?;
    }
    subject.find_folder(place)?;
    refuse_overlap(&hello, place)?;
    let mut settings = Settings::resolve(&hello.params.preserve)?;
    // The destination's entries may have attributes that the source cannot see.
    settings.attrs = settings.attrs.and(hello.attrs);
    let source = RemoteSource::of_tree(peer, &subject, bytes_on_wire);
    onto_tree(source, (&subject, settings), held, Some(&peer.control), &run, watch)
}

/// Refuses a device of `len` bytes as the source, if it or its parameters do not match the destination.
fn check_device(place: &TreeLocation, len: u64, run: &Run<'_>) -> Result<(), SessionError> {
    let images = run.params.demands.image;
    let found = match_kinds::look(place, "--destination-path", images)?;
    match_kinds::refuse_folder(place, found, "the source", images)?;
    match_kinds::check_params(run.params)?;
    match (1..=MAX_BYTES).contains(&len) {
        true => Ok(()),
        false => Err(TransportError::Nonsense("a device has no bytes, or more than one may have").into()),
    }
}

/// Refuses a destination that is the source's tree, lies in it or contains it: each run would nest it one level deeper.
fn refuse_overlap(hello: &Hello, place: &TreeLocation) -> Result<(), SessionError> {
    let here = locate(&reach(place, &hello.params, Side::Sink)?, hello.whereabouts.run());
    match hello.file.is_none() && hello.whereabouts.overlaps(&here) {
        true => Err(SessionError::SameTree(format!(
            "the destination {} is the source, lies in it or contains it, on one machine and maybe through a mount below one of \
             them: choose folders that do not contain one another, or exclude the mount",
            place.path().display()
        ))),
        false => Ok(()),
    }
}

/// Returns the run that the source requests, limited by the demands of the destination's owner.
fn demanded(mut hello: Hello, demands: &Demands) -> Hello {
    let params = &mut hello.params;
    if let Some(asked) = &demands.asked {
        *params = as_asked(std::mem::take(params), asked);
    }
    params.demands = Demands { asked: None, ..demands.clone() };
    // The source reports a dry run that it requested itself.
    params.demands.dry_run &= !params.dry_run;
    params.dry_run |= demands.dry_run;
    params.delete &= !demands.no_delete;
    hello
}

/// Returns the run that this end asked for. The source adds what concerns itself alone, and may leave out more.
fn as_asked(theirs: RunParams, asked: &RunParams) -> RunParams {
    let mut preserve = asked.preserve;
    // A snapshot that other users could change comes without owners, devices and pipes.
    preserve.specials &= theirs.preserve.specials;
    if theirs.preserve.ownership == Ownership::Never {
        preserve.ownership = Ownership::Never;
    }
    RunParams {
        preserve,
        dry_run: theirs.dry_run,
        exclude: theirs.exclude,
        image: theirs.image,
        bandwidth_limit: theirs.bandwidth_limit,
        source_id: theirs.source_id,
        ..asked.clone()
    }
}

fn expect_hello(control: &Control) -> Result<Hello, TransportError> {
    match control.recv()? {
        Message::Hello(hello) => Ok(*hello),
        other => Err(TransportError::Unexpected { got: other.what(), expected: "Hello" }),
    }
}
