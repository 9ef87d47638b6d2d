//! The tutorial on GitOps, followed with the controllers of Flux and Argo CD, which `make test-gitops` builds.
#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

use std::ops::RangeInclusive;

use anyhow::Result;
use e2e::{
    apiserver::{ApiServer, User},
    diagnosis,
    gitops::{ArgoCd, Fleet, Flux},
    kubelet::Play,
    programs,
    scripted::{PATIENCE, Stage},
    syncjob,
    tutorial::Tutorial,
    wait,
};
use kube::{
    Api,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};

/// The processes whose logs tell why a step fails.
const LOGS: [&str; 4] =
    ["source-controller", "kustomize-controller", "argocd-repo-server", "argocd-application-controller"];

#[tokio::test]
async fn flux_and_argo_cd_do_what_the_tutorial_says() {
    let (stage, _controller) = Stage::with_controller("gitops").await.unwrap();
    let server = ApiServer::shared();
    let fleet = Fleet::start().unwrap();
    let _flux = Flux::start(&server).unwrap();
    let _argo_cd = ArgoCd::start(&server).unwrap();
    let kubeconfig = server.kubeconfig(User::Admin);
    let tutorial = Tutorial::open("gitops", &fleet.clone_folder(), &kubeconfig, &stage.namespace).await;
    let mut tutorial = tutorial.unwrap();
    tutorial.set("FLEET", fleet.url());
    tutorial.set("VOLFERRY", programs::repository().canonicalize().unwrap());

    follow(&stage, &tutorial, 1..=2, async || Ok(())).await;
    let flux = objects(&stage, "flux-system", "kustomize.toolkit.fluxcd.io", "v1", "Kustomization");
    follow(&stage, &tutorial, 3..=3, async || {
        let waits = |it: &DynamicObject| {
            syncjob::condition(it, "Ready").is_some_and(|ready| ready["status"] == "Unknown")
        };
        wait::until(&flux, "backup", "Flux waits for the run", PATIENCE, waits).await.map(drop)
    })
    .await;
    let argo_cd = objects(&stage, "argocd", "argoproj.io", "v1alpha1", "Application");
    follow(&stage, &tutorial, 4..=5, async || {
        let waits = |it: &DynamicObject| syncjob::text(it, "/health/status") == "Progressing";
        wait::until(&argo_cd, "backup", "Argo CD waits for the run", PATIENCE, waits).await.map(drop)
    })
    .await;
}

/// Follows sections of the tutorial. A run ends only after `may_end` has returned, to see a tool wait for it.
async fn follow(
    stage: &Stage,
    tutorial: &Tutorial,
    sections: RangeInclusive<usize>,
    may_end: impl AsyncFn() -> Result<()>,
) {
    let ended = tokio::select! {
        done = tutorial.follow(sections) => done,
        error = stage.kubelet.play_when("orders", Play::Succeeds, may_end) => error,
        error = stage.play_volumes() => error,
    };
    if let Err(error) = ended {
        LOGS.iter().for_each(|log| diagnosis::print_file(&ApiServer::shared().log(log)));
        panic!("{error:?}");
    }
}

/// Returns the API of a tool's objects in its namespace.
fn objects(stage: &Stage, namespace: &str, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(stage.client.clone(), namespace, &kind)
}
