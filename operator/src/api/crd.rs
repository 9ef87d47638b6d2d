use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{SyncGrant, SyncJob};

/// The CustomResourceDefinitions of this API, as they are written to `crds/`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    [SyncJob::crd(), SyncGrant::crd()].map(adapted).into()
}

fn adapted(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|validation| validation.open_api_v3_schema.as_mut()) {
        adapt(schema);
    }
    crd
}

/// Brings what is derived from Rust types into the form that the API server expects: a `null` stands for an
/// absent field (a nullable one would dodge its default and every rule on it), and integers have one of the
/// formats that OpenAPI names.
fn adapt(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.format = match schema.format.take().as_deref() {
        Some("uint" | "uint64") => Some("int64".into()),
        Some("uint8" | "uint16" | "uint32") => Some("int32".into()),
        other => other.map(Into::into),
    };
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        adapt(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        adapt(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        adapt(values);
    }
}
