//! Makes bytes for tests and benches, the same ones in every version.

/// Makes bytes without repetition.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Makes lines of words from a small vocabulary.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let words = noise(seed, len);
    let mut text = Vec::with_capacity(3 * len);
    for &[low, high] in words.as_chunks().0 {
        let number = u16::from_le_bytes([low, high]) % 3_000;
        text.extend_from_slice(format!("w{number:x}").as_bytes());
        text.push(if number % 11 == 0 { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}
