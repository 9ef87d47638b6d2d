use std::{fmt, path::Path};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    identity_error::IdentityError,
    private_file::{KeyOwner, read_private, write_private},
};

/// The length of the key in bytes.
const KEY_BYTES: usize = 32;

/// The format version of key files.
const FILE_VERSION: u32 = 1;

/// The key by which snapshots in object storage are encrypted. `Debug` shows no secret.
#[derive(Clone)]
pub struct StoreKey(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreKey").finish_non_exhaustive()
    }
}

/// The content of a key file. The key is borrowed, so that no copy of it stays in memory.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoreKeyFile<'a> {
    version: u32,
    store_key: &'a str,
}

impl StoreKey {
    /// Makes a random key.
    pub fn generate() -> Result<Self, IdentityError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(&mut *key).map_err(|_| IdentityError::Random)?;
        Ok(Self(key))
    }

    /// Reads a key from a file that no other user may use, as [`Identity::read`](crate::Identity::read) does.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        // The parser's own message could quote the key, so it is dropped.
        const FORM: IdentityError = IdentityError::Malformed("not the form of a key file of object storage");
        let text = read_private(path)?;
        let file: StoreKeyFile<'_> = serde_json::from_str(&text).map_err(|_| FORM)?;
        let mut key = Zeroizing::new([0; KEY_BYTES + 3]);
        match (file.version, BASE64.decode_slice(file.store_key, &mut *key)) {
            (FILE_VERSION, Ok(KEY_BYTES)) => {
                let mut whole = Zeroizing::new([0; KEY_BYTES]);
                whole.copy_from_slice(&key[..KEY_BYTES]);
                Ok(Self(whole))
            }
            _ => Err(FORM),
        }
    }

    /// Writes the key to a new file with mode 0600. An existing file is an error, because a key is never overwritten.
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        let in_file = |source| IdentityError::File { path: path.into(), source };
        let store_key = Zeroizing::new(BASE64.encode(*self.0));
        let file = StoreKeyFile { version: FILE_VERSION, store_key: &store_key };
        let mut text = Zeroizing::new(Vec::with_capacity(256));
        serde_json::to_writer(&mut *text, &file).map_err(|error| in_file(error.into()))?;
        text.push(b'\n');
        write_private(path, &text, KeyOwner::Writer).map_err(in_file)
    }

    /// Returns the key.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
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
        let key = StoreKey::generate().unwrap();
        assert_ne!(key.bytes(), StoreKey::generate().unwrap().bytes());
        key.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(StoreKey::read(&path).unwrap().bytes(), key.bytes());
        assert!(key.write(&path).is_err(), "a key is never overwritten");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(StoreKey::read(&path), Err(IdentityError::Exposed { .. })));
    }

    #[test]
    fn another_file_is_no_key() {
        let dir = tempfile::tempdir().unwrap();
        for (nth, text) in ["", "{}", r#"{"version":1,"storeKey":"AAAA"}"#, r#"{"version":2,"storeKey":""}"#]
            .into_iter()
            .enumerate()
        {
            let path = dir.path().join(nth.to_string());
            write_private(&path, text.as_bytes(), KeyOwner::Writer).unwrap();
            assert!(matches!(StoreKey::read(&path), Err(IdentityError::Malformed(_))), "{text}");
        }
    }
}
