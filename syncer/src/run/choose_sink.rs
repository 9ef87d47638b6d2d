//! Opens the destination of a run, to change it or, in a dry run, to compare it.

use contract::Report;

use crate::{
    destination::Settings,
    ends::device_sink::{DeviceSink, DryDevice},
    measure::report::Stopwatch,
    plan::single_file::Subject,
    run::pipeline,
    session_error::SessionError,
    sink::{
        dry_run::DryTree,
        open_destination::HeldDestination,
        traits::{Run, SourceEnd},
        tree_sink::TreeSink,
    },
    sys::root::TreeLocation,
    transport::Control,
};

/// Runs from `source` onto the tree of `subject`, whose lock the session may have `held`. `control` is the link to a
/// source over the network.
pub(crate) fn onto_tree(
    source: impl SourceEnd,
    (subject, settings): (&Subject, Settings),
    held: &mut HeldDestination,
    control: Option<&Control>,
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    match run.params.dry_run {
        true => pipeline::run(source, DryTree::look(subject, settings, run)?, run, watch),
        false => pipeline::run(source, TreeSink::open(subject, settings, held, control, run)?, run, watch),
    }
}

/// Runs from `source`, a device of `len` bytes, onto the device or image at `place`.
pub(crate) fn onto_device(
    source: impl SourceEnd,
    (place, len): (&TreeLocation, u64),
    run: &Run<'_>,
    watch: &mut Stopwatch<'_>,
) -> Result<Report, SessionError> {
    match run.params.dry_run {
        true => pipeline::run(source, DryDevice::look(place, len)?, run, watch),
        false => pipeline::run(source, DeviceSink::take(place, len, run)?, run, watch),
    }
}
