//! The warnings of Kubernetes while the pods of a run do not start. Pure.

use contract::Side;
use kube::ResourceExt as _;

use super::stored_fields::Pod;

/// The last warning of each end about a pod that does not start, or about a Job that lacks pods.
#[derive(Debug, Clone, Default)]
pub struct Warnings {
    /// The warning about the end that sends the files.
    pub source: Option<Warning>,
    /// The warning about the end that receives the files.
    pub sink: Option<Warning>,
}

/// One warning.
#[derive(Debug, Clone)]
pub struct Warning {
    /// The pod's UID; `None` if the warning is about the Job.
    pub pod: Option<String>,
    /// The text.
    pub text: String,
}

impl Warnings {
    /// Returns the warning about an end.
    pub fn of(&self, side: Side) -> Option<&Warning> {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Sink => self.sink.as_ref(),
        }
    }

    /// Returns whether a Job cannot get its pods because somebody has deleted their service account.
    pub fn lack_account(&self) -> bool {
        let mut all = [&self.source, &self.sink].into_iter().flatten();
        all.any(|warning| warning.pod.is_none() && warning.text.contains("looking up service account"))
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
