//! Waits for what a pair needs, and says what is in the way of it.

use std::{
    fmt::{self, Debug},
    pin::pin,
    time::Duration,
};

use contract::{PublicKey, Reason, RunResult};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::super::{await_object::next_seen, error::PluginError, output};
use crate::{
    api::{RemoteEndpoint, SyncEndpoint, SyncJob, conditions},
    ends::remote_end::RemoteEnd,
    fault::Fault,
};

/// How far an object is.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Standing<T> {
    Done(T),
    /// It goes on by itself.
    Waits(Obstacle),
    /// A person has to act.
    Stuck(Obstacle),
}

/// Why an object is not done.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Obstacle {
    /// Its status is that of an earlier state, or of none.
    Unseen,
    /// A condition of its status says so.
    Condition(Fault),
}

impl Obstacle {
    fn is(&self, reason: &Reason) -> bool {
        matches!(self, Self::Condition(fault) if fault.reason == *reason)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen => f.write_str("no operator has looked at it yet"),
            Self::Condition(Fault { reason, message }) => write!(f, "{reason}: {message}"),
        }
    }
}

/// Returns the address and the key of an endpoint that serves, if that key is another one than `old`.
fn of_endpoint(endpoint: &SyncEndpoint, old: Option<PublicKey>) -> Standing<RemoteEnd> {
    let status = endpoint.status.clone().unwrap_or_default();
    let known = status.address.zip(status.public_key).and_then(|(address, public_key)| {
        RemoteEnd::parse("destination", &RemoteEndpoint { address, public_key, identity: None }).ok()
    });
    let ready = conditions::find(&status.conditions, conditions::READY);
    let serves = ready.is_some_and(|ready| ready.status == "True" && ready.reason == *Reason::Serving);
    match known.filter(|known| serves && Some(known.public_key) != old) {
        Some(known) => Standing::Done(known),
        None => standing(&status.conditions),
    }
}

/// Returns the public key of a SyncJob, if it has one other than `old`.
fn of_key(job: &SyncJob, old: Option<PublicKey>) -> Standing<PublicKey> {
    let status = job.status.clone().unwrap_or_default();
    match status.identity.map(|identity| identity.public_key).filter(|key| Some(*key) != old) {
        Some(key) => Standing::Done(key),
        None => match standing(&status.conditions) {
            // The next run makes another key.
            Standing::Stuck(why) if old.is_some() && why.is(&Reason::KeyNotStored) => Standing::Waits(why),
            standing => standing,
        },
    }
}

/// Returns how the last run of a SyncJob ended, once none is under way.
fn of_run(job: &SyncJob) -> Standing<String> {
    let status = job.status.clone().unwrap_or_default();
    let run = status.last_run.filter(|_| conditions::is_true(&status.conditions, conditions::READY));
    match run {
        Some(run) if run.result == RunResult::Succeeded => {
            Standing::Done("the first run has succeeded".into())
        }
        Some(run) => {
            let why = run.message.unwrap_or_else(|| format!("{:?}", run.result));
            Standing::Done(format!("warning: the first run has ended: {why}"))
        }
        None => standing(&status.conditions),
    }
}

pub(in super::super) fn standing<T>(conditions: &[Condition]) -> Standing<T> {
    let told = |kind| {
        let found = conditions::find(conditions, kind).filter(|it| it.status == "True")?;
        Some(Obstacle::Condition(Fault::new(found.reason.as_str(), &found.message)))
    };
    if let Some(why) = told(conditions::STALLED) {
        return Standing::Stuck(why);
    }
    // A suspended object is ready, and does nothing.
    let waits = told(conditions::RECONCILING).or_else(|| told(conditions::READY));
    Standing::Waits(waits.unwrap_or(Obstacle::Unseen))
}

pub(in super::super) fn observed(job: &SyncJob) -> Option<i64> {
    job.status.as_ref()?.observed_generation
}

/// Waits for the objects of a pair, each time for at most a while.
pub(in super::super) struct Waits<'a> {
    pub(in super::super) most: Duration,
    pub(in super::super) name: &'a str,
}

impl Waits<'_> {
    /// Returns the endpoint's address and key, other than `old`, once it serves.
    pub(super) async fn address(
        &self,
        api: &Api<SyncEndpoint>,
        old: Option<PublicKey>,
    ) -> Result<RemoteEnd, PluginError> {
        let observed = |it: &SyncEndpoint| it.status.as_ref()?.observed_generation;
        match self.until(api, observed, |it| of_endpoint(it, old)).await? {
            Standing::Done(known) => Ok(known),
            Standing::Waits(why) | Standing::Stuck(why) => Err(self.blocked("SyncEndpoint", &why)),
        }
    }

    /// Returns the SyncJob's public key once its status has one, other than `old`.
    pub(super) async fn key(
        &self,
        api: &Api<SyncJob>,
        old: Option<PublicKey>,
    ) -> Result<PublicKey, PluginError> {
        match self.until(api, observed, |job| of_key(job, old)).await? {
            Standing::Done(key) => Ok(key),
            Standing::Waits(why) | Standing::Stuck(why) => Err(self.blocked("SyncJob", &why)),
        }
    }

    /// Waits for the first run, and returns how it ended; `None` if it takes longer, and goes on.
    pub(super) async fn run(&self, api: &Api<SyncJob>) -> Result<Option<String>, PluginError> {
        match self.until(api, observed, of_run).await? {
            Standing::Done(how) => Ok(Some(how)),
            Standing::Waits(why) if why.is(&Reason::Running) => Ok(None),
            Standing::Waits(why) | Standing::Stuck(why) => Err(self.blocked("SyncJob", &why)),
        }
    }

    /// Waits until an object is done or stuck, or the time is over, and says what it waits for.
    pub(in super::super) async fn until<K, T>(
        &self,
        api: &Api<K>,
        observed: impl Fn(&K) -> Option<i64>,
        look: impl Fn(&K) -> Standing<T>,
    ) -> Result<Standing<T>, PluginError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let of_name = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut seen = pin!(watcher(api.clone(), of_name).default_backoff().applied_objects());
        let mut told = Obstacle::Unseen;
        let looked = async {
            let refused = |source| PluginError::Watch { what: K::plural(&()).into_owned(), source };
            while let Some(object) = next_seen(&mut seen).await.map_err(refused)? {
                let is_seen = observed(&object) >= object.meta().generation;
                match if is_seen { look(&object) } else { Standing::Waits(Obstacle::Unseen) } {
                    Standing::Waits(why) if why == told => {}
                    Standing::Waits(why) => {
                        // Whoever waits here lists the key.
                        if !why.is(&Reason::KeyNotAccepted) {
                            output::complain(&format!("note: {} {}: {why}", K::kind(&()), object.name_any()));
                        }
                        told = why;
                    }
                    end => return Ok::<_, PluginError>(Some(end)),
                }
            }
            Ok(None)
        };
        let ended = timeout(self.most, looked).await;
        Ok(ended.unwrap_or(Ok(None))?.unwrap_or(Standing::Waits(told)))
    }

    fn blocked(&self, kind: &str, why: &Obstacle) -> PluginError {
        let hint =
            "what is made stays; run the same command again once that is out of the way, or raise --timeout";
        PluginError::Blocked { why: format!("{kind} {}: {why}", self.name), hint: hint.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";

    fn condition(kind: &str, reason: &str) -> Value {
        let time = "2026-01-01T00:00:00Z";
        json!({"type": kind, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": time})
    }

    fn told(reason: &str) -> Obstacle {
        Obstacle::Condition(Fault::new(reason, "m"))
    }

    fn endpoint(status: &Value) -> SyncEndpoint {
        let spec = json!({"persistentVolumeClaim": {"claimName": "data"}, "access": "Write"});
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec, "status": status})).unwrap()
    }

    fn job(status: &Value) -> SyncJob {
        let claim = json!({"persistentVolumeClaim": {"claimName": "data"}});
        let remote = json!({"endpoint": {"address": "h::web", "publicKey": KEY}});
        let spec = json!({"source": claim, "destination": remote});
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn an_endpoint_is_known_once_it_serves_with_an_address_and_a_key_that_can_be_read() {
        let of = |address: &str, key: &str, conditions: Value| {
            let status = json!({"address": address, "publicKey": key, "conditions": [conditions]});
            of_endpoint(&endpoint(&status), None)
        };
        let serving = || condition("Ready", "Serving");
        let Standing::Done(known) = of("h:9::web", KEY, serving()) else { panic!("it serves") };
        assert_eq!((known.to_string().as_str(), known.public_key.to_string().as_str()), ("h:9::web", KEY));
        for forged in [of("-oX::web", KEY, serving()), of("h::web", "no key", serving())] {
            assert!(matches!(forged, Standing::Waits(_)), "{forged:?}");
        }
        let pending = of("h::web", KEY, condition("Reconciling", "AddressPending"));
        assert_eq!(pending, Standing::Waits(told("AddressPending")));
        let stuck = of("h::web", KEY, condition("Stalled", "ClaimNotFound"));
        assert_eq!(stuck, Standing::Stuck(told("ClaimNotFound")));
        let suspended = of("h::web", KEY, condition("Ready", "Suspended"));
        assert_eq!(suspended, Standing::Waits(told("Suspended")));
        assert_eq!(of_endpoint(&endpoint(&json!({})), None), Standing::Waits(Obstacle::Unseen));
        let served = endpoint(&json!({"address": "h::web", "publicKey": KEY, "conditions": [serving()]}));
        assert_eq!(of_endpoint(&served, KEY.parse().ok()), Standing::Waits(told("Serving")));
    }

    #[test]
    fn a_job_is_waited_for_until_it_has_another_key_and_a_run_has_ended() {
        let key =
            json!({"identity": {"publicKey": KEY}, "conditions": [condition("Reconciling", "Running")]});
        let own: PublicKey = KEY.parse().unwrap();
        assert_eq!(of_key(&job(&key), None), Standing::Done(own));
        assert_eq!(of_key(&job(&key), Some(own)), Standing::Waits(told("Running")));
        let lost = job(&json!({"conditions": [condition("Stalled", "KeyNotStored")]}));
        assert_eq!(of_key(&lost, Some(own)), Standing::Waits(told("KeyNotStored")));
        assert_eq!(of_key(&lost, None), Standing::Stuck(told("KeyNotStored")));
        let of = |run: Value, conditions: &[Value]| {
            of_run(&job(&json!({"lastRun": run, "conditions": conditions})))
        };
        let run = |result: &str| json!({"id": "web-1", "result": result, "message": "a file was left out"});
        let ready = [condition("Ready", "Succeeded")];
        let Standing::Done(how) = of(run("Succeeded"), &ready) else { panic!("it is over") };
        assert_eq!(how, "the first run has succeeded");
        let Standing::Done(how) = of(run("PartiallyFailed"), &ready) else { panic!("it is over") };
        assert!(how.contains("a file was left out"), "{how}");
        let suspended = of(Value::Null, &[condition("Ready", "Suspended")]);
        assert_eq!(suspended, Standing::Waits(told("Suspended")));
        let refused = of(run("Failed"), &[condition("Stalled", "IdentityRefused")]);
        assert_eq!(refused, Standing::Stuck(told("IdentityRefused")));
    }
}
