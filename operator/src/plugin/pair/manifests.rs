//! The objects of a pair. Pure.

use contract::Side;
use serde_json::{Value, json};

use super::super::{
    args::ClaimPlace,
    error::PluginError,
    pair_args::{MadeFlags, PairFlags},
};
use crate::{
    api::{EndpointAccess, GROUP, KEY_TO_FILL_IN, ServiceType, VERSION},
    ends::remote_end::RemoteEnd,
};

/// The address of an endpoint that the user has to fill in.
const ADDRESS_TO_FILL_IN: &str = "STATUS.ADDRESS";

/// Returns the name of both objects.
pub(super) fn name(flags: &PairFlags) -> &str {
    flags.name.as_ref().unwrap_or(&flags.from.claim)
}

/// Returns the SyncEndpoint, whose peers are not listed here.
pub(super) fn endpoint(flags: &PairFlags, made: &MadeFlags) -> Value {
    let served = flags.served_claim();
    let access = if flags.served() == Side::Sink { EndpointAccess::Write } else { EndpointAccess::Read };
    let mut service = json!({"type": ServiceType::from(made.service)});
    if let Some(host) = &made.host_name {
        service["hostName"] = json!(host);
    }
    if let Some(port) = made.port {
        service["port"] = json!(port);
    }
    let spec =
        json!({"persistentVolumeClaim": {"claimName": served.claim}, "access": access, "service": service});
    object("SyncEndpoint", name(flags), served, &spec)
}

/// Returns the SyncJob, with the endpoint if it is known.
pub(super) fn job(flags: &PairFlags, served: Option<&RemoteEnd>) -> Value {
    let address = served.map_or(ADDRESS_TO_FILL_IN.into(), ToString::to_string);
    let key = served.map_or(KEY_TO_FILL_IN.into(), |served| served.public_key.to_string());
    let remote = json!({"endpoint": {"address": address, "publicKey": key}});
    let own = json!({"persistentVolumeClaim": {"claimName": flags.dialling_claim().claim}});
    let spec = match flags.served() {
        Side::Source => json!({"source": remote, "destination": own}),
        Side::Sink => json!({"source": own, "destination": remote}),
    };
    object("SyncJob", name(flags), flags.dialling_claim(), &spec)
}

fn object(kind: &str, name: &str, at: &ClaimPlace, spec: &Value) -> Value {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = &at.namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, "spec": spec})
}

/// Returns an object as a YAML document below a comment.
pub(super) fn document(comment: &str, object: &Value) -> Result<Vec<String>, PluginError> {
    let yaml = serde_saphyr::to_string(object).map_err(|error| PluginError::Yaml(Box::new(error)))?;
    let head = ["---".to_string(), format!("# {comment}")].into_iter();
    Ok(head.chain(yaml.lines().map(Into::into)).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{
        api::{RemoteEndpoint, SyncEndpoint, SyncJob},
        plugin::{
            args::{Command, PluginArgs},
            pair_args::PairCommand,
        },
        spec::validate,
    };

    const KEY: &str = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";

    fn typed(more: &[&str]) -> (PairFlags, MadeFlags) {
        let line = ["kubectl-volferry", "pair", "--from=a/prod/web", "--to=b/dr/copy"];
        let args = PluginArgs::try_parse_from(line.iter().chain(more)).unwrap();
        let Command::Pairs(PairCommand::Pair { flags, made }) = args.command else { panic!("pair") };
        (flags, made)
    }

    fn has_lines(document: &[String], lines: &[&str]) {
        for line in lines {
            assert!(document.iter().any(|it| it == line), "{line} is not in {document:#?}");
        }
    }

    #[test]
    fn what_is_printed_says_only_what_matters() {
        let (flags, made) = typed(&["--service=node-port", "--host-name=copy.example.org"]);
        let printed = document("In b.", &endpoint(&flags, &made)).unwrap();
        let lines =
            ["---", "# In b.", "kind: SyncEndpoint", "  name: web", "  namespace: dr", "  access: Write"];
        has_lines(&printed, &lines);
        has_lines(&printed, &["    type: NodePort", "    hostName: copy.example.org", "    claimName: copy"]);
        assert_eq!(printed.len(), 14, "{printed:#?}");
        let printed = document("In a.", &job(&flags, None)).unwrap();
        has_lines(
            &printed,
            &["kind: SyncJob", "  namespace: prod", "      address: STATUS.ADDRESS", "      claimName: web"],
        );
        assert_eq!(printed.len(), 15, "{printed:#?}");
    }

    #[test]
    fn both_directions_can_be_applied() {
        let remote = RemoteEndpoint { address: "h::x".into(), public_key: KEY.into(), identity: None };
        let reached = RemoteEnd::parse("destination", &remote).unwrap();
        for (serve, served, access) in
            [("to", "copy", EndpointAccess::Write), ("from", "web", EndpointAccess::Read)]
        {
            let (flags, made) = typed(&["--name=x", "--serve", serve]);
            let endpoint: SyncEndpoint = serde_json::from_value(endpoint(&flags, &made)).unwrap();
            assert_eq!(endpoint.spec.persistent_volume_claim.claim_name, served);
            assert_eq!(
                (endpoint.spec.access, endpoint.spec.service.service_type),
                (access, ServiceType::LoadBalancer)
            );
            let job: SyncJob = serde_json::from_value(job(&flags, Some(&reached))).unwrap();
            let valid = validate::validate(&job.spec, "x", "prod").unwrap();
            assert_eq!(valid.outside(), Some(flags.served()));
        }
    }
}
