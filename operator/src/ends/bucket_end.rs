//! The destination of a job that is a place in object storage. Pure.

use std::fmt;

use crate::{
    api::{ObjectStore, RunFolder},
    spec::fields::{ValidationError, invalid},
};

/// How a place in object storage begins.
const SCHEME: &str = "s3://";

/// A place in object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketEnd {
    /// `s3://BUCKET/PREFIX`, in the one form in which places can be compared.
    pub url: String,
    /// The Secret with the credentials and the key.
    pub secret: String,
}

impl fmt::Display for BucketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl BucketEnd {
    /// Parses the place that a spec names.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn parse(store: &ObjectStore) -> Result<Self, ValidationError> {
        let typed = &store.url;
        let is_plain = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
                && part.bytes().any(|byte| byte != b'.')
        };
        let place = typed.strip_prefix(SCHEME).map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        match place.filter(|place| place.split('/').all(is_plain)) {
            Some(place) => {
                Ok(Self { url: format!("{SCHEME}{place}"), secret: store.secret_ref.name.clone() })
            }
            None => {
                let problem = format!("`{typed}` is no place in object storage; write s3://BUCKET/PREFIX");
                Err(invalid("destination.objectStore.url", problem))
            }
        }
    }

    /// Returns the place as runs and statuses record it.
    pub fn run_folder(&self) -> RunFolder {
        RunFolder { address: Some(self.url.clone()), path: "/".into(), ..RunFolder::default() }
    }

    /// Returns whether a folder that a run records is such a place.
    pub fn is_of(folder: &RunFolder) -> bool {
        folder.address.as_ref().is_some_and(|address| address.starts_with(SCHEME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectStoreSecret;

    #[test]
    fn a_place_has_one_form_and_another_text_is_refused_with_its_field() {
        let parse = |url: &str| {
            let secret_ref = ObjectStoreSecret { name: "s3".into() };
            BucketEnd::parse(&ObjectStore { url: url.into(), secret_ref })
        };
        for (typed, url) in
            [("s3://b", "s3://b"), ("s3://b/", "s3://b"), ("s3://b.c/d_e/f/", "s3://b.c/d_e/f")]
        {
            assert_eq!(parse(typed).unwrap().url, url);
        }
        for typed in ["", "s3://", "b/c", "https://b/c", "s3://b//c", "s3://b/../c", "s3://b/c d", "s3://b?x"]
        {
            let said = parse(typed).unwrap_err().to_string();
            assert!(said.starts_with("spec.destination.objectStore.url: "), "{typed}: {said}");
        }
    }
}
