//! Identifies the volume that a source is on, so that a run notices when another volume takes its place.

use contract::VolumeId;
use rustix::fs::{AtFlags, CWD, StatFs, StatxFlags, statfs, statx};

use crate::sys::root::TreeLocation;

/// The kinds of file systems that may give a folder another inode number at each mount: FUSE, 9p, SMB, FAT, exFAT and
/// overlays.
const RENUMBERING: [u64; 8] =
    [0x6573_5546, 0x0102_1997, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x4d44, 0x2011_bab0, 0x794c_7630];

/// Returns whether a file system may give a folder another inode number at each mount.
pub(crate) fn renumbers(file_system: &StatFs) -> bool {
    RENUMBERING.contains(&(file_system.f_type as u64 & 0xffff_ffff))
}

/// Returns the id of the volume that a source is on: of the top folder's number and time of birth, which stay the same
/// wherever the volume is mounted, and are others in a volume made anew; `None` where the file system keeps neither.
pub fn source_id(place: &TreeLocation) -> Option<VolumeId> {
    if renumbers(&statfs(&place.trusted).ok()?) {
        return None;
    }
    let fields = StatxFlags::INO | StatxFlags::BTIME;
    let top = statx(CWD, &place.trusted, AtFlags::empty(), fields).ok()?;
    if !StatxFlags::from_bits_retain(top.stx_mask).contains(fields) {
        return None;
    }
    let mut known = top.stx_ino.to_le_bytes().to_vec();
    known.extend(top.stx_btime.tv_sec.to_le_bytes());
    known.extend(top.stx_btime.tv_nsec.to_le_bytes());
    let hash = blake3::derive_key("volferry 2026 the volume of a source", &known);
    hash.first_chunk().copied().map(VolumeId::new)
}
