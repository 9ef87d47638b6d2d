//! Reads what a namespace's annotations permit, and decides whether its syncers may run as root. Pure.

use std::collections::BTreeMap;

use contract::Reason;
use kube::ResourceExt;

use crate::{
    fault::Fault,
    human,
    names::{ANNOTATION_MAX_PRIORITY, ANNOTATION_PRIVILEGED, ANNOTATION_USER_RANGE},
};

/// The maximum length of an annotation's value in a message, in bytes.
pub(crate) const MAX_QUOTED_BYTES: usize = 100;

/// The annotations of a namespace that decide who its syncers run as, and how far its priorities count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceUsers {
    /// The value of the annotation that lets syncers run as root.
    pub privileged: Option<String>,
    /// Whether the cluster assigns users and groups to the namespace's pods, as OpenShift does.
    pub is_assigned: bool,
    /// The value of the annotation with the highest priority that counts.
    pub max_priority: Option<String>,
    /// The namespace's UID; `None` if the namespace cannot be read.
    pub uid: Option<String>,
    /// The namespace's labels.
    pub labels: BTreeMap<String, String>,
}

impl NamespaceUsers {
    /// Reads what a namespace says.
    pub fn of(namespace: &impl ResourceExt) -> Self {
        let annotation = |name: &str| namespace.annotations().get(name).cloned();
        Self {
            privileged: annotation(ANNOTATION_PRIVILEGED),
            max_priority: annotation(ANNOTATION_MAX_PRIORITY),
            is_assigned: annotation(ANNOTATION_USER_RANGE).is_some(),
            uid: namespace.uid(),
            labels: namespace.labels().clone(),
        }
    }

    /// Returns whether the namespace lets syncers run as root. An annotation that cannot be parsed counts as no.
    pub fn is_privileged(&self) -> bool {
        self.privileged.as_deref() == Some("true")
    }
}

/// Returns whether a namespace allows syncers to run as root, given the value of its annotation.
///
/// # Errors
/// If the value is neither `true` nor `false`, since its author would otherwise not learn that it has no effect.
pub fn consent(annotation: Option<&str>, namespace: &str) -> Result<bool, Fault> {
    match annotation {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Fault::new(
            Reason::InvalidAnnotation,
            format!(
                "In namespace {namespace}, the annotation {ANNOTATION_PRIVILEGED} is {:?}. Write \"true\" to let syncers run as root, or \
                 \"false\".",
                human::clipped(other, MAX_QUOTED_BYTES)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_of_another_value_than_true_and_false_is_quoted() {
        assert_eq!(
            [None, Some("false"), Some("true")].map(|it| consent(it, "prod").unwrap()),
            [false, false, true]
        );
        for value in ["True", "yes", "", "1"] {
            let fault = consent(Some(value), "prod").unwrap_err();
            assert_eq!(fault.reason, "InvalidAnnotation");
            assert!(fault.message.contains("namespace prod"), "{}", fault.message);
            assert!(fault.message.contains(&format!("privileged-syncers is {value:?}")), "{}", fault.message);
        }
    }
}
