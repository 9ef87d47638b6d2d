//! Encodes the extended attributes of an entry, including access control lists, in one way.

use std::{ops::BitOr, sync::Arc};

use crate::{
    codec::{DecodeError, Reader, put_bytes},
    tree::kept_xattrs::Classes,
};

/// The most bytes of one entry's attributes, names and values. Linux allows 64 KiB a value and 64 KiB of names.
pub const MAX_ATTRS_BYTES: usize = 1 << 20;

/// The longest value (`XATTR_SIZE_MAX`).
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// Marks attributes of the sink whose `user.*` values could not be read, because the process may not read the file. A
/// peer's attributes never have it: it is of no kind.
pub const UNREADABLE: &[u8] = b"unreadable";

/// The attributes of an entry: names and values in the order of the names' bytes, in the encoding of
/// `syncer/doc/wire.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attrs<'a>(&'a [u8]);

impl<'a> Attrs<'a> {
    /// Wraps attributes that this process encoded.
    pub const fn trusted(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Decodes attributes, and checks names, order and lengths.
    ///
    /// # Errors
    /// If the bytes are not attributes that may be kept.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_ATTRS_BYTES {
            return Err(DecodeError::Overflow);
        }
        let mut reader = Reader::new(bytes);
        let mut last: &[u8] = b"";
        while !reader.is_empty() {
            let (name, _) = read_attr(&mut reader)?;
            if name.contains(&0) || Classes::of(name).is_none() {
                return Err(DecodeError::Invalid("an attribute has a name that is not synced"));
            }
            if name <= last {
                return Err(DecodeError::Invalid("an entry's attributes are not in order"));
            }
            last = name;
        }
        Ok(Self(bytes))
    }

    /// Returns the encoding.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Yields names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut reader = Reader::new(self.0);
        std::iter::from_fn(move || read_attr(&mut reader).ok())
    }

    /// Yields names and values of these kinds.
    pub fn within(&self, classes: Classes) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.iter().filter(move |(name, _)| classes.hold(name))
    }

    /// Returns the kinds that occur.
    pub fn classes(&self) -> Classes {
        self.iter().filter_map(|(name, _)| Classes::of(name)).fold(Classes::NONE, BitOr::bitor)
    }

    /// Returns whether `there`, at the sink, has the same attributes of these kinds. Values that the sink may not read
    /// count as equal.
    pub fn same(&self, there: &Self, classes: Classes) -> bool {
        if classes.is_empty() || self == there {
            return true;
        }
        if !there.has(UNREADABLE) {
            return self.within(classes).eq(there.within(classes));
        }
        let readable = classes.without(Classes::USER);
        let names = |attrs: &Self| attrs.within(classes).map(|(name, _)| name).collect::<Vec<_>>();
        self.within(readable).eq(there.within(readable)) && names(self) == names(there)
    }

    /// Returns whether there is an attribute of this name.
    pub fn has(&self, wanted: &[u8]) -> bool {
        self.iter().any(|(name, _)| name == wanted)
    }
}

/// [`Attrs`] that outlive their input. Copies share them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttrsBuf(Option<Arc<[u8]>>);

impl AttrsBuf {
    /// Borrows them for reading.
    pub fn as_attrs(&self) -> Attrs<'_> {
        Attrs(self.0.as_deref().unwrap_or_default())
    }
}

impl From<Attrs<'_>> for AttrsBuf {
    fn from(attrs: Attrs<'_>) -> Self {
        Self((!attrs.is_empty()).then(|| attrs.0.into()))
    }
}

/// Appends an attribute. Attributes must come in the order of their names.
pub fn put_attr(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(name.len() as u8);
    out.extend_from_slice(name);
    put_bytes(out, value);
}

fn read_attr<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let len = reader.byte()?;
    let name = reader.take(usize::from(len))?;
    Ok((name, reader.bytes(MAX_VALUE_BYTES)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(pairs: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        pairs.iter().for_each(|(name, value)| put_attr(&mut out, name.as_bytes(), value));
        out
    }

    #[test]
    fn attributes_survive_the_trip() {
        let pairs: [(&str, &[u8]); 3] =
            [("security.capability", b"c"), ("trusted.t", b""), ("user.\u{e4}", &[7; 300])];
        let bytes = encoded(&pairs);
        let attrs = Attrs::decode(&bytes).unwrap();
        let expected: Vec<_> = pairs.iter().map(|(name, value)| (name.as_bytes(), *value)).collect();
        assert_eq!(attrs.iter().collect::<Vec<_>>(), expected);
        assert_eq!(attrs.classes(), Classes::USER | Classes::CAPABILITY | Classes::TRUSTED);
        for end in 1..bytes.len() {
            let cut_between = [22, 22 + 11].contains(&end);
            assert_eq!(Attrs::decode(&bytes[..end]).is_ok(), cut_between, "cut at {end}");
        }
    }

    #[test]
    fn names_that_a_peer_has_no_business_with_are_refused() {
        for name in [
            "trusted.SGI_ACL_FILE",
            "security.ima",
            "system.nfs4_acl",
            "user.",
            "trusted.",
            "user",
            "",
            "user.a\0b",
        ] {
            assert!(Attrs::decode(&encoded(&[(name, b"")])).is_err(), "{name}");
        }
        assert!(Attrs::decode(&encoded(&[("user.b", b""), ("user.a", b"")])).is_err(), "out of order");
        assert!(Attrs::decode(&encoded(&[("user.a", b""), ("user.a", b"")])).is_err(), "twice");
    }

    #[test]
    fn more_than_the_kernel_allows_is_refused() {
        let long = vec![0; MAX_VALUE_BYTES + 1];
        assert_eq!(Attrs::decode(&encoded(&[("user.a", &long)])), Err(DecodeError::Overflow));
        let names: Vec<String> = (0..17).map(|i| format!("user.{i:02}")).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &long[1..])).collect();
        assert_eq!(Attrs::decode(&encoded(&many)), Err(DecodeError::Overflow));
        assert!(Attrs::decode(&encoded(&many[..15])).is_ok());
    }

    #[test]
    fn only_the_kinds_in_question_are_compared() {
        let (a, b) = (encoded(&[("trusted.t", b"1"), ("user.u", b"1")]), encoded(&[("user.u", b"1")]));
        let (a, b) = (Attrs::decode(&a).unwrap(), Attrs::decode(&b).unwrap());
        assert!(!a.same(&b, Classes::ALL));
        assert!(a.same(&b, Classes::USER | Classes::ACL));
        assert!(a.same(&b, Classes::NONE));
    }
}
