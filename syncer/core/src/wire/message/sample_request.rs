//! Requests for features of files, which show common content with other files.

use super::hashes::{FileGroup, MAX_HASHES, TOO_MANY_HASHES, put_group, read_groups};
use crate::{
    codec::{DecodeError, Reader, put_varint},
    delta::features::Sampling,
};

/// The most spans of one request: some 5 GiB to read, and with 64 features each an answer of some 20 MiB.
pub const MAX_SPANS: u64 = 40 << 10;

/// Files whose features the sink requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleRequest {
    /// The density of the samples.
    pub sampling: Sampling,
    /// The files, at most [`MAX_HASHES`].
    pub files: Vec<FileGroup>,
}

pub(super) fn put_sample_request(out: &mut Vec<u8>, sketch: &SampleRequest) {
    put_varint(out, sketch.sampling.every());
    sketch.files.iter().for_each(|group| put_group(out, group));
}

pub(super) fn read_sample_request(reader: &mut Reader<'_>) -> Result<SampleRequest, DecodeError> {
    let sampling =
        Sampling::new(reader.varint()?).ok_or(DecodeError::Invalid("it samples more than there is"))?;
    Ok(SampleRequest { sampling, files: read_groups(reader)? })
}

pub(super) fn put_features(out: &mut Vec<u8>, features: &[u64]) {
    put_varint(out, features.len() as u64);
    features.iter().for_each(|feature| out.extend_from_slice(&feature.to_le_bytes()));
}

pub(super) fn read_samples(reader: &mut Reader<'_>) -> Result<Vec<Vec<u64>>, DecodeError> {
    let mut files = Vec::new();
    while !reader.is_empty() {
        if files.len() == MAX_HASHES {
            return Err(TOO_MANY_HASHES);
        }
        let count = reader.varint32()? as usize;
        let features = (0..count).map(|_| Ok(u64::from_le_bytes(reader.array()?)));
        files.push(features.collect::<Result<_, DecodeError>>()?);
    }
    Ok(files)
}
