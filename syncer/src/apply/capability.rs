//! What the kernel lets this process do.

/// `CAP_CHOWN` in the capability masks of `/proc/self/status` (`linux/capability.h`).
const CAP_CHOWN_BIT: u32 = 0;

/// `CAP_SYS_ADMIN` there.
pub(super) const CAP_SYS_ADMIN_BIT: u32 = 21;

/// Whether this process may give files to other users.
pub(super) fn may_change_owners() -> bool {
    has_capability(CAP_CHOWN_BIT)
}

/// Whether this process has the capability of this number.
pub(super) fn has_capability(bit: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.map_or_else(|| rustix::process::geteuid().is_root(), |mask| mask >> bit & 1 == 1)
}
