//! Validates a manifest as the API server would on `kubectl apply`, without an API server: unknown fields, types,
//! bounds and required fields by the generated schema, then defaults, then the CEL rules.
//!
//! It knows only the CRDs that this build generates: no other objects of a cluster, no earlier version of the same
//! object (so that rules on changes do not apply), no admission webhook.

use std::{fmt, sync::LazyLock};

use jsonschema::error::ValidationErrorKind;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use super::{GROUP, SyncEndpoint, SyncGrant, SyncJob, SyncJobSet, SyncRun, VERSION, crds, rules};

/// An object that the API server would accept, with the schema's defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub enum Admitted {
    /// A SyncJob.
    SyncJob(Box<SyncJob>),
    /// A SyncRun.
    SyncRun(Box<SyncRun>),
    /// A SyncGrant.
    SyncGrant(Box<SyncGrant>),
    /// A SyncJobSet. Its template is not looked at, since it takes a claim to fill it.
    SyncJobSet(Box<SyncJobSet>),
    /// A SyncEndpoint.
    SyncEndpoint(Box<SyncEndpoint>),
}

/// The reasons why the API server would reject a manifest.
#[derive(Debug, Error)]
pub enum AdmissionError {
    /// An object of another API.
    #[error(
        "{object} is not an object of Volferry: its apiVersion has to be {GROUP}/{VERSION} and its kind SyncJob, \
         SyncRun, SyncGrant, SyncJobSet or SyncEndpoint"
    )]
    Kind {
        /// The object, as far as its kind and name are given.
        object: ObjectName,
    },
    /// The object has invalid fields.
    #[error("{object} is invalid:{}", listed(problems))]
    Invalid {
        /// The object.
        object: ObjectName,
        /// All problems of the object; never empty.
        problems: Vec<Problem>,
    },
    /// The schema accepts a value that the types cannot represent: a bug of this program.
    #[error("{object} fits the schema, but not the type that the schema comes from")]
    Type {
        /// The object.
        object: ObjectName,
        /// The deserialization error.
        source: serde_json::Error,
    },
    /// A generated CRD is not a valid schema: a bug of this program.
    #[error("a generated schema is not valid: {0}")]
    Schema(&'static str),
}

/// The kind and name of an object, as in its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    kind: String,
    name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// One problem of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The field's path, such as `spec.schedule.cron`; empty for the object itself.
    pub field: String,
    /// The problem and, if a rule states it, what to write instead.
    pub message: String,
}

/// Validates one object. Fails with all its problems.
pub fn admit(mut manifest: Value) -> Result<Admitted, AdmissionError> {
    let object = object_name(&manifest);
    let Some(kind) = kind_of(&manifest)? else { return Err(AdmissionError::Kind { object }) };
    drop_nulls(&mut manifest);
    let mut manifest = apply_defaults(&kind.schema, &manifest);
    let problems = kind.problems(&manifest);
    if !problems.is_empty() {
        return Err(AdmissionError::Invalid { object, problems });
    }
    // Only the operator writes it, and a manifest may have it.
    manifest.as_object_mut().map(|fields| fields.remove("status"));
    match kind.name.as_str() {
        "SyncJob" => typed(object, manifest).map(|job| Admitted::SyncJob(Box::new(job))),
        "SyncRun" => typed(object, manifest).map(|run| Admitted::SyncRun(Box::new(run))),
        "SyncJobSet" => typed(object, manifest).map(|set| Admitted::SyncJobSet(Box::new(set))),
        "SyncGrant" => typed(object, manifest).map(|grant| Admitted::SyncGrant(Box::new(grant))),
        _ => typed(object, manifest).map(|endpoint| Admitted::SyncEndpoint(Box::new(endpoint))),
    }
}

/// One kind of object, with its schema and rules compiled.
struct Kind {
    name: String,
    schema: Value,
    strict: jsonschema::Validator,
    rules: CompiledSchema,
}

/// The kinds, cached because compiling a schema takes far longer than validating an object.
static KINDS: LazyLock<Result<Vec<Kind>, String>> =
    LazyLock::new(|| crds().into_iter().map(Kind::new).collect());

impl Kind {
    fn new(crd: CustomResourceDefinition) -> Result<Self, String> {
        let name = crd.spec.names.kind.clone();
        let schema = whole_schema(crd).ok_or_else(|| format!("the CRD of {name} has no schema"))?;
        let mut strict = schema.clone();
        make_strict(&mut strict);
        let strict = jsonschema::validator_for(&strict).map_err(|error| error.to_string())?;
        let rules = compile_schema(&schema);
        Ok(Self { name, schema, strict, rules })
    }

    /// Returns all problems of an object whose defaults are filled in. The rules are evaluated only if the schema is
    /// fulfilled, since they rely on it.
    fn problems(&self, manifest: &Value) -> Vec<Problem> {
        let mut problems: Vec<_> = self.strict.iter_errors(manifest).map(|it| schema_problem(&it)).collect();
        problems.extend(name_problem(manifest));
        if problems.is_empty() {
            let judged = Validator::new().validate_compiled(&self.rules, manifest, None);
            let broken = judged.err().into_iter().flatten();
            problems.extend(broken.map(|it| Problem { field: it.field_path, message: it.message }));
        }
        problems
    }
}

fn kind_of(manifest: &Value) -> Result<Option<&'static Kind>, AdmissionError> {
    let kinds = KINDS.as_ref().map_err(|problem| AdmissionError::Schema(problem))?;
    if manifest.get("apiVersion") != Some(&json!(format!("{GROUP}/{VERSION}"))) {
        return Ok(None);
    }
    Ok(kinds.iter().find(|kind| manifest.get("kind") == Some(&json!(kind.name))))
}

fn object_name(manifest: &Value) -> ObjectName {
    let text = |pointer| manifest.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").or_else(|| text("/metadata/generateName"));
    ObjectName {
        kind: text("/kind").unwrap_or("(an object without kind)").into(),
        name: name.unwrap_or("(without name)").into(),
    }
}

/// Returns the schema of a CRD, extended by `apiVersion`, `kind` and `metadata`, which it leaves out.
fn whole_schema(crd: CustomResourceDefinition) -> Option<Value> {
    let version = crd.spec.versions.into_iter().find(|version| version.name == VERSION)?;
    let mut schema = serde_json::to_value(version.schema?.open_api_v3_schema?).ok()?;
    let properties = schema.get_mut("properties")?.as_object_mut()?;
    properties.insert("apiVersion".into(), json!({"type": "string"}));
    properties.insert("kind".into(), json!({"type": "string"}));
    properties.insert("metadata".into(), metadata_schema());
    Some(schema)
}

fn metadata_schema() -> Value {
    let inline = schemars::generate::SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    inline.into_generator().into_root_schema_for::<ObjectMeta>().to_value()
}

/// Removes fields that are `null`, because `null` means absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Makes explicit what the API server assumes without the schema: no other fields are allowed, the meaning of
/// `x-kubernetes-int-or-string`, and that bounds of integers are integers.
fn make_strict(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    if schema.contains_key("properties") {
        schema.entry("additionalProperties").or_insert(json!(false));
    }
    if schema.contains_key("x-kubernetes-int-or-string") {
        schema.insert("type".into(), json!(["integer", "string"]));
    }
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(make_strict),
            ("items" | "additionalProperties", value) => make_strict(value),
            ("minimum" | "maximum", bound) => {
                if let Some(whole) = bound.as_f64().filter(|it| it.fract() == 0.0) {
                    *bound = json!(whole as i64);
                }
            }
            _ => {}
        }
    }
}

fn schema_problem(error: &jsonschema::ValidationError<'_>) -> Problem {
    let message = match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            format!("unknown field {}", unexpected.join(", "))
        }
        ValidationErrorKind::Required { property } => format!("{property} is missing"),
        _ => error.to_string(),
    };
    Problem { field: dotted(error.instance_path().as_str()), message }
}

/// Converts a path such as `/spec/files/exclude/0` to `spec.files.exclude[0]`.
fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")) {
        match part.parse::<usize>() {
            Ok(index) => path += &format!("[{index}]"),
            Err(_) if path.is_empty() => path += &part,
            Err(_) => path += &format!(".{part}"),
        }
    }
    path
}

fn name_problem(manifest: &Value) -> Option<Problem> {
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str);
    let message = match name {
        None if manifest.pointer("/metadata/generateName").is_some() => return None,
        None => "metadata.name or metadata.generateName is needed".into(),
        Some(name) if rules::is_object_name(name) => return None,
        Some(name) => format!("\"{name}\" {}", rules::IS_NOT_OBJECT_NAME),
    };
    Some(Problem { field: "metadata.name".into(), message })
}

fn typed<T: DeserializeOwned>(object: ObjectName, manifest: Value) -> Result<T, AdmissionError> {
    serde_json::from_value(manifest).map_err(|source| AdmissionError::Type { object, source })
}

fn listed(problems: &[Problem]) -> String {
    let line = |problem: &Problem| match problem.field.as_str() {
        "" => format!("\n  {}", problem.message),
        field => format!("\n  {field}: {}", problem.message),
    };
    problems.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
