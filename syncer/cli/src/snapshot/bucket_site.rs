//! `volferry snapshot` with a store in object storage, `s3://BUCKET/PREFIX`.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use bucket::{BucketError, BucketHistory, BucketStore, SentHistory, send_history};
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

/// What a copy to or from the store did, and what was wrong with its list and its indexes.
pub(super) struct CopiedBucket {
    pub(super) done: CopiedHistory,
    pub(super) around: Vec<BucketError>,
}

/// Copies a volume's snapshots into the store, which is made if the place is empty.
pub(super) fn push(
    flags: &CopyFlags,
    from: &Path,
    to: &BucketUrl,
    selection: &CopySelection,
) -> Result<CopiedBucket, BucketError> {
    let key = flags.key.key()?;
    let SentHistory { done, replaced, around } = offering(from, |history| {
        let sent = BucketStore::open_or_make(to, &key)
            .and_then(|store| send_history(&Arc::new(store), history, selection));
        Ok(sent)
    })??;
    for error in replaced {
        print::complain(&format!("warning: {}; a new one replaces it\n", chain(&error)));
    }
    Ok(CopiedBucket { done, around })
}

/// Copies snapshots of the store to a volume.
pub(super) fn pull(
    flags: &CopyFlags,
    from: &BucketUrl,
    to: &Path,
    selection: &CopySelection,
) -> Result<CopiedBucket, BucketError> {
    let store = flags.key.open(from)?;
    let mut history = BucketHistory::open(&store)?;
    if history.offer()?.snapshots.is_empty() {
        return Err(BucketError::NoStore(from.clone()));
    }
    let copied = into(to, &mut history, selection, flags.wait_lock, &Monitor::default());
    match history.failed.take() {
        Some(error) => Err(error),
        None => Ok(CopiedBucket { done: copied?, around: history.around }),
    }
}

/// Names what is wrong with a list and with indexes that others were read in the place of, with the next step. Returns
/// the exit code: by an older list, something is not seen that was there.
pub(super) fn tell_around(around: &[BucketError], json: bool) -> ExitCode {
    let (mut exit, mut hints) = (ExitCode::Done, BTreeSet::new());
    for error in around {
        if let BucketError::OlderList { .. } = error {
            report_failure(chain(error), error.hint(), json);
            exit = error.exit();
        } else {
            print::complain(&format!("warning: {}; its packs are asked themselves\n", chain(error)));
            hints.extend(error.hint());
        }
    }
    hints.iter().for_each(|hint| print::complain(&format!("hint: {hint}\n")));
    exit
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
