//! Finds the address that peers of a SyncEndpoint write. Pure.

use std::net::Ipv6Addr;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt as _;

use crate::api::{ServiceType, SyncEndpoint};

/// The port that clients assume if none is named.
const USUAL_PORT: i32 = 7400;

/// Returns what peers write in the place of a folder, `HOST[:PORT]::NAME`; `None` while nobody knows where the endpoint
/// is. `node` is the address of the node with the endpoint's pod.
pub fn address(endpoint: &SyncEndpoint, service: Option<&Service>, node: Option<&str>) -> Option<String> {
    let asked = &endpoint.spec.service;
    let by_hand = asked.host_name.clone();
    let (host, port) = match asked.service_type {
        ServiceType::ClusterIP => (by_hand.or_else(|| inside(service?)), Some(asked.port)),
        ServiceType::NodePort => (by_hand.or_else(|| node.map(Into::into)), node_port(service)),
        ServiceType::LoadBalancer => (by_hand.or_else(|| ingress(service?)), Some(asked.port)),
    };
    let (host, port) = (bracketed(host?), port?);
    let port = if port == USUAL_PORT { String::new() } else { format!(":{port}") };
    Some(format!("{host}{port}::{}", endpoint.name_any()))
}

/// Returns the address of the node that has an endpoint's pod. One that has ended, as after an eviction, may stay
/// listed with a node that the endpoint has left.
pub fn node(pods: &[Pod]) -> Option<String> {
    let live = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut statuses = live.filter_map(|pod| pod.status.as_ref());
    let has_ended = |phase: Option<&str>| matches!(phase, Some("Failed" | "Succeeded"));
    statuses.find(|it| it.host_ip.is_some() && !has_ended(it.phase.as_deref()))?.host_ip.clone()
}

/// Returns the name of a Service inside its cluster.
fn inside(service: &Service) -> Option<String> {
    Some(format!("{}.{}.svc", service.name_any(), service.namespace()?))
}

/// Returns the port that each node has for a Service. UDP and TCP have the same one.
fn node_port(service: Option<&Service>) -> Option<i32> {
    service?.spec.as_ref()?.ports.as_ref()?.iter().find_map(|port| port.node_port)
}

/// Returns the address or name that a load balancer has given a Service.
fn ingress(service: &Service) -> Option<String> {
    let given = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    given.iter().find_map(|it| it.ip.clone().or_else(|| it.hostname.clone()))
}

/// Returns a host in the form that a port can follow.
fn bracketed(host: String) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(asked: &Value, service: &Value, node: Option<&str>) -> Option<String> {
        let endpoint = json!({"metadata": {"name": "web", "namespace": "prod"}, "spec": {
            "persistentVolumeClaim": {"claimName": "data"}, "access": "Write", "service": asked}});
        let mut whole = json!({"metadata": {"name": "vf-web-e-1", "namespace": "prod"}});
        whole.as_object_mut().unwrap().extend(service.as_object().unwrap().clone());
        let service = serde_json::from_value(whole).unwrap();
        address(&serde_json::from_value(endpoint).unwrap(), Some(&service), node)
    }

    #[test]
    fn an_address_is_what_the_command_line_takes() {
        let balanced = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
        let ports = json!({"spec": {"ports": [{"port": 7400, "nodePort": 31000}]}});
        let cases = [
            (json!({}), json!({}), None, Some("vf-web-e-1.prod.svc::web")),
            (json!({"port": 9000}), json!({}), None, Some("vf-web-e-1.prod.svc:9000::web")),
            (json!({"hostName": "web.example.org"}), json!({}), None, Some("web.example.org::web")),
            (json!({"hostName": "fd00::7", "port": 1}), json!({}), None, Some("[fd00::7]:1::web")),
            (json!({"type": "LoadBalancer"}), json!({}), None, None),
            (
                json!({"type": "LoadBalancer"}),
                balanced(json!({"ip": "203.0.113.7"})),
                None,
                Some("203.0.113.7::web"),
            ),
            (json!({"type": "LoadBalancer"}), balanced(json!({"hostname": "x.lb"})), None, Some("x.lb::web")),
            (json!({"type": "NodePort"}), ports.clone(), None, None),
            (json!({"type": "NodePort"}), ports.clone(), Some("10.0.0.9"), Some("10.0.0.9:31000::web")),
            (
                json!({"type": "NodePort", "hostName": "n.example.org"}),
                ports,
                None,
                Some("n.example.org:31000::web"),
            ),
            (json!({"type": "NodePort"}), json!({}), Some("10.0.0.9"), None),
        ];
        for (asked, service, node, expected) in cases {
            assert_eq!(found(&asked, &service, node).as_deref(), expected, "{asked} {service}");
        }
    }

    #[test]
    fn the_node_is_that_of_the_pod_that_lives() {
        let pod = |phase: &str, ip: Value, deleted: Value| {
            let metadata = json!({"name": "p", "deletionTimestamp": deleted});
            json!({"metadata": metadata, "status": {"phase": phase, "hostIP": ip}})
        };
        let none = Value::Null;
        let pods = json!([
            pod("Running", json!("10.0.0.1"), json!("2026-01-01T00:00:00Z")),
            pod("Failed", json!("10.0.0.2"), none.clone()),
            pod("Succeeded", json!("10.0.0.3"), none.clone()),
            pod("Pending", none.clone(), none.clone()),
            pod("Running", json!("10.0.0.4"), none),
        ]);
        let mut pods: Vec<Pod> = serde_json::from_value(pods).unwrap();
        assert_eq!(node(&pods).as_deref(), Some("10.0.0.4"));
        pods.pop();
        assert_eq!(node(&pods), None);
    }
}
