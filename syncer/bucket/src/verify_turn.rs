//! Checks a store part by part, in turn: an object of the store has the last part that was checked.

use std::str;

use syncer::snapshot::check::{ReadPace, StoreShare};

use super::{
    bucket_error::BucketError,
    bucket_store::BucketStore,
    verify_store::{VerifiedStore, verify_store},
};

/// The object with the last part that was checked in turn. Whoever puts an older one in its place changes the order of
/// checks, and nothing else.
const CHECKED: &str = "checked";
/// The longest that is read of it, in bytes.
const MAX_CHECKED_BYTES: u64 = 128;

/// Checks the next of `of` parts of a store as [`verify_store`] does, and notes in the store that it was checked.
///
/// # Errors
/// As [`verify_store`]; if the store takes no object.
pub fn verify_in_turn(
    store: &BucketStore,
    of: u64,
    pace: &ReadPace<'_>,
) -> Result<(StoreShare, VerifiedStore), BucketError> {
    let part = StoreShare::after(last_part(store)?, of);
    let checked = verify_store(store, part, pace)?;
    let sealed = store.seal.seal(CHECKED.as_bytes(), part.to_string().as_bytes())?;
    store.objects.runtime().block_on(store.objects.put(CHECKED, sealed.into()))?;
    Ok((part, checked))
}

/// Returns the last part; `None` of an object that this program has not written.
fn last_part(store: &BucketStore) -> Result<Option<StoreShare>, BucketError> {
    let sealed = match store.objects.get(CHECKED, MAX_CHECKED_BYTES) {
        Err(error) if error.is_of_an_object() => None,
        sealed => sealed?,
    };
    let opened = sealed.and_then(|sealed| store.seal.open(CHECKED.as_bytes(), &sealed));
    Ok(opened.and_then(|text| StoreShare::parse(str::from_utf8(&text).ok()?)))
}

#[cfg(test)]
mod tests {
    use syncer::monitor::Monitor;

    use super::*;

    #[test]
    fn parts_take_turns_and_a_note_that_somebody_else_wrote_begins_anew() {
        let store = BucketStore::in_memory();
        let monitor = Monitor::default();
        let next = |of| verify_in_turn(&store, of, &ReadPace::new(None, &monitor)).unwrap().0.to_string();
        assert_eq!([3, 3, 3, 3].map(next), ["1/3", "2/3", "3/3", "1/3"]);
        assert_eq!([2, 2].map(next), ["1/2", "2/2"]);
        for bad in [&b"1/2"[..], &[0; 1000]] {
            assert_eq!(next(2), "1/2");
            let put = store.objects.put(CHECKED, bad.to_vec().into());
            store.objects.runtime().block_on(put).unwrap();
        }
    }
}
