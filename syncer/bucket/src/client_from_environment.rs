//! Sets up the client of a store by the variables of the environment, and by nothing else: whose requests are made,
//! where they go to, and what is refused, such as an address without TLS that nobody allowed.

use std::ffi::OsString;

use object_store::{
    ClientConfigKey, ClientOptions,
    aws::{AmazonS3Builder, AmazonS3ConfigKey as Key},
};
use url::Url;

use super::bucket_error::BucketError;

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
pub(crate) fn has_credentials() -> bool {
    CREDENTIALS
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.to_string_lossy().trim().is_empty()))
}

/// Sets up a client by the variables of the environment.
pub(crate) fn client(options: ClientOptions) -> Result<AmazonS3Builder, BucketError> {
    set_up(AmazonS3Builder::new().with_client_options(options), std::env::vars_os())
}

/// Returns the address that requests go to, unless they go to Amazon S3.
pub(crate) fn endpoint(client: &AmazonS3Builder) -> Option<String> {
    [Key::S3Endpoint, Key::Endpoint].iter().find_map(|key| client.get_config_value(key))
}

/// Sets up a client by variables, as `AmazonS3Builder::from_env` does. Leaves out empty values, and blanks around
/// others, which files of variables have. Refuses values at which the client would panic.
fn set_up(
    mut client: AmazonS3Builder,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<AmazonS3Builder, BucketError> {
    let mut plain = None;
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with("AWS_")) else { continue };
        let Ok(key) = name.to_ascii_lowercase().parse() else { continue };
        let refused = |why: String| BucketError::Variable { name: name.into(), why };
        let value = value.to_str().ok_or_else(|| refused("is no text in UTF-8".into()))?.trim();
        if value.is_empty() {
            continue;
        }
        let value = read(&key, value).map_err(refused)?;
        if matches!(key, Key::Endpoint | Key::S3Endpoint) && value.starts_with("http://") {
            plain = Some(refused(format!(
                "is {value}, where anybody on the way reads the requests: set AWS_ALLOW_HTTP=true if that is meant, or \
                 write https://"
            )));
        }
        client = client.with_config(key, value);
    }
    let allowed = client.get_config_value(&Key::Client(ClientConfigKey::AllowHttp));
    let is_allowed =
        allowed.is_some_and(|it| ["1", "true", "on", "yes", "y"].contains(&&*it.to_ascii_lowercase()));
    match plain.filter(|_| !is_allowed) {
        Some(refused) => Err(refused),
        None => Ok(client),
    }
}

/// Returns the value as the client takes it, or why it takes none such.
fn read(key: &Key, value: &str) -> Result<String, String> {
    let is_plain =
        |others: &[u8]| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte));
    match key {
        Key::Endpoint
        | Key::S3Endpoint
        | Key::StsEndpoint
        | Key::MetadataEndpoint
        | Key::ContainerCredentialsFullUri => address(value),
        Key::Region | Key::DefaultRegion if !is_plain(b"-_.") => {
            Err("is no name of a region, such as us-east-1".into())
        }
        Key::AccessKeyId | Key::Token | Key::Client(ClientConfigKey::DefaultContentType)
            if !value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') =>
        {
            Err("has a line break or another character in it that no request can carry".into())
        }
        _ => Ok(value.into()),
    }
}

/// Returns a URL as requests can be made to it.
fn address(typed: &str) -> Result<String, String> {
    let is_bare = |url: &Url| {
        url.username().is_empty() && url.password().is_none() && url.query().or(url.fragment()).is_none()
    };
    let is_address = |url: &Url| ["http", "https"].contains(&url.scheme()) && url.has_host() && is_bare(url);
    let url = Url::parse(typed).ok().filter(is_address).map(String::from);
    let url = url.ok_or("is no address: write https://HOST, or http://HOST:PORT for a server without TLS")?;
    Ok(if typed.ends_with('/') { url } else { url.trim_end_matches('/').into() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<AmazonS3Builder, BucketError> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        set_up(AmazonS3Builder::new(), variables)
    }

    #[test]
    fn what_no_request_can_be_made_with_is_named_with_its_variable() {
        for (name, value, why) in [
            ("AWS_ENDPOINT_URL", "s3.example.org", "write https://HOST"),
            ("AWS_ENDPOINT_URL", "127.0.0.1:8015", "write https://HOST"),
            ("AWS_ENDPOINT_URL", "localhost:8015", "write https://HOST"),
            ("AWS_ENDPOINT_URL_S3", "https://", "write https://HOST"),
            ("AWS_ENDPOINT_URL_S3", "https://host:99999", "write https://HOST"),
            ("AWS_ENDPOINT_URL_STS", "foo", "write https://HOST"),
            ("AWS_ENDPOINT_URL", "https://:secret@host", "write https://HOST"),
            ("AWS_ENDPOINT_URL", "https://host?x=y", "write https://HOST"),
            ("AWS_ACCESS_KEY_ID", "one\ntwo", "line break"),
            ("AWS_SESSION_TOKEN", "t\u{f6}ken", "no request can carry"),
            ("AWS_REGION", "us east", "no name of a region"),
            ("AWS_ENDPOINT_URL", "http://host:9000", "AWS_ALLOW_HTTP=true"),
        ] {
            let error = of(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(why), "{name}={value}: {error}");
        }
        let not_text = (OsString::from("AWS_REGION"), OsString::from_vec(vec![0xff]));
        let error = set_up(AmazonS3Builder::new(), [not_text].into_iter()).unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }

    #[test]
    fn blanks_around_values_and_empty_values_mean_nothing() {
        let client = of(&[
            ("AWS_ENDPOINT_URL", " http://127.0.0.1:8015/ \n"),
            ("AWS_ENDPOINT_URL_S3", ""),
            ("AWS_ALLOW_HTTP", "True\n"),
            ("AWS_ACCESS_KEY_ID", "id\n"),
            ("AWS_SESSION_TOKEN", " \n"),
            ("OTHER", "\n"),
        ])
        .unwrap();
        assert_eq!(endpoint(&client).as_deref(), Some("http://127.0.0.1:8015/"));
        assert_eq!(client.get_config_value(&Key::AccessKeyId).as_deref(), Some("id"));
        assert_eq!(client.get_config_value(&Key::Token), None);
        let client = of(&[("AWS_ENDPOINT_URL", "https://m\u{fc}ller.example")]).unwrap();
        assert_eq!(endpoint(&client).as_deref(), Some("https://xn--mller-kva.example"));
    }
}
