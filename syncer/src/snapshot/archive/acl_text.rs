//! Access control lists as text, in the form in which archives have them, and as the kernel has them.

/// The first bytes of the kernel's form: its version.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// The bytes of an entry in the kernel's form, and those of a list that says no more than a mode.
const ENTRY_BYTES: usize = 8;
const MODE_ALONE_BYTES: usize = VERSION.len() + 3 * ENTRY_BYTES;

/// The id of an entry that has none.
const NO_ID: u32 = u32::MAX;

/// The kinds of entries: the kernel's number, the word, and whether a user or group is named.
const KINDS: [(u16, &str, bool); 6] = [
    (0x01, "user", false),
    (0x02, "user", true),
    (0x04, "group", false),
    (0x08, "group", true),
    (0x10, "mask", false),
    (0x20, "other", false),
];

/// Writes a list as text, with users and groups by their numbers; `None` if it is not in the kernel's form.
pub(crate) fn acl_to_text(list: &[u8]) -> Option<String> {
    let entries = list.strip_prefix(&VERSION)?.chunks(ENTRY_BYTES).map(|entry| {
        let (tag, entry) = entry.split_first_chunk()?;
        let (perm, entry) = entry.split_first_chunk()?;
        let id = u32::from_le_bytes(entry.try_into().ok()?);
        let (perm, tag) = (u16::from_le_bytes(*perm), u16::from_le_bytes(*tag));
        let (_, word, is_named) = KINDS.into_iter().find(|(kind, ..)| *kind == tag)?;
        let id = if is_named { id.to_string() } else { String::new() };
        let bit = |bit, letter| if perm & bit != 0 { letter } else { '-' };
        Some(format!("{word}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x')))
    });
    Some(entries.collect::<Option<Vec<_>>>()?.join(","))
}

/// Reads a list from text; `None` if it cannot be read, or names a user or group by a name alone.
pub(crate) fn acl_from_text(text: &[u8]) -> Option<Vec<u8>> {
    let mut list = VERSION.to_vec();
    for entry in std::str::from_utf8(text).ok()?.split([',', '\n', '\0']) {
        let entry = entry.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        // A fourth field has the number of a user or group whose name comes before.
        let mut fields = entry.split(':');
        let (word, who, perms, number) = (fields.next()?, fields.next()?, fields.next()?, fields.next());
        let is_named = !who.is_empty();
        let (tag, ..) = KINDS.into_iter().find(|kind| (kind.1, kind.2) == (word, is_named))?;
        let id = if is_named { number.unwrap_or(who).parse().ok()? } else { NO_ID };
        let bits = perms.chars().map(|letter| match letter {
            'r' => Some(4),
            'w' => Some(2),
            'x' => Some(1),
            '-' => Some(0_u16),
            _ => None,
        });
        let perm = bits.collect::<Option<Vec<_>>>()?.into_iter().fold(0, |all, bit| all | bit);
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&perm.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    Some(list)
}

/// Returns whether a list says no more than a mode does.
pub(crate) fn is_mode_alone(list: &[u8]) -> bool {
    list.len() <= MODE_ALONE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_the_trip_and_other_forms_of_its_text_are_read() {
        let text = "user::rwx,user:1000:r-x,group::r--,group:10:-w-,mask::rwx,other::---";
        let list = acl_from_text(text.as_bytes()).unwrap();
        assert_eq!(acl_to_text(&list).as_deref(), Some(text));
        let with_names = "user::rwx\nuser:joe:r-x:1000\t#effective:r--\ngroup::r--\ngroup:staff:-w-:10\nmask::rwx\nother::---\n";
        assert_eq!(acl_from_text(with_names.as_bytes()), Some(list));
        let plain = acl_from_text(b"user::rw-,group::r--,other::r--").unwrap();
        assert!(is_mode_alone(&plain) && !is_mode_alone(&acl_from_text(text.as_bytes()).unwrap()));
    }

    #[test]
    fn what_is_no_list_is_not_read() {
        for text in ["user:joe:r-x", "user::q--", "everybody::rwx", "user", "mask:7:rwx", "\u{e4}"] {
            assert_eq!(acl_from_text(text.as_bytes()), None, "{text}");
        }
        for list in
            [&b"\x02\0\0"[..], b"\x03\0\0\0", b"\x02\0\0\0\x01\0\x07", b"\x02\0\0\0\x03\0\x07\0\0\0\0\0"]
        {
            assert_eq!(acl_to_text(list), None, "{list:?}");
        }
    }
}
