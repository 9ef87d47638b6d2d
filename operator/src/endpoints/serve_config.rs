//! Writes what a SyncEndpoint's spec says as the two files of `volferry serve`: its configuration and the keys of its
//! peers. Pure.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use contract::{AuthorizedKey, Demands, PublicKey, gitignore_pattern::read_pattern, is_name};

use crate::{
    api::{EndpointAccess, EndpointPeer, ServiceProtocol, SyncEndpointSpec},
    snapshots::engine_snapshots,
    spec::fields::{ValidationError, invalid, number},
};

/// The characters that TOML's basic strings escape and JSON's do not.
const DELETE: char = '\u{7f}';

/// Where a service has its files and ports.
#[derive(Debug, Clone)]
pub struct ServicePlace<'a> {
    /// The path at which the volume is mounted.
    pub volume: &'a Path,
    /// The files of the service's own keys.
    pub keys: &'a [PathBuf],
    /// The file of the peers' keys.
    pub authorized: &'a Path,
    /// The address of the service, for UDP and TCP.
    pub listen: SocketAddr,
    /// The address of its probes and metrics.
    pub metrics: SocketAddr,
}

/// The files of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRules {
    /// The configuration.
    pub config: String,
    /// The keys of the peers.
    pub authorized: String,
}

/// Checks that an endpoint can be served as far as its spec is concerned.
///
/// # Errors
/// A field is invalid.
pub fn check(spec: &SyncEndpointSpec) -> Result<(), ValidationError> {
    spec.peers.iter().try_for_each(|peer| key(peer).map(drop))?;
    demands(spec, String::new())?;
    bandwidth(spec)?;
    for pattern in &spec.demands.exclude {
        read_pattern(pattern).map_err(|error| invalid("demands.exclude", error.to_string()))?;
    }
    spec.demands.queue.map(|queue| number::<u32>("demands.queue", queue)).transpose().map(drop)
}

/// Returns the files of the endpoint `namespace/name`, whose one folder has its name.
///
/// # Errors
/// A field is invalid.
pub fn rules(
    [namespace, name]: [&str; 2],
    spec: &SyncEndpointSpec,
    place: &ServicePlace<'_>,
) -> Result<ServiceRules, ValidationError> {
    check(spec)?;
    let mut file = Toml::default();
    file.text("listen", &place.listen.to_string());
    file.text("metrics", &place.metrics.to_string());
    file.text("link", link(spec));
    let keys: Vec<_> = place.keys.iter().map(|key| key.to_string_lossy().into_owned()).collect();
    file.texts("identity", &keys);
    file.text("authorized", &place.authorized.to_string_lossy());
    let _ = write!(file.0, "\n[folders.{}]\n", quoted(name));
    file.text("path", &place.volume.to_string_lossy());
    if spec.path != "/" {
        file.text("subfolder", &spec.path);
    }
    let access = match spec.access {
        EndpointAccess::Read => "read",
        EndpointAccess::Write => "write",
    };
    file.texts(access, &["*".into()]);
    if let Some(queue) = spec.demands.queue {
        file.text("queue", &queue.to_string());
    }
    if let Some(limit) = bandwidth(spec)? {
        file.text("bandwidth-limit", &limit.to_string());
    }
    // Of another form than a SyncJob's, whose snapshots may be in the same volume.
    for (flag, values) in by_flag(&demands(spec, format!("syncendpoint/{namespace}/{name}"))?) {
        match values.as_slice() {
            [None] => file.flag(&flag),
            values => file.texts(&flag, &values.iter().flatten().cloned().collect::<Vec<_>>()),
        }
    }
    Ok(ServiceRules { config: file.0, authorized: authorized(spec)? })
}

/// Returns what carries the runs, in the words of the configuration.
fn link(spec: &SyncEndpointSpec) -> &'static str {
    match spec.service.protocols.as_slice() {
        [ServiceProtocol::Udp] => "udp",
        [ServiceProtocol::Tcp] => "tcp",
        _ => "auto",
    }
}

fn authorized(spec: &SyncEndpointSpec) -> Result<String, ValidationError> {
    let line = |peer: &EndpointPeer| {
        let key = key(peer)?;
        let line = AuthorizedKey {
            key,
            peer: peer.name.clone(),
            read: Default::default(),
            write: Default::default(),
        };
        Ok(format!("{line}\n"))
    };
    spec.peers.iter().map(line).collect()
}

/// Returns the key of a peer that has a name.
fn key(peer: &EndpointPeer) -> Result<PublicKey, ValidationError> {
    if !is_name(&peer.name) {
        return Err(invalid("peers.name", format!("{:?} is no name of a peer", peer.name)));
    }
    let of_peer = |problem| invalid("peers.publicKey", format!("of {}: {problem}", peer.name));
    peer.public_key.parse().map_err(of_peer)
}

fn bandwidth(spec: &SyncEndpointSpec) -> Result<Option<u64>, ValidationError> {
    let limit = spec.demands.bandwidth_limit.as_deref().map(contract::parse_bytes).transpose();
    match limit.map_err(|error| invalid("demands.bandwidthLimit", error.to_string()))? {
        Some(0) => {
            Err(invalid("demands.bandwidthLimit", "0 would never move anything; leave it out for no limit"))
        }
        limit => Ok(limit),
    }
}

fn demands(spec: &SyncEndpointSpec, job: String) -> Result<Demands, ValidationError> {
    let limit = spec.demands.delete_limit.map(|limit| number("demands.deleteLimit.percent", limit.percent));
    let snapshot = spec.snapshots.as_ref().map(|field| engine_snapshots::of_field(field, job));
    Ok(Demands {
        no_delete: spec.demands.no_delete,
        delete_limit: limit.transpose()?.map(contract::DeleteLimit),
        exclude: spec.demands.exclude.clone(),
        snapshot: snapshot.transpose()?,
        history: spec.demands.history,
        ..Demands::default()
    })
}

/// Returns the values of each flag of some demands; `None` for a flag without one.
fn by_flag(demands: &Demands) -> BTreeMap<String, Vec<Option<String>>> {
    let mut flags = BTreeMap::<String, Vec<_>>::new();
    for arg in demands.to_args() {
        let (flag, value) = match arg.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_string())),
            None => (arg.as_str(), None),
        };
        flags.entry(flag.trim_start_matches("--").into()).or_default().push(value);
    }
    flags
}

/// A file in TOML.
#[derive(Default)]
struct Toml(String);

impl Toml {
    fn text(&mut self, field: &str, value: &str) {
        let _ = writeln!(self.0, "{field} = {}", quoted(value));
    }

    fn texts(&mut self, field: &str, values: &[String]) {
        let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
        let _ = writeln!(self.0, "{field} = [{}]", values.join(", "));
    }

    fn flag(&mut self, field: &str) {
        let _ = writeln!(self.0, "{field} = true");
    }
}

/// Quotes a text as a basic string of TOML, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace(DELETE, "\\u007F")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";

    fn written(more: &Value) -> Result<ServiceRules, ValidationError> {
        let mut spec = json!({"persistentVolumeClaim": {"claimName": "data"}, "access": "Write",
            "peers": [{"name": "laptop", "publicKey": KEY}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let place = ServicePlace {
            volume: Path::new("/data"),
            keys: &["service", "former"].map(|name| Path::new("/run/volferry").join(name)),
            authorized: Path::new("/run/volferry/authorized"),
            listen: ([0, 0, 0, 0], 7400).into(),
            metrics: ([0, 0, 0, 0], 9474).into(),
        };
        rules(["prod", "web"], &serde_json::from_value(spec).unwrap(), &place)
    }

    #[test]
    fn an_endpoint_is_a_service_with_one_folder_of_its_name() {
        let rules = written(&json!({})).unwrap();
        let expected = "listen = \"0.0.0.0:7400\"\nmetrics = \"0.0.0.0:9474\"\nlink = \"auto\"\n\
                        identity = [\"/run/volferry/service\", \"/run/volferry/former\"]\nauthorized = \"/run/volferry/authorized\"\n\n\
                        [folders.\"web\"]\npath = \"/data\"\nwrite = [\"*\"]\n";
        assert_eq!(rules.config, expected);
        assert_eq!(rules.authorized, format!("ed25519 {KEY} laptop\n"));
    }

    #[test]
    fn demands_and_snapshots_are_the_flags_of_the_engine() {
        let rules = written(&json!({"path": "/uploads", "service": {"protocols": ["TCP"]},
            "demands": {"deleteLimit": {"percent": 10}, "history": "All", "exclude": ["*.tmp", "a\"b\n\u{7f}"],
                "bandwidthLimit": "1Mi", "queue": 3},
            "snapshots": {"retain": {"daily": 7}}}));
        let config = rules.unwrap().config;
        for line in [
            "link = \"tcp\"",
            "subfolder = \"/uploads\"",
            "queue = \"3\"",
            "bandwidth-limit = \"1048576\"",
            "delete-limit = [\"10\"]",
            "history = [\"all\"]",
            r#"exclude = ["*.tmp", "a\"b\n\u007F"]"#,
            "snapshot = true",
            "snapshot-job = [\"syncendpoint/prod/web\"]",
            "snapshot-keep-daily = [\"7\"]",
        ] {
            assert!(config.lines().any(|it| it == line), "{line} is not in {config}");
        }
        let read = written(&json!({"access": "Read"})).unwrap().config;
        assert!(read.contains("read = [\"*\"]") && !read.contains("write"), "{read}");
    }

    #[test]
    fn what_an_older_crd_let_through_is_named() {
        let peer = |name: &str, key: &str| json!({"peers": [{"name": name, "publicKey": key}]});
        for (more, field) in [
            (peer("laptop", "x"), "spec.peers.publicKey: of laptop"),
            (peer("two words", KEY), "spec.peers.name"),
            (peer("a\nb", KEY), "spec.peers.name"),
            (json!({"demands": {"bandwidthLimit": "0"}}), "spec.demands.bandwidthLimit"),
            (json!({"demands": {"deleteLimit": {"percent": -1}}}), "spec.demands.deleteLimit.percent"),
            (json!({"demands": {"queue": -1}}), "spec.demands.queue"),
            (
                json!({"demands": {"exclude": ["*.tmp", "x[ab"]}}),
                "spec.demands.exclude: the pattern `x[ab` can match nothing",
            ),
            (
                json!({"demands": {"exclude": ["- *.tmp"]}}),
                "spec.demands.exclude: the pattern `- *.tmp` is a rule of rsync",
            ),
        ] {
            let said = written(&more).unwrap_err().to_string();
            assert!(said.starts_with(field), "{said}");
        }
    }
}
