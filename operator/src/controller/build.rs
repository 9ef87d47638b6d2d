//! The third step: what is to be made for a try, in the two parts that it is made in. Pure, but for the keys.

use std::net::IpAddr;

use contract::{IdentityError, IdentityPair, Side};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Secret, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};

use crate::resources::{Try, access, job, secret, service};

/// What the pods need to be there before them.
#[derive(Debug, Clone, PartialEq)]
pub struct Groundwork {
    /// Whom the pods are; `None` where the spec names somebody.
    pub service_account: Option<ServiceAccount>,
    /// What they may do.
    pub role: Role,
    /// That they may do it.
    pub role_binding: RoleBinding,
    /// How each source finds its sink; none where one pod is both.
    pub services: Vec<Service>,
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
        services: if of.run.local { Vec::new() } else { service::services(of) },
    }
}

/// The second part, for Services that have been given their addresses, in the order of the shards.
pub fn ends(of: &Try<'_>, sinks: &[IpAddr]) -> Ends {
    Ends { sink: job::sink_job(of, sinks), source: job::source_job(of, sinks) }
}

/// The second part where one pod has both volumes. It has nobody to show a key to.
pub fn both_ends(of: &Try<'_>) -> Job {
    job::local_job(of)
}

/// Secrets with a fresh pair of keys.
pub fn secrets(of: &Try<'_>) -> Result<[Secret; 2], IdentityError> {
    let pair = IdentityPair::generate(&format!("{}/{}", of.uid, of.run.id))?;
    Ok([secret::secret(of, Side::Source, &pair.source), secret::secret(of, Side::Sink, &pair.sink)])
}
