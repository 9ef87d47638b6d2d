//! Fills the template of a SyncJobSet with the name and the labels of a claim. Pure.
//!
//! Placeholders are replaced in texts of the parsed template, so that no value of a claim becomes a field, and nothing
//! is computed. `operator/doc/api.md` says why.

use contract::Reason;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::{
    api::{
        GROUP, SyncJobSet, SyncJobSpec, TemplateMetadata, VERSION,
        admission::{self, AdmissionError, Admitted},
    },
    fault::Fault,
    names,
    spec::validate,
};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const FORMS: &str =
    "write {{ .claim.name }} or {{ .claim.labels.KEY }}, where KEY is the whole key of a label";
/// What stands for each value of a claim while no claim matches.
const SAMPLE: &str = "sample";
/// The value of each label of that claim. It differs from the name, since a template may use both for two claims.
const SAMPLE_LABEL: &str = "sample-label";

/// The values of a claim that stand for placeholders.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    name: &'a str,
    /// The labels; `None` if each has a value, whatever its key.
    labels: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Values<'a> {
    /// Returns the values of a claim with that name and those labels.
    pub fn new(name: &'a str, labels: &'a BTreeMap<String, String>) -> Self {
        Self { name, labels: Some(labels) }
    }

    /// Returns values by which a template is judged while no claim matches.
    pub fn sample() -> Self {
        Self { name: SAMPLE, labels: None }
    }

    fn of(&self, placeholder: &str) -> Result<&str, String> {
        let asked = placeholder.trim();
        if asked == ".claim.name" {
            return Ok(self.name);
        }
        let Some(key) = asked.strip_prefix(".claim.labels.").filter(|key| !key.is_empty()) else {
            return Err(format!("`{OPEN}{placeholder}{CLOSE}` is no placeholder: {FORMS}"));
        };
        let Some(labels) = self.labels else { return Ok(SAMPLE_LABEL) };
        match labels.get(key).filter(|value| !value.is_empty()) {
            Some(value) => Ok(value),
            None => Err(format!(
                "the claim {} has no value of the label {key}: set it, or demand it in spec.claimSelector",
                self.name
            )),
        }
    }
}

/// A SyncJob as a template says for one claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled {
    /// Its name.
    pub name: String,
    /// The whole manifest.
    pub manifest: Value,
}

impl Filled {
    /// Returns the spec.
    pub fn spec(&self) -> &Value {
        &self.manifest["spec"]
    }

    /// Returns the hash of the manifest, which the manifest has as an annotation.
    pub fn hash(&self) -> &str {
        self.manifest["metadata"]["annotations"][names::ANNOTATION_TEMPLATE].as_str().unwrap_or_default()
    }
}

/// Fills the template of a set. Fails with the field at fault, whose path begins with `spec.template`.
pub fn fill(set: &SyncJobSet, values: Values<'_>) -> Result<Filled, Fault> {
    let template = &set.spec.template;
    let TemplateMetadata { name, labels, annotations } = &template.metadata;
    let name = match name {
        Some(name) => filled_text(name, values, "spec.template.metadata.name")?,
        None => names::shorten(&format!("{}-{}", set.name_any(), values.name), 253),
    };
    let mut labels = filled_map(labels, values, "spec.template.metadata.labels")?;
    labels.insert(names::LABEL_MANAGED_BY.into(), names::FIELD_MANAGER.into());
    labels.insert(names::LABEL_SYNCJOBSET.into(), names::label_value(&set.name_any()).into());
    let mut annotations = filled_map(annotations, values, "spec.template.metadata.annotations")?;
    annotations.insert(names::ANNOTATION_CLAIM.into(), values.name.into());
    let mut spec = filled(&Value::Object(template.spec.clone()), values, "spec.template.spec")?;
    if let Value::Object(fields) = &mut spec {
        // Written in any case, so that a SyncJob that was suspended as its claim went away goes on.
        fields.entry("suspend").or_insert(false.into());
    }
    let owner = owner_reference(&set.name_any(), &set.uid().unwrap_or_default());
    Ok(Filled { manifest: manifest(set, &name, &labels, &annotations, &owner, &spec), name })
}

/// Returns the reference by which a SyncJob names the set that owns it.
pub fn owner_reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: SyncJobSet::api_version(&()).into_owned(),
        kind: SyncJobSet::kind(&()).into_owned(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn manifest(
    set: &SyncJobSet,
    name: &str,
    labels: &Map<String, Value>,
    annotations: &Map<String, Value>,
    owner: &OwnerReference,
    spec: &Value,
) -> Value {
    let mut manifest = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "SyncJob",
        "metadata": {
            "name": name,
            "namespace": set.namespace(),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    });
    let hash = names::fingerprint(&manifest.to_string());
    manifest["metadata"]["annotations"][names::ANNOTATION_TEMPLATE] = hash.into();
    manifest
}

/// Judges a filled template by all rules of a SyncJob. Fails with the fields at fault.
pub fn judge(filled: &Filled, claim: &str, namespace: &str) -> Result<(), Fault> {
    let spec = match admission::admit(filled.manifest.clone()) {
        Ok(Admitted::SyncJob(job)) => job.spec,
        Ok(_) => return Err(invalid("it is no SyncJob")),
        Err(AdmissionError::Invalid { problems, .. }) => {
            let told = problems.iter().map(|it| match it.field.as_str() {
                "" => it.message.clone(),
                field => format!("spec.template.{field}: {}", it.message),
            });
            return Err(invalid(&told.collect::<Vec<_>>().join("; ")));
        }
        Err(other) => return Err(invalid(&other.to_string())),
    };
    validate::validate(&spec, &filled.name, namespace)
        .map_err(|error| invalid(&format!("spec.template.{error}")))?;
    names_claim(&spec, claim, namespace)
}

/// Demands that an end names the claim, since the SyncJobs of a set would else all sync the same.
fn names_claim(spec: &SyncJobSpec, claim: &str, own: &str) -> Result<(), Fault> {
    let is_it = spec.claims().any(|(_, end)| {
        end.claim_name == claim && end.namespace.as_ref().is_none_or(|namespace| namespace == own)
    });
    if is_it {
        Ok(())
    } else {
        Err(invalid(
            "spec.template.spec.source.persistentVolumeClaim.claimName: neither end is the claim that matches; write \
         \"{{ .claim.name }}\" here, or in the destination",
        ))
    }
}

fn invalid(problem: &str) -> Fault {
    Fault::new(Reason::InvalidTemplate, problem)
}

fn filled(value: &Value, values: Values<'_>, path: &str) -> Result<Value, Fault> {
    Ok(match value {
        Value::String(text) => filled_text(text, values, path)?.into(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(nth, item)| filled(item, values, &format!("{path}[{nth}]")))
                .collect::<Result<_, _>>()?
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields
                .map(|(name, value)| Ok((name.clone(), filled(value, values, &format!("{path}.{name}"))?)));
            Value::Object(fields.collect::<Result<_, Fault>>()?)
        }
        other => other.clone(),
    })
}

fn filled_map(
    texts: &BTreeMap<String, String>,
    values: Values<'_>,
    path: &str,
) -> Result<Map<String, Value>, Fault> {
    let mut filled = Map::new();
    for (key, text) in texts {
        let path = format!("{path}[{key}]");
        if key.starts_with(&format!("{GROUP}/")) || key == names::LABEL_MANAGED_BY {
            return Err(invalid(&format!("{path}: the key is the operator's: remove it")));
        }
        filled.insert(key.clone(), filled_text(text, values, &path)?.into());
    }
    Ok(filled)
}

fn filled_text(text: &str, values: Values<'_>, path: &str) -> Result<String, Fault> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(OPEN) {
        let told = |problem: String| invalid(&format!("{path}: {problem}"));
        if path.starts_with("spec.template.spec.hooks") {
            let problem =
                "a hook has no placeholders, since whoever labels a claim would have a say in what it runs";
            return Err(told(problem.into()));
        }
        let (placeholder, behind) = after
            .split_once(CLOSE)
            .ok_or_else(|| told(format!("`{OPEN}` is not closed by `{CLOSE}`: {FORMS}")))?;
        filled.push_str(before);
        filled.push_str(values.of(placeholder).map_err(told)?);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(template: &Value) -> SyncJobSet {
        let mut set: SyncJobSet = serde_json::from_value(json!({
            "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet",
            "metadata": {"name": "web", "namespace": "prod", "uid": "u"},
            "spec": {"claimSelector": {"matchLabels": {"app": "web"}}, "template": template},
        }))
        .unwrap();
        set.metadata.generation = Some(1);
        set
    }

    fn template() -> Value {
        json!({"spec": {
            "source": {"persistentVolumeClaim": {"claimName": "{{ .claim.name }}"}},
            "destination": {
                "persistentVolumeClaim": {"claimName": "{{.claim.name}}-copy"},
                "path": "/of/{{ .claim.labels.app.kubernetes.io/part-of }}",
                "create": {},
            },
        }})
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
    }

    /// Returns the message of the fault of a template with this value at the place of the pointer.
    fn told(pointer: &str, value: Value) -> String {
        let mut template = template();
        template["spec"]["destination"]["path"] = "/".into();
        *pointer.split('/').skip(1).fold(&mut template, |at, key| &mut at[key]) = value;
        let (set, labels) = (set(&template), labels(&[]));
        let values = Values::new("data-0", &labels);
        let done = fill(&set, values).and_then(|filled| judge(&filled, "data-0", "prod"));
        let fault = done.unwrap_err();
        assert_eq!(fault.reason, "InvalidTemplate");
        fault.message
    }

    #[test]
    fn names_and_labels_of_a_claim_stand_for_placeholders() {
        let (set, labels) = (set(&template()), labels(&[("app.kubernetes.io/part-of", "shop")]));
        let filled = fill(&set, Values::new("data-0", &labels)).unwrap();
        assert_eq!(filled.name, "web-data-0");
        assert_eq!(filled.spec()["source"]["persistentVolumeClaim"]["claimName"], "data-0");
        assert_eq!(filled.spec()["destination"]["persistentVolumeClaim"]["claimName"], "data-0-copy");
        assert_eq!(filled.spec()["destination"]["path"], "/of/shop");
        assert_eq!(filled.spec()["suspend"], false);
        assert_eq!(filled.manifest["metadata"]["ownerReferences"][0]["controller"], true);
        judge(&filled, "data-0", "prod").unwrap();
        judge(&fill(&set, Values::sample()).unwrap(), SAMPLE, "prod").unwrap();
    }

    #[test]
    fn another_claim_or_template_has_another_hash_and_the_same_has_the_same() {
        let labels = labels(&[("app.kubernetes.io/part-of", "shop")]);
        let hash = |template: &Value, claim| {
            fill(&set(template), Values::new(claim, &labels)).unwrap().hash().to_string()
        };
        let mut other = template();
        other["spec"]["files"] = json!({"delete": true});
        assert_eq!(hash(&template(), "a"), hash(&template(), "a"));
        assert_ne!(hash(&template(), "a"), hash(&template(), "b"));
        assert_ne!(hash(&template(), "a"), hash(&other, "a"));
        assert!(!hash(&template(), "a").is_empty());
    }

    #[test]
    fn what_is_no_placeholder_is_named_with_its_field() {
        for (pointer, value, words) in [
            (
                "/spec/source/path",
                json!("/{{ .clam.name }}"),
                "spec.template.spec.source.path: `{{ .clam.name }}` is no placeholder",
            ),
            ("/spec/source/path", json!("/{{ .claim.name | upper }}"), "is no placeholder"),
            ("/spec/source/path", json!("/{{ .claim.labels. }}"), "is no placeholder"),
            ("/spec/source/path", json!("/{{ .claim.name"), "is not closed"),
            (
                "/spec/hooks",
                json!({"before": {"command": ["sync", "{{ .claim.name }}"]}}),
                "spec.template.spec.hooks.before.command[1]: a hook has no placeholders",
            ),
            (
                "/spec/files",
                json!({"exclude": ["a", "{{ .claim.labels.team }}"]}),
                "spec.template.spec.files.exclude[1]: the claim data-0 has no value of the label team",
            ),
            (
                "/metadata",
                json!({"name": "{{ .claim.labels.team }}"}),
                "spec.template.metadata.name: the claim",
            ),
            (
                "/metadata",
                json!({"labels": {"volferry.dev/x": "y"}}),
                "spec.template.metadata.labels[volferry.dev/x]: the key is the operator's",
            ),
        ] {
            let told = told(pointer, value);
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn a_template_that_makes_no_valid_syncjob_is_told_by_field() {
        for (pointer, value, words) in [
            ("/spec/fils", json!({}), "spec.template.spec: unknown field fils"),
            (
                "/spec/schedule",
                json!({"cron": "bad"}),
                "spec.template.spec.schedule.cron: \"bad\" is not a cron",
            ),
            ("/spec/parallelism", json!("two"), "spec.template.spec.parallelism"),
            ("/metadata", json!({"name": "UPPER"}), "spec.template.metadata.name: \"UPPER\" is not the name"),
            (
                "/spec/source/persistentVolumeClaim/claimName",
                json!("data-1"),
                "neither end is the claim that matches",
            ),
            (
                "/spec/destination/persistentVolumeClaim/claimName",
                json!("data-0"),
                "spec.template.spec: source and destination overlap",
            ),
        ] {
            let told = told(pointer, value);
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn no_value_of_a_claim_becomes_a_field() {
        let labels =
            labels(&[("app.kubernetes.io/part-of", "x\", \"suspend\": true, \"y\": \"{{ .claim.name }}")]);
        let filled = fill(&set(&template()), Values::new("data-0", &labels)).unwrap();
        assert_eq!(filled.spec()["suspend"], false);
        let path = filled.spec()["destination"]["path"].as_str().unwrap();
        assert!(path.ends_with("{{ .claim.name }}"), "no value is filled in turn: {path}");
    }
}
