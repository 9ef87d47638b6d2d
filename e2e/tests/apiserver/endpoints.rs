//! SyncEndpoints: machines outside of the cluster reach a claim with the keys that it lists, its objects follow the
//! spec, and nothing that its pod writes decides anything.

use k8s_openapi::api::core::v1::{Namespace, Secret, Service};

use crate::endpoints_stage::{Outside, Serving, content};
use crate::prelude::*;

/// Returns the peers of a spec with these names and machines.
fn peers(machines: &[(&str, &Outside)]) -> Value {
    let peer =
        |(name, machine): &(&str, &Outside)| json!({"name": name, "publicKey": machine.key.to_string()});
    machines.iter().map(peer).collect()
}

#[tokio::test]
async fn a_machine_outside_sends_into_a_claim_and_the_status_says_who_came() {
    let (serving, _controller) = Serving::new("outside").await;
    let laptop = Outside::new();
    serving.create(json!({"peers": peers(&[("laptop", &laptop)]), "path": "/uploads"})).await;
    // Until it has stored its key, the pod may create that Secret and no other.
    serving.until_replicas(1).await;
    serving.until_may_store(true).await;
    for name in ["other", "KEY-of-another-e-0123456789-key", "more-KEY"] {
        serving.until_refused(json!({"metadata": {"name": name}})).await;
    }
    let account = json!({"kubernetes.io/service-account.name": "default"});
    let token = json!({"metadata": {"name": "KEY", "annotations": account},
        "type": "kubernetes.io/service-account-token"});
    serving.until_refused(token).await;
    let (_pod, address, key) = serving.up().await;
    assert_eq!(address, format!("127.0.0.1:{}::web", serving.port));

    let from = laptop.folder("from", "hello");
    let sent = laptop.sync(from.to_str().unwrap(), &address, key).await;
    assert!(sent.status.success(), "{sent:?}");
    assert_eq!(content(&serving.volume().join("uploads")).as_deref(), Some("hello"));
    let told = serving.until("the run is told", |it| syncjob::text(it, "/lastRun/peer") == "laptop").await;
    assert_eq!(syncjob::text(&told, "/lastRun/result"), "Succeeded");
    assert_eq!(syncjob::text(&told, "/lastRun/access"), "Write");
    let timings = syncjob::status(&told, "/lastRun/timings").as_object();
    let sum_ms: u64 = timings.into_iter().flat_map(|it| it.values()).filter_map(Value::as_u64).sum();
    assert!(sum_ms > 0, "{told:#?}");
    assert_eq!(syncjob::status(&told, "/peers/0/runs"), 1);
    assert_eq!(syncjob::status(&told, "/history/0/filesChanged").as_u64(), Some(1), "{told:#?}");

    // The key is stored, so the pod may store none any more, and has never been able to read one.
    serving.until_may_store(false).await;
    let secret = serving.secret().await;
    assert_eq!(secret.owner_references()[0].kind, "SyncEndpoint");
    assert_eq!(secret.immutable, Some(true));
    let secrets = Api::<Secret>::namespaced(serving.as_pod().await, &serving.stage.namespace);
    let name = secret.name_any();
    let read = secrets.get(&name).await.unwrap_err().to_string();
    assert!(read.contains("forbidden"), "{read}");
    let empty = Patch::Merge(json!({}));
    let patched = secrets.patch(&name, &PatchParams::default(), &empty).await.unwrap_err().to_string();
    assert!(patched.contains("forbidden"), "{patched}");

    serving.endpoints.delete("web", &DeleteParams::default()).await.unwrap();
    serving.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_peer_that_is_added_comes_and_one_that_is_taken_out_does_not_without_a_restart() {
    let (serving, _controller) = Serving::new("peers").await;
    let (old, new) = (Outside::new(), Outside::new());
    serving.create(json!({"peers": peers(&[("old", &old)])})).await;
    let (pod, address, key) = serving.up().await;
    let (from_old, from_new) = (old.folder("from", "old"), new.folder("from", "newer"));
    assert!(old.sync(from_old.to_str().unwrap(), &address, key).await.status.success());
    let refused = new.sync(from_new.to_str().unwrap(), &address, key).await;
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");

    let process = pod.id();
    serving.change(json!({"spec": {"peers": peers(&[("new", &new)])}})).await;
    // Nothing tells from outside when the rules are in force.
    let may_come = async || new.sync(from_new.to_str().unwrap(), &address, key).await.status.success();
    wait::poll("the new peer may come", PATIENCE, may_come).await.unwrap();
    let refused = old.sync(from_old.to_str().unwrap(), &address, key).await;
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
    assert_eq!(content(&serving.volume()).as_deref(), Some("newer"));
    assert_eq!(pod.id(), process);
}

#[tokio::test]
async fn what_a_pod_forges_in_the_status_is_put_right_and_decides_nothing() {
    let (serving, _controller) = Serving::new("forged").await;
    let laptop = Outside::new();
    serving.create(json!({"peers": peers(&[("laptop", &laptop)])})).await;
    let (pod, address, _) = serving.up().await;
    let forger = Api::namespaced_with(
        serving.as_pod().await,
        &serving.stage.namespace,
        &kube::core::ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk("volferry.dev", "v1alpha1", "SyncEndpoint"),
            "syncendpoints",
        ),
    );
    let at = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Forged", "message": "", "lastTransitionTime": at});
    let forge = async |status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        let written: Result<DynamicObject, _> =
            forger.patch_status("web", &PatchParams::default(), &patch).await;
        written
    };
    let lies = json!({"address": "attacker.example::web", "observedGeneration": 99,
        "conditions": [condition("Ready"), condition("Stalled"), condition("Trusted")]});
    forge(lies).await.unwrap();
    let is_right = |it: &DynamicObject| {
        syncjob::text(it, "/address") == address
            && syncjob::status(it, "/conditions").as_array().is_some_and(|all| all.len() == 1)
            && syncjob::has_reason(it, "Ready", "Serving")
    };
    serving.until("the status is put right", is_right).await;

    // What no schema lets through stays out, and what is no key does not pass for one.
    for lie in [
        json!({"publicKey": "k".repeat(100)}),
        json!({"lastRun": {"peer": "p".repeat(65), "access": "Write", "result": "Succeeded"}}),
        json!({"history": vec![json!({"peer": "p", "access": "Write", "result": "Failed"}); 21]}),
    ] {
        let refused = forge(lie.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("Too long") || refused.contains("Too many"), "{lie}: {refused}");
    }
    serving.until_may_store(false).await;
    pod.stop().await.unwrap();
    forge(json!({"publicKey": "no key"})).await.unwrap();
    serving.until("the key is taken out", |it| syncjob::status(it, "/publicKey").is_null()).await;
    serving.until_may_store(true).await;

    // Its account reaches nothing else.
    let spec = Patch::Merge(json!({"spec": {"suspend": true}}));
    let refused: Result<DynamicObject, _> = forger.patch("web", &PatchParams::default(), &spec).await;
    assert!(refused.unwrap_err().to_string().contains("forbidden"));
    let jobs = syncjob::api(&serving.as_pod().await, &serving.stage.namespace);
    assert!(jobs.get("web").await.unwrap_err().to_string().contains("forbidden"));
}

#[tokio::test]
async fn an_endpoint_without_its_claim_is_stalled_and_goes_on_with_it() {
    let (serving, _controller) = Serving::new("claim").await;
    serving.create(json!({"persistentVolumeClaim": {"claimName": "later"}})).await;
    let stalled = serving.until_reason("ClaimNotFound").await;
    assert!(syncjob::message(&stalled, "Stalled").contains("later"), "{stalled:#?}");
    serving.until_replicas(0).await;
    serving.stage.claim("later", "Bound").await.unwrap();
    serving.until_replicas(1).await;
    serving.until_reason("PodPending").await;

    // A pod would keep the claim from going.
    let claims = serving.api::<PersistentVolumeClaim>();
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["volferry.test/held"]}}));
    claims.patch("later", &PatchParams::default(), &held).await.unwrap();
    claims.delete("later", &DeleteParams::default()).await.unwrap();
    serving.until_reason("ClaimTerminating").await;
    serving.until_replicas(0).await;
    serving.stage.lose_claim("later").await.unwrap();
    serving.until_reason("ClaimNotFound").await;
}

#[tokio::test]
async fn a_suspended_endpoint_has_no_pod_and_keeps_its_address_and_its_key() {
    let (serving, _controller) = Serving::new("suspended").await;
    let laptop = Outside::new();
    serving.create(json!({"peers": peers(&[("laptop", &laptop)])})).await;
    let (pod, address, key) = serving.up().await;
    serving.change(json!({"spec": {"suspend": true}})).await;
    let none = serving.until_replicas(0).await;
    serving.set_available(&none, 0).await;
    pod.stop().await.unwrap();
    let suspended = serving.until_reason("Suspended").await;
    assert!(syncjob::is(&suspended, "Ready"));
    assert_eq!(syncjob::text(&suspended, "/address"), address);

    // The next pod has the mounted key, and an empty memory.
    serving.lose_memory();
    serving.mount(&serving.secret().await);
    serving.change(json!({"spec": {"suspend": false}})).await;
    let (_pod, again, same) = serving.up().await;
    assert_eq!((again.as_str(), same), (address.as_str(), key));
    let from = laptop.folder("from", "after");
    let sent = laptop.sync(from.to_str().unwrap(), &address, key).await;
    assert!(sent.status.success(), "{sent:?}");
}

#[tokio::test]
async fn an_endpoint_that_lost_a_right_or_is_suspended_has_no_pod_whatever_else_is_wrong_with_it() {
    let (serving, _controller) = Serving::new("faulty").await;
    let namespaces = Api::<Namespace>::all(serving.stage.client.clone());
    let annotate = async |value: Value| {
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"volferry.dev/privileged-syncers": value}}}));
        namespaces.patch(&serving.stage.namespace, &PatchParams::default(), &patch).await.unwrap();
    };
    annotate(json!("true")).await;
    serving.create(json!({"pods": {"securityContext": {"runAsUser": 0}}})).await;
    let address = format!("127.0.0.1:{}::web", serving.port);
    let stalled = async |reason: &str| {
        serving.until_replicas(0).await;
        let told = serving.until_reason(reason).await;
        assert_eq!(syncjob::text(&told, "/address"), address, "{told:#?}");
    };
    serving.until_replicas(1).await;
    annotate(Value::Null).await;
    // No watch tells of annotations, and a change of the endpoint has them read.
    serving.change(json!({"spec": {"demands": {"queue": 7}}})).await;
    stalled("RootNotAllowed").await;

    let bring_up =
        json!({"spec": {"suspend": false, "pods": null, "service": {"type": "ClusterIP", "nodePort": null}}});
    serving.change(bring_up.clone()).await;
    serving.until_replicas(1).await;
    annotate(json!("perhaps")).await;
    serving.change(json!({"spec": {"suspend": true}})).await;
    stalled("InvalidAnnotation").await;

    annotate(Value::Null).await;
    serving.change(bring_up).await;
    serving.until_replicas(1).await;
    serving.change(json!({"spec": {"suspend": true, "service": {"type": "NodePort", "nodePort": 1}}})).await;
    serving.until_reason("ChildRefused").await;
    serving.until_replicas(0).await;
}

#[tokio::test]
async fn another_key_of_an_endpoint_is_made_and_peers_that_know_the_one_before_may_still_come() {
    let (serving, _controller) = Serving::new("nextkey").await;
    let laptop = Outside::new();
    serving.create(json!({"peers": peers(&[("laptop", &laptop)])})).await;
    let (pod, address, first) = serving.up().await;
    let leap = async |version: Value| {
        let leap = Patch::Merge(json!({"spec": {"keyVersion": version}}));
        let refused = serving.endpoints.patch("web", &PatchParams::default(), &leap).await.unwrap_err();
        assert!(refused.to_string().contains("grows by one at a time"), "{refused}");
    };
    leap(json!(7)).await;
    serving.change(json!({"spec": {"keyVersion": 2}})).await;
    for version in [json!(1), json!(4), Value::Null] {
        leap(version).await;
    }
    let pod = serving.with_next_key(pod).await;
    let is_new = |it: &DynamicObject| {
        let key = syncjob::text(it, "/publicKey");
        syncjob::has_reason(it, "Ready", "Serving") && !key.is_empty() && key != first.to_string()
    };
    let told = serving.until("another key is told", is_new).await;
    let second = syncjob::text(&told, "/publicKey").parse().unwrap();
    for (key, content) in [(first, "by the one before"), (second, "by the new one")] {
        let from = laptop.folder(content, content);
        let sent = laptop.sync(from.to_str().unwrap(), &address, key).await;
        assert!(sent.status.success(), "{content}: {sent:?}");
        assert_eq!(self::content(&serving.volume()).as_deref(), Some(content));
    }
    drop(pod);
    serving.endpoints.delete("web", &DeleteParams::default()).await.unwrap();
    serving.until_nothing_is_left().await;
}

#[tokio::test]
async fn of_two_pods_that_make_a_key_the_first_one_decides() {
    let (serving, _controller) = Serving::new("twokeys").await;
    serving.create(json!({})).await;
    let deployment = serving.until_replicas(1).await;
    let (pod, _, key) = serving.up().await;
    pod.stop().await.unwrap();
    // The second one does not see the Secret at first, as when a node was lost.
    serving.lose_memory();
    let _second = serving.run_pod(&deployment).await;
    serving.until("the key is asked for", |it| syncjob::status(it, "/publicKey").is_null()).await;
    serving.mount(&serving.secret().await);
    let key_is_back = |it: &DynamicObject| syncjob::text(it, "/publicKey") == key.to_string();
    serving.until("the first key is back", key_is_back).await;
}

#[tokio::test]
async fn a_spec_that_no_endpoint_can_have_is_refused_with_what_to_write_instead() {
    let (serving, _controller) = Serving::new("refused").await;
    let refused = async |more: Value, words: &str| {
        let mut spec = json!({"persistentVolumeClaim": {"claimName": "to"}, "access": "Read"});
        syncjob::merge(&mut spec, more);
        let manifest = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncEndpoint",
            "metadata": {"name": "web"}, "spec": spec});
        let endpoint: DynamicObject = serde_json::from_value(manifest).unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let said = serving.endpoints.create(&dry, &endpoint).await.unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    };
    refused(json!({"peers": [{"name": "laptop", "publicKey": "k".repeat(44)}]}), "is no public key").await;
    refused(json!({"snapshots": {}}), "write access: Write").await;
    refused(json!({"demands": {"noDelete": true}}), "write access: Write").await;
    refused(json!({"service": {"nodePort": 31000}}), "goes with type: NodePort").await;
    refused(json!({"service": {"loadBalancerClass": "x"}}), "goes with type: LoadBalancer").await;
    refused(json!({"service": {"protocols": ["UDP", "UDP"]}}), "names a protocol twice").await;
    refused(json!({"service": {"hostName": "h:7400"}}), "without a port").await;
    refused(json!({"path": "/../x"}), "is not a folder inside the volume").await;
}

#[tokio::test]
async fn a_service_that_the_api_server_refuses_stalls_the_endpoint_with_its_words() {
    let (serving, _controller) = Serving::new("badservice").await;
    serving.create(json!({"service": {"type": "NodePort", "nodePort": 1}})).await;
    let stalled = serving.until_reason("ChildRefused").await;
    let message = syncjob::message(&stalled, "Stalled");
    assert!(message.contains("Service") && message.contains("nodePort"), "{message}");
    serving.change(json!({"spec": {"service": {"type": "ClusterIP", "nodePort": null}}})).await;
    serving.until_replicas(1).await;
    serving.until_reason("PodPending").await;
}

#[tokio::test]
async fn a_load_balancer_whose_address_comes_late_is_waited_for_and_followed_when_it_changes() {
    let (serving, _controller) = Serving::new("late").await;
    let annotations = json!({"lb.example/scheme": "internal"});
    let service = json!({"type": "LoadBalancer", "hostName": null, "annotations": annotations,
        "loadBalancerClass": "lb.example/udp"});
    serving.create(json!({ "service": service })).await;
    let deployment = serving.until_replicas(1).await;
    let made = serving.api::<Service>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(json!(made[0].annotations()), annotations);
    assert_eq!(made[0].spec.as_ref().unwrap().load_balancer_class.as_deref(), Some("lb.example/udp"));
    let _pod = serving.run_pod(&deployment).await;
    serving.until_probed().await;
    serving.set_available(&deployment, 1).await;
    let waits = serving.until_reason("AddressPending").await;
    assert!(syncjob::status(&waits, "/address").is_null(), "{waits:#?}");
    for (ingress, host) in [
        (json!({"ip": "192.0.2.7"}), "192.0.2.7"),
        (json!({"ip": "2001:db8::7"}), "[2001:db8::7]"),
        (json!({"hostname": "lb.example"}), "lb.example"),
    ] {
        serving.give_address(&ingress).await;
        let address = format!("{host}:{}::web", serving.port);
        let serves = |it: &DynamicObject| {
            syncjob::text(it, "/address") == address && syncjob::has_reason(it, "Ready", "Serving")
        };
        serving.until(host, serves).await;
    }
}
