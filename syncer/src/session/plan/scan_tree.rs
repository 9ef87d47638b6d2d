//! Scans one end's tree, as the parameters of a run ask.

use contract::{RunParams, Side};

use crate::{
    attrs::Classes,
    entry::Time,
    filter::{Filter, FilterError, SizeLimits},
    monitor::Monitor,
    path::PathError,
    path_list::PathList,
    report::Failures,
    root::Root,
    scan::{ScanOptions, scan},
    session::{plan::subject::Subject, session_error::SessionError},
    transport::TransportError,
    tree::Tree,
};

/// The times that a destination's scan compares with, by its file system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanTimes {
    /// Files that changed at this time or later may not have the content that their metadata stands for.
    pub doubt: Option<Time>,
    /// Files that did not change since this time get stamps, so that a snapshot can be published from the scan.
    pub stamps: Option<Time>,
}

/// Scans the tree at `root` for one side of a run, as the parameters ask.
///
/// # Errors
/// If a parameter cannot be used or the root cannot be read; if the run is to stop.
pub(crate) fn scan_tree(
    subject: &Subject,
    root: &Root,
    params: &RunParams,
    side: Side,
    times: ScanTimes,
    failures: &Failures,
    monitor: &Monitor,
) -> Result<Tree, SessionError> {
    let options = ScanOptions {
        doubt: times.doubt,
        stamps: times.stamps,
        is_source: side == Side::Source,
        only: subject.only.clone(),
        paths: listed_paths(params, side)?,
        ..options(params, side)?
    };
    scan(root, &options, failures, monitor).map_err(|source| match monitor.cancelled() {
        true => TransportError::Canceled.into(),
        false => SessionError::Scan { path: subject.place.path(), source },
    })
}

/// Returns the options of one end's scan that the parameters alone decide.
fn options(params: &RunParams, side: Side) -> Result<ScanOptions, FilterError> {
    Ok(ScanOptions {
        filter: Filter::new(&params.include, &params.exclude)?.sparing(&params.demands.exclude)?,
        // The sink gets the source's rules with its listings.
        ignore_files: params.ignore_files && side == Side::Source,
        leave_mounts: params.one_file_system && side == Side::Source,
        ignore_permissions: !params.preserve.permissions,
        ignore_specials: !params.preserve.specials,
        list_sockets: side == Side::Sink,
        hard_links: params.preserve.hard_links,
        sizes: sizes(params),
        attrs: Classes::wanted(&params.preserve),
        unreadable_attrs: side == Side::Sink,
        ..ScanOptions::default()
    })
}

pub(crate) fn sizes(params: &RunParams) -> SizeLimits {
    SizeLimits { min: params.min_size.unwrap_or(0), max: params.max_size.unwrap_or(u64::MAX) }
}

/// Returns whether the scans of both ends list every entry of the directories that they list.
///
/// # Errors
/// If a pattern cannot be used.
pub(crate) fn lists_all(params: &RunParams) -> Result<bool, FilterError> {
    // The source excludes everything that the sink excludes.
    Ok(options(params, Side::Source)?.lists_all())
}

/// Returns whether the scan of a destination sees everything that a snapshot keeps.
///
/// # Errors
/// If a pattern cannot be used.
pub(crate) fn sees_all_of_destination(params: &RunParams) -> Result<bool, FilterError> {
    let options = options(params, Side::Sink)?;
    Ok(options.lists_all() && options.sees_all())
}

/// Returns the list that the scan of a source is limited to.
fn listed_paths(params: &RunParams, side: Side) -> Result<Option<PathList>, PathError> {
    let list = params.files_from.as_ref().filter(|_| side == Side::Source);
    list.map(|list| PathList::parse(&list.paths)).transpose()
}
