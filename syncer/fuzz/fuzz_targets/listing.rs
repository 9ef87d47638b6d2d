//! The listing of a directory: a decoded one has names of one entry each, in order, and survives its encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::{codec::Reader, entry::Kind, listing::Listing};

fuzz_target!(|data: &[u8]| {
    let Ok(listing) = Listing::decode(&mut Reader::new(data)) else { return };
    let mut last: Option<Vec<u8>> = None;
    let mut dirs = 0;
    for entry in &listing {
        assert!(
            (1..=255).contains(&entry.name.len()) && !entry.name.contains(&b'/') && !entry.name.contains(&0)
        );
        assert!(entry.name != b"." && entry.name != b"..");
        assert!(last.as_deref().is_none_or(|last| last < entry.name), "out of order");
        assert_eq!(entry.meta.mode & !0o7777, 0);
        dirs += u32::from(entry.kind == Kind::Dir);
        last = Some(entry.name.to_vec());
    }
    assert_eq!(dirs, listing.dirs());
    let mut out = Vec::new();
    listing.encode(&mut out);
    assert_eq!(Listing::decode(&mut Reader::new(&out)), Ok(listing));
});
