//! Fetches content over the network: requests it with the manifest of the basis, and receives, checks and writes it.

pub(crate) mod assemble_file;
pub(crate) mod choose_delta;
pub(crate) mod chunk_basis;
pub(crate) mod concatenated_files;
pub(crate) mod copy_differences;
pub(crate) mod copy_local;
pub(crate) mod cut_in_parallel;
pub(crate) mod granule_basis;
pub(crate) mod in_flight;
pub(crate) mod receive_frames;
pub(crate) mod request_files;
pub(crate) mod when_to_note_arrivals;
