use aws_lc_rs::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_form::hex_digits;

/// SHA-256 of an end's public key (the 32 bytes of an Ed25519 key); 64 hex digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^[0-9a-fA-F]{64}$", "maxLength" = 64))]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a raw Ed25519 public key.
    pub fn of(public_key: &[u8]) -> Self {
        let digest = digest(&SHA256, public_key);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

hex_digits!(Fingerprint, "the fingerprint of a key: 64 hex digits");

/// The address and the key fingerprint by which a peer finds and recognises an end. It contains no secret, but the
/// program that passes it on decides which key the peer accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    /// The fingerprint of the end's key.
    pub fingerprint: Fingerprint,
    /// `ip:port` of an end that listens; absent for one that dials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub address: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_is_read_only_with_a_whole_fingerprint() {
        let contact = Contact { fingerprint: Fingerprint::of(b"key"), address: Some("10.0.0.1:8900".into()) };
        let text = serde_json::to_string(&contact).unwrap();
        assert_eq!(serde_json::from_str::<Contact>(&text).unwrap(), contact);
        let digits = contact.fingerprint.to_string();
        for wrong in [&digits[1..], "", &"é".repeat(32)] {
            assert!(serde_json::from_str::<Contact>(&text.replace(&digits, wrong)).is_err(), "{wrong}");
        }
    }
}
