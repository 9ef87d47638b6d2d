//! The warnings of Kubernetes while the pods of a run do not start. Pure.

use kube::ResourceExt as _;

use super::stored_fields::{Job, Pod};
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
    /// Returns whether one of these Jobs cannot get its pods because somebody has deleted their service account: the
    /// warning names the account. Any other, such as about a quota, names the pod.
    pub fn lack_account(&self, jobs: &[Job]) -> bool {
        let mut of_jobs = self.iter().flatten().filter(|it| it.pod.is_none());
        let accounts: Vec<String> = jobs.iter().filter_map(account).collect();
        of_jobs.any(|it| accounts.iter().any(|account| it.text.contains(account)))
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

/// Returns the service account of a Job's pods, as `NAMESPACE/NAME`.
fn account(job: &Job) -> Option<String> {
    let name = job.spec.as_ref()?.template.spec.as_ref()?.service_account_name.as_ref()?;
    Some(format!("{}/{name}", job.namespace()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_lacks_its_account_if_its_warning_names_that() {
        let spec = json!({"template": {"spec": {"containers": [], "serviceAccountName": "vf-web-a0-1f"}}});
        let job = json!({"metadata": {"name": "vf-web-1-sink", "namespace": "prod"}, "spec": spec});
        let jobs: [Job; 1] = [serde_json::from_value(job).unwrap()];
        let lacks = |pod: Option<&str>, text: &str| {
            let warning = Warning { pod: pod.map(Into::into), text: text.into() };
            Warnings { sink: Some(warning), ..Warnings::default() }.lack_account(&jobs)
        };
        let gone = "FailedCreate: Error creating: pods \"vf-web-1-sink-\" is forbidden: error looking up service account \
                    prod/vf-web-a0-1f: serviceaccount \"vf-web-a0-1f\" not found";
        assert!(lacks(None, gone));
        assert!(!lacks(Some("uid"), gone), "the pod is there");
        let full = "FailedCreate: Error creating: pods \"vf-web-1-sink-7x2\" is forbidden: exceeded quota: prod, requested: \
                    pods=1, used: pods=9, limited: pods=9";
        assert!(!lacks(None, full));
    }
}
