//! Tests the hand-written manifests: the samples, the operator's permissions, the values of the chart.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use operator::{
    api::admission::{Admitted, admit},
    pods::job,
    sets::members,
    spec::validate::validate,
};
use serde_json::{Value, json};

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
        for other in ours.iter().filter(|it| it["kind"] == "SyncGrant" || it["kind"] == "SyncEndpoint") {
            admit(other.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let mut jobs = ours.iter().filter(|it| it["kind"] == "SyncEndpoint").count();
        for set in ours.iter().filter(|it| it["kind"] == "SyncJobSet") {
            let admitted = admit(set.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let Admitted::SyncJobSet(set) = admitted else { panic!("{name}: not a SyncJobSet") };
            assert_eq!(members::plan(&set, &[], &[]).problems, [], "{name}");
            jobs += 1;
        }
        let ours = ours.into_iter().filter(|it| it["kind"] == "SyncJob");
        for manifest in ours {
            let Admitted::SyncJob(job) = admit(manifest).unwrap_or_else(|error| panic!("{name}: {error}"))
            else {
                panic!("{name}: not a SyncJob")
            };
            let job =
                validate(&job.spec, "sample", "default").unwrap_or_else(|error| panic!("{name}: {error}"));
            let claim = job.ends.sink.claim().unwrap().name.clone();
            assert!(
                written.insert(claim.clone()),
                "{name}: another sample, perhaps of another user, writes to {claim}"
            );
            jobs += 1;
        }
        assert!(jobs > 0, "{name} has no SyncJob and no SyncEndpoint");
    }
}

#[test]
fn the_sample_policy_lets_syncers_meet_over_udp_and_over_tcp() {
    let policy = documents("config/samples/networkpolicy.yaml").remove(0);
    for way in ["ingress", "egress"] {
        let port = |protocol: &str| json!({"protocol": protocol, "port": job::PORT});
        assert_eq!(policy["spec"][way][0]["ports"], json!([port("UDP"), port("TCP")]), "{way}");
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

/// The rights on PersistentVolumes are those of an account of its own, which the operator's pods do not have.
#[test]
fn kustomize_grants_the_populator_what_the_chart_does_and_the_operator_none_of_its_rights_on_volumes() {
    let role = documents("config/populator/rights.yaml").remove(0);
    let (populator, always) = (rights(&chart_rules("populator")), rights(&chart_rules("operator")));
    assert_eq!(rights(&rules_of(&role)), populator);
    let may_patch = ["", "persistentvolumes", "patch"].map(String::from);
    assert!(populator.contains(&may_patch) && !always.contains(&may_patch));
    assert!(!populator.iter().any(|[_, resource, _]| ["secrets", "pods"].contains(&resource.as_str())));
}

#[test]
fn the_operator_holds_no_wildcard_and_can_read_and_change_no_secret() {
    let chart: Vec<Value> = chart_rules("operator").into_iter().chain(chart_rules("cluster")).collect();
    for [group, resource, verb] in rights(&chart) {
        let right = format!("{verb} {resource} of {group}");
        assert!(![&group, &resource, &verb].iter().any(|it| it.contains('*')), "{right}");
        assert!(!["escalate", "bind", "impersonate", "deletecollection"].contains(&verb.as_str()), "{right}");
        // The answer to a patch is the whole Secret.
        assert!(resource != "secrets" || verb == "create", "{right}");
    }
}

/// The status decides what is run and deleted; another volume is accepted by an annotation.
#[test]
fn no_user_of_a_namespace_may_write_the_status_of_its_jobs() {
    for role in documents("config/rbac/users.yaml") {
        let rights = rights(&rules_of(&role));
        assert!(!rights.iter().any(|[_, resource, _]| resource.contains("/status")), "{role}");
    }
}

/// Kubernetes lets nobody grant permissions that they do not have.
#[test]
fn the_operator_holds_what_it_grants_to_syncer_pods() {
    let own = rights(&chart_rules("operator"));
    for [resource, verb] in [
        ["syncruns", "get"],
        ["syncruns", "watch"],
        ["syncruns/status", "patch"],
        ["syncendpoints", "list"],
        ["syncendpoints", "watch"],
        ["syncendpoints/status", "patch"],
    ] {
        assert!(own.contains(&["volferry.dev", resource, verb].map(String::from)), "{verb} {resource}");
    }
    assert!(own.contains(&["", "secrets", "create"].map(String::from)));
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
fn the_chart_takes_the_settings_of_syncer_pods_that_a_syncjob_has_but_for_users_and_accounts() {
    let schema: Value = serde_json::from_str(&read("charts/volferry/values.schema.json")).unwrap();
    let crds = documents("crds/volferry.dev_syncjobs.yaml");
    let crd = crds.iter().find(|it| it["kind"] == "CustomResourceDefinition").unwrap();
    let job = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let names = |schema: &Value| -> BTreeSet<String> {
        schema["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let (chart, job) = (&schema["properties"]["syncers"]["properties"]["pods"], &job["properties"]["pods"]);
    let mut expected = names(job);
    assert!(expected.remove("securityContext") && expected.remove("serviceAccountName"));
    assert_eq!(names(chart), expected);
    let resources = [chart, job].map(|it| names(&it["properties"]["resources"]));
    assert_eq!(resources[0], resources[1]);
    for closed in [chart, &chart["properties"]["resources"]] {
        assert_eq!(closed["additionalProperties"], false);
    }
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

#[test]
fn artifact_hub_is_told_of_every_crd_with_an_example_that_is_admitted() {
    let chart = documents("charts/volferry/Chart.yaml").remove(0);
    let told = |name: &str| -> Vec<Value> {
        let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap();
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let crds = operator::api::crds();
    let names: BTreeSet<_> = crds.iter().map(|crd| crd.metadata.name.clone().unwrap()).collect();
    let told_names: BTreeSet<_> =
        told("crds").iter().map(|crd| crd["name"].as_str().unwrap().to_string()).collect();
    assert_eq!(told_names, names);
    let examples = told("crdsExamples");
    let kinds: BTreeSet<_> = examples.iter().map(|it| it["kind"].as_str().unwrap().to_string()).collect();
    assert_eq!(kinds, crds.iter().map(|crd| crd.spec.names.kind.clone()).collect());
    for example in examples {
        let kind = example["kind"].to_string();
        admit(example).unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    let image = format!("volferry/volferry:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(told("images")[0]["image"], image);
    assert!(!told("changes").is_empty());
}

#[test]
fn each_value_of_the_chart_has_a_description_in_the_form_of_helm_docs() {
    let text = read("charts/volferry/values.yaml");
    let mut before: Vec<(usize, bool)> = Vec::new();
    let mut comment = None;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        if line.trim_start().starts_with('#') {
            comment = Some(comment.unwrap_or_else(|| line.trim_start().starts_with("# -- ")));
            continue;
        }
        let Some((_, value)) = line.split_once(':') else { continue };
        before.retain(|(above, _)| *above < depth);
        let is_told = comment.take().unwrap_or_default();
        let is_below_one = before.last().is_some_and(|(_, told)| *told);
        assert!(
            value.trim().is_empty() || is_told || is_below_one,
            "{line} has no comment that begins with `# --`"
        );
        before.push((depth, is_told));
    }
}

#[test]
fn the_bundle_of_olm_grants_and_runs_what_kustomize_does() {
    let csv = documents("config/olm/volferry.clusterserviceversion.yaml").remove(0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(csv["spec"]["version"], version);
    assert_eq!(csv["metadata"]["name"], format!("volferry.v{version}"));
    let owned = csv["spec"]["customresourcedefinitions"]["owned"].as_array().unwrap().iter();
    let owned: BTreeSet<_> = owned.map(|crd| crd["name"].as_str().unwrap().to_string()).collect();
    assert_eq!(owned, operator::api::crds().iter().map(|crd| crd.metadata.name.clone().unwrap()).collect());
    let install = &csv["spec"]["install"]["spec"];
    let granted = |of: &str| rights(&rules_of(&install[of][0]));
    let leader = documents("config/rbac/leader-election.yaml").remove(0);
    let own: BTreeSet<_> =
        rights(&chart_rules("operator")).union(&rights(&rules_of(&leader))).cloned().collect();
    assert_eq!(granted("permissions"), own);
    assert_eq!(granted("clusterPermissions"), rights(&chart_rules("cluster")));

    let mut theirs = documents("config/manager/deployment.yaml").remove(0)["spec"].take();
    let mut ours = install["deployments"][0]["spec"].clone();
    let image = ours["template"]["spec"]["containers"][0]["image"].clone();
    assert!(image.as_str().unwrap().ends_with(&format!(":{version}")), "{image}");
    assert_eq!(csv["spec"]["relatedImages"][0]["image"], image);
    assert_eq!(csv["metadata"]["annotations"]["containerImage"], image);
    let env = |name: &str| {
        ours["template"]["spec"]["containers"][0]["env"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == name)
            .cloned()
    };
    assert_eq!(env("RELATED_IMAGE_VOLFERRY").unwrap()["value"], image);
    // OLM says which namespaces, and OpenShift which user; the image has another way into the arguments.
    let security = theirs["template"]["spec"]["securityContext"].as_object_mut().unwrap();
    security.retain(|name, _| !name.starts_with("runAs") || name == "runAsNonRoot");
    for spec in [&mut ours, &mut theirs] {
        let container = spec["template"]["spec"]["containers"][0].as_object_mut().unwrap();
        container.retain(|name, _| !["image", "args", "env"].contains(&name.as_str()));
    }
    assert_eq!(ours, theirs);
}

/// Without a webhook, the API server only exchanges the `apiVersion` of what is stored: operator/doc/versions.md.
#[test]
fn each_crd_stores_one_version_that_is_served_and_converts_without_a_webhook() {
    for crd in operator::api::crds() {
        let stored: Vec<_> = crd.spec.versions.iter().filter(|version| version.storage).collect();
        assert_eq!(stored.len(), 1, "{:?}", crd.metadata.name);
        assert!(stored[0].served, "{:?}", crd.metadata.name);
        let strategy = crd.spec.conversion.as_ref().map_or("None", |conversion| conversion.strategy.as_str());
        assert_eq!(strategy, "None", "{:?}", crd.metadata.name);
    }
}

#[test]
fn the_plan_for_the_next_version_migrates_the_objects_of_every_crd() {
    let plan = read("operator/doc/versions.md");
    let list = plan.split_once("crds='").and_then(|(_, after)| after.split_once('\'')).unwrap().0;
    let crds = operator::api::crds();
    let plurals: BTreeSet<_> = crds.iter().map(|crd| crd.spec.names.plural.as_str()).collect();
    assert_eq!(list.split(' ').collect::<BTreeSet<_>>(), plurals);
}

#[test]
fn each_option_that_the_chart_can_switch_on_has_a_component_of_kustomize_with_a_row() {
    let page = read("docs/src/howto/kustomize.md");
    let values = documents("charts/volferry/values.yaml").remove(0);
    let options: Vec<_> = leaves("", &values).into_iter().filter(|it| it.ends_with(".enabled")).collect();
    assert!(options.len() > 5, "{options:?}");
    for option in options {
        assert!(page.contains(&format!("`{option}`")), "{option}");
    }
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name);
    let folders = fs::read_dir(repository("config/components")).unwrap();
    let folders =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>();
    assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), folders);
}

/// The fields are those that Artifact Hub reads; what only a release knows, `config/chart` adds.
#[test]
fn artifact_hub_is_told_to_leave_out_candidates_and_of_no_owner_who_is_made_up() {
    let told = documents("charts/artifacthub-repo.yml").remove(0);
    assert_eq!(told.as_object().unwrap().keys().collect::<Vec<_>>(), ["ignore"]);
    let [rule] = &told["ignore"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!(rule["name"], documents("charts/volferry/Chart.yaml")[0]["name"]);
    let left_out = regex::Regex::new(&format!("^({})$", rule["version"].as_str().unwrap())).unwrap();
    assert!(left_out.is_match("1.2.0-rc.1") && !left_out.is_match("1.2.0"), "{rule}");
}

#[test]
fn each_package_of_others_that_the_workspace_names_has_a_row_that_says_what_it_is_for() {
    let workspace = read("Cargo.toml");
    let members = workspace.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    let members: Vec<String> = serde_json::from_str(members).unwrap();
    let (mut ours, mut named) = (BTreeSet::new(), BTreeSet::new());
    let manifests = members.iter().map(|folder| read(&format!("{folder}/Cargo.toml")));
    for manifest in manifests.chain([workspace.clone()]) {
        let mut of_packages = false;
        for line in manifest.lines().filter(|line| !line.starts_with('#')) {
            if let Some(section) = line.strip_prefix('[') {
                of_packages = section.ends_with("dependencies]");
            } else if let Some((name, _)) = line.split_once(['.', ' ']).filter(|_| of_packages) {
                let list = if line.contains("path = ") { &mut ours } else { &mut named };
                list.insert(name.to_string());
            }
        }
    }
    let document = read(".github/DEPENDENCIES.md");
    let table = document.split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows = rows.map(|(name, _)| name.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(&named - &ours, rows);
}
