//! Reads the headers of an archive without importing anything, for fuzzers.

use std::{
    io::{self, Read, copy, sink},
    ops::Range,
};

use super::{
    tar_header::{FILE, TarHeader},
    tar_holes::BLOCK_BYTES,
};

/// A file with holes: its length, and its ranges of data.
pub(crate) type HoledFile = (u64, Vec<Range<u64>>);

/// Reads the headers of an archive to its end, as an import does, and skips what files have. Returns the files with
/// holes.
///
/// # Errors
/// If an import would refuse a header, or the archive ends in the middle.
pub fn walk_tar(mut archive: &[u8]) -> io::Result<Vec<HoledFile>> {
    let mut holed = Vec::new();
    while let Some(header) = TarHeader::read(&mut archive)? {
        let mut data = header.data_bytes;
        if let Some(holes) = header.holes.filter(|_| header.kind == FILE) {
            let (len, before) = (holes.len, archive.len());
            holed.push((len, holes.ranges(&mut archive, data)?));
            data = data.saturating_sub((before - archive.len()) as u64);
        }
        let padded = data.checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(u64::MAX);
        if copy(&mut (&mut archive).take(padded), &mut sink())? < padded {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(holed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_walked_to_its_end_and_a_cut_one_is_an_error() {
        let file =
            |data_bytes| TarHeader { path: b"a".into(), kind: FILE, data_bytes, ..TarHeader::default() };
        let archive = [&file(3).encode()[..], &[7; 512], &file(0).encode(), &[0; 1024]].concat();
        assert_eq!(walk_tar(&archive).unwrap(), []);
        for cut in [100, 700, 1023] {
            assert!(walk_tar(&archive[..cut]).is_err(), "{cut}");
        }
        let endless = [file(u64::MAX).encode(), vec![0; 2048]].concat();
        assert!(walk_tar(&endless).is_err());
    }
}
