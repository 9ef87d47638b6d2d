use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

use super::{
    grant::SyncGrant, remote_limits::REMOTE_LIMITS, run::SyncRun, set::SyncJobSet, spec::SyncJob,
    sync_endpoint::SyncEndpoint,
};

/// The bounds of all numbers and texts that have none of their own: a number fits into its type, whatever program reads
/// it, and no text or list fills the object.
const MOST_I32: f64 = 2_147_483_647.0;
const MOST_I64: f64 = 9.2e18;
const MOST_F64: f64 = 1e18;
const MOST_BYTES: i64 = 65_536;
const MOST_ITEMS: i64 = 4096;

/// Returns the CustomResourceDefinitions of this API, as they are written to `crds/`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut run = SyncRun::crd();
    bound_name(&mut run);
    let mut endpoint = SyncEndpoint::crd();
    bound_name(&mut endpoint);
    let mut run = adapted(run);
    schemas(&mut run).for_each(leave_to_operator);
    let mut job = adapted(SyncJob::crd());
    schemas(&mut job).for_each(leave_to_pods);
    schemas(&mut job).for_each(limit_remote);
    vec![job, run, adapted(SyncGrant::crd()), adapted(SyncJobSet::crd()), adapted(endpoint)]
}

fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|validation| validation.open_api_v3_schema.as_mut())
}

/// Returns the schema to which the operator holds the reports of a run's ends; `None` if there is none.
pub(super) fn report() -> Option<JSONSchemaProps> {
    reports(schemas(&mut adapted(SyncRun::crd())).next()?).map(|schema| schema.clone())
}

/// The maximum number of fields of an end's report, also of a later operator's.
const MAX_REPORT_FIELDS: i64 = 100;

/// Leaves it to the operator to check what the ends of a run report. The API server would need the schema, whose fields
/// are those of `status.report`, once more.
fn leave_to_operator(schema: &mut JSONSchemaProps) {
    if let Some(report) = reports(schema) {
        *report = JSONSchemaProps {
            type_: Some("object".into()),
            max_properties: Some(MAX_REPORT_FIELDS),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        };
    }
}

fn reports(run: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    let status = run.properties.as_mut()?.get_mut("status")?;
    match status.properties.as_mut()?.get_mut("ends")?.additional_properties.as_mut()? {
        JSONSchemaPropsOrBool::Schema(report) => Some(report),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

/// Removes the descriptions of affinities at the two ends of a SyncJob, which `spec.pods` has: with them, the CRD would
/// exceed what `kubectl apply` keeps of it.
fn leave_to_pods(schema: &mut JSONSchemaProps) {
    for end in ["source", "destination"] {
        let affinity =
            ["spec", end, "pods", "affinity"].into_iter().try_fold(&mut *schema, |schema, name| {
                schema.properties.as_mut().and_then(|fields| fields.get_mut(name))
            });
        affinity.into_iter().flat_map(parts).for_each(silence);
    }
}

/// Refuses what a SyncJob with a remote end cannot ask for.
fn limit_remote(schema: &mut JSONSchemaProps) {
    let spec = schema.properties.as_mut().and_then(|fields| fields.get_mut("spec"));
    let rules = REMOTE_LIMITS.iter().map(|limit| ValidationRule {
        rule: format!("!({})", limit.cel),
        message: Some(limit.to_string()),
        ..ValidationRule::default()
    });
    spec.into_iter().for_each(|spec| {
        spec.x_kubernetes_validations.get_or_insert_default().extend(rules.clone());
    });
}

fn silence(schema: &mut JSONSchemaProps) {
    schema.description = None;
    parts(schema).for_each(silence);
}

/// Returns the schemas of the fields, items and values of a schema.
fn parts(schema: &mut JSONSchemaProps) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let items = match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(&mut **items),
        _ => None,
    };
    let values = match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&mut **values),
        _ => None,
    };
    schema.properties.iter_mut().flat_map(|fields| fields.values_mut()).chain(items).chain(values)
}

/// Limits the name of a SyncRun or SyncEndpoint, because it is a label of all its objects. Only a rule on the whole
/// object can access the name.
fn bound_name(crd: &mut CustomResourceDefinition) {
    let kind = crd.spec.names.kind.clone();
    for schema in schemas(crd) {
        schema.x_kubernetes_validations = Some(vec![ValidationRule {
            rule: "self.metadata.name.size() <= 63".into(),
            message: Some(format!("the name of a {kind} has at most 63 characters")),
            ..ValidationRule::default()
        }]);
    }
}

/// Returns the files of `crds/`: the name and content of each. Fails if a CRD cannot be serialized.
pub fn crd_files() -> Result<Vec<(String, String)>, serde_saphyr::SerializeError> {
    let file = |crd: CustomResourceDefinition| {
        let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let yaml = serde_saphyr::to_string(&crd)?;
        Ok((name, format!("# Generated by `make crds`.\n---\n{yaml}")))
    };
    crds().into_iter().map(file).collect()
}

fn adapted(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    schemas(&mut crd).for_each(adapt);
    crd
}

/// Converts a schema derived from Rust types to the form that the API server expects: `null` means an absent field (a
/// nullable one would bypass its default and every rule on it), integers have a format that OpenAPI defines, everything
/// has a bound, and line breaks of the source do not matter.
fn adapt(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| unwrapped(&text));
    bound(schema);
    schema.format = match schema.format.take().as_deref() {
        Some("uint" | "uint64") => Some("int64".into()),
        Some("uint8" | "uint16" | "uint32") => Some("int32".into()),
        other => other.map(Into::into),
    };
    parts(schema).for_each(adapt);
}

/// Gives a schema the bounds that it lacks. The API server does not hold integers to their format.
fn bound(schema: &mut JSONSchemaProps) {
    let format = schema.format.as_deref().unwrap_or_default();
    let range = match (schema.type_.as_deref(), format) {
        (Some("integer"), "uint8") => Some((0.0, 255.0)),
        (Some("integer"), "uint16") => Some((0.0, 65_535.0)),
        (Some("integer"), "uint32") => Some((0.0, MOST_I32)),
        (Some("integer"), "int32") => Some((-MOST_I32, MOST_I32)),
        (Some("integer"), "uint" | "uint64") => Some((0.0, MOST_I64)),
        (Some("integer"), _) => Some((-MOST_I64, MOST_I64)),
        (Some("number"), _) => Some((-MOST_F64, MOST_F64)),
        _ => None,
    };
    if let Some((least, most)) = range {
        schema.minimum.get_or_insert(least);
        schema.maximum.get_or_insert(most);
    }
    let is_text = schema.type_.as_deref() == Some("string") && schema.enum_.is_none();
    if is_text && schema.format.is_none() {
        schema.max_length.get_or_insert(MOST_BYTES);
    }
    if schema.items.is_some() {
        schema.max_items.get_or_insert(MOST_ITEMS);
    }
    if schema.additional_properties.is_some() {
        schema.max_properties.get_or_insert(MOST_ITEMS);
    }
}

/// Joins the lines of each paragraph of a text.
fn unwrapped(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path};

    use serde_json::Value;

    use super::*;

    fn yaml_files(directory: &str) -> BTreeMap<String, String> {
        let directory = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..").join(directory);
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        files
            .map(|it| (it.file_name().into_string().unwrap(), fs::read_to_string(it.path()).unwrap()))
            .collect()
    }

    #[test]
    fn the_files_in_crds_and_its_copies_are_what_the_types_say() {
        let generated: BTreeMap<_, _> = crd_files().unwrap().into_iter().collect();
        for directory in ["crds", "config/crd", "charts/volferry/files/crds"] {
            let path = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("..").join(directory);
            assert!(!path.symlink_metadata().unwrap().is_symlink(), "{directory}: Flux drops symbolic links");
            let mut there = yaml_files(directory);
            there.remove("kustomization.yaml");
            assert_eq!(there.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>());
            for (name, content) in &generated {
                assert!(&there[name] == content, "{directory}/{name} is out of date: run `make crds`");
            }
        }
    }

    #[test]
    fn what_is_written_reads_back_as_what_was_meant() {
        for (crd, (_, yaml)) in crds().iter().zip(crd_files().unwrap()) {
            let read: Value = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(read, serde_json::to_value(crd).unwrap());
        }
    }

    #[test]
    fn a_crd_fits_into_the_annotation_that_kubectl_apply_keeps() {
        for crd in crds() {
            let size = serde_json::to_string(&crd).unwrap().len();
            assert!(size < 256 * 1024, "{} takes {size} bytes", crd.spec.names.kind);
        }
    }

    /// A column without a field would stay empty without an error.
    #[test]
    fn every_column_prints_a_field_that_there_is() {
        for crd in crds() {
            let version = &crd.spec.versions[0];
            let schema = version.schema.clone().unwrap().open_api_v3_schema.unwrap();
            for column in version.additional_printer_columns.iter().flatten() {
                let path = column.json_path.trim_start_matches('.');
                if path.starts_with("metadata.") {
                    continue;
                }
                let mut at = &schema;
                let path = path.replace("Synced", "Ready");
                for part in path.split("[?(@.type==\"Ready\")]").flat_map(|part| part.split('.')) {
                    at = match &at.items {
                        Some(JSONSchemaPropsOrArray::Schema(items)) => items,
                        _ => at,
                    };
                    if !part.is_empty() {
                        let fields = at.properties.as_ref();
                        at = fields.and_then(|it| it.get(part)).unwrap_or_else(|| panic!("{path}: {part}"));
                    }
                }
            }
        }
    }

    #[test]
    fn the_columns_of_a_syncjob_tell_how_it_stands_and_the_wide_ones_more() {
        let columns = crds()
            .into_iter()
            .find(|crd| crd.spec.names.kind == "SyncJob")
            .and_then(|crd| crd.spec.versions[0].additional_printer_columns.clone())
            .unwrap();
        let named = |wide: bool| -> Vec<&str> {
            let of = columns.iter().filter(|it| (it.priority == Some(1)) == wide);
            of.map(|it| it.name.as_str()).collect()
        };
        let narrow = ["Ready", "Synced", "Phase", "Last success", "Next", "Duration", "Suspended", "Age"];
        assert_eq!(named(false), narrow);
        assert_eq!(named(true), ["Source", "Destination", "Files", "Transferred", "Message"]);
    }

    #[test]
    fn a_person_who_asks_for_a_run_names_the_syncjob_and_nothing_else() {
        let crd = crds().into_iter().find(|crd| crd.spec.names.kind == "SyncRun").unwrap();
        let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
        let spec = schema.properties.unwrap().remove("spec").unwrap();
        assert_eq!(spec.required.unwrap(), ["syncJob"]);
    }

    #[test]
    fn every_field_is_documented_and_none_is_nullable_or_free_form() {
        for crd in crds() {
            let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
            for (name, property) in schema.properties.iter().flatten() {
                check(name, property);
            }
        }
    }

    #[test]
    fn everything_has_a_bound() {
        for mut crd in crds() {
            let kind = crd.spec.names.kind.clone();
            for schema in schemas(&mut crd) {
                for (name, part) in schema.properties.iter_mut().flatten().filter(|(it, _)| *it != "metadata")
                {
                    check_bounds(&format!("{kind} {name}"), part);
                }
            }
        }
    }

    fn check_bounds(path: &str, schema: &mut JSONSchemaProps) {
        let fits = |most: f64| {
            schema.minimum.is_some_and(|it| it >= -most - 1.0) && schema.maximum.is_some_and(|it| it <= most)
        };
        let is_bounded = match (schema.type_.as_deref(), schema.format.as_deref()) {
            (Some("integer"), Some("int32")) => fits(f64::from(i32::MAX)),
            (Some("integer"), _) => fits(i64::MAX as f64 - 2048.0),
            (Some("number"), _) => fits(f64::MAX),
            (Some("string"), format) => {
                schema.max_length.is_some() || schema.enum_.is_some() || format == Some("date-time")
            }
            (Some("array"), _) => schema.max_items.is_some(),
            (Some("object"), _) => schema.properties.is_some() || schema.max_properties.is_some(),
            _ => true,
        };
        assert!(is_bounded, "{path} has no bound: {schema:?}");
        let parts: Vec<_> = parts(schema).collect();
        parts.into_iter().enumerate().for_each(|(nth, part)| check_bounds(&format!("{path}.{nth}"), part));
    }

    fn check(path: &str, schema: &JSONSchemaProps) {
        let elsewhere = ["spec.source.pods.affinity.", "spec.destination.pods.affinity."];
        let is_elsewhere = elsewhere.iter().any(|part| path.starts_with(part));
        assert!(is_elsewhere || schema.description.is_some(), "{path} has no description");
        assert!(schema.nullable.is_none(), "{path} is nullable");
        assert!(
            !schema.format.as_deref().is_some_and(|it| it.starts_with('u')),
            "{path}: {:?}",
            schema.format
        );
        // The copy of a SyncJob's spec: the SyncJob's own schema has its fields.
        let is_opaque = ["spec.job", "spec.template.spec"].contains(&path);
        let known = schema.properties.is_some() || schema.additional_properties.is_some() || is_opaque;
        assert!(schema.type_.as_deref() != Some("object") || known, "{path} is free-form");
        for (name, property) in schema.properties.iter().flatten() {
            check(&format!("{path}.{name}"), property);
        }
    }
}
