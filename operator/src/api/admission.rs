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
    drop_status(&mut manifest);
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

/// Removes the status, which a manifest may contain but only the operator can write.
fn drop_status(manifest: &mut Value) {
    if let Value::Object(fields) = manifest {
        fields.remove("status");
    }
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
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::api::HistoryLimit;

    const LEAST: &str = "
apiVersion: volferry.dev/v1alpha1
kind: SyncJob
metadata: {name: web}
spec:
  source: {persistentVolumeClaim: {claimName: a}}
  destination: {persistentVolumeClaim: {claimName: b}}
";

    fn job(fields: &str) -> Result<SyncJob, AdmissionError> {
        let manifest = serde_saphyr::from_str(&format!("{LEAST}\n{fields}")).unwrap();
        admit(manifest).map(|admitted| match admitted {
            Admitted::SyncJob(job) => *job,
            other => panic!("{other:?}"),
        })
    }

    /// Returns the problems of the minimal SyncJob with its value at `pointer` replaced.
    fn problems(pointer: &str, value: Value) -> Vec<Problem> {
        let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
        set(&mut manifest, pointer, value);
        problems_of(admit(manifest))
    }

    fn set(manifest: &mut Value, pointer: &str, value: Value) {
        let place = pointer.split('/').skip(1).fold(manifest, |at, key| &mut at[key]);
        *place = value;
    }

    fn problems_of(judged: Result<Admitted, AdmissionError>) -> Vec<Problem> {
        match judged {
            Ok(_) => Vec::new(),
            Err(AdmissionError::Invalid { problems, .. }) => problems,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_least_manifest_is_taken_and_gets_its_defaults() {
        let job = job("").unwrap();
        assert_eq!((job.spec.limits.timeout.as_str(), job.spec.files.delete_limit.percent), ("6h", 50));
        assert_eq!(
            (job.spec.parallelism, job.spec.history_limit.clone(), job.spec.source.path.as_str()),
            (1, HistoryLimit { succeeded: 10, failed: 5 }, "/")
        );
    }

    #[test]
    fn a_bad_cron_is_refused_with_what_to_write_instead() {
        let error = job("  schedule: {cron: bad cron}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "SyncJob web is invalid:\n  spec.schedule.cron: \"bad cron\" is not a cron schedule: write five fields \
             (minute, hour, day of month, month, day of week), such as \"0 3 * * *\" for each day at 03:00 or \
             \"*/15 8-18 * * MON-FRI\", or one of @hourly, @daily, @weekly, @monthly, @yearly; a range goes from the \
             lower to the higher, and one of the months has such a day"
        );
    }

    #[test]
    fn there_are_up_to_64_shards() {
        assert_eq!(job("  parallelism: 64\n  files: {write: InPlace}").unwrap().spec.parallelism, 64);
        assert!(job("  parallelism: 65").is_err());
    }

    #[test]
    fn good_values_are_taken() {
        for (pointer, value) in [
            ("/spec/schedule", json!({"cron": "*/15 8-18 1,15 JAN-mar MON-FRI"})),
            (
                "/spec/schedule",
                json!({"cron": "59 23 31 12 7", "timeZone": "Europe/Berlin", "jitter": "10m"}),
            ),
            ("/spec/schedule", json!({"cron": "@daily", "timeZone": "America/Argentina/Buenos_Aires"})),
            ("/spec/schedule", json!({"cron": "0 0 * * sun", "timeZone": "Etc/GMT+2"})),
            ("/spec/schedule", json!({"cron": "@daily", "timeZone": "europe/berlin"})),
            (
                "/spec/source",
                json!({"persistentVolumeClaim": {"claimName": "a"}, "snapshot": "latest", "keepGoing": true}),
            ),
            ("/spec/schedule", json!({"interval": "30s"})),
            ("/spec/limits", json!({"timeout": "1h30m", "retries": 0})),
            (
                "/spec/transfer",
                json!({"bandwidthLimit": "100Mi", "compression": "Zstd", "compressionLevel": 9}),
            ),
            ("/spec/transfer", json!({"bandwidthLimit": "999999Ti"})),
            ("/spec/source/path", json!("/a b/..c/d.")),
            ("/spec/source/snapshot", json!("latest")),
            ("/spec/source/snapshot", json!("as-of:2026-11-22T18:00:00Z")),
            ("/spec/source/snapshot", json!("as-of:2026-11-22T18:00+01:00")),
            ("/spec/destination/create", json!({"size": "1.5Gi", "accessModes": ["ReadWriteMany"]})),
            ("/spec/files/exclude", json!(["*.tmp", " x", "it's \"quoted\""])),
            ("/spec/snapshots", json!({})),
            ("/spec/snapshots", json!({"retain": {"yearly": 1}})),
            ("/spec/snapshots", json!({"verify": {"bandwidthLimit": "50Mi"}})),
            ("/spec/snapshots/retain", json!({"tags": ["gold"]})),
            ("/spec/snapshots/retain", json!({"maxBytes": "10Gi"})),
            ("/spec/regression", json!({"threshold": "1.05"})),
            ("/spec/pods", json!({"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}})),
            ("/spec/pods", json!({"tolerations": [{"operator": "Exists"}], "labels": {"team": "x"}})),
            ("/metadata/labels", json!({"a": "b"})),
            ("/status", json!({"phase": "Running", "observedGeneration": 3})),
            ("/spec/pods", json!({"resources": {"requests": {"cpu": "100m", "memory": 1000}, "limits": {}}})),
        ] {
            assert_eq!(problems(pointer, value.clone()), [], "{pointer} {value}");
        }
    }

    #[test]
    fn bad_values_are_refused_at_their_field_and_with_advice() {
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let cases = [
            ("/spec/schedule/cron", json!("* * * *"), "write five fields"),
            ("/spec/schedule/cron", json!("60 * * * *"), "write five fields"),
            ("/spec/schedule/cron", json!("* 24 * * *"), "write five fields"),
            ("/spec/schedule/cron", json!("* * 0 * *"), "write five fields"),
            ("/spec/schedule/cron", json!("* * * 13 *"), "write five fields"),
            ("/spec/schedule/cron", json!("* * * * 8"), "write five fields"),
            ("/spec/schedule/cron", json!("* * * * * *"), "write five fields"),
            ("/spec/schedule/cron", json!("*/0 * * * *"), "write five fields"),
            ("/spec/schedule/cron", json!("@reboot"), "write five fields"),
            ("/spec/schedule/cron", json!("0 0 * * 5-1"), "from the lower to the higher"),
            ("/spec/schedule/cron", json!("0 0 30 2 *"), "has such a day"),
            ("/spec/schedule", json!({}), "exactly one of cron"),
            ("/spec/schedule", json!({"cron": "@daily", "interval": "1m"}), "exactly one of cron"),
            ("/spec/schedule", json!({"interval": "1m", "timeZone": "UTC"}), "goes with cron"),
            ("/spec/schedule", json!({"cron": "@daily", "timeZone": "Europe/Berln"}), "IANA database"),
            (
                "/spec/source",
                json!({"persistentVolumeClaim": {"claimName": "a"}, "trustStore": true}),
                "go with snapshot",
            ),
            (
                "/spec/source",
                json!({"persistentVolumeClaim": {"claimName": "a"}, "history": "All", "snapshot": "v1"}),
                "remove one of the two",
            ),
            (
                "/spec/source",
                json!({"persistentVolumeClaim": {"claimName": "a"}, "history": "All", "pointInTime": {"method": "Clone"}}),
                "remove one of the two",
            ),
            ("/spec/source/history", json!("Kept"), "source.history: Kept keeps what"),
            ("/spec/source/history", json!("Some"), "\"Kept\""),
            ("/spec/schedule/interval", json!("0s"), "such as 90s"),
            ("/spec/schedule/interval", json!("1 day"), "such as 90s"),
            ("/spec/limits/timeout", json!("6"), "such as 90s"),
            ("/spec/limits/timeout", json!(6), "is not of type \"string\""),
            ("/spec/limits/retries", json!(-1), "-1 is less than the minimum of 0"),
            ("/spec/transfer/bandwidthLimit", json!("fast"), "such as 500k"),
            ("/spec/transfer/bandwidthLimit", json!("100"), "64Ki or more"),
            ("/spec/transfer/bandwidthLimit", json!("1.5Mi"), "whole bytes"),
            ("/spec/transfer", json!({"compressionLevel": 3}), "goes with compression: Zstd"),
            (
                "/spec/transfer",
                json!({"placement": "Local", "bandwidthLimit": "1Mi"}),
                "remove one of the two",
            ),
            ("/spec/transfer/compression", json!("gzip"), "\"Auto\""),
            ("/spec/source/path", json!("a"), "begins with /"),
            ("/spec/source/path", json!("/a/"), "does not end with it"),
            ("/spec/source/path", json!("/a//b"), "empty"),
            ("/spec/source/path", json!("/a/../b"), ".."),
            ("/spec/source/path", json!("/.volferry/index"), ".volferry"),
            ("/spec/destination/path", json!("/.."), ".."),
            ("/spec/source/persistentVolumeClaim/claimName", json!("Web_Data"), "lower-case letters"),
            ("/spec/source/persistentVolumeClaim/namespace", json!("A b"), "lower-case letters"),
            ("/spec/source/persistentVolumeClaim", json!({}), "is missing"),
            ("/spec/source/persistentVolumeClaim", json!({"claim": "a"}), "unknown field claim"),
            ("/spec/source/remote", json!({}), "unknown field remote"),
            ("/spec/source", json!({}), "exactly one of persistentVolumeClaim and endpoint"),
            ("/spec/source/pointsInTime", json!("Clone"), "unknown field pointsInTime"),
            ("/spec/source/pointInTime", json!({"method": "Group"}), "Clone"),
            ("/spec/destination/volumeSnapshots", json!({"retain": {"last": 0}}), "less than the minimum"),
            ("/spec/destination/create/size", json!("10 GB"), "such as 500Mi"),
            ("/spec/destination/create/size", json!("0"), "such as 500Mi"),
            ("/spec/destination/create/accessModes", json!(["ReadOnlyMany"]), "\"ReadWriteOnce\""),
            ("/spec/destination", claim("a"), "overlap"),
            ("/spec/files/deleteLimit/percent", json!(101), "greater than the maximum"),
            ("/spec/deletionPolicy", json!("Delete"), "destination.create"),
            ("/spec/files", json!({"deleteAnyway": true}), "goes with delete: true"),
            ("/spec/files", json!({"deleteTiming": "Before"}), "goes with delete: true"),
            ("/spec/files/exclude", json!(["ok", "two\nlines"]), "one pattern an entry"),
            ("/spec/files/exclude", json!("*.tmp"), "is not of type \"array\""),
            ("/spec/source/snapshot", json!("as-of:yesterday"), "is not a time"),
            ("/spec/source/snapshot", json!("as-of:2026-11-22T18:00"), "is not a time"),
            ("/spec/snapshots/retain", json!({"daily": 0}), "would keep no snapshot"),
            ("/spec/snapshots/retain", json!({"tags": []}), "would keep no snapshot"),
            ("/spec/snapshots/retain/maxBytes", json!("much"), "is not a size"),
            ("/spec/snapshots", json!({"verify": {"parts": 0}}), "less than the minimum"),
            ("/spec/regression/threshold", json!("1"), "\"1.5\""),
            ("/spec/regression/threshold", json!("fast"), "\"1.5\""),
            ("/spec/hooks", json!({}), "before, after or both"),
            ("/spec/historyLimit", json!({"failed": 51}), "greater than the maximum"),
            ("/spec/parallelism", json!(0), "less than the minimum"),
            ("/spec/pods/labels", json!({"volferry.dev/run": "x"}), "choose another prefix"),
            ("/spec/pods/annotations", json!({"volferry.dev/x": "x"}), "choose another prefix"),
            ("/spec/pods/resources/limits", json!({"cpu": true}), "is not of types"),
            ("/spec/pods/resources", json!({"limits": {"memory": "much"}}), "does not match"),
            ("/spec/pods/resources", json!({"requests": {"cpu": "1 core"}}), "does not match"),
            ("/status/made", json!("up"), "unknown field made"),
            ("/spec/sources", json!({}), "unknown field sources"),
            ("/specs", json!({}), "unknown field specs"),
            ("/metadata/nam", json!("x"), "unknown field nam"),
            ("/metadata/name", json!("Web"), "lower-case letters"),
            ("/metadata", json!({}), "metadata.name"),
        ];
        for (pointer, value, advice) in cases {
            let found = problems(pointer, value.clone());
            let field = dotted(pointer);
            let said = |it: &Problem| {
                it.message.contains(advice) && (field.starts_with(&it.field) || it.field.starts_with(&field))
            };
            assert!(found.iter().any(said), "{pointer} {value}: {found:?}");
        }
    }

    /// Returns the violated rules of a change from the minimal SyncJob with `old` to the one with `new`.
    fn changed(old: &[(&str, Value)], new: &[(&str, Value)]) -> Vec<String> {
        let with = |changes: &[(&str, Value)]| {
            let mut manifest: Value = serde_saphyr::from_str(LEAST).unwrap();
            changes.iter().for_each(|(pointer, value)| set(&mut manifest, pointer, value.clone()));
            drop_nulls(&mut manifest);
            manifest
        };
        let kind = kind_of(&with(new)).unwrap().unwrap();
        let judged = Validator::new().validate_compiled(&kind.rules, &with(new), Some(&with(old)));
        judged.err().into_iter().flatten().map(|it| format!("{}: {}", it.field_path, it.message)).collect()
    }

    #[test]
    fn what_would_orphan_data_cannot_change() {
        const CLAIM: &str = "/spec/destination/persistentVolumeClaim";
        let size = |size: &str| [("/spec/destination/create", json!({"size": size}))];
        let refused = [
            (changed(&[], &[(CLAIM, json!({"claimName": "c"}))]), "the destination's claim cannot change"),
            (changed(&[], &[("/spec/destination/path", json!("/x"))]), "destination.path cannot change"),
            (
                changed(&size("1Gi"), &[size("1Gi")[0].clone(), ("/spec/deletionPolicy", json!("Delete"))]),
                "deletionPolicy cannot change",
            ),
            (changed(&size("1Gi"), &size("2Gi")), "destination.create cannot change"),
            (
                changed(&[("/spec/destination/create", json!({"size": "1Gi", "grow": true}))], &size("2Gi")),
                "destination.create cannot change",
            ),
        ];
        for (problems, advice) in refused {
            assert!(problems.len() == 1 && problems[0].contains(advice), "{advice}: {problems:?}");
        }
    }

    #[test]
    fn a_claim_that_may_grow_can_be_told_a_size() {
        let grows = |size: &str| [("/spec/destination/create", json!({"size": size, "grow": true}))];
        assert_eq!(changed(&[("/spec/destination/create", json!({}))], &grows("1Gi")), Vec::<String>::new());
        assert_eq!(changed(&grows("1Gi"), &grows("2Gi")), Vec::<String>::new());
        let other =
            [("/spec/destination/create", json!({"size": "2Gi", "grow": true, "storageClassName": "x"}))];
        assert_eq!(changed(&grows("1Gi"), &other).len(), 1, "its class cannot change");
    }

    #[test]
    fn all_else_may_change() {
        for new in [
            ("/spec/source/persistentVolumeClaim/claimName", json!("c")),
            ("/spec/source/path", json!("/x")),
            ("/spec/destination/create", json!({})),
            ("/spec/trigger", json!("2")),
            ("/spec/files", json!({"delete": true})),
        ] {
            assert_eq!(changed(&[], from_ref(&new)), Vec::<String>::new(), "{new:?}");
            assert_eq!(changed(from_ref(&new), &[]), Vec::<String>::new(), "{new:?}");
        }
    }

    #[test]
    fn one_mistake_gives_one_problem() {
        for (pointer, value) in [
            ("/spec/schedule/cron", json!("bad")),
            ("/spec/transfer/bandwidthLimit", json!("bad")),
            ("/spec/limits/timeout", json!("bad")),
            ("/spec/source/path", json!("bad")),
            ("/spec/destination/create/size", json!("bad")),
            ("/spec/regression/threshold", json!("bad")),
            ("/spec/files/include", json!(["\n", "\n"])),
        ] {
            assert_eq!(problems(pointer, value).len(), 1, "{pointer}");
        }
    }

    #[test]
    fn what_is_not_of_this_api_is_named() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let error = admit(pod).unwrap_err();
        assert!(error.to_string().starts_with("Pod p is not an object of Volferry"), "{error}");
        let old: Value = serde_saphyr::from_str(&LEAST.replace("v1alpha1", "v1")).unwrap();
        assert!(matches!(admit(old), Err(AdmissionError::Kind { .. })));
        assert!(matches!(admit(json!("just text")), Err(AdmissionError::Kind { .. })));
    }

    #[test]
    fn booleans_are_read_as_kubectl_reads_them() {
        let job = job("  files: {delete: yes}\n  suspend: on").unwrap();
        assert!(job.spec.files.delete && job.spec.suspend);
    }
}
