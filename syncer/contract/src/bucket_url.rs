//! The place of a store in object storage, as it is typed.

use std::{fmt, str::FromStr};

/// `s3://BUCKET` or `s3://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    /// The bucket.
    pub bucket: String,
    /// What the names of all objects of the store begin with; empty for nothing.
    pub prefix: String,
}

impl BucketUrl {
    /// How a place in object storage begins.
    pub const SCHEME: &str = "s3://";

    /// Returns the name of an object in the bucket.
    pub fn key(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::SCHEME, self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Reports text that is not a place in object storage.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("write the place as s3://BUCKET/PREFIX, of letters, digits, dots, dashes, underscores and slashes")]
pub struct NotABucket;

impl FromStr for BucketUrl {
    type Err = NotABucket;

    fn from_str(typed: &str) -> Result<Self, NotABucket> {
        let place = typed.strip_prefix(Self::SCHEME).ok_or(NotABucket)?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let is_plain = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
                && part.bytes().any(|byte| byte != b'.')
        };
        if place.split('/').all(is_plain) {
            let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
            Ok(Self { bucket: bucket.into(), prefix: prefix.into() })
        } else {
            Err(NotABucket)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_it_is_written_as() {
        for (typed, bucket, prefix) in
            [("s3://a", "a", ""), ("s3://a.b/", "a.b", ""), ("s3://a/b/c_d/", "a", "b/c_d")]
        {
            let url: BucketUrl = typed.parse().unwrap();
            assert_eq!((&*url.bucket, &*url.prefix), (bucket, prefix));
            assert_eq!(url.to_string(), typed.trim_end_matches('/'));
        }
        for typed in [
            "",
            "s3://",
            "s3:///a",
            "s3://a//",
            "s3://a//b",
            "s3://a/../b",
            "s3://a/b c",
            "http://a",
            "s3://a?b",
        ] {
            assert_eq!(typed.parse::<BucketUrl>(), Err(NotABucket), "{typed}");
        }
    }
}
