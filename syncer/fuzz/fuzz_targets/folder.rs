//! A directory in the store: a decoded one has a reference for each file and directory, and survives its encoding. The
//! target adds the checksum, which a fuzzer would not find.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::snapshot::store::{EncodedFolder, Folder, StoredFolder};

fuzz_target!(|data: &[u8]| {
    let check = blake3::hash(data);
    let bytes = [data, &check.as_bytes()[..8]].concat();
    match StoredFolder::decode(&bytes) {
        Ok(StoredFolder::Whole(folder)) => {
            check_rows(&folder);
            let EncodedFolder { id, bytes } = folder.encode();
            assert_eq!(id, folder.id());
            assert_eq!(Folder::decode(&bytes).expect("what was written can be read"), folder);
        }
        Ok(StoredFolder::Changes(changes)) => {
            let again = StoredFolder::decode(&changes.encode()).expect("what was written can be read");
            if let Ok(folder) = changes.apply(&changes.added) {
                check_rows(&folder);
            }
            assert_eq!(again, StoredFolder::Changes(changes));
        }
        Err(_) => {}
    }
});

fn check_rows(folder: &Folder) {
    assert_eq!(folder.contents.len(), folder.stamps.len());
    assert_eq!(folder.children.len(), folder.listing.dirs() as usize);
}
