//! The nodes of pods, and pods that mount both volumes.

use super::*;

#[test]
fn a_pod_goes_where_its_volume_is_in_use() {
    let job = job(json!({"pods": {"tolerations": [{"key": "own"}]}}));
    let tolerations = serde_json::from_value(json!([{"key": "storage"}])).unwrap();
    let source = Some(Placement { node: "n1".into(), tolerations, is_required: true });
    let placements = Placements { source, ..Placements::default() };
    let ends = with_try(&job, false, |of| build_try::ends(&Try { placements: &placements, ..*of }));
    let keys = |end| -> Vec<_> {
        pod(end).tolerations.iter().flatten().filter_map(|it| it.key.as_deref()).collect()
    };
    assert_eq!((keys(&ends.source), keys(&ends.sink)), (vec!["own", "storage"], vec!["own"]));
    assert!(pod(&ends.source).affinity.is_some() && pod(&ends.sink).affinity.is_none());
    assert_eq!(ends.source.metadata.annotations.unwrap()[names::ANNOTATION_NODE], "n1");
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
