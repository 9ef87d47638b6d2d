use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    contact::Fingerprint,
    parse_error::{ParseParamError, bad},
    text_form::serde_by_text,
};

/// The public half of an end's key, Ed25519; base64 in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("maxLength" = 44))]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Takes the 32 bytes of a key; `None` for another number of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the fingerprint by which identities name the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.0)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bytes = BASE64.decode(s).ok();
        bytes.and_then(|bytes| Self::from_bytes(&bytes)).ok_or_else(|| bad(s, EXPECTED))
    }
}

const EXPECTED: &str = "a public key: 32 bytes in base64, 44 characters";

serde_by_text!(PublicKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_only_whole() {
        let key = PublicKey([7; 32]);
        let text = key.to_string();
        assert_eq!(text.parse(), Ok(key));
        for wrong in ["", &text[1..], &format!("{text}AA=="), "not base64"] {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
        }
    }
}
