//! What a peer asks of a service: a request that was read survives its JSON.
#![no_main]

use contract::FolderRequest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<FolderRequest>(data) {
        let text = serde_json::to_vec(&request).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<FolderRequest>(&text).ok(), Some(request));
    }
});
