//! An identity file.
#![no_main]

use contract::Identity;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Identity>() {
        Ok(identity) => {
            let again: Identity = identity.to_text().parse().expect("what was read can be written");
            assert_eq!((again.side(), again.peer()), (identity.side(), identity.peer()));
            assert_eq!(again.pkcs8(), identity.pkcs8());
        }
        Err(error) => {
            // The message must not contain any of the file's content, which may be a key.
            let said = error.to_string();
            assert!(said.len() < 200, "{said}");
        }
    }
});
