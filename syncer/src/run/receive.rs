//! The sink's end of a run over the network, until both ends are open.

use contract::{Demands, Phase, Report};

use crate::{
    destination::Settings,
    ends::{
        opening::{CheckedSink, check_device_sink, check_tree_sink},
        overlap::SourcePlace,
        remote_source::RemoteSource,
    },
    measure::report::Stopwatch,
    plan::{guards::owners_demands::limited, run_state::Run, single_file::Subject},
    run::{device_run, pipeline},
    session_error::SessionError,
    sink::open_destination::HeldDestination,
    sys::{block_device::MAX_BYTES, root::TreeLocation},
    transport::{Control, Peer, TransportError},
    wire::{Hello, Message, Welcome},
};

/// Greets the source, and waits for its request for a run, which it limits by `demands`.
pub(crate) fn await_run(control: &Control, demands: &Demands) -> Result<Hello, SessionError> {
    let version = env!("CARGO_PKG_VERSION").into();
    control.send(&Message::Welcome(Welcome { version, dry_run: demands.dry_run }))?;
    let mut hello = expect_hello(control)?;
    hello.params = limited(std::mem::take(&mut hello.params), demands);
    Ok(hello)
}

/// Runs the sink's end of the run that the `hello` requests. `bytes_on_wire` is called when the report is made.
pub(crate) fn run(
    place: &TreeLocation,
    peer: &Peer,
    hello: Hello,
    held: &mut HeldDestination,
    watch: &mut Stopwatch<'_>,
    bytes_on_wire: &dyn Fn() -> u64,
) -> Result<Report, SessionError> {
    watch.enter(Phase::Scan);
    held.stays = !hello.last;
    let Hello { params, attrs, device, file, whereabouts, .. } = hello;
    let images = params.demands.image;
    if let Some(len) = device {
        check_device_sink(place, "the source", &params, images)?;
        if !(1..=MAX_BYTES).contains(&len) {
            return Err(TransportError::Nonsense("a device has no bytes, or more than one may have").into());
        }
        if params.changed_blocks.as_ref().is_some_and(|changed| changed.ranges.end() > len) {
            return Err(TransportError::Nonsense("blocks changed behind the end of a device").into());
        }
        let run = Run::new(&params, watch.monitor());
        let source = RemoteSource::new(peer, &Subject::of_tree(place), bytes_on_wire);
        return device_run::run(source, place, len, &run, watch);
    }
    let source = SourcePlace::There(&whereabouts, file.as_deref());
    let CheckedSink { subject, params } = check_tree_sink(place, &source, params, images)?;
    let run = Run::new(&params, watch.monitor());
    let mut settings = Settings::resolve(&params.preserve)?;
    // The destination's entries may have attributes that the source cannot see.
    settings.attrs = settings.attrs.and(attrs);
    let source = RemoteSource::new(peer, &subject, bytes_on_wire);
    pipeline::run(source, &subject, settings, held, Some(&peer.control), &run, watch)
}

fn expect_hello(control: &Control) -> Result<Hello, TransportError> {
    match control.recv()? {
        Message::Hello(hello) => Ok(*hello),
        other => Err(TransportError::Unexpected { got: other.what(), expected: "Hello" }),
    }
}
