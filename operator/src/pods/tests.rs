mod places;

use std::path::Path;

use contract::{OtherSource, VolumeId};
use k8s_openapi::api::batch::v1::Job;
use serde::Serialize;
use serde_json::{Value, json};

use super::{build_try, placement::Placement, *};
use crate::{
    api::{Hook, OnHookFailure, PodSettings},
    ends::end_namespaces::EndNamespace,
    grants::namespace_annotations::NamespaceUsers,
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
fn ends_in(namespace: &str, privileged: bool) -> Ends<EndNamespace> {
    let users = NamespaceUsers { privileged: privileged.then(|| "true".into()), ..NamespaceUsers::default() };
    let end = EndNamespace { namespace: namespace.into(), users, ..EndNamespace::default() };
    Ends { source: end.clone(), sink: end }
}

fn run() -> ActiveRun {
    run_status::new_run("web-assets", 7, 3, None, jiff::Timestamp::UNIX_EPOCH)
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
        fs_groups: FsGroups::default(),
        awaited_hook: None,
        makes_key: false,
        changes: &Changes::Unlisted,
    })
}

fn ends(job: &ValidatedSyncJob, privileged: bool) -> Ends<Job> {
    with_try(job, privileged, build_try::ends)
}

fn pod(job: &Job) -> &k8s_openapi::api::core::v1::PodSpec {
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
fn shards_are_the_pods_of_indexed_jobs() {
    let job = job(json!({"parallelism": 3}));
    let run = ActiveRun { shards: 3, ..run() };
    let placements = Placements { sink_on_one_node: true, ..Placements::default() };
    let ends =
        with_try(&job, false, |of| build_try::ends(&Try { run: &run, placements: &placements, ..*of }));
    assert_golden("shards", &[value(&ends.sink), value(&ends.source)]);
}

const ONE_NODE: Placements =
    Placements { source: None, sink: None, source_on_one_node: true, sink_on_one_node: true };

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
fn a_device_is_not_mounted_but_shown_and_that_of_the_source_to_be_read_only() {
    let mut job = job(json!({"source": {"persistentVolumeClaim": {"claimName": "raw"}}, "files": {}}));
    job.ends = job.ends.map(|end| end.clone().of_kind(true));
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
    job.ends.source = job.ends.source.of_kind(true);
    let ends = ends(&job, false);
    let container = &pod(&ends.sink).containers[0];
    assert_eq!(container.volume_devices, None);
    assert!(container.volume_mounts.as_ref().unwrap().iter().any(|mount| mount.mount_path == "/destination"));
    let args = container.args.as_ref().unwrap();
    assert!(args.contains(&"--destination-path=/backups/disk.img".to_string()), "{args:?}");
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
