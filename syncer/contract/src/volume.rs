use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_form::hex_digits;

/// The id by which a destination is known from run to run: 16 random bytes, made at its first run and kept on it; 32
/// hex digits in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^[0-9a-fA-F]{32}$"))]
pub struct VolumeId([u8; 16]);

impl VolumeId {
    /// Returns the id of these bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

hex_digits!(VolumeId, "the id of a volume: 32 hex digits, as a report has it in `volume`");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text() {
        let id = VolumeId::new(*b"\x00\x0f\xf0\xfftwelve bytes");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(serde_json::from_str::<VolumeId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
    }

    #[test]
    fn anything_but_32_hex_digits_is_refused() {
        let good = "0123456789abcdef0123456789ABCDEF";
        assert!(good.parse::<VolumeId>().is_ok());
        for bad in ["", &good[1..], &format!("{good}0"), &good.replace('0', "g"), &good.replace("01", "é")] {
            assert!(bad.parse::<VolumeId>().is_err(), "{bad:?}");
        }
    }
}
