//! The parameters of a run, as the comparison of its trees needs them.

use std::sync::atomic::Ordering::Relaxed;

use contract::{Compare, RunParams, Work};

use crate::{
    apply::Settings,
    entry::Meta,
    filter::{Filter, FilterError},
    plan::{Content, Policy},
    report::Counters,
    session::plan::scan_tree::{lists_all, sizes},
    tree::{Tree, dir::Totals},
    wire::TreeHead,
};

/// What decides that entries are the same.
pub(crate) fn policy(params: &RunParams, settings: Settings) -> Policy {
    Policy {
        delete: params.delete,
        one_file_system: params.one_file_system,
        owners: settings.owners,
        user: settings.user,
        permissions: settings.permissions,
        times: settings.times,
        attrs: settings.attrs,
        sizes: sizes(params),
        update: params.update,
        content: content(params),
    }
}

pub(crate) fn content(params: &RunParams) -> Content {
    match params.compare {
        _ if params.dry_run && params.verify => Content::Verified,
        Compare::Metadata => Content::Trusted,
        Compare::Content => Content::Compared,
    }
}

/// Whether a directory may be moved as it is. It may not where something in it may be left out of the run, where
/// metadata does not tell that its files have not changed, and where a backup folder gets what goes, below its old
/// path.
pub(crate) fn may_move(params: &RunParams) -> Result<bool, FilterError> {
    let keeps_old = params.demands.backup_dir.is_some();
    Ok(lists_all(params)? && !keeps_old && content(params) == Content::Trusted)
}

/// What the owner of the destination lets no source write.
pub(crate) fn owners_filter(params: &RunParams) -> Result<Filter, FilterError> {
    Filter::default().sparing(&params.demands.exclude)
}

/// The head of a tree whose root is as the sink's: that of a file's folder says nothing of the file.
pub(crate) fn of_same_root(head: TreeHead, sink: &Tree) -> TreeHead {
    TreeHead { root_meta: sink.root_meta, root_attrs: sink.root_attrs.clone(), ..head }
}

/// Counts the entries whose copies do not keep their owners, also in a run that finds nothing to do: from what both
/// ends have counted in their scans. Where owners are not asked for, there are none.
pub(crate) fn count_owners(settings: Settings, head: &TreeHead, sink: &Tree, counters: &Counters) {
    if settings.count_owners {
        let lost = head.owners.not_kept(&sink.owners, settings.user);
        counters.owners_not_kept.store(lost.min(head.totals.entries), Relaxed);
    }
}

/// Whether a root has the metadata that is wanted, as far as it is kept.
pub(crate) fn same_meta(wanted: &Meta, have: &Meta, settings: Settings) -> bool {
    let same_owner = wanted.owner == have.owner || !settings.owners;
    let same_mtime = wanted.mtime == have.mtime || !settings.times;
    wanted.mode == have.mode && same_mtime && same_owner
}

/// What the source's tree holds, and what has been done so far.
pub(crate) fn work_of(source: &Totals, counters: &Counters) -> Work {
    Work {
        files_scanned: source.entries,
        files_skipped: source.skipped,
        bytes_total: source.bytes,
        ..counters.work()
    }
}
