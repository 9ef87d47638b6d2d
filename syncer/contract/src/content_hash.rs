use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_form::hex_digits;

/// BLAKE3 of all bytes of a device; 64 hex digits in text, as `b3sum` prints them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^[0-9a-fA-F]{64}$"))]
pub struct ContentHash(pub [u8; 32]);

hex_digits!(ContentHash, "the hash of a device: 64 hex digits, as a report has it in `content.hash`");

/// The content of the device that a run wrote, if the run was asked for its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceContent {
    /// The hash of as many bytes as the source has: the base of a list of blocks that change from now on.
    pub hash: ContentHash,
    /// The number of bytes that the run read at the source because they were listed as changed; absent if it read all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_listed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_survives_its_text_and_nothing_else_is_one() {
        let hash = ContentHash(std::array::from_fn(|at| (at * 9) as u8));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        let good = hash.to_string();
        for bad in ["", &good[1..], &format!("{good}0"), &good.replace("09", "0g"), &good.replace("09", "é")]
        {
            assert!(bad.parse::<ContentHash>().is_err(), "{bad:?}");
        }
    }
}
