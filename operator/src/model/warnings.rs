//! What Kubernetes warns of while the pods of a run do not start. Pure.

use contract::Side;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// The last warning that Kubernetes recorded about a pod of each end that does not start, or about a Job that lacks
/// pods.
#[derive(Debug, Clone, Default)]
pub struct Warnings {
    /// That about the end with the files.
    pub source: Option<Warning>,
    /// That about the end that receives them.
    pub sink: Option<Warning>,
}

/// One warning.
#[derive(Debug, Clone)]
pub struct Warning {
    /// The pod's UID; `None`: it is about the Job.
    pub pod: Option<String>,
    /// What it says.
    pub text: String,
}

impl Warnings {
    /// That about an end.
    pub fn of(&self, side: Side) -> Option<&Warning> {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Sink => self.sink.as_ref(),
        }
    }
}

impl Warning {
    /// What it says, if it is about one of these pods, or about there being none.
    pub fn about(&self, pods: &[&Pod]) -> Option<&str> {
        let is_about = match &self.pod {
            Some(uid) => pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)),
            None => pods.is_empty(),
        };
        is_about.then_some(&self.text)
    }
}
