use std::path::Path;

use contract::{OtherSource, VolumeId};
use serde::Serialize;
use serde_json::{Value, json};

use super::{build_try, placement::Placement, security::NamespaceUsers, *};
use crate::{
    api::{Hook, OnHookFailure, PodSettings},
    ends::end::End,
    spec::validate,
    status::run_status,
};

const UID: &str = "b6f2a4de-0000-4000-8000-000000000001";
const RUN_UID: &str = "b6f2a4de-0000-4000-8000-000000000002";

fn job(more: Value) -> ValidatedSyncJob {
    let mut spec = json!({
        "source": {"persistentVolumeClaim": {"claimName": "web-data"}, "path": "/uploads"},
        "destination": {"persistentVolumeClaim": {"claimName": "web-copy"}},
        "files": {"delete": true, "exclude": ["*.tmp"]},
    });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    validate::validate(&serde_json::from_value(spec).unwrap(), "web-assets", "prod").unwrap()
}

/// Returns two ends in the SyncJob's own namespace.
fn ends_in(namespace: &str, privileged: bool) -> Ends {
    let users = NamespaceUsers { privileged: privileged.then(|| "true".into()), ..NamespaceUsers::default() };
    let end = End { namespace: namespace.into(), users, ..End::default() };
    Ends { source: end.clone(), sink: end }
}

fn run() -> ActiveRun {
    run_status::new_run("web-assets", 7, 3, None, jiff::Timestamp::UNIX_EPOCH)
}

fn run_of(shards: i32) -> ActiveRun {
    ActiveRun { shards, ..run() }
}

fn settings() -> Settings {
    let name = "example.com/volferry:1".to_string();
    Settings {
        image: Image { name, pull_policy: Some("IfNotPresent".into()) },
        log_format: LogFormat::Text,
        pods: CommonPodSettings::default(),
        trace_env: Vec::new(),
    }
}

/// Calls `look` with a try of `job`.
fn with_try<T>(job: &ValidatedSyncJob, privileged: bool, look: impl FnOnce(&Try<'_>) -> T) -> T {
    let (run, settings) = (run(), settings());
    let names = TryNames::new(&job.name, UID, run.number, run.retries);
    let placements = Placements::default();
    look(&Try {
        job,
        uid: UID,
        run: &run,
        account: 0,
        run_uid: RUN_UID,
        names: &names,
        settings: &settings,
        ends: &ends_in("prod", privileged),
        placements: &placements,
        expect_volume: None,
        other_source: None,
        progress_period_s: 1,
        fs_groups: FsGroups::default(),
        awaited_hook: None,
        makes_key: false,
    })
}

fn ends(job: &ValidatedSyncJob, privileged: bool) -> build_try::Ends {
    with_try(job, privileged, build_try::ends)
}

fn pod(job: &k8s_openapi::api::batch::v1::Job) -> &k8s_openapi::api::core::v1::PodSpec {
    job.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

/// Compares `objects` with `pods/golden/<name>.yaml`. With `UPDATE_GOLDEN` set, writes that file first.
fn assert_golden(name: &str, objects: &[Value]) {
    let file =
        Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join(format!("src/pods/golden/{name}.yaml"));
    let text = serde_saphyr::to_string_multiple(objects).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    assert!(golden == text, "{} differs; look at `UPDATE_GOLDEN=1 cargo test` and git diff", file.display());
}

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

#[test]
fn a_run_of_the_least_spec_is_as_recorded() {
    let job = job(json!({}));
    let ground = with_try(&job, false, build_try::groundwork);
    let ends = ends(&job, false);
    let objects = [
        value(&ground.service_account),
        value(&ground.role),
        value(&ground.role_binding),
        value(&ends.sink),
        value(&ends.source),
    ];
    assert_golden("least", &objects);
}

#[test]
fn a_run_with_every_pod_setting_in_a_privileged_namespace_is_as_recorded() {
    let job = job(json!({"limits": {"timeout": "90s"}, "pods": {
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "storage", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "priorityClassName": "low",
        "labels": {"team": "web", "app.kubernetes.io/name": "spoofed"},
        "annotations": {"note": "n"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "own",
        "runtimeClassName": "kata",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}},
    }}));
    let ground = with_try(&job, true, build_try::groundwork);
    assert_eq!(ground.service_account, None);
    assert_eq!(ground.role_binding.subjects.as_ref().unwrap()[0].name, "own");
    let ends = ends(&job, true);
    assert_golden("settings", &[value(&ends.sink), value(&ends.source)]);
}

#[test]
fn where_the_cluster_assigns_users_the_pods_of_both_ends_name_none() {
    let job = job(json!({}));
    let ends = with_try(&job, false, |of| {
        let mut assigned = of.ends.clone();
        (assigned.source.users.is_assigned, assigned.sink.users.is_assigned) = (true, true);
        build_try::ends(&Try { ends: &assigned, ..*of })
    });
    for end in [&ends.source, &ends.sink] {
        let security = pod(end).security_context.as_ref().unwrap();
        assert_eq!((security.run_as_user, security.run_as_group, security.fs_group), (None, None, None));
        assert_eq!(security.run_as_non_root, Some(true));
    }
}

#[test]
fn settings_of_all_syncer_pods_are_outranked_by_those_of_a_syncjob() {
    let common = json!({
        "priorityClassName": "low",
        "nodeSelector": {"pool": "batch", "zone": "a"},
        "resources": {"limits": {"memory": "1Gi"}},
        "imagePullSecrets": [{"name": "mirror"}],
    });
    let own = json!({"priorityClassName": "high", "nodeSelector": {"zone": "b"}, "imagePullSecrets": [{"name": "own"}]});
    let pods: PodSettings = serde_json::from_value(own).unwrap();
    let both = json!(pods.over(&serde_json::from_value(common).unwrap()));
    let expected = json!({
        "priorityClassName": "high",
        "nodeSelector": {"pool": "batch", "zone": "b"},
        "resources": {"limits": {"memory": "1Gi"}},
        "imagePullSecrets": [{"name": "mirror"}, {"name": "own"}],
    });
    assert_eq!(both, expected);
}

#[test]
fn jobs_are_owned_by_their_run_and_accounts_by_the_syncjob_whose_runs_take_turns_with_them() {
    let job = job(json!({}));
    let ground = with_try(&job, false, build_try::groundwork);
    let ends = ends(&job, false);
    let account = [
        &ground.service_account.as_ref().unwrap().metadata,
        &ground.role.metadata,
        &ground.role_binding.metadata,
    ];
    let jobs = [&ends.sink.metadata, &ends.source.metadata];
    let owned =
        account.map(|it| (it, ("SyncJob", UID))).into_iter().chain(jobs.map(|it| (it, ("SyncRun", RUN_UID))));
    for (metadata, wanted) in owned {
        let owner = &metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), wanted);
        assert_eq!(owner.controller, Some(true));
        let labels = metadata.labels.as_ref().unwrap();
        assert_eq!(labels[names::LABEL_SYNCJOB], "web-assets");
        assert_eq!(labels[names::LABEL_MANAGED_BY], names::FIELD_MANAGER);
        assert_eq!(metadata.annotations.as_ref().unwrap()[names::ANNOTATION_SYNCJOB], "web-assets");
    }
}

#[test]
fn keys_are_made_in_the_pods_for_each_try_and_nothing_is_mounted_for_them() {
    let job = job(json!({}));
    let ends = ends(&job, false);
    let exchange = |end| {
        let args = pod(end).containers[0].args.clone().unwrap();
        args.iter().find(|arg| arg.starts_with("--exchange=")).unwrap().clone()
    };
    assert_eq!(exchange(&ends.sink), format!("--exchange={RUN_UID}/web-assets-7"));
    assert_eq!(exchange(&ends.source), exchange(&ends.sink));
    for end in [&ends.sink, &ends.source] {
        assert!(pod(end).volumes.iter().flatten().all(|volume| volume.secret.is_none()));
    }
}

#[test]
fn a_retry_reports_under_a_name_of_its_own_and_has_children_of_its_own() {
    let job = job(json!({}));
    let first = ends(&job, false);
    let run = ActiveRun { retries: 1, ..run() };
    let names = TryNames::new(&job.name, UID, run.number, run.retries);
    let retry = with_try(&job, false, |of| build_try::ends(&Try { run: &run, names: &names, ..*of }));
    assert_ne!(first.sink.metadata.name, retry.sink.metadata.name);
    let args = pod(&retry.sink).containers[0].args.as_ref().unwrap();
    assert!(args.contains(&"--run=web-assets-7.retry1".to_string()), "{args:?}");
}

#[test]
fn both_ends_are_told_which_destination_is_expected() {
    let job = job(json!({}));
    let volume = VolumeId::new([7; 16]);
    let ends = with_try(&job, false, |of| {
        let of = Try { expect_volume: Some(volume), other_source: Some(OtherSource::Refuse), ..*of };
        build_try::ends(&of)
    });
    let told = |end| pod(end).containers[0].args.as_ref().unwrap().contains(&"--other-source=refuse".into());
    assert_eq!(
        (told(&ends.source), told(&ends.sink)),
        (false, true),
        "only the destination knows its copy's"
    );
    for end in [&ends.source, &ends.sink] {
        let args = pod(end).containers[0].args.as_ref().unwrap();
        assert!(args.contains(&format!("--expect-volume={volume}")), "{args:?}");
    }
}

#[test]
fn an_end_is_told_of_the_hook_that_it_waits_for() {
    for (on_failure, word) in [(OnHookFailure::Fail, "Fail"), (OnHookFailure::Continue, "Continue")] {
        let hook = Hook { on_failure, ..Hook::default() };
        let job = job(json!({}));
        let ends = with_try(&job, false, |of| build_try::ends(&Try { awaited_hook: Some(&hook), ..*of }));
        for end in [&ends.source, &ends.sink] {
            let args = pod(end).containers[0].args.as_ref().unwrap();
            assert!(args.contains(&format!("--await-hook={word}")), "{args:?}");
        }
    }
}

#[test]
fn json_logs_are_asked_of_the_agent_and_of_the_syncer() {
    let job = job(json!({}));
    let settings = Settings { log_format: LogFormat::Json, ..settings() };
    let ends = with_try(&job, false, |of| build_try::ends(&Try { settings: &settings, ..*of }));
    let args = pod(&ends.sink).containers[0].args.as_ref().unwrap();
    assert_eq!(args.iter().filter(|arg| *arg == "--log-format=json").count(), 2);
    assert_eq!(args[0], "--log-format=json");
}

#[test]
fn a_pattern_with_dollars_reaches_the_syncer_as_it_was_written() {
    let job = job(json!({"files": {"exclude": ["$(HOME)", "a$$b"]}}));
    let ends = ends(&job, false);
    let args = pod(&ends.sink).containers[0].args.as_ref().unwrap();
    assert!(args.contains(&"--exclude=$$(HOME)".to_string()), "{args:?}");
    assert!(args.contains(&"--exclude=a$$$$b".to_string()), "{args:?}");
}

#[test]
fn a_pod_goes_where_its_volume_is_in_use() {
    let job = job(json!({"pods": {"tolerations": [{"key": "own"}]}}));
    let (run, settings) = (run(), settings());
    let names = TryNames::new(&job.name, UID, run.number, run.retries);
    let tolerations = serde_json::from_value(json!([{"key": "storage"}])).unwrap();
    let source = Some(Placement { node: "n1".into(), tolerations, is_required: true });
    let placements = Placements { source, ..Placements::default() };
    let of = Try {
        job: &job,
        uid: UID,
        run: &run,
        account: 0,
        run_uid: RUN_UID,
        names: &names,
        settings: &settings,
        ends: &ends_in("prod", false),
        placements: &placements,
        expect_volume: None,
        other_source: None,
        progress_period_s: 1,
        fs_groups: FsGroups::default(),
        awaited_hook: None,
        makes_key: false,
    };
    let ends = build_try::ends(&of);
    let keys = |end| -> Vec<_> {
        pod(end).tolerations.iter().flatten().filter_map(|it| it.key.as_deref()).collect()
    };
    assert_eq!((keys(&ends.source), keys(&ends.sink)), (vec!["own", "storage"], vec!["own"]));
    assert!(pod(&ends.source).affinity.is_some() && pod(&ends.sink).affinity.is_none());
    assert_eq!(ends.source.metadata.annotations.unwrap()[names::ANNOTATION_NODE], "n1");
}

#[test]
fn shards_are_the_pods_of_indexed_jobs() {
    let job = job(json!({"parallelism": 3}));
    let run = run_of(3);
    let placements = Placements { sink_on_one_node: true, ..Placements::default() };
    let ends =
        with_try(&job, false, |of| build_try::ends(&Try { run: &run, placements: &placements, ..*of }));
    assert_golden("shards", &[value(&ends.sink), value(&ends.source)]);
}

/// Returns the keys of the labels by which other pods follow the pods of a Job.
fn followed_by(job: &k8s_openapi::api::batch::v1::Job) -> Vec<String> {
    let labels = job.spec.as_ref().unwrap().template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
    labels.keys().filter(|key| key.starts_with("volferry.dev/claim-")).cloned().collect()
}

/// Returns the keys of the labels by which the pods of a Job follow other pods.
fn follows(job: &k8s_openapi::api::batch::v1::Job) -> Vec<String> {
    let affinity = pod(job).affinity.clone().unwrap_or_default().pod_affinity.unwrap_or_default();
    let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap_or_default();
    terms
        .into_iter()
        .flat_map(|term| term.label_selector.unwrap().match_labels.unwrap().into_keys())
        .collect()
}

const ONE_NODE: Placements =
    Placements { source: None, sink: None, source_on_one_node: true, sink_on_one_node: true };

#[test]
fn pods_of_any_jobs_that_use_a_volume_of_one_node_go_where_the_first_is_unless_it_is_known_where() {
    let of_jobs = |placements: &Placements| {
        let other = json!({"destination": {"persistentVolumeClaim": {"claimName": "other"}}});
        [json!({}), other]
            .map(|more| with_try(&job(more), false, |of| build_try::ends(&Try { placements, ..*of })))
    };
    let [one, other] = of_jobs(&ONE_NODE);
    for ends in [&one, &other] {
        assert_eq!(follows(&ends.source), [names::claim_label("web-data")]);
        assert_eq!(followed_by(&ends.source), follows(&ends.source));
        assert_eq!(followed_by(&ends.sink), follows(&ends.sink));
    }
    assert_ne!(follows(&one.sink), follows(&other.sink));
    let placed = Some(Placement { is_required: true, ..Placement::preferred("n1".into()) });
    let [ends, _] = of_jobs(&Placements { sink: placed, ..ONE_NODE });
    assert_eq!((follows(&ends.sink).len(), followed_by(&ends.sink)), (0, followed_by(&one.sink)));
    let [ends, _] = of_jobs(&Placements { source_on_one_node: false, ..ONE_NODE });
    assert_eq!((follows(&ends.source).len(), followed_by(&ends.source).len()), (0, 0));
}

#[test]
fn an_end_has_the_group_of_the_workload_that_uses_its_claim() {
    let own = json!({"pods": {"securityContext": {"fsGroup": 1, "fsGroupFrom": "Workload"}}});
    let group = |job: &k8s_openapi::api::batch::v1::Job| {
        let security = pod(job).security_context.clone().unwrap();
        assert_eq!(
            security.fs_group.is_some(),
            security.fs_group_change_policy == Some("OnRootMismatch".into())
        );
        security.fs_group
    };
    let groups = |source, destination, privileged| {
        let fs_groups = FsGroups { source, destination };
        let ends = with_try(&job(own.clone()), privileged, |of| build_try::ends(&Try { fs_groups, ..*of }));
        (group(&ends.source), group(&ends.sink))
    };
    assert_eq!(groups(Some(2), Some(3), false), (Some(2), Some(3)));
    assert_eq!(groups(Some(2), None, false), (Some(2), Some(2)), "the copy is for the same workload");
    assert_eq!(groups(None, Some(3), false), (Some(1), Some(3)));
    assert_eq!(groups(None, None, false), (Some(1), Some(1)), "of no known workload");
    assert_eq!(groups(Some(2), Some(3), true), (Some(1), Some(1)), "root needs no group");
}

#[test]
fn a_pod_is_drawn_to_the_node_that_its_volume_is_attached_to_and_follows_others_all_the_same() {
    let job = job(json!({}));
    let placements = Placements { sink: Some(Placement::preferred("n1".into())), ..ONE_NODE };
    let ends = with_try(&job, false, |of| build_try::ends(&Try { placements: &placements, ..*of }));
    let affinity = value(&pod(&ends.sink).affinity);
    let preferred =
        "/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/preference/matchFields/0/values/0";
    assert_eq!(affinity.pointer(preferred), Some(&json!("n1")));
    assert_eq!(affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"), None);
    assert_eq!(follows(&ends.sink), [names::claim_label("web-copy")]);
    assert_eq!(ends.sink.metadata.annotations.unwrap().get(names::ANNOTATION_NODE), None);
}

#[test]
fn both_ends_of_one_claim_for_one_node_go_to_one_node() {
    let one = |path: &str| json!({"persistentVolumeClaim": {"claimName": "one"}, "path": path});
    let job =
        job(json!({"source": one("/a"), "destination": one("/b"), "transfer": {"placement": "Network"}}));
    let ends = with_try(&job, false, |of| build_try::ends(&Try { placements: &ONE_NODE, ..*of }));
    assert_eq!(follows(&ends.source), [names::claim_label("one")]);
    assert_eq!(follows(&ends.sink), follows(&ends.source));
}

#[test]
fn a_pod_with_both_volumes_is_followed_by_both_and_follows_the_destinations() {
    let job = job(json!({}));
    let both = local(&job, &ONE_NODE);
    assert_eq!(follows(&both), [names::claim_label("web-copy")]);
    assert_eq!(followed_by(&both).len(), 2);
    let source = local(&job, &Placements { sink_on_one_node: false, ..ONE_NODE });
    assert_eq!(follows(&source), [names::claim_label("web-data")]);
}

#[test]
fn a_device_is_not_mounted_but_shown_and_that_of_the_source_to_be_read_only() {
    let mut job = job(json!({"source": {"persistentVolumeClaim": {"claimName": "raw"}}, "files": {}}));
    (job.source, job.destination) = (job.source.of_kind(true), job.destination.of_kind(true));
    let ends = ends(&job, false);
    for (end, path, read_only) in
        [(&ends.source, "/dev/volferry-source", true), (&ends.sink, "/dev/volferry-destination", false)]
    {
        let pod = pod(end);
        let container = &pod.containers[0];
        let devices = value(&container.volume_devices);
        assert_eq!(devices, json!([{"name": "data", "devicePath": path}]));
        let mounts = container.volume_mounts.as_ref().unwrap();
        assert!(mounts.iter().all(|mount| mount.name != "data"), "{mounts:?}");
        assert!(container.args.as_ref().unwrap().contains(&path.to_string()), "{:?}", container.args);
        let data = pod.volumes.as_ref().unwrap().iter().find(|volume| volume.name == "data").unwrap();
        assert_eq!(data.persistent_volume_claim.as_ref().unwrap().read_only, Some(read_only));
    }
}

#[test]
fn an_image_of_a_device_is_a_path_on_a_volume_that_is_mounted() {
    let destination =
        json!({"persistentVolumeClaim": {"claimName": "web-copy"}, "path": "/backups/disk.img"});
    let mut job = job(json!({"source": {"persistentVolumeClaim": {"claimName": "raw"}}, "files": {},
        "destination": destination}));
    job.source = job.source.of_kind(true);
    let ends = ends(&job, false);
    let container = &pod(&ends.sink).containers[0];
    assert_eq!(container.volume_devices, None);
    assert!(container.volume_mounts.as_ref().unwrap().iter().any(|mount| mount.mount_path == "/destination"));
    let args = container.args.as_ref().unwrap();
    assert!(args.contains(&"--destination-path=/backups/disk.img".to_string()), "{args:?}");
}

fn local(job: &ValidatedSyncJob, placements: &Placements) -> k8s_openapi::api::batch::v1::Job {
    let run = ActiveRun { local: true, ..run() };
    with_try(job, false, |of| {
        let of = Try { run: &run, placements, ..*of };
        build_try::only_pod(&of)
    })
}

#[test]
fn a_pod_with_both_volumes_has_no_key_and_nobody_to_meet() {
    let job = job(json!({"transfer": {"compression": "Zstd"}}));
    assert_golden("local", &[value(&local(&job, &Placements::default()))]);
}

#[test]
fn two_folders_of_one_claim_are_one_volume() {
    let one = |path: &str| json!({"persistentVolumeClaim": {"claimName": "one"}, "path": path});
    let job = job(json!({"source": one("/a"), "destination": one("/b")}));
    let local = local(&job, &Placements::default());
    let claims = |volume: &&k8s_openapi::api::core::v1::Volume| volume.persistent_volume_claim.is_some();
    let volumes: Vec<_> = pod(&local).volumes.iter().flatten().filter(claims).collect();
    assert_eq!(volumes.len(), 1);
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().unwrap().read_only, Some(false));
    let mounts = pod(&local).containers[0].volume_mounts.as_ref().unwrap();
    let of_data: Vec<_> = mounts.iter().filter(|mount| mount.name == volumes[0].name).collect();
    let of_data: Vec<_> = of_data.iter().map(|mount| (&*mount.mount_path, mount.read_only)).collect();
    assert_eq!(of_data, [("/source", Some(true)), ("/destination", Some(false))]);
}

#[test]
fn a_pod_with_both_volumes_goes_where_either_is_tied_to() {
    let on = |node: &str| Some(Placement { is_required: true, ..Placement::preferred(node.into()) });
    let job = job(json!({}));
    let nodes = |source, sink| {
        let local = local(&job, &Placements { source, sink, ..Placements::default() });
        let affinity = value(&pod(&local).affinity);
        let fields = affinity.pointer(
            "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields",
        );
        let fields = fields.and_then(Value::as_array).cloned().unwrap_or_default();
        fields.iter().map(|field| field["values"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(nodes(None, None), [""; 0]);
    assert_eq!(nodes(on("n1"), None), ["n1"]);
    assert_eq!(nodes(None, on("n2")), ["n2"]);
    assert_eq!(nodes(on("n1"), on("n2")), ["n1", "n2"], "no node is both, and the scheduler says so");
    // The node in the Job's annotation is what later changes are compared with.
    for (source, sink) in [(on("n1"), None), (None, on("n2")), (on("n1"), on("n2"))] {
        let placements = Placements { source, sink, ..Placements::default() };
        let annotations = local(&job, &placements).metadata.annotations.unwrap();
        let wanted = placements.in_one_pod().sink.unwrap().node;
        assert_eq!(annotations[names::ANNOTATION_NODE], wanted);
    }
}

/// Each end's settings override those of both; one pod for both ends combines all of them.
#[test]
fn the_pods_of_an_end_have_its_settings_over_those_of_both() {
    let both = json!({"nodeSelector": {"os": "linux"}, "labels": {"team": "web", "end": "any"},
        "priorityClassName": "low", "tolerations": [{"key": "a"}], "resources": {"limits": {"memory": "1Gi"}}});
    let source = json!({"persistentVolumeClaim": {"claimName": "web-data"}, "pods": {"labels": {"end": "source"},
        "annotations": {"note": "s"}, "nodeSelector": {"disk": "slow"}}});
    let destination = json!({"persistentVolumeClaim": {"claimName": "web-copy"}, "pods": {"labels": {"end": "sink"},
        "priorityClassName": "high", "tolerations": [{"key": "b"}], "nodeSelector": {"disk": "fast"},
        "resources": {"limits": {"memory": "2Gi"}}}});
    let job = job(json!({"source": source, "destination": destination, "pods": both}));
    let ends = ends(&job, false);
    let seen = |job: &k8s_openapi::api::batch::v1::Job| {
        let template = value(&job.spec.as_ref().unwrap().template);
        let spec = &template["spec"];
        json!([
            template["metadata"]["labels"]["end"],
            template["metadata"]["labels"]["team"],
            template["metadata"]["annotations"]["note"],
            spec["nodeSelector"],
            spec["priorityClassName"],
            spec["tolerations"],
            spec["containers"][0]["resources"]["limits"]["memory"],
        ])
    };
    let slow = json!({"os": "linux", "disk": "slow"});
    let fast = json!({"os": "linux", "disk": "fast"});
    assert_eq!(seen(&ends.source), json!(["source", "web", "s", slow, "low", [{"key": "a"}], "1Gi"]));
    let two = json!([{"key": "a"}, {"key": "b"}]);
    assert_eq!(seen(&ends.sink), json!(["sink", "web", null, fast, "high", two, "2Gi"]));
    let run = ActiveRun { local: true, ..run() };
    let alone = with_try(&job, false, |of| build_try::only_pod(&Try { run: &run, ..*of }));
    assert_eq!(seen(&alone), json!(["sink", "web", "s", fast, "high", two, "2Gi"]));
}

#[test]
fn a_benchmark_may_write_to_the_source_without_taking_its_files() {
    let claims = |pod: &k8s_openapi::api::core::v1::PodSpec| {
        let volumes = pod.volumes.iter().flatten().filter_map(|it| it.persistent_volume_claim.clone());
        volumes.map(|claim| (claim.claim_name, claim.read_only)).collect::<Vec<_>>()
    };
    let job = job(json!({}));
    for local in [false, true] {
        let run = ActiveRun { local, benchmark: Some(Default::default()), ..run() };
        let (reader, writer) = with_try(&job, false, |of| {
            let of = Try { run: &run, ..*of };
            let ends = build_try::ends(&of);
            if local {
                (build_try::only_pod(&of), build_try::only_pod(&of))
            } else {
                (ends.source, ends.sink)
            }
        });
        let (reader, writer) = (pod(&reader), pod(&writer));
        assert!(claims(reader).contains(&("web-data".into(), Some(false))), "{local}");
        assert!(claims(writer).contains(&("web-copy".into(), Some(false))), "{local}");
        assert!(reader.containers[0].volume_mounts.iter().flatten().all(|it| it.read_only == Some(false)));
        let security = reader.security_context.as_ref().unwrap();
        assert_eq!((security.fs_group, &security.fs_group_change_policy), (None, &None));
        assert_eq!(security.supplemental_groups, Some(vec![65_532]));
        let args = reader.containers[0].args.as_ref().unwrap().join(" ");
        assert!(args.contains(" -- /volferry bench /source "), "{args}");
        assert_eq!(writer.security_context.as_ref().unwrap().fs_group.is_some(), !local);
    }
}
