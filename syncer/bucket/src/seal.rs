//! Encrypts and authenticates what is stored, by keys that are derived from the user's key and the id of the store.

use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use contract::StoreKey;
use zeroize::Zeroizing;

use super::bucket_error::BucketError;

/// The random id of a store.
pub(crate) type StoreId = [u8; 16];

/// The bytes by which sealed bytes are longer: the nonce and the tag.
pub(crate) const SEAL_BYTES: usize = 24 + 16;

/// The cipher of a store.
pub(crate) struct Seal(XChaCha20Poly1305);

impl Seal {
    pub(crate) fn new(key: &StoreKey, store: &StoreId) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("volferry 2026-11-26 the objects of a bucket v1");
        hasher.update(key.bytes()).update(store);
        let derived = Zeroizing::new(*hasher.finalize().as_bytes());
        Self(XChaCha20Poly1305::new((&*derived).into()))
    }

    /// Encrypts bytes. Only who names the same place can open them.
    pub(crate) fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, BucketError> {
        // A nonce of 24 random bytes is never the same twice.
        let nonce = XNonce::try_generate().map_err(|_| BucketError::Random)?;
        let sealed =
            self.0.encrypt(&nonce, Payload { msg: plain, aad: place }).map_err(|_| BucketError::Random)?;
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// Decrypts bytes; `None` if they are not what was sealed for this place.
    pub(crate) fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<24>()?;
        self.0.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: place }).ok()
    }
}

/// Makes random bytes, for ids and names.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], BucketError> {
    <[u8; N]>::try_generate().map_err(|_| BucketError::Random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_the_store_opens_and_only_in_its_place() {
        let key = StoreKey::generate().unwrap();
        let seal = Seal::new(&key, &[1; 16]);
        let sealed = seal.seal(b"here", b"plain").unwrap();
        assert_eq!(sealed.len(), b"plain".len() + SEAL_BYTES);
        assert_eq!(seal.open(b"here", &sealed).as_deref(), Some(&b"plain"[..]));
        assert_ne!(seal.seal(b"here", b"plain").unwrap(), sealed);
        assert_eq!(seal.open(b"there", &sealed), None);
        assert_eq!(Seal::new(&key, &[2; 16]).open(b"here", &sealed), None);
        assert_eq!(Seal::new(&StoreKey::generate().unwrap(), &[1; 16]).open(b"here", &sealed), None);
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(b"here", &damaged), None, "bit {bit}");
        }
        for end in 0..sealed.len() {
            assert_eq!(seal.open(b"here", &sealed[..end]), None, "cut at {end}");
        }
    }
}
