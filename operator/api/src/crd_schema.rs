//! Brings the schemas of Rust types into the form that the API server expects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::{JsonSchema, generate::SchemaSettings, transform::AddNullable};
use serde_json::Value;

/// The bounds of all numbers and texts that have none of their own: a number fits into its type, whatever program reads
/// it, and no text or list fills the object.
const MOST_I32: f64 = 2_147_483_647.0;
const MOST_I64: f64 = 9.2e18;
const MOST_F64: f64 = 1e18;
const MOST_BYTES: i64 = 65_536;
const MOST_ITEMS: i64 = 4096;

/// Returns the schema of a type, as a CRD has it for a field of that type; `None` if it has no such form.
pub fn of<T: JsonSchema>() -> Option<JSONSchemaProps> {
    let settings = SchemaSettings::openapi3().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let generator = settings
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator();
    let mut schema = serde_json::from_value(generator.into_root_schema_for::<T>().to_value()).ok()?;
    adapt(&mut schema);
    Some(schema)
}

/// Returns the schemas of the fields, items and values of a schema.
pub(super) fn parts(schema: &mut JSONSchemaProps) -> impl Iterator<Item = &mut JSONSchemaProps> {
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

/// Brings the numbers of an object into the bounds of 64-bit ones, which sums and quotients of numbers within them may
/// exceed: the API server would refuse the whole object.
pub fn clamp(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(clamp),
        Value::Array(items) => items.iter_mut().for_each(clamp),
        Value::Number(number) if number.is_f64() => {
            let bounded = number.as_f64().map(|number| number.clamp(-MOST_F64, MOST_F64));
            *value = bounded.into();
        }
        Value::Number(number) if number.as_u64().is_some_and(|number| number > MOST_I64 as u64) => {
            *value = (MOST_I64 as u64).into();
        }
        _ => {}
    }
}

/// Converts a schema derived from Rust types to the form that the API server expects: `null` means an absent field (a
/// nullable one would bypass its default and every rule on it), integers have a format that OpenAPI defines, everything
/// has a bound, and line breaks of the source do not matter.
pub(super) fn adapt(schema: &mut JSONSchemaProps) {
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
