//! What to do after a request failed: one table, by the code of the store's answer, or by what came in its place.

use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error;

use super::trusted_authorities::{in_chain, tls_failure};

pub(crate) const AGAIN: &str = "run the command again: what has arrived is not sent again";

/// What is left to do after an answer whose words say what is wrong with the request.
pub(crate) const BAD_REQUEST: &str = "see what the server says, and in its settings of this bucket";

const UNREACHABLE: &str = "see that AWS_ENDPOINT_URL is right, or AWS_REGION with Amazon S3, and that the server runs; then \
                           run the command again";
const NO_TLS: &str =
    "write http:// in AWS_ENDPOINT_URL, and set AWS_ALLOW_HTTP=true, if the server has no TLS";
const SERVER: &str = "see that AWS_ENDPOINT_URL is that of the S3 server, and not of something else there";
const RIGHTS: &str =
    "the credentials need the rights to list the bucket, and to get, put and delete objects below the prefix";
const KEYS: &str = "see that AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are those of this server";
const TOKEN: &str =
    "set AWS_SESSION_TOKEN to the token of these keys, or get new ones: it ends with its session";
const REGION: &str = "set AWS_REGION to the region of the bucket";
const QUOTA: &str = "make room in the bucket, or have its quota raised";
const NAME: &str = "a bucket's name has 3 to 63 lower-case letters, digits, dots and dashes";

/// The codes by which a store refuses what another try would not get either.
const REFUSALS: [(&str, &str); 15] = [
    ("AccessDenied", RIGHTS),
    ("AuthorizationHeaderMalformed", REGION),
    ("ExpiredToken", TOKEN),
    ("IllegalLocationConstraintException", REGION),
    ("InvalidAccessKeyId", KEYS),
    ("InvalidBucketName", NAME),
    ("InvalidToken", TOKEN),
    ("PermanentRedirect", REGION),
    ("QuotaExceeded", QUOTA),
    ("SignatureDoesNotMatch", KEYS),
    ("TokenRefreshRequired", TOKEN),
    // These are of MinIO, and of versitygw, whose status is 404.
    ("InvalidTokenId", TOKEN),
    ("XMinioInvalidRegion", REGION),
    ("XAdminUserNotFound", KEYS),
    ("XMinioAdminNoSuchUser", KEYS),
];

/// The codes by which a store calls a request wrong that did not arrive whole.
const NOT_ARRIVED: [&str; 3] = ["BadDigest", "IncompleteBody", "RequestTimeout"];

/// Returns whether the same request may be answered otherwise, although the store calls it wrong.
pub(crate) fn may_pass(code: &str) -> bool {
    NOT_ARRIVED.contains(&code)
}

/// Returns the next step if the code is that of a refusal.
pub(crate) fn refusal(code: &str) -> Option<&'static str> {
    REFUSALS.iter().find(|(known, _)| *known == code).map(|(_, hint)| *hint)
}

/// Returns the next step after a refusal with a code that nothing is known of, or without one.
pub(crate) fn other_refusal(is_absent: bool) -> &'static str {
    if is_absent { SERVER } else { RIGHTS }
}

/// Returns the next step after a request that got no answer of a store.
pub(crate) fn no_answer(error: &(dyn Error + 'static)) -> &'static str {
    let is_unreachable = || {
        in_chain(error, |cause| cause.downcast_ref::<HttpError>())
            .is_some_and(|error| error.kind() == HttpErrorKind::Connect)
    };
    match tls_failure(error) {
        Some(_) => NO_TLS,
        None if is_unreachable() => UNREACHABLE,
        None => AGAIN,
    }
}

/// Returns what an answer without a code means, if its text tells: a redirect of Amazon S3 to another region has none.
pub(crate) fn bare_redirect(why: &str) -> Option<&'static str> {
    why.contains("redirect without LOCATION").then_some(REGION)
}
