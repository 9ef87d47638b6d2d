use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::Value;

use super::migrate_error::MigrateError;
use api::{GROUP, KEY_TO_FILL_IN, RemoteEndpoint, Retain, Snapshots, SyncEndpointSpec, SyncJobSpec, VERSION};

/// The name of a claim that the objects do not name. No claim can have this name, so the API server rejects it until a
/// person writes theirs.
pub(super) const UNKNOWN_CLAIM: &str = "NAME-THIS-CLAIM";

/// A SyncJob or SyncEndpoint that replaces another tool's configuration, and notes on the parts without a counterpart.
#[derive(Debug)]
pub struct Draft {
    /// The original, such as `ReplicationSource prod/web`.
    pub(super) origin: String,
    /// The object's name.
    pub name: String,
    /// Its namespace, if the original says one.
    pub namespace: Option<String>,
    pub(super) spec: SyncJobSpec,
    /// The SyncEndpoint that takes the place of the original, if no SyncJob does.
    pub(super) endpoint: Option<SyncEndpointSpec>,
    /// The notes for the reader, each a sentence.
    pub(super) notes: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    api_version: String,
    kind: &'static str,
    metadata: Value,
    spec: &'a Value,
}

impl Draft {
    /// Sends to the SyncEndpoint of that name, in the place of a claim. Its key is to be filled in, without which the
    /// API server rejects the SyncJob.
    pub(super) fn send_to_endpoint(&mut self, host: &str, name: &str) {
        let destination = &mut self.spec.destination;
        let path = std::mem::take(&mut destination.path);
        let address = format!("{host}::{name}/{}", path.trim_matches('/'));
        let address = address.trim_end_matches('/').to_string();
        let public_key = KEY_TO_FILL_IN.to_string();
        destination.persistent_volume_claim = None;
        destination.endpoint = Some(RemoteEndpoint { address, public_key, identity: None });
    }

    /// Returns the manifest as a YAML document, without fields that have their default, below the notes as comments.
    pub fn lines(&self) -> Result<Vec<String>, MigrateError> {
        let (name, namespace) = (Some(self.name.clone()), self.namespace.clone());
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        let (kind, spec) = match &self.endpoint {
            Some(endpoint) => {
                let default = SyncEndpointSpec { path: "/".into(), ..SyncEndpointSpec::default() };
                ("SyncEndpoint", without_defaults(endpoint, &default)?)
            }
            None => {
                // The default has no retention rule, so that rules that keep nothing are left out.
                let snapshots = Some(Snapshots { retain: Retain::default(), ..Snapshots::default() });
                let default = SyncJobSpec { snapshots, ..SyncJobSpec::default() };
                ("SyncJob", without_defaults(&self.spec, &default)?)
            }
        };
        let yaml = serde_saphyr::to_string(&Manifest {
            api_version: format!("{GROUP}/{VERSION}"),
            kind,
            metadata: serde_json::to_value(metadata)?,
            spec: &spec,
        })?;
        let head = ["---".to_string(), format!("# From {}.", self.origin)].into_iter();
        let notes = self.notes.iter().map(|note| format!("# - {note}"));
        Ok(head.chain(notes).chain(yaml.lines().map(Into::into)).collect())
    }
}

fn without_defaults<T: Serialize>(spec: &T, default: &T) -> Result<Value, MigrateError> {
    let mut spec = serde_json::to_value(spec)?;
    drop_defaults(&mut spec, &serde_json::to_value(default)?);
    Ok(spec)
}

/// Removes the fields that equal `default`, and objects that become empty by that.
fn drop_defaults(value: &mut Value, default: &Value) {
    let Value::Object(fields) = value else { return };
    fields.retain(|name, field| {
        if default.get(name) == Some(field) || field.is_null() {
            return false;
        }
        let was_empty = field.as_object().is_some_and(serde_json::Map::is_empty);
        drop_defaults(field, default.get(name).unwrap_or(&Value::Null));
        was_empty || field.as_object().is_none_or(|fields| !fields.is_empty())
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_said_is_written() {
        let mut value = json!({"a": {"b": 1, "c": 2}, "d": {"e": 1}, "create": {}, "none": null});
        drop_defaults(&mut value, &json!({"a": {"b": 1}, "d": {"e": 1, "f": 2}}));
        assert_eq!(value, json!({"a": {"c": 2}, "create": {}}));
    }
}
