use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::migrate_error::MigrateError;

/// The fields of an object that remain to be converted, so that none is lost silently.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// The object, such as `ReplicationSource prod/web`.
    object: String,
    path: String,
    fields: Map<String, Value>,
}

impl Fields {
    pub(super) fn new(object: &str, path: &str, value: Value) -> Self {
        let fields = match value {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self { object: object.into(), path: path.into(), fields }
    }

    /// Takes a field. An empty field counts as absent, as in VolSync. Fails if the value has another type.
    pub(super) fn take<T: DeserializeOwned>(&mut self, field: &str) -> Result<Option<T>, MigrateError> {
        let is_set = |value: &Value| !value.is_null() && value.as_str() != Some("");
        let Some(value) = self.fields.remove(field).filter(is_set) else { return Ok(None) };
        let (object, path) = (&self.object, &self.path);
        serde_json::from_value(value).map(Some).map_err(|source| MigrateError::Field {
            object: object.clone(),
            field: format!("{path}.{field}"),
            source,
        })
    }

    /// Takes an object's fields.
    pub(super) fn take_fields(&mut self, field: &str) -> Self {
        let value = self.fields.remove(field).unwrap_or_default();
        Self::new(&self.object, &format!("{}.{field}", self.path), value)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Drops fields that a SyncJob does not need.
    pub(super) fn drop(&mut self, fields: &[&str]) {
        for field in fields {
            self.fields.remove(*field);
        }
    }

    /// Returns a note for each remaining field that it has no counterpart.
    pub(super) fn leftovers(self) -> impl Iterator<Item = String> {
        let Self { object, path, fields } = self;
        fields.into_iter().map(move |(field, _)| format!("{object}: {path}.{field} has no counterpart."))
    }
}
