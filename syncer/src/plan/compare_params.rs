//! The parameters of a run, as the comparison of its trees needs them.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use contract::{Compare, RunParams, Work};

use crate::{
    compare_entries::{Content, Policy},
    destination::Settings,
    entry::Meta,
    filter::{Filter, FilterError, Rules},
    measure::report::Counters,
    plan::scan_params::{merging_rules, sizes},
    tree::{Tree, dir::Totals},
    wire::TreeHead,
};

/// Returns the rules by which two entries count as equal.
pub(crate) fn policy(params: &RunParams, settings: Settings) -> Policy {
    Policy {
        delete: params.delete,
        one_file_system: params.one_file_system,
        spares_foreign: false,
        cross_mounts: params.cross_mounts,
        owners: settings.owners,
        user: settings.user,
        permissions: settings.permissions,
        times: settings.times,
        kept_times: settings.kept_times,
        attrs: settings.attrs.without(settings.by_policy),
        sizes: sizes(params),
        update: params.update,
        existing: params.existing,
        ignore_existing: params.ignore_existing,
        content: content(params),
    }
}

pub(crate) fn content(params: &RunParams) -> Content {
    match params.compare {
        _ if params.dry_run && params.verify => Content::Verified,
        Compare::Metadata => Content::Trusted,
        Compare::Content => Content::Compared,
        Compare::Size => Content::BySize,
    }
}

/// Returns the filter of paths that the owner of the destination protects from all sources.
pub(crate) fn owners_filter(params: &RunParams) -> Result<Filter, FilterError> {
    Filter::default().sparing(&params.demands.exclude)
}

/// Returns the rules that the comparison begins with at the roots of both trees.
///
/// # Errors
/// If a rule cannot be used.
pub(crate) fn rules_of_root(params: &RunParams) -> Result<Option<Arc<Rules>>, FilterError> {
    Ok(merging_rules(params)?.map(|merges| Arc::new(Rules::of_run(merges))))
}

/// Returns the head with the root's metadata of the sink, which then stays: a file's folder has nothing to do with the
/// file.
pub(crate) fn of_same_root(head: TreeHead, sink: &Tree) -> TreeHead {
    TreeHead { root_meta: sink.root_meta, root_attrs: sink.root_attrs.clone(), ..head }
}

/// Counts the entries whose copies do not keep their owners, from the counts of both ends' scans, so that this also
/// works if nothing has to be done. Counts none if the run does not preserve owners.
pub(crate) fn count_owners(settings: Settings, head: &TreeHead, sink: &Tree, counters: &Counters) {
    if settings.count_owners {
        let lost = head.owners.not_kept(&sink.owners, settings.user);
        counters.owners_not_kept.store(lost.min(head.totals.entries), Relaxed);
    }
}

/// Returns whether a root has the wanted metadata, as far as it is kept.
pub(crate) fn same_meta(wanted: &Meta, have: &Meta, settings: Settings) -> bool {
    let same_owner = wanted.owner == have.owner || !settings.owners;
    let is_kept = wanted.mtime == have.mtime || settings.kept_times.kept(wanted.mtime) == have.mtime;
    let same_mtime = is_kept || !settings.times;
    wanted.mode == have.mode && same_mtime && same_owner
}

/// Returns the totals of the source's tree, with the work done so far.
pub(crate) fn work_of(source: &Totals, counters: &Counters) -> Work {
    Work {
        files_scanned: source.entries,
        files_skipped: source.skipped,
        bytes_total: source.bytes,
        ..counters.work()
    }
}

#[cfg(test)]
mod tests {
    use contract::Preserve;

    use super::*;
    use crate::{
        attrs::{Attrs, put_attr},
        compare_entries::{Step, step},
        entry::{Entry, Kind},
        kept_xattrs::{Classes, SELINUX_LABEL},
    };

    #[test]
    fn labels_are_compared_only_where_no_policy_gives_others() {
        let labels = ["of the source", "of the policy"].map(|label| {
            let mut bytes = Vec::new();
            put_attr(&mut bytes, SELINUX_LABEL, label.as_bytes());
            bytes
        });
        let [source, sink] = labels.each_ref().map(|label| Entry {
            name: b"file",
            kind: Kind::File { size: 1 },
            meta: Meta::default(),
            attrs: Attrs::trusted(label),
        });
        let settings = Settings::resolve(&Preserve::default()).unwrap();
        let of = |by_policy| {
            let settings = Settings { attrs: Classes::ALL, by_policy, ..settings };
            step(&source, &sink, policy(&RunParams::default(), settings))
        };
        assert_eq!((of(Classes::NONE), of(Classes::LABEL)), (Some(Step::Meta), None));
    }
}
