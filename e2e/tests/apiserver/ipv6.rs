//! An endpoint that is reached by IPv6.

use std::net::TcpListener;

use k8s_openapi::api::core::v1::Service;

use crate::{
    endpoints_stage::{Outside, content},
    prelude::*,
    remote_more::{own_key, run_until_taken},
    remote_stage::{Remote, fill},
};

#[tokio::test]
async fn a_job_and_a_machine_outside_reach_an_endpoint_by_ipv6() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        eprintln!("not tested, since this system has no IPv6: {error}");
        return;
    }
    let by_ipv6 = json!({"service": {"hostName": "::1", "ipFamilyPolicy": "RequireDualStack"}});
    let remote = Remote::with("ipv6", Side::Source, by_ipv6).await;
    assert!(remote.address.starts_with("[::1]:"), "{}", remote.address);
    let services = remote.serving.api::<Service>().list(&ListParams::default()).await.unwrap().items;
    let families = services[0].spec.as_ref().unwrap().ip_families.as_ref().unwrap();
    assert_eq!(families.len(), 2, "{families:?}");

    let laptop = Outside::new();
    remote.list(&[&own_key(&remote), &laptop.key.to_string()]).await;
    fill(&remote.volume(), "of the job");
    remote.sync(json!({"identity": {"secretName": "mine"}}), json!({})).await;
    run_until_taken(&remote, Vec::new()).await;
    remote.until_ready().await;
    assert_eq!(content(&remote.serving.volume()).as_deref(), Some("of the job"));
    for link in ["udp", "tcp"] {
        let from = laptop.folder(link, link);
        let sent = laptop.sync_over(link, from.to_str().unwrap(), &remote.address, remote.key).await;
        assert!(sent.status.success(), "{link}: {sent:?}");
        assert_eq!(content(&remote.serving.volume()).as_deref(), Some(link));
    }
}
