//! Checks a store part by part, in turn: for each number of parts, an object of the store has the last one that was
//! checked.

use std::str;

use syncer::snapshot::check::{ReadPace, StoreShare};

use super::{
    bucket_error::BucketError,
    bucket_store::BucketStore,
    verify_store::{VerifiedStore, verify_store},
};

/// The folder of the notes. Whoever puts an older note in the place of one changes the order of checks, and nothing
/// else.
const CHECKED: &str = "checked";
/// The longest note that is read, in bytes.
const MAX_NOTE_BYTES: u64 = 128;

/// What a check in turn has found.
#[derive(Debug)]
pub struct CheckedTurn {
    /// The part that was checked.
    pub part: StoreShare,
    /// What was found in it.
    pub checked: VerifiedStore,
    /// Whether the store has a note of this turn, so that the next one checks the part after it.
    pub noted: Result<(), BucketError>,
}

/// Checks the next of `of` parts of a store as [`verify_store`] does. A part whose damage could not be named in the
/// store has its turn again.
///
/// # Errors
/// As [`verify_store`].
pub fn verify_in_turn(
    store: &BucketStore,
    of: u64,
    pace: &ReadPace<'_>,
    notes: bool,
) -> Result<CheckedTurn, BucketError> {
    let name = format!("{CHECKED}/{of}");
    let part = StoreShare::after(last_part(store, &name)?, of);
    let checked = verify_store(store, part, pace, notes)?;
    let noted = if checked.noted.is_ok() { note(store, &name, part) } else { Ok(()) };
    Ok(CheckedTurn { part, checked, noted })
}

fn note(store: &BucketStore, name: &str, part: StoreShare) -> Result<(), BucketError> {
    let sealed = store.seal.seal(name.as_bytes(), part.to_string().as_bytes())?;
    store.objects.wait(store.objects.put(name, sealed.into()))?
}

/// Returns the last part; `None` of a note that was not written with the key of the store.
fn last_part(store: &BucketStore, name: &str) -> Result<Option<StoreShare>, BucketError> {
    let sealed = match store.objects.get(name, MAX_NOTE_BYTES) {
        Err(error) if error.is_of_an_object() => None,
        sealed => sealed?,
    };
    let opened = sealed.and_then(|sealed| store.seal.open(name.as_bytes(), &sealed));
    Ok(opened.and_then(|text| StoreShare::parse(str::from_utf8(&text).ok()?)))
}

#[cfg(test)]
mod tests {
    use syncer::monitor::Monitor;

    use super::*;

    #[test]
    fn parts_take_turns_for_each_number_of_them_and_begin_anew_after_a_note_of_somebody_else() {
        let store = BucketStore::in_memory();
        let monitor = Monitor::default();
        let next = |of| {
            let CheckedTurn { part, noted, .. } =
                verify_in_turn(&store, of, &ReadPace::new(None, &monitor), true).unwrap();
            noted.unwrap();
            part.to_string()
        };
        assert_eq!([3, 2, 3, 2, 3, 3].map(next), ["1/3", "1/2", "2/3", "2/2", "3/3", "1/3"]);
        for bad in [&b"1/3"[..], &[0; 1000]] {
            let put = store.objects.put("checked/3", bad.to_vec().into());
            store.objects.runtime().block_on(put).unwrap();
            assert_eq!(next(3), "1/3");
        }
    }
}
