//! Leader election: of several replicas of the operator, only the one that holds a `Lease` works. Of several releases,
//! only the one that holds a namespace's works there (`leases::held_namespaces`).
//!
//! Clocks of different nodes are not compared. A waiting replica takes the lease over once it has seen the record
//! unchanged for as long as the record is valid; the holder gives up [`RENEW_DEADLINE`] after its last successful
//! renewal, which is sooner. In between, no replica holds it. A replica that loses the lease must stop at once, and the
//! surest way is to end the process.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// How long a record is valid after its last write.
const DURATION: Duration = Duration::from_secs(15);
/// How long the holder continues without a successful renewal.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The interval between renewals, and between the checks of waiting replicas.
const PERIOD: Duration = Duration::from_secs(2);

/// The reasons why the lease is no longer held.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Another replica holds it now.
    #[error("the lease was taken over by {0}")]
    TakenOver(String),
    /// The lease could not be renewed in time.
    #[error("the lease could not be renewed for {} s", RENEW_DEADLINE.as_secs())]
    NotRenewed,
}

/// A lease that can be held by one replica, or by one release.
#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    /// How long a record is valid after its last write.
    valid: Duration,
}

/// What came of an attempt to take a lease, or to renew it.
pub enum Attempt {
    /// It is held.
    Held(Box<Lease>),
    /// Another replica or release holds it.
    HeldBy(String),
    /// Somebody wrote to it meanwhile.
    Raced,
}

/// The held lease. It is released by [`Leadership::release`], not by dropping it.
pub struct Leadership {
    election: Election,
    lease: Lease,
    renewed: Instant,
}

impl Election {
    /// Creates the election for the lease `name` in `namespace`. The replica's `identity` must be unique.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, name: name.into(), identity: identity.into(), valid: DURATION }
    }

    /// Has records be valid for that long instead.
    #[must_use]
    pub fn valid_for(self, valid: Duration) -> Self {
        Self { valid, ..self }
    }

    /// Waits until this replica holds the lease. Errors of the API server are logged, and the attempt is repeated.
    pub async fn acquire(&self) -> Leadership {
        let mut seen: Option<LastSeen> = None;
        loop {
            let asked = Instant::now();
            match self.attempt(&mut seen).await {
                Ok(Attempt::Held(lease)) => {
                    return Leadership { election: self.clone(), lease: *lease, renewed: asked };
                }
                Ok(Attempt::HeldBy(_) | Attempt::Raced) => {}
                Err(error) => {
                    tracing::warn!(error = contract::chain(&error), "the lease cannot be had");
                }
            }
            sleep(PERIOD).await;
        }
    }

    /// Takes the lease if it is free or stale, or renews it. `seen` is what the attempt before saw.
    ///
    /// # Errors
    /// If the API server does not answer or refuses.
    pub async fn attempt(&self, seen: &mut Option<LastSeen>) -> Result<Attempt, kube::Error> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let lease = self.claimed(Lease::default());
            return attempted(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if !may_take(&spec, &self.identity, LastSeen::update(seen, &spec, Instant::now())) {
            return Ok(Attempt::HeldBy(spec.holder_identity.unwrap_or_default()));
        }
        let lease = self.claimed(lease);
        attempted(self.api.replace(&self.name, &PostParams::default(), &lease).await)
    }

    /// Returns `lease` as its holder writes it to take it over, or to renew it.
    fn claimed(&self, lease: Lease) -> Lease {
        let old = lease.spec.unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let is_held = old.holder_identity.as_ref() == Some(&self.identity);
        let acquired = old.acquire_time.filter(|_| is_held).unwrap_or_else(|| now.clone());
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.valid.as_secs()).ok(),
            acquire_time: Some(acquired),
            renew_time: Some(now),
            lease_transitions: Some(old.lease_transitions.unwrap_or(0).saturating_add((!is_held).into())),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..lease.metadata };
        Lease { metadata, spec: Some(spec) }
    }
}

impl Leadership {
    /// Renews the lease until that fails, and returns why.
    pub async fn hold(&mut self) -> LeaseError {
        loop {
            sleep_until(self.renewed + PERIOD).await;
            if let Err(error) = self.renew().await {
                return error;
            }
        }
    }

    /// Releases the lease, so that another replica need not wait until it expires.
    pub async fn release(mut self) {
        let spec = self.lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let Election { api, name, .. } = &self.election;
        if let Err(error) = api.replace(name, &PostParams::default(), &self.lease).await {
            tracing::warn!(error = contract::chain(&error), "the lease is not given up, and will run out");
        }
    }

    async fn renew(&mut self) -> Result<(), LeaseError> {
        let deadline = self.renewed + RENEW_DEADLINE;
        loop {
            let asked = Instant::now();
            match timeout_at(deadline, self.try_renew()).await {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    self.renewed = asked;
                    return Ok(());
                }
                Ok(Err(Refused::TakenOver(by))) => return Err(LeaseError::TakenOver(by)),
                Ok(Err(Refused::Api(error))) => {
                    tracing::warn!(error = contract::chain(&error), "the lease is not renewed yet");
                    sleep(PERIOD / 2).await;
                }
                Err(_) => return Err(LeaseError::NotRenewed),
            }
        }
    }

    async fn try_renew(&self) -> Result<Lease, Refused> {
        let mut lease = self.lease.clone();
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
        let Election { api, name, identity, .. } = &self.election;
        match api.replace(name, &PostParams::default(), &lease).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                // Another client wrote to it. If the holder is still this replica, continue with the newer version.
                let newer = api.get(name).await?;
                let holder =
                    newer.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
                if holder == *identity { Ok(newer) } else { Err(Refused::TakenOver(holder)) }
            }
            other => Ok(other?),
        }
    }
}

#[derive(Debug, Error)]
enum Refused {
    #[error("taken over by {0}")]
    TakenOver(String),
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The record as last seen, and the time since when it is unchanged.
pub struct LastSeen {
    spec: LeaseSpec,
    since: Instant,
}

impl LastSeen {
    /// Notes the record, and returns for how long it has been unchanged.
    fn update(seen: &mut Option<Self>, spec: &LeaseSpec, now: Instant) -> Duration {
        match seen {
            Some(there) if there.spec == *spec => now - there.since,
            _ => {
                *seen = Some(Self { spec: spec.clone(), since: now });
                Duration::ZERO
            }
        }
    }
}

/// Returns whether `identity` may take over a lease whose record it has seen unchanged for that long.
fn may_take(spec: &LeaseSpec, identity: &str, unchanged: Duration) -> bool {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let valid_s = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    holder.is_empty() || holder == identity || unchanged > Duration::from_secs(valid_s)
}

fn attempted(result: kube::Result<Lease>) -> kube::Result<Attempt> {
    match result {
        Ok(lease) => Ok(Attempt::Held(Box::new(lease))),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            Ok(Attempt::Raced)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_when_free_given_up_or_seen_unchanged_for_its_duration() {
        assert!(may_take(&LeaseSpec::default(), "me", Duration::ZERO));
        assert!(may_take(&held_by(""), "me", Duration::ZERO));
        assert!(may_take(&held_by("me"), "me", Duration::ZERO));
        assert!(!may_take(&held_by("other"), "me", Duration::from_secs(15)));
        assert!(may_take(&held_by("other"), "me", Duration::from_secs(16)));
    }

    #[test]
    fn a_renewal_starts_the_wait_anew_whatever_the_holders_clock_says() {
        let start = Instant::now();
        let mut seen = None;
        assert_eq!(LastSeen::update(&mut seen, &held_by("other"), start), Duration::ZERO);
        let later = start + Duration::from_secs(9);
        assert_eq!(LastSeen::update(&mut seen, &held_by("other"), later), Duration::from_secs(9));
        let renewed = LeaseSpec { renew_time: Some(MicroTime(Timestamp::MIN)), ..held_by("other") };
        assert_eq!(LastSeen::update(&mut seen, &renewed, later), Duration::ZERO);
    }

    #[test]
    fn the_holder_gives_up_before_anyone_may_take_over() {
        assert!(RENEW_DEADLINE + PERIOD < DURATION);
    }
}
