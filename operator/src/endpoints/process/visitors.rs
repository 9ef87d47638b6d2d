//! Writes what an endpoint's pod has to say into the SyncEndpoint's status: its public key, the runs, and who came.

use std::time::Duration;

use contract::{FolderAccess, PublicKey, Report, ServedRun, chain};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::args::ServiceArgs;
use crate::{
    api::{
        EndpointAccess, EndpointRun, EndpointVisitor, SnapshotStatus, SyncEndpoint, SyncEndpointStatus,
        conditions::reason_word, crd_schema::clamp,
    },
    human::clipped,
    snapshots::engine_snapshots,
};

/// How many runs and peers the status has at most.
const MAX_RUNS: usize = 20;
const MAX_PEERS: usize = 64;
/// The longest texts of a run in the status, in bytes.
const MAX_NAME_BYTES: usize = 128;
const MAX_MESSAGE_BYTES: usize = 1024;
/// The fields that an `EndpointRun` or a `SnapshotStatus` may not have.
const MAY_BE_ABSENT_OF_RUN: [&str; 6] = ["run", "reason", "message", "startTime", "completionTime", "link"];
const MAY_BE_ABSENT_OF_SNAPSHOTS: [&str; 3] = ["latest", "items", "damaged"];
/// The timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two writes, so that a thousand small runs are no thousand writes.
const PERIOD: Duration = Duration::from_secs(2);
/// The pause after a write that failed.
const PAUSE: Duration = Duration::from_secs(5);

/// Writes to the status of one endpoint.
pub(super) struct Recorder {
    api: Api<SyncEndpoint>,
    name: String,
    uid: String,
}

impl Recorder {
    pub(super) fn new(args: &ServiceArgs, client: &Client) -> Self {
        let api = Api::namespaced(client.clone(), &args.namespace);
        Self { api, name: args.name.clone(), uid: args.uid.clone() }
    }

    /// Takes the public key out of the status, because there is no key yet. Failures are logged.
    pub(super) async fn forget_key(&self) {
        self.try_write(json!({"publicKey": null})).await;
    }

    /// Writes the public key and what came of the runs, at first and after each change. Never returns.
    pub(super) async fn keep(&self, key: PublicKey, mut ledger: watch::Receiver<Ledger>) {
        loop {
            let fields = written(&ledger.borrow_and_update(), key);
            if !self.try_write(fields).await {
                sleep(PAUSE).await;
                continue;
            }
            sleep(PERIOD).await;
            if ledger.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Writes the same once more, at the end.
    pub(super) async fn close(&self, key: PublicKey, ledger: &Ledger) {
        self.try_write(written(ledger, key)).await;
    }

    /// Writes fields of the status. Returns whether another attempt would be of no use.
    async fn try_write(&self, mut fields: Value) -> bool {
        clamp(&mut fields);
        let patch = Patch::Merge(json!({"metadata": {"uid": self.uid}, "status": fields}));
        let params =
            PatchParams { field_manager: Some("volferry-endpoint".into()), ..PatchParams::default() };
        match timeout(REQUEST_TIMEOUT, self.api.patch_status(&self.name, &params, &patch)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "the status is not written");
                let is_final = |code| matches!(code, 404 | 409 | 422);
                matches!(error, kube::Error::Api(answer) if is_final(answer.code))
            }
            Err(_) => false,
        }
    }
}

fn written(ledger: &Ledger, key: PublicKey) -> Value {
    let last = ledger.runs.first().map(|run| with_absent(run, &MAY_BE_ABSENT_OF_RUN));
    let snapshots = ledger.snapshots.as_ref().map(|it| with_absent(it, &MAY_BE_ABSENT_OF_SNAPSHOTS));
    json!({"publicKey": key, "lastRun": last, "history": ledger.runs, "snapshots": snapshots,
        "peers": ledger.peers})
}

/// Names the fields that an object does not have, because a merge patch keeps what it does not name.
fn with_absent(object: &impl Serialize, fields: &[&str]) -> Value {
    let mut value = json!(object);
    for field in fields {
        value[*field] = value[*field].take();
    }
    value
}

/// The last runs, and the peers that came.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ledger {
    runs: Vec<EndpointRun>,
    snapshots: Option<SnapshotStatus>,
    peers: Vec<EndpointVisitor>,
}

impl Ledger {
    /// Takes over what an earlier pod has written.
    pub(super) fn of(status: Option<&SyncEndpointStatus>) -> Self {
        let of = |it: &SyncEndpointStatus| Self {
            runs: it.history.clone(),
            snapshots: it.snapshots.clone(),
            peers: it.peers.clone(),
        };
        status.map(of).unwrap_or_default()
    }

    /// Adds a run that ended.
    pub(super) fn add(&mut self, served: ServedRun) {
        // Of a run that read here, the report has the peer's snapshot.
        let taken = served.report.snapshot.as_ref().filter(|_| served.access == FolderAccess::Write);
        let taken = taken.map(engine_snapshots::bounded);
        self.snapshots = engine_snapshots::status(taken.as_ref(), self.snapshots.take());
        let run = entry(served);
        let before = self.peers.iter().position(|peer| peer.name == run.peer).map(|at| self.peers.remove(at));
        let visitor = EndpointVisitor {
            name: run.peer.clone(),
            runs: before.map_or(0, |before| before.runs).saturating_add(1),
            last_time: run.completion_time.clone(),
            last_result: run.result,
        };
        self.peers.insert(0, visitor);
        self.peers.truncate(MAX_PEERS);
        self.runs.insert(0, run);
        self.runs.truncate(MAX_RUNS);
    }
}

/// Returns a run as the status has it. The report is partly the peer's, so its texts are bounded.
fn entry(served: ServedRun) -> EndpointRun {
    let ServedRun { peer, access, report, .. } = served;
    let Report { run, result, reason, message, start_time, completion_time, link, timings, work, .. } =
        report;
    let time = |text: String| text.parse::<Timestamp>().ok().map(Time);
    EndpointRun {
        peer: clipped(&peer, contract::MAX_NAME_BYTES),
        access: match access {
            FolderAccess::Read => EndpointAccess::Read,
            FolderAccess::Write => EndpointAccess::Write,
        },
        run: clipped(&run, MAX_NAME_BYTES),
        result,
        reason: reason.map(|reason| reason_word(&reason)),
        message: clipped(&message, MAX_MESSAGE_BYTES),
        start_time: time(start_time),
        completion_time: time(completion_time),
        link: link.map(|link| link.kind.to_string()),
        files_scanned: work.files_scanned,
        files_changed: work.changed(),
        files_failed: work.files_failed,
        bytes_changed: work.bytes_changed,
        bytes_on_wire: work.bytes_on_wire,
        timings,
    }
}

#[cfg(test)]
mod tests {
    use contract::{RunResult, SnapshotEntry, SnapshotReport};
    use kube::CustomResourceExt as _;

    use super::*;

    fn served(peer: &str, message: &str) -> ServedRun {
        let report = Report {
            message: message.into(),
            reason: Some("Peer Lost!".into()),
            result: RunResult::Failed,
            start_time: "2026-01-01T00:00:00.000Z".into(),
            completion_time: "no time".into(),
            ..Report::default()
        };
        ServedRun { peer: peer.into(), folder: "web".into(), access: FolderAccess::Write, report }
    }

    #[test]
    fn the_last_runs_and_each_peer_are_kept_whatever_a_report_says() {
        let mut ledger = Ledger::default();
        for at in 0..100 {
            ledger.add(served(&format!("peer{}", at % 3), &"long ".repeat(1000)));
        }
        assert_eq!((ledger.runs.len(), ledger.peers.len()), (MAX_RUNS, 3));
        let names: Vec<_> = ledger.peers.iter().map(|peer| (peer.name.as_str(), peer.runs)).collect();
        assert_eq!(names, [("peer0", 34), ("peer2", 33), ("peer1", 33)]);
        let run = &ledger.runs[0];
        assert_eq!((run.peer.as_str(), run.reason.as_deref()), ("peer0", Some("PeerLost")));
        assert!(run.message.len() <= MAX_MESSAGE_BYTES && run.completion_time.is_none());
        assert!(run.start_time.is_some());
    }

    #[test]
    fn what_an_object_does_not_have_is_named() {
        fn named(object: &impl Serialize, absent: &[&str]) -> Vec<String> {
            with_absent(object, absent).as_object().unwrap().keys().cloned().collect()
        }
        let crd = json!(SyncEndpoint::crd());
        let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
        let fields = |of: &str| named(&status["properties"][of]["properties"], &[]);
        let run = EndpointRun { message: "m".into(), ..EndpointRun::default() };
        assert_eq!(named(&run, &MAY_BE_ABSENT_OF_RUN), fields("lastRun"));
        assert_eq!(with_absent(&run, &MAY_BE_ABSENT_OF_RUN)["message"], "m");
        assert_eq!(named(&SnapshotStatus::default(), &MAY_BE_ABSENT_OF_SNAPSHOTS), fields("snapshots"));
    }

    #[test]
    fn the_snapshots_are_those_of_the_last_run_that_wrote_here_and_took_one() {
        let entry = SnapshotEntry { id: "0123456789abcdef".into(), ..SnapshotEntry::default() };
        let mut wrote = served("laptop", "m");
        let kept = vec![entry.clone()];
        let taken =
            SnapshotReport { made: Some(entry), count: 3, bytes: 9, kept, ..SnapshotReport::default() };
        wrote.report.snapshot = Some(taken.clone());
        let mut ledger = Ledger::default();
        ledger.add(wrote);
        let has = |ledger: &Ledger| {
            let known = ledger.snapshots.as_ref().unwrap();
            (known.count, known.bytes, known.items.len())
        };
        assert_eq!(has(&ledger), (3, 9, 1));
        let mut read = served("laptop", "m");
        read.access = FolderAccess::Read;
        read.report.snapshot = Some(SnapshotReport { count: 70, ..taken });
        ledger.add(read);
        ledger.add(served("laptop", "m"));
        assert_eq!(has(&ledger), (3, 9, 1));
    }

    #[test]
    fn a_later_pod_goes_on_with_what_an_earlier_one_wrote() {
        let mut ledger = Ledger::default();
        ledger.add(served("laptop", "m"));
        let key = contract::OwnKey::generate().unwrap().public();
        let mut stored = written(&ledger, key);
        // What the API server makes of a merge patch.
        stored["lastRun"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let status: SyncEndpointStatus = serde_json::from_value(stored).unwrap();
        assert_eq!(status.public_key, Some(key.to_string()));
        let mut later = Ledger::of(Some(&status));
        assert_eq!(later, ledger);
        later.add(served("laptop", "m"));
        assert_eq!(later.peers[0].runs, 2);
    }
}
