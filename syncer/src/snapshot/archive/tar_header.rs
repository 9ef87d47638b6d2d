//! The headers of an archive: how an entry is exported in the pax format, and how those of GNU tar are read.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::{
    tar_holes::{BLOCK_BYTES, TarHoles},
    tar_numbers::{MAX_SECONDS, bad, time_text},
    tar_records::{TarRecords, check_for_all, put_attr_record, put_tar_record},
};
use crate::entry::Time;

/// The most bytes of the records before an entry: attributes of 64 KiB each, two paths and a map of holes.
const MAX_RECORDS_BYTES: u64 = 4 << 20;

/// The most headers that describe the next one: a path, the target of a link, records, and records for all.
const MAX_DESCRIPTIONS: usize = 8;

pub(crate) const FILE: u8 = b'0';
pub(crate) const HARD_LINK: u8 = b'1';
pub(crate) const SYMLINK: u8 = b'2';
pub(crate) const CHAR_DEVICE: u8 = b'3';
pub(crate) const BLOCK_DEVICE: u8 = b'4';
pub(crate) const DIR: u8 = b'5';
pub(crate) const FIFO: u8 = b'6';
/// A file with holes, in the form of before pax; other names of a file are 0 and 7.
const OLD_SPARSE: u8 = b'S';

/// What a header says of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TarHeader {
    pub path: Vec<u8>,
    /// Its kind, such as [`FILE`].
    pub kind: u8,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    /// The target of a link.
    pub link: Vec<u8>,
    pub device: (u32, u32),
    /// Bytes of data that follow.
    pub data_bytes: u64,
    /// Attributes by their names.
    pub attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the data belongs, if the holes are left out.
    pub holes: Option<TarHoles>,
    /// Access control lists that were not read.
    pub left_out: u64,
}

impl TarHeader {
    /// Encodes the header, with the records before it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let records = self.records();
        let mut out = Vec::new();
        if !records.is_empty() {
            let head = Self { kind: b'x', mode: 0o644, data_bytes: records.len() as u64, ..Self::default() };
            out.extend_from_slice(head.block(b"pax").as_bytes());
            out.extend_from_slice(&records);
            out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        out.extend_from_slice(self.block(&self.name()).as_bytes());
        out
    }

    /// Returns the name in the header itself. Programs that know no holes unpack the map under another name.
    fn name(&self) -> Vec<u8> {
        match self.holes {
            None => self.path.clone(),
            Some(_) => {
                let at = self.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                [&self.path[..at], b"GNUSparseFile.0/", &self.path[at..]].concat()
            }
        }
    }

    fn records(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |key: &[u8], value: &[u8]| put_tar_record(&mut out, key, value);
        if [&self.path, &self.link].iter().any(|path| std::str::from_utf8(path).is_err()) {
            put(b"hdrcharset", b"BINARY");
        }
        if let Some(TarHoles { len, .. }) = self.holes {
            put(b"GNU.sparse.major", b"1");
            put(b"GNU.sparse.minor", b"0");
            put(b"GNU.sparse.name", &self.path);
            put(b"GNU.sparse.realsize", len.to_string().as_bytes());
        } else if self.path.len() > 100 || !self.path.is_ascii() {
            put(b"path", &self.path);
        }
        if self.link.len() > 100 || !self.link.is_ascii() {
            put(b"linkpath", &self.link);
        }
        if self.data_bytes > octal_max(11) {
            put(b"size", self.data_bytes.to_string().as_bytes());
        }
        for (key, id) in [(&b"uid"[..], self.uid), (b"gid", self.gid)] {
            if u64::from(id) > octal_max(7) {
                put(key, id.to_string().as_bytes());
            }
        }
        let Time { seconds, nanos } = self.mtime;
        if nanos != 0 || !(0..=octal_max(11) as i64).contains(&seconds) {
            put(b"mtime", time_text(self.mtime).as_bytes());
        }
        self.attrs.iter().for_each(|(name, value)| put_attr_record(&mut out, name, value));
        out
    }

    /// Makes the block of the header. What does not fit is in records.
    fn block(&self, name: &[u8]) -> Header {
        let mut header = Header::new_ustar();
        let old = header.as_old_mut();
        fill(&mut old.name, name);
        fill(&mut old.linkname, &self.link);
        header.set_entry_type(EntryType::new(self.kind));
        header.set_mode(self.mode.into());
        header.set_uid(u64::from(self.uid).min(octal_max(7)));
        header.set_gid(u64::from(self.gid).min(octal_max(7)));
        header.set_size(self.data_bytes.min(octal_max(11)));
        header.set_mtime((self.mtime.seconds.max(0) as u64).min(octal_max(11)));
        if let Some(ustar) = header.as_ustar_mut() {
            ustar.set_device_major(self.device.0);
            ustar.set_device_minor(self.device.1);
        }
        header.set_cksum();
        header
    }

    /// Reads the next header with its records; `None` at the end of the archive.
    ///
    /// # Errors
    /// If the archive ends in the middle; `InvalidData` with the reason, if it has no header there.
    pub(crate) fn read(from: &mut dyn Read) -> io::Result<Option<Self>> {
        let mut records = TarRecords::default();
        for nth in 0..MAX_DESCRIPTIONS {
            let Some(header) = read_block(from)? else {
                return if nth == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            };
            let data = || header.entry_size().map_err(unreadable);
            match header.entry_type().as_byte() {
                b'L' => records.path = Some(text(&description(from, data()?)?).into()),
                b'K' => records.link = Some(text(&description(from, data()?)?).into()),
                b'g' => check_for_all(&description(from, data()?)?)?,
                b'x' => records.read_all(&description(from, data()?)?)?,
                _ => return Self::of(&header, records, from).map(Some),
            }
        }
        Err(bad("too many headers describe one entry"))
    }

    /// Joins a header with the records before it.
    fn of(header: &Header, records: TarRecords, from: &mut dyn Read) -> io::Result<Self> {
        let TarRecords { path, link, size, uid, gid, mtime, attrs, mut holes, left_out } = records;
        let own_path = || header.path_bytes().into_owned();
        let path = holes.path.take().or(path).unwrap_or_else(own_path);
        let byte = header.entry_type().as_byte();
        let kind = match byte {
            // The form of 1979 knows folders by their names.
            0 if path.ends_with(b"/") => DIR,
            0 | b'7' | OLD_SPARSE => FILE,
            other => other,
        };
        let holes = match (byte, header.as_gnu()) {
            (OLD_SPARSE, Some(gnu)) => Some(TarHoles::read_old(gnu, from)?),
            _ => holes.finish(),
        };
        let device = match kind {
            CHAR_DEVICE | BLOCK_DEVICE => (
                header.device_major().map_err(unreadable)?.unwrap_or_default(),
                header.device_minor().map_err(unreadable)?.unwrap_or_default(),
            ),
            _ => (0, 0),
        };
        let seconds = header.mtime().map_err(unreadable)? as i64;
        if !(-MAX_SECONDS..MAX_SECONDS).contains(&seconds) {
            return Err(bad("a time is of no file"));
        }
        Ok(Self {
            path,
            kind,
            mode: (header.mode().map_err(unreadable)? & 0o7777) as u16,
            uid: id(uid.map_or_else(|| header.uid(), Ok).map_err(unreadable)?)?,
            gid: id(gid.map_or_else(|| header.gid(), Ok).map_err(unreadable)?)?,
            mtime: mtime.unwrap_or(Time { seconds, nanos: 0 }),
            link: link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            device,
            data_bytes: size.map_or_else(|| header.entry_size().map_err(unreadable), Ok)?,
            attrs,
            holes,
            left_out,
        })
    }
}

/// Reads a block with a header; `None` if it is the one of zeros that ends the archive.
fn read_block(from: &mut dyn Read) -> io::Result<Option<Header>> {
    let mut header = Header::new_old();
    from.read_exact(header.as_mut_bytes())?;
    if header.as_bytes().iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut summed = header.clone();
    summed.set_cksum();
    match (header.cksum(), summed.cksum()) {
        (Ok(sum), Ok(expected)) if sum == expected => Ok(Some(header)),
        _ => Err(bad("it is no tar archive, or a header is damaged")),
    }
}

/// Reads the data of a header that describes the next one.
fn description(from: &mut dyn Read, len: u64) -> io::Result<Vec<u8>> {
    if len > MAX_RECORDS_BYTES {
        return Err(bad("the records of an entry are longer than any"));
    }
    let mut bytes = vec![0; (len as usize).next_multiple_of(BLOCK_BYTES)];
    from.read_exact(&mut bytes)?;
    bytes.truncate(len as usize);
    Ok(bytes)
}

fn unreadable(_: io::Error) -> io::Error {
    bad("a number in a header cannot be read")
}

/// Returns the number of a user or group. The largest one means none.
fn id(number: u64) -> io::Result<u32> {
    let id = u32::try_from(number).ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| bad("a user or group has a number that no system has"))
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    let len = bytes.len().min(field.len());
    field[..len].copy_from_slice(&bytes[..len]);
}

/// Returns the largest number of so many octal digits.
fn octal_max(digits: usize) -> u64 {
    (1 << (3 * digits)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_trip_with_all_that_the_old_form_has_no_room_for() {
        let times = [(0, 0), (1_700_000_000, 5), (-1, 0), (-2, 999_999_999), (1 << 40, 120_000_000)];
        for (nth, (seconds, nanos)) in times.into_iter().enumerate() {
            let header = TarHeader {
                path: vec![b'a' + nth as u8; 30 + 100 * nth],
                kind: if nth == 4 { CHAR_DEVICE } else { FILE },
                mode: 0o4755,
                uid: 1000 << (4 * nth),
                gid: 7,
                mtime: Time { seconds, nanos },
                link: vec![0xff; 60 * nth],
                device: if nth == 4 { (300, 70_000) } else { (0, 0) },
                data_bytes: 1 << (10 * nth),
                attrs: vec![(b"user.a".to_vec(), b"\0\n=".to_vec()), (b"user.b".to_vec(), vec![7; 989])],
                holes: (nth == 3).then_some(TarHoles { len: 1 << 50, map: None }),
                left_out: 0,
            };
            assert_eq!(TarHeader::read(&mut &header.encode()[..]).unwrap(), Some(header));
        }
    }

    #[test]
    fn no_damaged_header_panics() {
        let attrs = vec![(b"user.a".to_vec(), b"value".to_vec())];
        let header = TarHeader { path: b"path".repeat(50), kind: FILE, attrs, ..TarHeader::default() };
        let bytes = header.encode();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let _ = TarHeader::read(&mut &damaged[..]);
            }
            assert!(TarHeader::read(&mut &bytes[..at]).is_err());
        }
    }

    #[test]
    fn more_headers_than_describe_an_entry_are_refused() {
        let comment = TarHeader { kind: b'x', ..TarHeader::default() }.encode().repeat(9);
        let error = TarHeader::read(&mut &comment[..]).unwrap_err();
        assert!(error.to_string().contains("too many headers"), "{error}");
    }
}
