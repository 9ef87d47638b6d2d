//! Owner, attributes, mode and times of entries.

pub(super) mod probe_file;
pub(super) mod set_metadata;
pub(super) mod set_xattrs;
pub(super) mod settings;
pub(super) mod time_precision;
