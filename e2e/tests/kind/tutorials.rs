//! The tutorials of `docs/`: their commands run as written, and print the output that the pages show.

use std::{env, fs, ops::RangeInclusive, path::Path};

use anyhow::Result;
use e2e::tutorial::Tutorial;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{
    api::{ObjectMeta, Patch, PatchParams},
    config::Kubeconfig,
};

use crate::prelude::*;

/// Every section of a page.
const ALL: RangeInclusive<usize> = 0..=usize::MAX;

#[tokio::test]
async fn a_claim_is_mirrored() {
    follow("mirror", &[ALL]).await;
}

#[tokio::test]
async fn a_snapshot_is_restored() {
    follow("restore", &[ALL]).await;
}

#[tokio::test]
async fn a_stateful_set_moves_to_another_storage_class() {
    follow("storage-class", &[ALL]).await;
}

/// Both clusters of the page are this one, in a namespace each.
#[tokio::test]
async fn a_cluster_is_lost_and_another_one_comes_up() {
    let [first, second] = ["first", "second"].map(|name| Sandbox::with(name, json!({}), json!({})));
    let (first, second) = (first.await, second.await);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut config = Kubeconfig::read_from(env::var_os("KUBECONFIG").unwrap()).unwrap();
    for (name, sandbox) in [("first", &first), ("second", &second)] {
        let mut named = config.contexts[0].clone();
        name.clone_into(&mut named.name);
        named.context.as_mut().unwrap().namespace = Some(sandbox.namespace.clone());
        config.contexts.push(named);
    }
    fs::write(&kubeconfig, serde_json::to_string(&config).unwrap()).unwrap();
    let tutorial = Tutorial::open("second-cluster", folder.path(), &kubeconfig, &first.namespace).await;
    tutorial.unwrap().follow(ALL).await.unwrap();
}

/// The other sections need Flux and Argo CD: `tests/gitops.rs` follows them.
#[tokio::test]
async fn a_sync_job_lives_in_git() {
    follow("gitops", &[1..=2, 5..=5]).await;
}

#[tokio::test]
async fn a_job_that_stalls_shows_in_the_metrics() {
    follow("alerts", &[ALL]).await;
}

/// Follows sections of a tutorial in a namespace of its own, with a fresh folder as the working directory.
async fn follow(page: &str, sections: &[RangeInclusive<usize>]) {
    let sandbox = Sandbox::with(page, json!({}), json!({})).await;
    add_storage_class(&sandbox, "fast").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = env::var_os("KUBECONFIG").unwrap();
    let tutorial = Tutorial::open(page, folder.path(), Path::new(&kubeconfig), &sandbox.namespace).await;
    let tutorial = tutorial.unwrap();
    for section in sections {
        tutorial.follow(section.clone()).await.unwrap();
    }
}

/// Makes a storage class like the default one, under another name.
async fn add_storage_class(sandbox: &Sandbox, name: &str) -> Result<()> {
    let classes = Api::<StorageClass>::all(sandbox.client.clone());
    let mut class = classes.get("standard").await?;
    class.metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    classes.patch(name, &PatchParams::apply("volferry-e2e"), &Patch::Apply(class)).await?;
    Ok(())
}
