//! Builds the objects of a SyncEndpoint: its Deployment, its Service, and the account and rights of its pod. Pure.
//!
//! The Secret with the endpoint's key is not among them. The pod makes the key and creates that Secret itself: whoever
//! grants the right to read or patch a Secret has to hold it for all Secrets, and the operator holds neither.

use std::collections::BTreeMap;

use contract::Side;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy},
        core::v1::{
            Affinity, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, KeyToPath,
            ObjectFieldSelector, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec, Probe,
            ProjectedVolumeSource, SecretProjection, Service, ServiceAccount, ServicePort, ServiceSpec,
            Volume, VolumeMount, VolumeProjection,
        },
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::{Resource as _, ResourceExt as _};

use crate::{
    api::{EndpointAccess, PodSettings, ServiceProtocol, SyncEndpoint},
    grants::namespace_annotations::NamespaceUsers,
    names,
    pods::{
        Settings,
        job::{GRACE_S, OPERATOR, SYNCER, modest_resources, non_empty, verbatim},
        owner,
        placement::{self, Placement},
        pod_permissions::create_secrets,
        pod_volumes::{DATA, KEY, KEY_DIR, SCRATCH_DIR, TMP_DIR, TMP_SIZE, empty_dir, mount},
        security::{self, PodUser},
    },
    telemetry::LogFormat,
};

/// The port of an endpoint's pod, for UDP and TCP.
pub const SERVICE_PORT: u16 = 7400;
/// The port of its probes and metrics.
pub const METRICS_PORT: u16 = 9474;
/// The entry of the Secret with the key.
pub const KEY_ENTRY: &str = "service.key";
/// The file of the key before, beside that of the key.
pub const FORMER_KEY: &str = "former.key";
/// Where an endpoint's pod finds its volume.
pub const VOLUME_DIR: &str = "/volume";
const SCRATCH: &str = "scratch";
const TMP: &str = "tmp";

/// An endpoint, with what its objects are built from.
#[derive(Debug, Clone, Copy)]
pub struct Serving<'a> {
    /// The endpoint.
    pub endpoint: &'a SyncEndpoint,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// What its namespace says about syncers.
    pub users: &'a NamespaceUsers,
    /// Whether a pod is to run.
    pub runs: bool,
    /// Whether all pods that use the claim have to be on one node.
    pub on_one_node: bool,
    /// The node that the pod has to run on.
    pub pinned: Option<&'a Placement>,
    /// Whether the pod has made its key, and so needs no right to create the Secret for it.
    pub has_key: bool,
}

impl Serving<'_> {
    fn name(&self) -> String {
        names::endpoint(&self.endpoint.name_any(), &self.uid())
    }

    fn uid(&self) -> String {
        self.endpoint.uid().unwrap_or_default()
    }

    /// Returns the name of the Secret with the key of that number.
    fn key_secret(&self, version: i32) -> String {
        names::endpoint_key(&self.endpoint.name_any(), &self.uid(), version)
    }

    fn metadata(&self) -> ObjectMeta {
        let name = self.endpoint.name_any();
        ObjectMeta {
            name: Some(self.name()),
            namespace: self.endpoint.namespace(),
            labels: Some(labels(&name)),
            owner_references: Some(vec![owner::<SyncEndpoint>(&name, &self.uid())]),
            ..ObjectMeta::default()
        }
    }

    fn pods(&self) -> PodSettings {
        self.endpoint.spec.pods.over(&self.settings.pods)
    }

    fn user(&self) -> PodUser {
        let wanted = &self.endpoint.spec.pods.security_context;
        PodUser::of(self.users.is_privileged(), self.users.is_assigned, wanted)
    }

    fn is_read_only(&self) -> bool {
        self.endpoint.spec.access == EndpointAccess::Read
    }

    fn account(&self) -> String {
        self.endpoint.spec.pods.service_account_name.clone().unwrap_or_else(|| self.name())
    }
}

/// Returns the labels of all objects of an endpoint.
pub fn labels(endpoint: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "volferry".to_string()),
        ("app.kubernetes.io/component", "endpoint".into()),
        ("app.kubernetes.io/part-of", "volferry".into()),
        ("app.kubernetes.io/instance", names::label_value(endpoint)),
        (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.into()),
        (names::LABEL_SYNCENDPOINT, names::label_value(endpoint)),
    ]
    .map(|(key, value)| (key.to_string(), value))
    .into()
}

/// Returns the labels by which an endpoint's Service and Deployment find its pod. They never change.
fn selector(endpoint: &str) -> BTreeMap<String, String> {
    [(names::LABEL_SYNCENDPOINT.to_string(), names::label_value(endpoint))].into()
}

/// Builds the ServiceAccount of the pod; `None` if the spec names one.
pub fn service_account(of: &Serving<'_>) -> Option<ServiceAccount> {
    let is_made = of.endpoint.spec.pods.service_account_name.is_none();
    is_made.then(|| ServiceAccount {
        metadata: of.metadata(),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    })
}

/// Builds the Role of the pod: to follow this endpoint and to patch its status; and, until it has made its key, to
/// create Secrets, which no rule can limit to one name.
pub fn role(of: &Serving<'_>) -> Role {
    let plural = SyncEndpoint::plural(&());
    let own = |resource: String, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![SyncEndpoint::group(&()).into_owned()]),
        resources: Some(vec![resource]),
        resource_names: Some(vec![of.endpoint.name_any()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    };
    let mut rules =
        vec![own(plural.to_string(), &["list", "watch"]), own(format!("{plural}/status"), &["patch"])];
    rules.extend((!of.has_key).then(create_secrets));
    Role { metadata: of.metadata(), rules: Some(rules) }
}

/// Builds the binding of the Role to the pod's account.
pub fn role_binding(of: &Serving<'_>) -> RoleBinding {
    RoleBinding {
        metadata: of.metadata(),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".into(),
            kind: "Role".into(),
            name: of.name(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: of.account(),
            namespace: of.endpoint.namespace(),
            ..Subject::default()
        }]),
    }
}

/// Builds the Service by which peers come.
pub fn service(of: &Serving<'_>) -> Service {
    let asked = &of.endpoint.spec.service;
    let mut metadata = of.metadata();
    metadata.annotations = non_empty(asked.annotations.clone(), BTreeMap::is_empty);
    let port = |protocol: &ServiceProtocol| {
        let name = port_name(*protocol);
        ServicePort {
            name: Some(name.into()),
            protocol: Some(transport(*protocol).into()),
            port: asked.port,
            target_port: Some(IntOrString::String(name.into())),
            node_port: asked.node_port,
            ..ServicePort::default()
        }
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(format!("{:?}", asked.service_type)),
            selector: Some(selector(&of.endpoint.name_any())),
            ports: Some(asked.protocols.iter().map(port).collect()),
            load_balancer_class: asked.load_balancer_class.clone(),
            ip_family_policy: asked.ip_family_policy.map(|policy| format!("{policy:?}")),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Returns the Service with the same port of the nodes for both protocols, which peers know as one, if `there` has two:
/// Kubernetes gives it one only when it is made.
pub fn with_one_node_port(of: &Serving<'_>, there: &Service) -> Option<Service> {
    let ports = there.spec.as_ref()?.ports.as_ref()?;
    let first = ports.first()?.node_port.filter(|first| *first != 0)?;
    if ports.iter().all(|port| port.node_port == Some(first)) {
        return None;
    }
    let mut one = service(of);
    let ports = one.spec.as_mut()?.ports.iter_mut().flatten();
    ports.for_each(|port| port.node_port = Some(first));
    Some(one)
}

/// Returns the name of a port.
fn port_name(protocol: ServiceProtocol) -> &'static str {
    match protocol {
        ServiceProtocol::Udp => "sync-udp",
        ServiceProtocol::Tcp => "sync-tcp",
    }
}

/// Returns a protocol as Kubernetes writes it.
fn transport(protocol: ServiceProtocol) -> &'static str {
    match protocol {
        ServiceProtocol::Udp => "UDP",
        ServiceProtocol::Tcp => "TCP",
    }
}

/// Builds the Deployment of the one pod. Two pods would write to one volume, so the old one ends before the new one.
pub fn deployment(of: &Serving<'_>) -> Deployment {
    let name = of.endpoint.name_any();
    let metadata = of.metadata();
    let pods = of.pods();
    let tied = of.on_one_node.then(|| {
        let claim = &of.endpoint.spec.persistent_volume_claim.claim_name;
        (names::claim_label(claim), names::CLAIM_USED.to_string())
    });
    let own = labels(&name);
    let mut annotations = pods.annotations.clone();
    annotations.extend(of.pinned.map(|it| (names::ANNOTATION_NODE.to_string(), it.node.clone())));
    let template = ObjectMeta {
        labels: Some(pods.labels.clone().into_iter().chain(tied).chain(own).collect()),
        annotations: non_empty(annotations, BTreeMap::is_empty),
        ..ObjectMeta::default()
    };
    Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(i32::from(of.runs)),
            revision_history_limit: Some(1),
            selector: LabelSelector { match_labels: Some(selector(&name)), ..LabelSelector::default() },
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".into()),
                ..DeploymentStrategy::default()
            }),
            template: PodTemplateSpec { metadata: Some(template), spec: Some(pod_spec(of, &pods)) },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn pod_spec(of: &Serving<'_>, pods: &PodSettings) -> PodSpec {
    let pinned = of.pinned.map(|it| it.tolerations.clone()).unwrap_or_default();
    let tolerations: Vec<_> = pods.tolerations.clone().into_iter().chain(pinned).collect();
    PodSpec {
        service_account_name: Some(of.account()),
        automount_service_account_token: Some(true),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_S),
        security_context: Some(security::pod(of.user(), &pods.security_context)),
        containers: vec![container(of, pods)],
        volumes: Some(volumes(of)),
        node_selector: non_empty(pods.node_selector.clone(), BTreeMap::is_empty),
        tolerations: non_empty(tolerations, Vec::is_empty),
        affinity: affinity(of, pods),
        priority_class_name: pods.priority_class_name.clone(),
        runtime_class_name: pods.runtime_class_name.clone(),
        topology_spread_constraints: non_empty(pods.topology_spread_constraints.clone(), Vec::is_empty),
        image_pull_secrets: non_empty(pods.image_pull_secrets.clone(), Vec::is_empty),
        ..PodSpec::default()
    }
}

fn affinity(of: &Serving<'_>, pods: &PodSettings) -> Option<Affinity> {
    match of.pinned {
        Some(pinned) => Some(placement::pinned(pods.affinity.clone(), &pinned.node)),
        None => pods.affinity.clone(),
    }
}

fn container(of: &Serving<'_>, pods: &PodSettings) -> Container {
    let side = if of.is_read_only() { Side::Source } else { Side::Sink };
    let port = |protocol: &ServiceProtocol| ContainerPort {
        name: Some(port_name(*protocol).into()),
        protocol: Some(transport(*protocol).into()),
        container_port: SERVICE_PORT.into(),
        ..ContainerPort::default()
    };
    let ports = of.endpoint.spec.service.protocols.iter().map(port);
    let metrics = ContainerPort {
        name: Some("metrics".into()),
        container_port: METRICS_PORT.into(),
        ..ContainerPort::default()
    };
    let addresses =
        ObjectFieldSelector { field_path: "status.podIPs".into(), ..ObjectFieldSelector::default() };
    let addresses = EnvVarSource { field_ref: Some(addresses), ..EnvVarSource::default() };
    let is_ready = HTTPGetAction {
        path: Some("/readyz".into()),
        port: IntOrString::String("metrics".into()),
        ..HTTPGetAction::default()
    };
    Container {
        name: names::CONTAINER.into(),
        image: Some(of.settings.image.name.clone()),
        image_pull_policy: of.settings.image.pull_policy.clone(),
        command: Some(vec![OPERATOR.into()]),
        args: Some(args(of).iter().map(|arg| verbatim(arg)).collect()),
        env: Some(vec![EnvVar {
            name: names::ENV_POD_IPS.into(),
            value_from: Some(addresses),
            ..EnvVar::default()
        }]),
        ports: Some(ports.chain([metrics]).collect()),
        readiness_probe: Some(Probe {
            http_get: Some(is_ready),
            period_seconds: Some(5),
            ..Probe::default()
        }),
        resources: Some(pods.resources.clone().unwrap_or_else(modest_resources)),
        security_context: Some(security::container(of.user() == PodUser::Root, side)),
        volume_mounts: Some(mounts(of)),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

fn args(of: &Serving<'_>) -> Vec<String> {
    let mut args = Vec::new();
    if of.settings.log_format == LogFormat::Json {
        args.push("--log-format=json".to_string());
    }
    let (name, uid) = (of.endpoint.name_any(), of.uid());
    args.extend([
        "endpoint".into(),
        format!("--namespace={}", of.endpoint.namespace().unwrap_or_default()),
        format!("--name={name}"),
        format!("--uid={uid}"),
        format!("--key-secret={}", of.key_secret(of.endpoint.spec.key_version)),
        format!("--key={KEY_DIR}/{KEY_ENTRY}"),
        format!("--former-key={KEY_DIR}/{FORMER_KEY}"),
        format!("--state={SCRATCH_DIR}"),
        format!("--volume={VOLUME_DIR}"),
        format!("--claim={}", of.endpoint.spec.persistent_volume_claim.claim_name),
        format!("--port={SERVICE_PORT}"),
        format!("--metrics-port={METRICS_PORT}"),
        "--".into(),
        SYNCER.into(),
        "serve".into(),
    ]);
    if of.settings.log_format == LogFormat::Json {
        args.push("--log-format=json".into());
    }
    args
}

fn mounts(of: &Serving<'_>) -> Vec<VolumeMount> {
    vec![
        mount(DATA, VOLUME_DIR, of.is_read_only()),
        mount(KEY, KEY_DIR, true),
        mount(SCRATCH, SCRATCH_DIR, false),
        mount(TMP, TMP_DIR, false),
    ]
}

fn volumes(of: &Serving<'_>) -> Vec<Volume> {
    let data = Volume {
        name: DATA.into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: of.endpoint.spec.persistent_volume_claim.claim_name.clone(),
            read_only: Some(of.is_read_only()),
        }),
        ..Volume::default()
    };
    // Optional, because the first pod makes it.
    let file = |version, path: &str| VolumeProjection {
        secret: Some(SecretProjection {
            name: of.key_secret(version),
            items: Some(vec![KeyToPath { key: KEY_ENTRY.into(), path: path.into(), mode: None }]),
            optional: Some(true),
        }),
        ..VolumeProjection::default()
    };
    let version = of.endpoint.spec.key_version;
    let former = (version > 1).then(|| file(version - 1, FORMER_KEY));
    let files = [file(version, KEY_ENTRY)].into_iter().chain(former).collect();
    let key = Volume {
        name: KEY.into(),
        projected: Some(ProjectedVolumeSource { sources: Some(files), ..ProjectedVolumeSource::default() }),
        ..Volume::default()
    };
    // The key is copied there, and shall be on no disk.
    vec![data, key, empty_dir(SCRATCH, Some("Memory"), "16Mi"), empty_dir(TMP, None, TMP_SIZE)]
}
