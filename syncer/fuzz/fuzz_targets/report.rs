//! Reports and lines of progress, which the operator reads from pods.
#![no_main]

use contract::{Event, Report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(report) = serde_json::from_slice::<Report>(data) {
        let text = serde_json::to_vec(&report).expect("a report can be written");
        let _: Report = serde_json::from_slice(&text).expect("what was written can be read");
        let mut report = report;
        report.fill_rates();
    }
    let _ = serde_json::from_slice::<Event>(data);
});
