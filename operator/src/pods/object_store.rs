//! What a pod has of the Secret for object storage. Pure.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, KeyToPath, SecretKeySelector, SecretVolumeSource};

use crate::ends::bucket_end::BucketEnd;

/// The entry with the key by which snapshots are encrypted.
pub const STORE_KEY_ENTRY: &str = "encryption.key";
/// The entry with certificates of authorities.
pub const AUTHORITIES_ENTRY: &str = "ca.crt";
/// The entries that a pod has as variables. All are optional: the program says what is missing.
const VARIABLES: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
];

/// Returns the variables by which a pod reaches object storage. They come from the Secret, and are in no object.
pub(super) fn store_variables(place: &BucketEnd) -> Vec<EnvVar> {
    let of_secret = |name: &str| {
        let key = SecretKeySelector { name: place.secret.clone(), key: name.into(), optional: Some(true) };
        let value_from = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
        EnvVar { name: name.into(), value_from: Some(value_from), ..EnvVar::default() }
    };
    VARIABLES.iter().map(|name| of_secret(name)).collect()
}

/// Returns the entries that a pod has as files: those that are none of its variables. The agent says what is missing.
pub(super) fn store_entries(place: &BucketEnd) -> SecretVolumeSource {
    let entry = |name: &str| KeyToPath { key: name.into(), path: name.into(), mode: None };
    SecretVolumeSource {
        secret_name: Some(place.secret.clone()),
        items: Some([STORE_KEY_ENTRY, AUTHORITIES_ENTRY].map(entry).into()),
        optional: Some(true),
        ..SecretVolumeSource::default()
    }
}
