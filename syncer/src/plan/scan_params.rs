//! Scans one end's tree, as the parameters of a run ask.

use std::{sync::Arc, time::Duration};

use contract::{RunParams, Side};

use crate::{
    entry::Time,
    filter::{Filter, FilterError, FilterRules, SizeLimits},
    kept_xattrs::Classes,
    measure::{failures::Failures, monitor::Monitor},
    path::PathError,
    path_list::PathList,
    plan::{relink_names::links_names, single_file::Subject},
    reshape::Reshape,
    scan::{ScanOptions, scan},
    session_error::SessionError,
    source::settled_times::TICK,
    sys::{
        locate::Reach,
        root::{Root, TreeLocation},
    },
    transport::TransportError,
    tree::{Tree, noted_in_motion::NotedFiles},
};

/// What a destination's scan has to know of earlier runs, with times of its file system's clock.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanTimes {
    /// Files that changed at this time or later may not have the content that their metadata stands for.
    pub doubt: Option<Time>,
    /// Files that did not change since this time get stamps, so that a snapshot can be published from the scan.
    pub stamps: Option<Time>,
    /// Files whose content is compared whatever their metadata says.
    pub noted: Arc<NotedFiles>,
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
        noted: times.noted,
        is_source: side == Side::Source,
        only: subject.only.clone(),
        paths: listed_paths(params, side)?,
        ..options(params, side)?
    };
    if side == Side::Source && params.remove_source_files {
        // Entries that were made before the run have earlier times than the scan then, and can be told from later ones.
        let _ = monitor.pause(TICK + Duration::from_millis(2));
    }
    let tree = scan(root, &options, failures, monitor).map_err(|source| {
        if monitor.cancelled() {
            TransportError::Canceled.into()
        } else {
            SessionError::Scan { path: subject.place.path(), source }
        }
    })?;
    Ok(Tree { patterns: Some(options.filter.pattern_use()), ..tree })
}

/// Returns the options of the scan for a snapshot elsewhere, as the parameters ask. Files that did not change since
/// `quiet_before` get stamps.
///
/// # Errors
/// If a parameter cannot be used.
pub(crate) fn options_for_snapshot(
    params: &RunParams,
    quiet_before: Time,
) -> Result<ScanOptions, FilterError> {
    Ok(ScanOptions {
        marks_excluded: true,
        stamps: Some(quiet_before),
        is_source: true,
        ..options(params, Side::Source)?
    })
}

/// Returns the options of one end's scan that the parameters alone decide.
fn options(params: &RunParams, side: Side) -> Result<ScanOptions, FilterError> {
    Ok(ScanOptions {
        filter: filter(params)?,
        // The sink gets the source's rules with its listings.
        ignore_files: params.ignore_files && side == Side::Source,
        merges: merging_rules(params)?.filter(|_| side == Side::Source),
        leave_mounts: params.one_file_system && side == Side::Source,
        ignore_permissions: !params.preserve.permissions,
        ignore_specials: !params.preserve.specials,
        list_sockets: side == Side::Sink,
        // A run without hard links separates the sink's names of one file.
        hard_links: links_names(params) || side == Side::Sink,
        sizes: sizes(params),
        attrs: Classes::wanted(&params.preserve),
        reshape: if side == Side::Source { Reshape::of(params) } else { Reshape::default() },
        unreadable_attrs: side == Side::Sink,
        ..ScanOptions::default()
    })
}

fn filter(params: &RunParams) -> Result<Filter, FilterError> {
    let filter = Filter::new(&params.include, &params.exclude)?.sparing(&params.demands.exclude)?;
    let rules = FilterRules::new(&params.filter)?;
    Ok(if rules.merges().is_empty() { filter.ruled(rules) } else { filter })
}

/// Returns the filter rules if some look for files in the directories. Then only the source's scan can decide by them,
/// and the comparison spares what they exclude at the sink.
///
/// # Errors
/// If a rule cannot be used.
pub(crate) fn merging_rules(params: &RunParams) -> Result<Option<Arc<FilterRules>>, FilterError> {
    let rules = FilterRules::new(&params.filter)?;
    Ok((!rules.merges().is_empty()).then(|| Arc::new(rules)))
}

/// Returns one end's tree, as far as a run reaches into what is mounted in it. The sink writes to all mounts.
///
/// # Errors
/// If a pattern cannot be used.
pub(crate) fn reach<'a>(
    place: &'a TreeLocation,
    params: &RunParams,
    side: Side,
) -> Result<Reach<'a>, FilterError> {
    let one_file_system = params.one_file_system && side == Side::Source;
    Ok(Reach { place, filter: filter(params)?, one_file_system })
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
