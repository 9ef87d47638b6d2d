//! Tests the hand-written manifests: the samples, the operator's permissions, the values of the chart.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use operator::{
    api::admission::{Admitted, admit},
    model::validate::validate,
};
use serde_json::Value;

fn repository(path: &str) -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns all permissions in a list of rules, each as its API group, resource and verb.
fn rights(rules: &[Value]) -> BTreeSet<[String; 3]> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        serde_json::from_value(rule[field].clone()).unwrap_or_else(|error| panic!("{rule}: {field}: {error}"))
    };
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                for verb in words(rule, "verbs") {
                    rights.insert([group.clone(), resource.clone(), verb]);
                }
            }
        }
    }
    rights
}

fn chart_rules(file: &str) -> Vec<Value> {
    let path = format!("charts/volferry/files/rules/{file}.yaml");
    serde_saphyr::from_str(&read(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn rules_of(role: &Value) -> Vec<Value> {
    role["rules"].as_array().cloned().unwrap_or_default()
}

#[test]
fn every_sample_is_listed_admitted_and_can_be_run() {
    let listed: Vec<String> =
        serde_json::from_value(documents("config/samples/kustomization.yaml")[0]["resources"].clone())
            .unwrap();
    let mut there: Vec<String> = fs::read_dir(repository("config/samples"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    there.sort_unstable();
    assert_eq!(listed.iter().collect::<BTreeSet<_>>(), there.iter().collect());
    let mut written = BTreeSet::new();
    for name in there {
        let ours = documents(&format!("config/samples/{name}"));
        let ours = ours.into_iter().filter(|it| it["kind"] == "SyncJob");
        let mut jobs = 0;
        for manifest in ours {
            let Admitted::SyncJob(job) = admit(manifest).unwrap_or_else(|error| panic!("{name}: {error}"))
            else {
                panic!("{name}: not a SyncJob")
            };
            let job =
                validate(&job.spec, "sample", "default").unwrap_or_else(|error| panic!("{name}: {error}"));
            let claim = job.destination.claim.name;
            assert!(
                written.insert(claim.clone()),
                "{name}: another sample, perhaps of another user, writes to {claim}"
            );
            jobs += 1;
        }
        assert!(jobs > 0, "{name} has no SyncJob");
    }
}

#[test]
fn kustomize_grants_the_operator_what_the_chart_does() {
    let role = documents("config/rbac/operator.yaml").remove(0);
    let chart: Vec<Value> = chart_rules("operator").into_iter().chain(chart_rules("cluster")).collect();
    assert_eq!(rights(&rules_of(&role)), rights(&chart));
}

/// The permission is in a separate file in both, so that an operator goes without it if nobody wants hooks.
#[test]
fn kustomize_grants_the_right_to_run_hooks_as_the_chart_does_and_only_on_request() {
    let role = documents("config/hooks/rights.yaml").remove(0);
    let (hooks, always) = (rights(&chart_rules("hooks")), rights(&chart_rules("operator")));
    assert_eq!(rights(&rules_of(&role)), hooks);
    assert!(hooks.contains(&["", "pods/exec", "create"].map(String::from)));
    assert!(hooks.is_disjoint(&always) && !always.iter().any(|[_, resource, _]| resource == "pods/exec"));
}

#[test]
fn kustomize_grants_the_right_to_limit_the_runs_of_a_node_as_the_chart_does() {
    let role = documents("config/nodes/rights.yaml").remove(0);
    assert_eq!(rights(&rules_of(&role)), rights(&chart_rules("nodes")));
}

#[test]
fn the_operator_holds_no_wildcard_and_nothing_of_secrets_and_services() {
    let chart: Vec<Value> = chart_rules("operator").into_iter().chain(chart_rules("cluster")).collect();
    for [group, resource, verb] in rights(&chart) {
        let right = format!("{verb} {resource} of {group}");
        assert!(![&group, &resource, &verb].iter().any(|it| it.contains('*')), "{right}");
        assert!(!["escalate", "bind", "impersonate", "deletecollection"].contains(&verb.as_str()), "{right}");
        assert!(!["secrets", "services"].contains(&resource.as_str()), "{right}");
    }
}

/// They need it to remove `status.destination` by `kubectl edit`, as the message of `OtherDestination` says.
#[test]
fn the_admin_of_a_namespace_may_edit_the_status_of_its_jobs() {
    let roles = documents("config/rbac/users.yaml");
    let admin = roles.iter().find(|role| role["metadata"]["name"] == "volferry-admin").unwrap();
    let rights = rights(&rules_of(admin));
    for verb in ["get", "update", "patch"] {
        assert!(rights.contains(&["volferry.dev", "syncjobs/status", verb].map(String::from)), "{verb}");
    }
}

/// Kubernetes lets nobody grant permissions that they do not have.
#[test]
fn the_operator_holds_what_it_grants_to_syncer_pods() {
    let own = rights(&chart_rules("operator"));
    for [resource, verb] in [["syncruns", "get"], ["syncruns", "watch"], ["syncruns/status", "patch"]] {
        assert!(own.contains(&["volferry.dev", resource, verb].map(String::from)), "{verb} {resource}");
    }
}

/// The status tells the ends of a run which peer to trust.
#[test]
fn nobody_but_the_operator_and_a_runs_own_syncers_may_write_a_runs_status() {
    for role in documents("config/rbac/users.yaml") {
        assert!(!rights(&rules_of(&role)).iter().any(|[_, resource, _]| resource == "syncruns/status"));
    }
}

#[test]
fn the_charts_defaults_fit_its_schema_which_knows_no_other_value() {
    let schema: Value = serde_json::from_str(&read("charts/volferry/values.schema.json")).unwrap();
    let values = documents("charts/volferry/values.yaml").remove(0);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let problems: Vec<String> = validator.iter_errors(&values).map(|error| error.to_string()).collect();
    assert_eq!(problems, Vec::<String>::new());
    let mut misspelled = values.clone();
    misspelled["image"]["repo"] = "x".into();
    assert!(!validator.is_valid(&misspelled));
    let known: BTreeSet<_> = schema["properties"].as_object().unwrap().keys().collect();
    let mut there: BTreeSet<_> = values.as_object().unwrap().keys().collect();
    let global = "global".to_string();
    there.insert(&global);
    assert_eq!(known, there);
}

#[test]
fn the_charts_readme_names_every_value() {
    let readme = read("charts/volferry/README.md");
    let values = documents("charts/volferry/values.yaml").remove(0);
    for name in leaves("", &values) {
        assert!(readme.contains(&format!("`{name}`")), "{name} is not in the chart's README.md");
    }
}

/// Returns the paths of all values, except those that a user fills in, such as resources.
fn leaves(path: &str, value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) if path != "resources" && !fields.is_empty() => {
            let below = |(name, value): (&String, &Value)| {
                leaves(&format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), value)
            };
            fields.iter().flat_map(below).collect()
        }
        _ => vec![path.into()],
    }
}

#[test]
fn the_versions_of_the_chart_are_those_of_the_program() {
    let chart = documents("charts/volferry/Chart.yaml").remove(0);
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    let manager = documents("config/manager/kustomization.yaml").remove(0);
    assert_eq!(manager["images"][0]["newTag"], env!("CARGO_PKG_VERSION"));
}
