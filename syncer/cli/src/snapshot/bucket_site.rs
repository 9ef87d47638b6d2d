//! `volferry snapshot` with a store in object storage, `s3://BUCKET/PREFIX`.

use std::{path::Path, sync::Arc};

use bucket::{BucketError, BucketHistory, BucketStore, send_history};
use contract::{BucketUrl, CopySelection, ExitCode, StoreKey, chain};
use syncer::{
    monitor::Monitor,
    snapshot::{
        SnapshotError,
        copy::{CopiedHistory, HistorySource as _},
    },
};

use super::{
    flags::CopyFlags,
    history_ends::{into, offering},
    key_flags::NewKeyFlags,
    print, report_failure, say,
};

/// Reads a place in object storage; `None` if it is another one.
pub(super) fn url_of(typed: &Path) -> Option<Result<BucketUrl, BucketError>> {
    let typed = typed.to_str().filter(|typed| typed.starts_with(BucketUrl::SCHEME))?;
    let read = |source| BucketError::Url { typed: typed.into(), source };
    Some(typed.parse().map_err(read))
}

/// Copies a volume's snapshots into the store, which is made if the place is empty.
pub(super) fn push(
    flags: &CopyFlags,
    from: &Path,
    to: &BucketUrl,
    selection: &CopySelection,
) -> Result<CopiedHistory, BucketError> {
    let key = flags.key.key()?;
    offering(from, |history| {
        let sent = BucketStore::open_or_make(to, &key)
            .and_then(|store| send_history(&Arc::new(store), history, selection));
        Ok(sent)
    })?
}

/// Copies snapshots of the store to a volume.
pub(super) fn pull(
    flags: &CopyFlags,
    from: &BucketUrl,
    to: &Path,
    selection: &CopySelection,
) -> Result<CopiedHistory, BucketError> {
    let store = flags.key.open(from)?;
    let mut history = BucketHistory::open(&store)?;
    if history.offer()?.snapshots.is_empty() {
        return Err(BucketError::NoStore(from.clone()));
    }
    let copied = into(to, &mut history, selection, flags.wait_lock, &Monitor::default());
    match history.failed.take() {
        Some(error) => Err(error),
        None => Ok(copied?),
    }
}

/// Makes a key in a new file.
pub(super) fn new_key(flags: &NewKeyFlags) -> Result<ExitCode, SnapshotError> {
    let made = StoreKey::generate().and_then(|key| key.write(&flags.file));
    match made {
        Ok(()) => {
            say(&format!("{}\n", flags.file.display()));
            print::complain("hint: keep a copy of it apart: what is encrypted by it is lost without it\n");
            Ok(ExitCode::Done)
        }
        Err(error) => finish(Err(BucketError::of_new_key(&flags.file, error)), false),
    }
}

/// Prints what has ended a command, with the next step, and returns its exit code.
pub(super) fn finish(done: Result<ExitCode, BucketError>, json: bool) -> Result<ExitCode, SnapshotError> {
    match done {
        Err(BucketError::Snapshot(error)) => Err(error),
        Err(error) => {
            report_failure(chain(&error), error.hint(), json);
            Ok(error.exit())
        }
        Ok(exit) => Ok(exit),
    }
}
