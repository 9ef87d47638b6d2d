//! A service's file of authorized keys: a line that was read survives its text, and an error names a line of the file.
#![no_main]

use contract::{AuthorizedKey, is_name, read_authorized};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match read_authorized(text) {
        Ok(keys) => {
            for key in &keys {
                assert!(is_name(&key.peer) && key.read.iter().chain(&key.write).all(|name| is_name(name)));
                assert_eq!(key.to_string().parse::<AuthorizedKey>().as_ref(), Ok(key));
            }
            let lines: String = keys.iter().map(|key| format!("{key}\n")).collect();
            assert_eq!(read_authorized(&lines), Ok(keys));
        }
        Err(error) => assert!((1..=text.lines().count()).contains(&error.line), "{error}"),
    }
});
