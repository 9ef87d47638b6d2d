//! SyncJobSets: one SyncJob for each claim that a selector matches, which the set owns.

use e2e::{kubelet::try_of, scripted::Controller};
use k8s_openapi::api::core::v1::Event;
use kube::core::{ApiResource, GroupVersionKind};

use crate::prelude::*;

/// A namespace with the set `web`, which selects the label `app: web`.
pub(super) struct Sets {
    pub(super) stage: Stage,
    pub(super) sets: Api<DynamicObject>,
    pub(super) claims: Api<PersistentVolumeClaim>,
}

impl Sets {
    async fn new(test: &str) -> (Self, Controller) {
        let (stage, controller) = Stage::with_controller(test).await.unwrap();
        (Self::of(stage), controller)
    }

    pub(super) fn of(stage: Stage) -> Self {
        let kind = GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncJobSet");
        let kind = ApiResource::from_gvk_with_plural(&kind, "syncjobsets");
        let sets = Api::namespaced_with(stage.client.clone(), &stage.namespace, &kind);
        let claims = stage.api();
        Self { stage, sets, claims }
    }

    /// Makes bound claims that match, each with a claim for its copy.
    pub(super) async fn claims(&self, names: &[&str]) {
        for name in names {
            self.stage.claim(&format!("{name}-copy"), "Bound").await.unwrap();
            self.stage.claim(name, "Bound").await.unwrap();
            self.label(name, json!("web")).await;
        }
    }

    async fn label(&self, claim: &str, app: Value) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
        self.claims.patch(claim, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates the set, with these fields over its spec.
    pub(super) async fn create(&self, more: Value) {
        let end = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let template = json!({"metadata": {"name": "{{ .claim.name }}"}, "spec": {
            "source": end("{{ .claim.name }}"), "destination": end("{{ .claim.name }}-copy"),
        }});
        let mut spec = json!({"claimSelector": {"matchLabels": {"app": "web"}}, "template": template});
        syncjob::merge(&mut spec, more);
        let set = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet", "metadata": {"name": "web"}, "spec": spec});
        self.sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    }

    async fn change(&self, patch: Value) {
        self.sets.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Returns the set once `holds` is true of it.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        let set = wait::until(&self.sets, "web", what, PATIENCE, holds).await;
        set.unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Returns the set once it is stalled for that reason, with these words.
    pub(super) async fn until_stalled(&self, reason: &str, words: &str) -> DynamicObject {
        let is_stalled = |set: &DynamicObject| {
            syncjob::has_reason(set, "Stalled", reason) && syncjob::message(set, "Stalled").contains(words)
        };
        self.until(&format!("it is stalled by {reason}: {words}"), is_stalled).await
    }

    /// Has the next run of any SyncJob succeed, and returns the pods.
    pub(super) async fn run_any(&self, known: &[Pod]) -> (String, [Pod; 2]) {
        let [source, sink] = self.stage.kubelet.start_any(known).await.unwrap();
        self.stage.kubelet.succeed(&source, &sink, &good_report(&try_of(&sink))).await.unwrap();
        (sink.labels()["volferry.dev/syncjob"].clone(), [source, sink])
    }

    async fn jobs(&self) -> Vec<String> {
        let jobs = self.stage.jobs.list(&ListParams::default()).await.unwrap();
        let mut names: Vec<String> = jobs.iter().map(kube::ResourceExt::name_any).collect();
        names.sort_unstable();
        names
    }
}

fn counts(set: &DynamicObject) -> [i64; 4] {
    ["/matched", "/synced", "/running", "/failed"]
        .map(|field| syncjob::status(set, field).as_i64().unwrap_or(-1))
}

#[tokio::test]
async fn each_claim_that_matches_gets_a_job_of_the_set_and_a_later_one_too() {
    let (sets, _controller) = Sets::new("matched").await;
    sets.create(json!({})).await;
    let none =
        sets.until("no claim matches", |set| syncjob::has_reason(set, "Ready", "NoClaimMatches")).await;
    assert_eq!(counts(&none), [0; 4]);
    sets.claims(&["data-0", "data-1"]).await;
    let mut known = Vec::new();
    for _ in 0..2 {
        known.extend(sets.run_any(&known).await.1);
    }
    let ready = |count: i64| {
        move |set: &DynamicObject| {
            syncjob::has_reason(set, "Ready", "JobsReady") && counts(set) == [count, count, 0, 0]
        }
    };
    let set = sets.until("both are synced", ready(2)).await;
    assert_eq!(sets.jobs().await, ["data-0", "data-1"]);
    let job = sets.stage.jobs.get("data-0").await.unwrap();
    let owner = &job.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), Some(&owner.uid), owner.controller),
        ("SyncJobSet", set.uid().as_ref(), Some(true))
    );
    let managers: Vec<_> = job.managed_fields().iter().filter_map(|it| it.manager.as_deref()).collect();
    assert!(managers.iter().all(|manager| *manager == "volferry-operator"), "{managers:?}");

    sets.claims(&["data-2"]).await;
    sets.run_any(&known).await;
    sets.until("all three are synced", ready(3)).await;
    let printed = sets.stage.kubectl.run(&["get", "sjs", "web"]).unwrap();
    let line: Vec<&str> = printed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line[..5], ["web", "True", "3", "3", "0"], "{printed}");

    sets.sets.delete("web", &DeleteParams::default()).await.unwrap();
    for job in ["data-0", "data-1", "data-2"] {
        wait::until_gone(&sets.stage.jobs, job, PATIENCE).await.unwrap();
    }
}

#[tokio::test]
async fn a_changed_template_reaches_each_job_and_leaves_what_a_person_set() {
    let (sets, _controller) = Sets::new("template").await;
    sets.claims(&["data-0"]).await;
    sets.create(json!({})).await;
    let (_, known) = sets.run_any(&[]).await;
    sets.stage.until_done("data-0").await.unwrap();
    sets.stage.patch("data-0", json!({"spec": {"priority": -3}})).await.unwrap();
    let files = json!({"files": {"delete": true, "exclude": ["{{ .claim.name }}.tmp"]}});
    sets.change(json!({"spec": {"template": {"spec": files}}})).await;
    let (job, _) = sets.run_any(&known).await;
    assert_eq!(job, "data-0", "a change of what is synced asks for a run");
    let job = sets.stage.jobs.get("data-0").await.unwrap();
    assert_eq!(job.data["spec"]["files"]["exclude"], json!(["data-0.tmp"]));
    assert_eq!(job.data["spec"]["priority"], -3);

    sets.change(json!({"spec": {"template": {"spec": {"files": null}}}})).await;
    let is_back = |job: &DynamicObject| job.data["spec"]["files"]["delete"] == false;
    sets.stage.until("data-0", "what the template no longer says is gone", is_back).await.unwrap();
    // What the template says is put back.
    sets.stage.patch("data-0", json!({"spec": {"suspend": true}})).await.unwrap();
    let goes_on = |job: &DynamicObject| job.data["spec"]["suspend"] == false;
    sets.stage.until("data-0", "it goes on", goes_on).await.unwrap();
}

#[tokio::test]
async fn a_template_that_makes_no_valid_job_stalls_the_set_by_field_and_changes_none() {
    let (sets, _controller) = Sets::new("invalid").await;
    sets.create(json!({"template": {"spec": {"fils": {}}}})).await;
    sets.until_stalled("InvalidTemplate", "spec.template.spec: unknown field fils").await;
    sets.change(json!({"spec": {"template": {"spec": {"fils": null}}}})).await;
    sets.claims(&["data-0"]).await;
    sets.run_any(&[]).await;
    sets.until("it is ready", |set| syncjob::has_reason(set, "Ready", "JobsReady")).await;
    let before = sets.stage.jobs.get("data-0").await.unwrap();

    sets.change(json!({"spec": {"template": {"spec": {"schedule": {"cron": "bad"}}}}})).await;
    sets.until_stalled("InvalidTemplate", "spec.template.spec.schedule.cron: \"bad\" is not a cron").await;
    let path = json!({"schedule": null, "source": {"path": "/{{ .claim.labels.team }}"}});
    sets.change(json!({"spec": {"template": {"spec": path}}})).await;
    let set = sets.until_stalled("InvalidTemplate", "no value of the label team").await;
    assert_eq!(syncjob::text(&set, "/problems/0/claim"), "data-0");
    let there = sets.stage.jobs.get("data-0").await.unwrap();
    assert_eq!(there.data["spec"], before.data["spec"]);

    // The API server alone knows what a field was before.
    let other = json!({"source": {"path": "/"}, "destination": {"path": "/elsewhere"}});
    sets.change(json!({"spec": {"template": {"spec": other}}})).await;
    sets.until_stalled("ChildRefused", "spec.destination").await;
    let refused = sets.stage.kubectl.run(&[
        "patch",
        "sjs",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"claimSelector":{"matchLabels":null}}}"#,
    ]);
    assert!(refused.unwrap_err().to_string().contains("an empty selector would match every claim"));
}

#[tokio::test]
async fn a_job_that_is_not_the_sets_own_is_named_and_never_changed() {
    let (sets, _controller) = Sets::new("taken").await;
    sets.claims(&["data-0", "data-1"]).await;
    let own = json!({"suspend": true, "files": {"exclude": ["*.own"]}});
    let before = sets.stage.sync("data-0", own).await.unwrap();
    sets.stage.until_reason("data-0", "Ready", "Suspended").await.unwrap();
    sets.create(json!({})).await;
    let set = sets.until_stalled("NameTaken", "The SyncJob data-0 is there already").await;
    assert_eq!(syncjob::text(&set, "/problems/0/syncJob"), "data-0");
    sets.run_any(&[]).await;
    sets.until("the other claim is synced", |set| counts(set) == [2, 1, 0, 0]).await;
    let after = sets.stage.jobs.get("data-0").await.unwrap();
    assert_eq!((&after.data["spec"], after.owner_references()), (&before.data["spec"], &[][..]));
    assert_eq!((after.labels(), after.annotations()), (before.labels(), before.annotations()));

    let events = sets.stage.api::<Event>();
    let warned = |event: &Event| event.reason.as_deref() == Some("NameTaken");
    wait::until_any(&events, "", "a warning", PATIENCE, warned).await.unwrap();

    sets.stage.jobs.delete("data-0", &DeleteParams::default()).await.unwrap();
    let is_own = |job: &DynamicObject| !job.owner_references().is_empty();
    sets.stage.until("data-0", "the set makes its own", is_own).await.unwrap();
}

#[tokio::test]
async fn the_job_of_a_claim_that_went_away_is_suspended_until_it_matches_again_or_deleted() {
    let (sets, _controller) = Sets::new("leaving").await;
    sets.claims(&["data-0", "data-1"]).await;
    sets.create(json!({"template": {"spec": {"suspend": false}}})).await;
    let mut known = Vec::new();
    for _ in 0..2 {
        known.extend(sets.run_any(&known).await.1);
    }
    sets.until("both are synced", |set| counts(set) == [2, 2, 0, 0]).await;
    sets.label("data-0", json!(null)).await;
    let is_suspended = |job: &DynamicObject| job.data["spec"]["suspend"] == true;
    sets.stage.until("data-0", "it is suspended", is_suspended).await.unwrap();
    let set = sets.until("one is kept", |set| syncjob::status(set, "/kept") == &json!(1)).await;
    assert_eq!(counts(&set), [1, 1, 0, 0]);
    sets.label("data-0", json!("web")).await;
    let goes_on = |job: &DynamicObject| job.data["spec"]["suspend"] == false;
    sets.stage.until("data-0", "it goes on", goes_on).await.unwrap();
    sets.stage.lose_claim("data-1").await.unwrap();
    sets.stage.until("data-1", "it is suspended", is_suspended).await.unwrap();

    sets.change(json!({"spec": {"deletionPolicy": "Delete"}})).await;
    wait::until_gone(&sets.stage.jobs, "data-1", PATIENCE).await.unwrap();
    sets.label("data-0", json!("other")).await;
    wait::until_gone(&sets.stage.jobs, "data-0", PATIENCE).await.unwrap();
    sets.until("none is left", |set| syncjob::has_reason(set, "Ready", "NoClaimMatches")).await;
}

#[tokio::test]
async fn no_more_runs_of_a_set_are_under_way_than_it_allows_and_the_worst_is_named() {
    let (sets, _controller) = Sets::new("limited").await;
    sets.claims(&["data-0", "data-1", "data-2"]).await;
    sets.create(json!({"maxRuns": 1, "template": {"spec": {"limits": {"retries": 0}}}})).await;
    let is_queued = |job: &DynamicObject| {
        syncjob::message(job, "Reconciling").contains("the SyncJobSet web may have 1 under way at a time")
    };
    let mut known = Vec::new();
    for left in [2, 1, 0] {
        let [source, sink] = sets.stage.kubelet.start_any(&known).await.unwrap();
        if left > 0 {
            wait::until_any(&sets.stage.jobs, "", "a job is queued", PATIENCE, is_queued).await.unwrap();
        }
        sets.until("one runs", |set| syncjob::status(set, "/running") == &json!(1)).await;
        let pods = sets.stage.api::<Pod>();
        let sinks = pods.list(&ListParams::default().labels("volferry.dev/side=sink")).await.unwrap();
        assert_eq!(sinks.iter().filter(|pod| !e2e::kubelet::has_ended(pod)).count(), 1);
        let job = sink.labels()["volferry.dev/syncjob"].clone();
        match left {
            0 => {
                let report =
                    serde_json::to_string(&bad_report(&try_of(&sink), "NoSpace", "no space left")).unwrap();
                for pod in [&source, &sink] {
                    sets.stage.kubelet.end(pod, 1, &report).await.unwrap();
                }
                let names = |set: &DynamicObject| syncjob::text(set, "/worst/name") == job;
                let set = sets.until("the one that failed is the worst", names).await;
                assert_eq!(counts(&set), [3, 2, 0, 1]);
            }
            _ => sets.stage.kubelet.succeed(&source, &sink, &good_report(&try_of(&sink))).await.unwrap(),
        }
        known.extend([source, sink]);
    }
}
