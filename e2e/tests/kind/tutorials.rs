//! The tutorials of `docs/`: their commands run as written, and print the output that the pages show.

use std::{env, ops::RangeInclusive, path::Path};

use e2e::{tree::VARIED, tutorial::Tutorial};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, PersistentVolumeClaim},
};
use kube::{
    Client,
    api::{ObjectMeta, Patch, PatchParams},
};

use crate::{
    prelude::*,
    push::{Laptop, list, shell},
};

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

/// The clusters `first` and `second` of the page are the two, with a namespace in each.
#[tokio::test]
async fn a_cluster_is_lost_and_another_one_comes_up() {
    let first = Sandbox::with("first", json!({}), json!({})).await;
    let second = Sandbox::far("second").await;
    // The page's pods say nothing of what the standard asks for.
    let free = ["label", "namespace", &second.namespace, "pod-security.kubernetes.io/enforce-"];
    second.kubectl.run(&free).unwrap();
    let laptop = Laptop::of_two_clusters();
    let contexts = [(laptop.context.as_str(), "first", &first), ("the/far", "second", &second)];
    for (context, name, cluster) in contexts {
        laptop.kubectl(&["config", "rename-context", context, name]);
        laptop.kubectl(&["config", "set-context", name, "--namespace", &cluster.namespace]);
    }
    let (folder, kubeconfig) = (laptop.folder(""), laptop.folder("kubeconfig"));
    let page = Tutorial::open("second-cluster", &folder, &kubeconfig, &first.namespace).await.unwrap();
    page.follow(ALL).await.unwrap();
}

/// The clusters `old` and `new` of the page are the two, with its namespaces and a claim in each.
#[tokio::test]
async fn a_laptop_pushes_pulls_and_copies_as_the_page_says() {
    let (near, far) = (Sandbox::new("laptop").await, Sandbox::far("laptop-far").await);
    let data = near.volume("web-data", 0).await.unwrap();
    let laptop = Laptop::of_two_clusters();
    for (context, name) in [(laptop.context.as_str(), "old"), ("the/far", "new")] {
        laptop.kubectl(&["config", "rename-context", context, name]);
    }
    let places = [(&near, "prod"), (&near, "staging"), (&far, "prod")];
    for (cluster, namespace) in places {
        claim_in(&cluster.client, namespace).await;
    }
    let site = laptop.folder("site");
    shell(&site, VARIED);
    let folder = laptop.folder("");
    let at = |context: &str, namespace: &str| [format!("--context={context}"), format!("-n={namespace}")];
    let [context, namespace] = at("old", "prod");
    laptop.run(&["push", "site", "web-data", &context, &namespace]);

    let page = "../howto/laptop-to-cluster";
    let mut page =
        Tutorial::open(page, &folder, &laptop.folder("kubeconfig"), &near.namespace).await.unwrap();
    page.set("HOME", &folder);
    page.follow(ALL).await.unwrap();
    assert_same(&list(&site), &data.list().unwrap().without_owners());
    assert_same(&list(&site), &list(&laptop.folder("site-copy")));
    for (context, namespace) in [("new", "prod"), ("old", "staging")] {
        let [of, within] = at(context, namespace);
        laptop.run(&["pull", "web-data", context, &of, &within]);
        assert_same(&list(&site), &list(&laptop.folder(context)));
    }
    for (cluster, namespace) in places {
        let jobs = Api::<Job>::namespaced(cluster.client.clone(), namespace);
        wait::until_none(&jobs, "volferry.dev/one-off=web-data", PATIENCE).await.unwrap();
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        namespaces.delete(namespace, &DeleteParams::default()).await.unwrap();
    }
}

/// Makes a namespace of that name with a claim `web-data` that nobody has used. A test that failed may have left both.
async fn claim_in(client: &Client, namespace: &str) {
    let params = PatchParams::apply("volferry-e2e");
    let made = Namespace {
        metadata: ObjectMeta { name: Some(namespace.into()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::<Namespace>::all(client.clone()).patch(namespace, &params, &Patch::Apply(made)).await.unwrap();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "web-data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    claims.patch("web-data", &params, &Patch::Apply(claim)).await.unwrap();
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
    sandbox.storage_class("fast", "standard").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = env::var_os("KUBECONFIG").unwrap();
    let tutorial = Tutorial::open(page, folder.path(), Path::new(&kubeconfig), &sandbox.namespace).await;
    let tutorial = tutorial.unwrap();
    for section in sections {
        tutorial.follow(section.clone()).await.unwrap();
    }
}
