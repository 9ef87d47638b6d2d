//! Where a command looks, as it is typed.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;

use super::quoting::quoted;
use crate::api::parse_duration;

/// Which cluster and namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
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

impl Scope {
    /// Returns the same cluster with another namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..self.clone() }
    }

    /// Returns the flags by which another command of kubectl gets to the same namespace of the same cluster, with a
    /// blank before each. Each command that a user is told to type has them, or it would act where nobody wants it.
    pub(super) fn flags(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!(" -n {}", shown(namespace)));
        namespace.unwrap_or_default() + &self.cluster_flags()
    }

    /// Returns the same flags for another namespace.
    pub(super) fn flags_in(&self, namespace: &str) -> String {
        self.in_namespace(namespace).flags()
    }

    /// Returns the flags by which another command of kubectl gets to the same cluster.
    pub(super) fn cluster_flags(&self) -> String {
        self.flags_of_cluster("context")
    }

    /// Returns the flags by which helm gets to the same cluster.
    pub(super) fn helm_flags(&self) -> String {
        self.flags_of_cluster("kube-context")
    }

    fn flags_of_cluster(&self, context_flag: &str) -> String {
        let context = self.context.iter().map(|context| format!("--{context_flag}={context}"));
        let file = self.kubeconfig.as_deref().map(Path::to_string_lossy);
        let file = file.iter().map(|file| format!("--kubeconfig={file}"));
        context.chain(file).map(|flag| format!(" {}", shown(&flag))).collect()
    }
}

/// Writes the namespace, which errors name.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.namespace.as_deref().unwrap_or_default())
    }
}

/// Returns a word as a shell takes it.
fn shown(word: &str) -> String {
    quoted(OsStr::new(word)).to_string_lossy().into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_told_acts_on_the_cluster_that_was_typed() {
        let own = Scope { namespace: Some("prod".into()), ..Scope::default() };
        assert_eq!((own.flags().as_str(), own.cluster_flags().as_str()), (" -n prod", ""));
        let far = Scope {
            context: Some("far away".into()),
            kubeconfig: Some("/home/me/kube".into()),
            ..own.clone()
        };
        assert_eq!(far.flags(), " -n prod '--context=far away' --kubeconfig=/home/me/kube");
        assert_eq!(far.flags_in("dr"), " -n dr '--context=far away' --kubeconfig=/home/me/kube");
        assert_eq!(far.helm_flags(), " '--kube-context=far away' --kubeconfig=/home/me/kube");
        assert_eq!(Scope::default().flags(), "");
    }
}
