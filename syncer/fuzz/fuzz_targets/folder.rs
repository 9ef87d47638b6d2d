//! A directory in the store: whatever is taken has a reference for each file and directory, and survives its encoding.
//! The target adds the checksum, which a fuzzer would not come upon.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::snapshot::folder::Folder;

fuzz_target!(|data: &[u8]| {
    let check = blake3::hash(data);
    let bytes = [data, &check.as_bytes()[..8]].concat();
    let Ok((id, folder)) = Folder::decode(&bytes) else { return };
    assert_eq!(folder.contents.len(), folder.stamps.len());
    assert_eq!(folder.children.len(), folder.listing.dirs() as usize);
    let (again, out) = folder.encode();
    assert_eq!(Folder::decode(&out).expect("what was written can be read"), (again, folder));
    // A number may be padded, and the id is that of the bytes.
    assert!(again == id || out != bytes);
});
