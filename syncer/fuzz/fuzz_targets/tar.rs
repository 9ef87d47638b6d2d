//! The headers of archives that `snapshot import` reads: they come from anywhere. Ranges of data are in order, apart,
//! and within their file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::snapshot::archive::walk_tar;

fuzz_target!(|data: &[u8]| {
    for (len, ranges) in walk_tar(data).unwrap_or_default() {
        assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= len));
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
});
