//! Decides which rights a mounted snapshot shows for an entry with an access control list.

use syncer::kept_xattrs::ACCESS_ACL;

/// The name and the value of an attribute.
pub(super) type NamedValue<'a> = (&'a [u8], &'a [u8]);

/// Returns the bits of a mode that are safe to show where an ACL (`linux/posix_acl_xattr.h`) has more to say, because
/// the kernel checks the mode alone here. In a mode, the group's bits are the mask, which may be more than the group
/// has, and the bits of others let in users whom the ACL names and denies. So the group, and with named entries also
/// all others, get only what each entry of the group and of a named user or group grants.
pub(super) fn left_by_acl<'a>(mut attrs: impl Iterator<Item = NamedValue<'a>>) -> u16 {
    const GROUP: u16 = 0x04;
    const NAMED: [u16; 2] = [0x02, 0x08];
    let Some((_, acl)) = attrs.find(|(name, _)| *name == ACCESS_ACL) else { return 0o7777 };
    let mut least = 7;
    let (entries, _) = acl.get(4..).unwrap_or_default().as_chunks::<8>();
    for &[tag, tag_high, perm, ..] in entries {
        let tag = u16::from_le_bytes([tag, tag_high]);
        if tag == GROUP || NAMED.contains(&tag) {
            least &= u16::from(perm);
        }
    }
    let named = entries.iter().any(|&[tag, high, ..]| NAMED.contains(&u16::from_le_bytes([tag, high])));
    0o7700 | least << 3 | if named { least } else { 7 }
}
