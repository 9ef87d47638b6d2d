use std::{fmt, path::Path, str::FromStr};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    contact::Fingerprint,
    identity_error::IdentityError,
    private_file::{KeyOwner, MAX_FILE_BYTES, read_private, write_private},
    public_key::PublicKey,
};

/// More bytes than an Ed25519 key in PKCS #8 takes.
const MAX_KEY_BYTES: usize = 256;

/// The format version of key files.
const FILE_VERSION: u32 = 1;

/// The key of an end that does not name its peer: of one run, of a service, or of a user of services. `Debug` shows no
/// secret.
#[derive(Clone)]
pub struct OwnKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The content of a key file. The key is borrowed, so that no copy of it stays in memory.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyFile<'a> {
    version: u32,
    private_key: &'a str,
    public_key: PublicKey,
}

impl OwnKey {
    /// Makes a key.
    pub fn generate() -> Result<Self, IdentityError> {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| IdentityError::Random)?;
        Self::of_pkcs8(document.as_ref())
    }

    /// Takes a key, PKCS #8 in DER.
    pub(crate) fn of_pkcs8(pkcs8: &[u8]) -> Result<Self, IdentityError> {
        const OTHER: IdentityError = IdentityError::Malformed("the private key is not Ed25519 in PKCS #8");
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8).map_err(|_| OTHER)?;
        let public = PublicKey::from_bytes(pair.public_key().as_ref()).ok_or(OTHER)?;
        Ok(Self { pkcs8: Zeroizing::new(pkcs8.to_vec()), public })
    }

    /// Takes a key in base64.
    pub(crate) fn of_base64(text: &str) -> Result<Self, IdentityError> {
        let mut key = Zeroizing::new([0; MAX_KEY_BYTES]);
        let len = BASE64
            .decode_slice(text, &mut *key)
            .map_err(|_| IdentityError::Malformed("the private key is not base64"))?;
        Self::of_pkcs8(&key[..len])
    }

    /// Reads a key from a file that no other user may use, as [`Identity::read`](crate::Identity::read) does.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        read_private(path)?.parse()
    }

    /// Writes the key to a new file with mode 0600. An existing file is an error, because a key is never overwritten.
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        self.write_for(path, KeyOwner::Writer)
    }

    /// Writes the key as [`write`](Self::write) does, for an owner.
    pub fn write_for(&self, path: &Path, owner: KeyOwner) -> Result<(), IdentityError> {
        let in_file = |source| IdentityError::File { path: path.into(), source };
        let private_key = Zeroizing::new(BASE64.encode(&*self.pkcs8));
        let file = KeyFile { version: FILE_VERSION, private_key: &private_key, public_key: self.public };
        let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES));
        serde_json::to_writer(&mut *text, &file).map_err(|error| in_file(error.into()))?;
        text.push(b'\n');
        write_private(path, &text, owner).map_err(in_file)
    }

    /// Returns the public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the fingerprint, which the peer has to know.
    pub fn fingerprint(&self) -> Fingerprint {
        self.public.fingerprint()
    }

    /// Returns the private key, PKCS #8 in DER.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

impl FromStr for OwnKey {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The parser's own message could quote the key, so it is dropped.
        const FORM: IdentityError =
            IdentityError::Malformed("not the form of a key file of `volferry enroll` or `serve`");
        let file: KeyFile<'_> = serde_json::from_str(text).map_err(|_| FORM)?;
        match file.version {
            FILE_VERSION => Self::of_base64(file.private_key),
            _ => Err(FORM),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_key_survives_its_file_which_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = OwnKey::generate().unwrap();
        key.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = OwnKey::read(&path).unwrap();
        assert_eq!((again.pkcs8(), again.public()), (key.pkcs8(), key.public()));
        assert!(key.write(&path).is_err(), "a key is never overwritten");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(OwnKey::read(&path), Err(IdentityError::Exposed { .. })));
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let key = OwnKey::generate().unwrap();
        let shown = format!("{key:?}");
        for secret in [BASE64.encode(key.pkcs8()), format!("{:?}", key.pkcs8())] {
            assert!(!shown.contains(&secret), "{shown}");
        }
    }
}
