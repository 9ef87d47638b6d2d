//! The destination of a job that is a place in object storage. Pure.

use std::fmt;

use contract::BucketUrl;

use crate::{
    api::{ObjectStore, RunFolder},
    spec::fields::{ValidationError, invalid},
};

/// A place in object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketEnd {
    /// Where it is, in the one form in which places can be compared.
    pub url: BucketUrl,
    /// The Secret with the credentials and the key.
    pub secret: String,
}

impl fmt::Display for BucketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl BucketEnd {
    /// Parses the place that a spec names.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn parse(store: &ObjectStore) -> Result<Self, ValidationError> {
        let typed = &store.url;
        let url = typed.parse().map_err(|_| {
            let problem = format!("`{typed}` is no place in object storage; write s3://BUCKET/PREFIX");
            invalid("destination.objectStore.url", problem)
        })?;
        Ok(Self { url, secret: store.secret_ref.name.clone() })
    }

    /// Returns the place as runs and statuses record it.
    pub fn run_folder(&self) -> RunFolder {
        RunFolder { address: Some(self.to_string()), path: "/".into(), ..RunFolder::default() }
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
        assert_eq!(
            parse("s3://b.c/d_e/f/").unwrap().run_folder().to_string(),
            "object storage s3://b.c/d_e/f"
        );
        let said = parse("s3://b/../c").unwrap_err().to_string();
        assert!(said.starts_with("spec.destination.objectStore.url: `s3://b/../c` is no place"), "{said}");
    }
}
