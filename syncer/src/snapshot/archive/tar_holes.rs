//! Files of an archive whose holes are left out: the four forms in which GNU tar says where their data belongs, and the
//! last of them, in which they are exported.

use std::{io, io::Read, ops::Range};

use tar::{GnuExtSparseHeader, GnuHeader, GnuSparseHeader};

use super::tar_numbers::{bad, text_number};

/// The bytes of a block, of which headers and data have whole numbers.
pub(crate) const BLOCK_BYTES: usize = 512;

/// The longest map that is read, in bytes and in ranges.
const MAX_MAP_BYTES: usize = 16 << 20;
const MAX_RANGES: usize = 1 << 20;

/// A file whose holes are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TarHoles {
    /// The length of the file.
    pub len: u64,
    /// Where its data belongs; `None` if the data begins with that.
    pub map: Option<Vec<Range<u64>>>,
}

/// What records say of a file whose holes are left out.
#[derive(Debug, Default)]
pub(crate) struct HolesRecords {
    /// The path of the file. The header then has another one, for programs that know no holes.
    pub path: Option<Vec<u8>>,
    len: Option<u64>,
    is_in_data: bool,
    offset: Option<u64>,
    map: Vec<Range<u64>>,
}

impl HolesRecords {
    /// Takes a record, without the prefix of its key.
    ///
    /// # Errors `InvalidData`, if it cannot be read.
    pub(crate) fn read_record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key {
            b"major" => self.is_in_data = text_number(value)? == 1,
            b"name" => self.path = Some(value.into()),
            b"size" | b"realsize" => self.len = Some(text_number(value)?),
            b"offset" => self.offset = Some(text_number(value)?),
            b"numbytes" => {
                let offset = self.offset.take().ok_or_else(not_in_order)?;
                self.map.push(range(offset, text_number(value)?)?);
            }
            b"map" => {
                let numbers = value.split(|byte| *byte == b',').map(text_number);
                self.map = ranges(&numbers.collect::<io::Result<Vec<_>>>()?)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the file's holes, if it has any.
    pub(crate) fn finish(self) -> Option<TarHoles> {
        let Self { len, is_in_data, map, .. } = self;
        len.map(|len| TarHoles { len, map: (!is_in_data).then_some(map) })
    }
}

impl TarHoles {
    /// Reads the form of before pax, which is in a header and in blocks behind it.
    pub(crate) fn read_old(header: &GnuHeader, from: &mut dyn Read) -> io::Result<Self> {
        let unreadable = |_| bad("a map of holes cannot be read");
        let mut map = Vec::new();
        let mut take = |entries: &[GnuSparseHeader]| {
            for entry in entries.iter().filter(|entry| !entry.is_empty()) {
                map.push(range(entry.offset().map_err(unreadable)?, entry.length().map_err(unreadable)?)?);
            }
            if map.len() > MAX_RANGES { Err(too_long()) } else { Ok(()) }
        };
        take(&header.sparse)?;
        let mut goes_on = header.is_extended();
        while goes_on {
            let mut more = GnuExtSparseHeader::new();
            from.read_exact(more.as_mut_bytes())?;
            take(more.sparse())?;
            goes_on = more.is_extended();
        }
        Ok(Self { len: header.real_size().map_err(unreadable)?, map: Some(map) })
    }

    /// Returns the ranges of the file that its data belongs to, of `data_bytes` in the archive. Reads them, if the data
    /// begins with them.
    ///
    /// # Errors
    /// If the archive ends; if the ranges are not in order, lead out of the file, or are not as long as the data.
    pub(crate) fn ranges(self, from: &mut dyn Read, data_bytes: u64) -> io::Result<Vec<Range<u64>>> {
        let map = self.map.map_or_else(|| read_map(from), |ranges| Ok(MapInData { ranges, bytes: 0 }))?;
        let (mut at, mut sum) = (0, 0_u64);
        for range in &map.ranges {
            let is_aligned = sum.is_multiple_of(BLOCK_BYTES as u64) || range.is_empty();
            if range.start < at || range.end > self.len || !is_aligned {
                return Err(not_in_order());
            }
            at = range.end;
            sum += range.end - range.start;
        }
        match data_bytes.checked_sub(map.bytes) {
            Some(data) if data == sum => Ok(map.ranges),
            _ => Err(bad("a map of holes is of other data than the file has")),
        }
    }
}

/// Writes the ranges of data, as the data begins with them: decimal numbers, a line each, in whole blocks.
pub(crate) fn encode_map(data: &[Range<u64>]) -> Vec<u8> {
    let mut map = format!("{}\n", data.len());
    data.iter().for_each(|range| map.push_str(&format!("{}\n{}\n", range.start, range.end - range.start)));
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
    map
}

/// The ranges that data begins with.
struct MapInData {
    ranges: Vec<Range<u64>>,
    /// Their bytes in the archive.
    bytes: u64,
}

fn read_map(from: &mut dyn Read) -> io::Result<MapInData> {
    let (mut text, mut numbers, mut begun) = (Vec::new(), Vec::new(), 0);
    // The first number is the count of ranges, of two numbers each.
    while numbers.first().is_none_or(|count: &u64| numbers.len() as u64 - 1 < count.saturating_mul(2)) {
        if text.len() >= MAX_MAP_BYTES {
            return Err(too_long());
        }
        let mut block = [0; BLOCK_BYTES];
        from.read_exact(&mut block)?;
        text.extend_from_slice(&block);
        while let Some(end) = text[begun..].iter().position(|byte| *byte == b'\n') {
            numbers.push(text_number(&text[begun..begun + end])?);
            begun += end + 1;
        }
        if text.len() - begun > BLOCK_BYTES {
            return Err(bad("a map of holes has a number that is longer than any"));
        }
    }
    let count = usize::try_from(numbers[0]).map_err(|_| too_long())?;
    Ok(MapInData { ranges: ranges(&numbers[1..=2 * count])?, bytes: text.len() as u64 })
}

fn ranges(numbers: &[u64]) -> io::Result<Vec<Range<u64>>> {
    numbers.chunks(2).map(|pair| range(pair[0], *pair.get(1).ok_or_else(not_in_order)?)).collect()
}

fn range(start: u64, len: u64) -> io::Result<Range<u64>> {
    start.checked_add(len).map(|end| start..end).ok_or_else(not_in_order)
}

fn not_in_order() -> io::Error {
    bad("a map of holes is not in order, or leads out of its file")
}

fn too_long() -> io::Error {
    bad("a map of holes is longer than any")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_data(map: &[u8], len: u64, data_bytes: u64) -> io::Result<Vec<Range<u64>>> {
        TarHoles { len, map: None }.ranges(&mut &map[..], data_bytes)
    }

    #[test]
    fn a_map_survives_the_trip_also_in_several_blocks() {
        for count in [0, 1, 40, 3000] {
            let data: Vec<_> = (0..count).map(|nth| nth * 100_000..nth * 100_000 + 1024).collect();
            let map = encode_map(&data);
            let bytes = map.len() as u64 + 1024 * count;
            assert_eq!(in_data(&map, 1 << 40, bytes).unwrap(), data);
            assert!(in_data(&map, 1 << 40, bytes + 1).is_err(), "{count}: more data than the map says");
            assert!(in_data(&map[..map.len() - 1], 1 << 40, bytes).is_err(), "{count}: cut off");
        }
    }

    #[test]
    fn a_map_that_no_file_has_is_refused() {
        let text = |text: &str| {
            let mut map = text.as_bytes().to_vec();
            map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
            map
        };
        for map in [
            "2\n512\n512\n0\n512\n",
            "1\n1000\n1024\n",
            "1\n18446744073709551615\n1024\n",
            "x\n",
            "2\n0\n1\n512\n1023\n",
        ] {
            assert!(in_data(&text(map), 2000, 512 + 1024).is_err(), "{map}");
        }
        let endless = |rest: &'static str| {
            let rest = rest.as_bytes().iter().copied().cycle();
            Endless(Box::new(b"18446744073709551615\n".iter().copied().chain(rest)))
        };
        for rest in ["1", "1\n"] {
            let read = TarHoles { len: 1, map: None }.ranges(&mut endless(rest), u64::MAX);
            assert!(read.unwrap_err().to_string().contains("longer than any"));
        }
    }

    /// An archive without an end.
    struct Endless(Box<dyn Iterator<Item = u8>>);

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            into.iter_mut().zip(&mut self.0).for_each(|(to, from)| *to = from);
            Ok(into.len())
        }
    }
}
