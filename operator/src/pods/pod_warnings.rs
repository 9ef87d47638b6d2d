//! The warnings of Kubernetes while the pods of a run do not start. Pure.

use kube::ResourceExt as _;

use super::stored_fields::Pod;
use crate::ends::source_and_sink::Ends;

/// The last warning of each end about a pod that does not start, or about a Job that lacks pods.
pub type Warnings = Ends<Option<Warning>>;

/// One warning.
#[derive(Debug, Clone)]
pub struct Warning {
    /// The pod's UID; `None` if the warning is about the Job.
    pub pod: Option<String>,
    /// The text.
    pub text: String,
}

impl Warnings {
    /// Returns whether a Job cannot get its pods because somebody has deleted their service account.
    pub fn lack_account(&self) -> bool {
        let is_so = |it: &Warning| it.pod.is_none() && it.text.contains("looking up service account");
        self.iter().flatten().any(is_so)
    }
}

impl Warning {
    /// Returns the text if the warning is about one of these pods, or about a Job without pods and `pods` is empty.
    pub fn about(&self, pods: &[&Pod]) -> Option<&str> {
        let is_about = match &self.pod {
            Some(uid) => pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)),
            None => pods.is_empty(),
        };
        is_about.then_some(&self.text)
    }
}
