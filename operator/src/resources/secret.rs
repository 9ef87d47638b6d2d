//! The Secrets with the identities of the two ends.

use contract::{Identity, Side};
use k8s_openapi::{ByteString, api::core::v1::Secret};

use super::Try;

/// The key in the Secret, and the name of the file in the pod.
pub const FILE: &str = "identity";

/// One end's identity: its own key and the other's fingerprint. It is immutable, so that nobody changes the key of
/// a pair that is in use by mistake; who removes it and makes another can.
pub fn secret(of: &Try<'_>, side: Side, identity: &Identity) -> Secret {
    let text = identity.to_text();
    Secret {
        metadata: of.metadata(of.names.secret(side)),
        type_: Some("volferry.dev/identity".into()),
        immutable: Some(true),
        data: Some([(FILE.to_string(), ByteString(text.as_bytes().to_vec()))].into()),
        ..Secret::default()
    }
}
