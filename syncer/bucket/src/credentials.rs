//! Whose requests are made, and where to: by the variables of the environment, and by nothing else.

use object_store::{ClientOptions, aws::AmazonS3Builder};

/// The variables of which one says whose requests these are. The metadata service of a machine is asked only if it is
/// named, because what runs in a cluster is not meant to have the rights of its node.
const CREDENTIALS: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    "AWS_SKIP_SIGNATURE",
];

/// Returns whether the environment has credentials.
pub(crate) fn are_there() -> bool {
    CREDENTIALS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Sets up a client by the variables of the environment, as `AmazonS3Builder::from_env` does.
pub(crate) fn client(options: ClientOptions) -> AmazonS3Builder {
    let mut builder = AmazonS3Builder::new().with_client_options(options);
    for (name, value) in std::env::vars_os() {
        let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
        let key = name.starts_with("AWS_").then(|| name.to_ascii_lowercase().parse());
        if let Some(Ok(key)) = key {
            builder = builder.with_config(key, value);
        }
    }
    builder
}
