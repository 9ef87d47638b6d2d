//! A device, or the image of one, as the destination of a run.

pub(crate) mod device_sink;
