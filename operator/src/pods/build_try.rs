//! The third step: builds the objects of a try, in the two groups in which they are created. Pure.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};

use super::{Try, job, pod_permissions};
use crate::ends::{end_kind::EndKind, source_and_sink::Ends};

/// The objects that must exist before the pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Groundwork {
    /// The service account of the pods in the SyncJob's namespace; `None` if the spec names one, or no pod is there.
    pub service_account: Option<ServiceAccount>,
    /// The service accounts of the pods in other namespaces.
    pub accounts_abroad: Vec<ServiceAccount>,
    /// The permissions of the pods.
    pub role: Role,
    /// The binding of the permissions to the service account.
    pub role_binding: RoleBinding,
}

/// Builds the first group: the service account and its RBAC objects.
pub fn groundwork(of: &Try<'_>) -> Groundwork {
    Groundwork {
        service_account: pod_permissions::service_account(of),
        accounts_abroad: pod_permissions::accounts_abroad(of),
        role: pod_permissions::role(of),
        role_binding: pod_permissions::role_binding(of),
    }
}

/// Builds the second group for a run with two pods: a Job for each end.
pub fn ends(of: &Try<'_>) -> Ends<Job> {
    Ends { sink: job::sink_job(of), source: job::source_job(of) }
}

/// Builds the second group for a run in one pod: one Job, whose pod mounts both volumes, dials an endpoint, or reaches
/// object storage.
pub fn only_pod(of: &Try<'_>) -> Job {
    let Some(side) = of.job.outside() else { return job::local_job(of) };
    match of.job.ends.of(side) {
        EndKind::Remote(remote) => job::remote_job(of, side, remote),
        EndKind::Bucket(place) => job::bucket_job(of, place),
        EndKind::Claim(_) => job::local_job(of),
    }
}
