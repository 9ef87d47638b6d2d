//! The Services in front of the end that listens.

use std::collections::BTreeMap;

use contract::Side;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::Try;
use crate::names;

/// The UDP port of the listening end, in its pod and at its Service.
pub const PORT: u16 = 8900;

/// UDP Services that lead to the sinks of this try, one for each shard.
pub fn services(of: &Try<'_>) -> Vec<Service> {
    let names = of.names.services(of.run.shard_count());
    let is_one = names.len() == 1;
    (0..).zip(names).map(|(shard, name)| service(of, name, (!is_one).then_some(shard))).collect()
}

fn service(of: &Try<'_>, name: String, shard: Option<u32>) -> Service {
    let port = ServicePort {
        name: Some("quic".into()),
        protocol: Some("UDP".into()),
        port: PORT.into(),
        target_port: Some(IntOrString::Int(PORT.into())),
        ..ServicePort::default()
    };
    let mut selector: BTreeMap<String, String> = [
        (names::LABEL_TRY.to_string(), of.names.label()),
        (names::LABEL_SIDE.to_string(), Side::Sink.to_string()),
    ]
    .into();
    selector.extend(shard.map(|shard| (names::ANNOTATION_INDEX.to_string(), shard.to_string())));
    Service {
        metadata: of.metadata(name),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".into()),
            ports: Some(vec![port]),
            selector: Some(selector),
            // The syncer has no readiness but that it listens, and the source tries until it does.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
