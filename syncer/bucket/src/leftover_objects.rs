//! How long leftover objects stay, which no list names: for a day, and as long as a copy goes on that has sent them.
//!
//! A copy that takes longer says so by a mark of its own, with the time of its oldest pack, which it writes again and
//! again. One that was cut off leaves its mark, so that what it has sent can be taken over for a day.

use std::time::{Duration, Instant, SystemTime};

use super::{bucket_error::BucketError, bucket_store::BucketStore, pack_index::ObjectName, seal::random};

/// The folder of the marks.
const SENDING: &str = "sending";

/// What no list names is left alone for so many seconds: a copy may be about to name it.
const GRACE_SECONDS: i64 = 24 * 3600;

/// How often a copy writes its mark.
const MARK_PERIOD: Duration = Duration::from_secs(3600);

/// The largest difference of clocks that stores allow, with some room, in seconds.
const CLOCKS_SECONDS: i64 = 3600;

/// The longest mark that is read, in bytes.
const MAX_MARK_BYTES: u64 = 1024;

/// The mark of a copy that goes on.
pub(crate) struct SendingMark {
    /// The time of its oldest pack, in seconds since 1970.
    since: i64,
    /// When it was written last, or the copy began, and its name.
    written: (Instant, Option<ObjectName>),
    /// Whether packs are old already, because another copy has sent them.
    is_due: bool,
}

impl SendingMark {
    /// Begins a copy that takes over packs, the oldest of which was written at that time by the clock of the store.
    pub(crate) fn begin(oldest: Option<i64>) -> Self {
        let since = (now() - CLOCKS_SECONDS).min(oldest.unwrap_or(i64::MAX));
        Self { since, written: (Instant::now(), None), is_due: oldest.is_some() }
    }

    /// Writes the mark if it is time.
    pub(crate) fn keep(&mut self, store: &BucketStore) -> Result<(), BucketError> {
        let (last, name) = self.written;
        if !self.is_due && last.elapsed() < MARK_PERIOD {
            return Ok(());
        }
        let name = match name {
            Some(name) => name,
            None => ObjectName(random()?),
        };
        let path = format!("{SENDING}/{}", name.text());
        let sealed = store.seal.seal(path.as_bytes(), &self.since.to_le_bytes())?;
        store.objects.wait(store.objects.put(&path, sealed.into()))??;
        (self.written, self.is_due) = ((Instant::now(), Some(name)), false);
        Ok(())
    }

    /// Removes the mark, because a list names all that was sent. One who may not remove objects leaves it to others.
    pub(crate) fn end(&mut self, store: &BucketStore) {
        if let (_, Some(name)) = self.written {
            let _ = store.objects.delete(&[format!("{SENDING}/{}", name.text())]);
        }
        *self = Self::begin(None);
    }
}

/// What a prune leaves alone, and the marks that it removes.
pub(crate) struct KeptUnlisted {
    /// Packs of this time or later stay, in seconds since 1970 by the clock of the store.
    pub packs_since: i64,
    /// Other objects of this time or later stay.
    pub since: i64,
    /// The marks of copies that ended long ago.
    pub old_marks: Vec<String>,
}

impl KeptUnlisted {
    /// Reads the marks.
    pub(crate) fn read(store: &BucketStore) -> Result<Self, BucketError> {
        let since = now() - GRACE_SECONDS;
        let mut kept = Self { packs_since: since, since, old_marks: Vec::new() };
        for listed in store.objects.list(SENDING, false)? {
            let path = format!("{SENDING}/{}", listed.name);
            if listed.written < since {
                kept.old_marks.push(path);
                continue;
            }
            // One that cannot be read keeps nothing; its copy sends again what it misses.
            let sealed = match store.objects.get(&path, MAX_MARK_BYTES) {
                Err(error) if error.is_of_an_object() => None,
                sealed => sealed?,
            };
            let opened = sealed.and_then(|sealed| store.seal.open(path.as_bytes(), &sealed));
            if let Some(oldest) = opened.and_then(|bytes| bytes.try_into().ok()) {
                kept.packs_since = kept.packs_since.min(i64::from_le_bytes(oldest));
            }
        }
        Ok(kept)
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs() as i64)
}
