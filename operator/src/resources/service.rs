//! The Service in front of the end that listens.

use contract::Side;
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::Try;
use crate::names;

/// The UDP port of the listening end, in its pod and at its Service.
pub const PORT: u16 = 8900;

/// A UDP Service that leads to the sink of this try alone.
pub fn service(of: &Try<'_>) -> Service {
    let port = ServicePort {
        name: Some("quic".into()),
        protocol: Some("UDP".into()),
        port: PORT.into(),
        target_port: Some(IntOrString::Int(PORT.into())),
        ..ServicePort::default()
    };
    let selector = [
        (names::LABEL_TRY.to_string(), of.names.label()),
        (names::LABEL_SIDE.to_string(), Side::Sink.to_string()),
    ];
    Service {
        metadata: of.metadata(of.names.service()),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".into()),
            ports: Some(vec![port]),
            selector: Some(selector.into()),
            // The syncer has no readiness but that it listens, and the source tries until it does.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
