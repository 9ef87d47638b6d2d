//! The records before an entry of an archive in the pax format: what a header of 1988 has no room for.

use std::io;

use super::{
    acl_text::{acl_from_text, acl_to_text, is_mode_alone},
    tar_holes::HolesRecords,
    tar_numbers::{bad, text_number, time},
};
use crate::{
    entry::Time,
    kept_xattrs::{ACCESS_ACL, DEFAULT_ACL},
};

/// The prefixes of records with an attribute, and with where the holes of a file are.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
const HOLES: &[u8] = b"GNU.sparse.";

/// The keys of access control lists, and the attributes that they are.
const LISTS: [(&[u8], &[u8]); 2] = [(b"SCHILY.acl.access", ACCESS_ACL), (b"SCHILY.acl.default", DEFAULT_ACL)];

/// What the records before an entry say of it.
#[derive(Debug, Default)]
pub(crate) struct TarRecords {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub mtime: Option<Time>,
    pub attrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub holes: HolesRecords,
    /// Access control lists that cannot be read.
    pub left_out: u64,
}

impl TarRecords {
    /// Takes encoded records.
    ///
    /// # Errors `InvalidData`, if they cannot be read.
    pub(crate) fn read_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        split_records(bytes)?.into_iter().try_for_each(|(key, value)| self.read_one(key, value))
    }

    fn read_one(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key {
            b"path" => self.path = Some(value.into()),
            b"linkpath" => self.link = Some(value.into()),
            b"size" => self.size = Some(text_number(value)?),
            b"uid" => self.uid = Some(text_number(value)?),
            b"gid" => self.gid = Some(text_number(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            _ => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    self.attrs.push((decoded_name(name), value.into()));
                } else if let Some(key) = key.strip_prefix(HOLES) {
                    self.holes.read_record(key, value)?;
                } else if let Some((_, name)) = LISTS.into_iter().find(|(list, _)| *list == key) {
                    self.list(name, value);
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, name: &[u8], text: &[u8]) {
        match acl_from_text(text) {
            Some(list) if name == ACCESS_ACL && is_mode_alone(&list) => {}
            Some(list) => self.attrs.push((name.into(), list)),
            None => self.left_out += 1,
        }
    }
}

/// Checks records that hold for all entries that follow: comments change nothing.
///
/// # Errors `InvalidData`, if there are others.
pub(crate) fn check_for_all(bytes: &[u8]) -> io::Result<()> {
    if split_records(bytes)?.into_iter().all(|(key, _)| key == b"comment") {
        Ok(())
    } else {
        Err(bad("it has records for all entries, which are not read"))
    }
}

/// Appends a record: its own length in decimal digits, a space, `KEY=VALUE` and a line feed.
pub(crate) fn put_tar_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let digits = (rest + rest.to_string().len()).to_string().len();
    out.extend_from_slice(format!("{} ", rest + digits).as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Appends the record of an attribute. Access control lists are text, which more programs read.
pub(crate) fn put_attr_record(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let list = LISTS.into_iter().find(|(_, list)| *list == name);
    match list.and_then(|(key, _)| Some((key, acl_to_text(value)?))) {
        Some((key, text)) => put_tar_record(out, key, text.as_bytes()),
        None => put_tar_record(out, &[ATTRIBUTE, &encoded_name(name)].concat(), value),
    }
}

/// Escapes what would end a key, as GNU tar does.
fn encoded_name(name: &[u8]) -> Vec<u8> {
    let escaped = name.iter().map(|byte| match byte {
        b'%' => &b"%25"[..],
        b'=' => b"%3D",
        byte => std::slice::from_ref(byte),
    });
    escaped.collect::<Vec<_>>().concat()
}

fn decoded_name(name: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), name);
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match rest {
            [b'%', b'2', b'5', after @ ..] => (b'%', after),
            [b'%', b'3', b'D', after @ ..] => (b'=', after),
            _ => (*first, after),
        };
        out.push(byte);
        rest = after;
    }
    out
}

/// Splits records into keys and values. Values may contain any byte, so only the lengths say where one ends.
fn split_records(mut bytes: &[u8]) -> io::Result<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let read = || {
            let space = bytes.iter().position(|byte| *byte == b' ')?;
            let len = text_number(&bytes[..space]).ok().and_then(|len| usize::try_from(len).ok())?;
            let body = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
            let equals = body.iter().position(|byte| *byte == b'=')?;
            Some((len, (&body[..equals], &body[equals + 1..])))
        };
        let (len, record) = read().ok_or_else(|| bad("a record of an entry cannot be read"))?;
        records.push(record);
        bytes = &bytes[len..];
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for len in 0..1100 {
            let (mut out, value) = (Vec::new(), vec![b'\n'; len]);
            put_tar_record(&mut out, b"key", &value);
            let digits = out.iter().position(|byte| *byte == b' ').unwrap();
            assert_eq!(text_number(&out[..digits]).unwrap() as usize, out.len());
            assert_eq!(split_records(&out).unwrap(), [(&b"key"[..], &value[..])]);
        }
    }

    #[test]
    fn any_name_of_an_attribute_survives_the_trip() {
        for name in ["user.a=b", "user.%3D", "user.100%", "user.\u{e4}"] {
            let mut out = Vec::new();
            put_attr_record(&mut out, name.as_bytes(), b"\0=\n");
            let mut records = TarRecords::default();
            records.read_all(&out).unwrap();
            assert_eq!(records.attrs, [(name.as_bytes().to_vec(), b"\0=\n".to_vec())]);
        }
    }
}
