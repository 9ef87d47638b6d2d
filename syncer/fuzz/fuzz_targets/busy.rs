//! The answers of a busy peer, in parts of any length.
#![no_main]

use contract::{BusyAnswer, BusyAnswers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((len, bytes)) = data.split_first() else { return };
    let mut answers = BusyAnswers::default();
    let read = bytes.chunks(usize::from(*len).max(1)).try_for_each(|part| {
        answers.take(part, |answer| {
            let shown = answer.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            let again: BusyAnswer =
                serde_json::from_slice(&answer.to_line()).expect("what was read can be written");
            assert_eq!(again, *answer);
        })
    });
    let _ = read.and_then(|()| answers.end());
});
