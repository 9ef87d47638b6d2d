//! Block devices and images, which are written to in place.

pub(super) mod device_hash;
pub(super) mod device_writer;
pub(super) mod image_users;
