//! The third step: what is to be made for a try, in the two parts that it is made in. Pure.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};

use crate::resources::{Try, access, job};

/// What the pods need to be there before them.
#[derive(Debug, Clone, PartialEq)]
pub struct Groundwork {
    /// Whom the pods are; `None` where the spec names somebody.
    pub service_account: Option<ServiceAccount>,
    /// What they may do.
    pub role: Role,
    /// That they may do it.
    pub role_binding: RoleBinding,
}

/// The two ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Ends {
    /// The end that receives the files.
    pub sink: Job,
    /// The end that has them.
    pub source: Job,
}

/// The first part.
pub fn groundwork(of: &Try<'_>) -> Groundwork {
    Groundwork {
        service_account: access::service_account(of),
        role: access::role(of),
        role_binding: access::role_binding(of),
    }
}

/// The second part.
pub fn ends(of: &Try<'_>) -> Ends {
    Ends { sink: job::sink_job(of), source: job::source_job(of) }
}

/// The second part where one pod has both volumes. It has nobody to show a key to.
pub fn both_ends(of: &Try<'_>) -> Job {
    job::local_job(of)
}
