//! Where a command looks, as it is typed.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use clap::Args;

use crate::api::parse_duration;

/// Which cluster and namespace.
#[derive(Debug, Clone, Args)]
pub(super) struct Scope {
    /// The namespace. Absent: that of the kubeconfig's context.
    #[arg(short = 'n', long, global = true)]
    pub(super) namespace: Option<String>,
    /// The context of the kubeconfig. Absent: the current one.
    #[arg(long, global = true)]
    pub(super) context: Option<String>,
    /// The kubeconfig. Absent: that of kubectl, by KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) kubeconfig: Option<PathBuf>,
}

/// A claim, as it is typed. A context may have slashes in its name, and no namespace behind it: that is the context's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimPlace {
    pub(super) context: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) claim: String,
}

impl fmt::Display for ClaimPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, namespace, claim } = self;
        match (context, namespace) {
            (Some(context), namespace) => {
                write!(f, "{context}/{}/{claim}", namespace.as_deref().unwrap_or_default())
            }
            (None, Some(namespace)) => write!(f, "{namespace}/{claim}"),
            (None, None) => f.write_str(claim),
        }
    }
}

impl ClaimPlace {
    /// Returns its namespace: what is not typed there is that of the command line.
    pub(super) fn scope(&self, of_line: &Scope) -> Scope {
        Scope {
            context: self.context.clone().or_else(|| of_line.context.clone()),
            namespace: self.namespace.clone().or_else(|| of_line.namespace.clone()),
            kubeconfig: of_line.kubeconfig.clone(),
        }
    }
}

impl FromStr for ClaimPlace {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let mut parts = typed.rsplitn(3, '/').map(String::from);
        let (claim, namespace, context) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let is_of_context = context.is_some();
        let namespace = namespace.filter(|namespace| !(is_of_context && namespace.is_empty()));
        if claim.is_empty() || [&namespace, &context].into_iter().flatten().any(String::is_empty) {
            return Err("write CLAIM, NAMESPACE/CLAIM, CONTEXT/NAMESPACE/CLAIM or CONTEXT//CLAIM".into());
        }
        Ok(Self { context, namespace, claim })
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "write a time such as 90s, 10m or 1h30m".into())
}
