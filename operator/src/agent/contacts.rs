//! Introduces the two ends of a try to each other: each pod writes its contact to the SyncRun's status, and reads its
//! peer's there.
//! A contact decides which key the peer accepts. Therefore, the API server lets nobody change one (`rules::contacts`),
//! only the run's own pods can write it (`pods::pod_permissions`), and each pod checks that its own remains until the
//! two are connected.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    time::Duration,
};

use contract::{Contact, Side, chain};
use futures::StreamExt as _;
use kube::{
    ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::publish::{Publisher, REQUEST_TIMEOUT};
use crate::{
    api::{SyncRun, SyncRunStatus, reports},
    run::shard_pairs,
};

/// The pause between two attempts to reach an API server that does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// How long granted permissions may take to be effective at all API servers.
const RIGHTS_PATIENCE: Duration = Duration::from_secs(60);

/// The reasons why the two ends cannot meet, or cannot trust each other.
#[derive(Debug, Error)]
pub enum MeetingError {
    /// No API server is reachable, so the peer is unknown.
    #[error("there is no API server to learn of the peer from")]
    NoApiServer,
    /// The try has ended.
    #[error("the SyncRun {0} is gone, or has another try")]
    Over(String),
    /// The contact in the status is not the one that this pod wrote.
    #[error(
        "somebody else wrote or removed the contact of the {end} in the status of the SyncRun {run}: only the pods of the run \
         may; see to it that no other pod has their ServiceAccount"
    )]
    Replaced {
        /// The key of the contact.
        end: String,
        /// The name of the SyncRun.
        run: String,
    },
    /// The API server rejects what this end writes.
    #[error("what the {end} writes into the SyncRun is refused by the API server: {words}")]
    Refused {
        /// The key of the contact.
        end: String,
        /// The API server's message.
        words: String,
    },
}

/// The search for the peer; does nothing by default.
#[derive(Default)]
pub(super) struct Meeting<'a> {
    attempt: Option<Pin<Box<dyn Future<Output = MeetingError> + Send + 'a>>>,
    peer: Option<oneshot::Receiver<Contact>>,
}

impl<'a> Meeting<'a> {
    /// Starts to look for the peer of an end that has the contact `own`.
    pub(super) fn begin(publisher: &'a Publisher, own: Contact) -> Self {
        let (tell, peer) = oneshot::channel();
        Self { attempt: Some(Box::pin(publisher.meet(own, tell))), peer: Some(peer) }
    }

    /// Stops the search, because the two ends are connected.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns the peer's contact, once, or the error by which the two ends cannot meet. The future may be dropped and
    /// called again.
    pub(super) async fn next(&mut self) -> Result<Contact, MeetingError> {
        let Some(attempt) = &mut self.attempt else { return std::future::pending().await };
        let Some(peer) = &mut self.peer else { return Err(attempt.await) };
        tokio::select! {
            Ok(contact) = peer => {
                self.peer = None;
                Ok(contact)
            }
            error = attempt => Err(error),
        }
    }
}

impl Publisher {
    /// Writes this end's contact and sends the peer's to `tell` once it is known. Then keeps watching whether anybody
    /// changes this end's. Returns only with an error.
    async fn meet(&self, own: Contact, tell: oneshot::Sender<Contact>) -> MeetingError {
        if let Err(error) = self.offer(format!("/contacts/{}", self.contact_key(self.side)), json!(own)).await
        {
            return error;
        }
        let mut tell = Some(tell);
        let look = |run: &SyncRun| self.inspect(run, &own, &mut tell).map(|()| None::<Infallible>);
        match self.watch_run(look).await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    /// Writes a value that the other pods or the operator wait for, until the API server has it.
    pub(super) async fn offer(&self, path: String, value: Value) -> Result<(), MeetingError> {
        if self.api.is_none() {
            return Err(MeetingError::NoApiServer);
        }
        let began = Instant::now();
        while let Err(error) = self.patch(&[(path.clone(), value.clone())]).await {
            // The operator recreates the permissions for the next try, in case somebody has deleted them.
            let is_hopeless = error.is_forbidden() && began.elapsed() > RIGHTS_PATIENCE;
            if error.is_final() || is_hopeless {
                let (end, words) = (self.contact_key(self.side), chain(&error));
                return Err(MeetingError::Refused { end, words });
            }
            tracing::info!(error = chain(&error), path, "the status is written to again");
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Passes the SyncRun and every change of it to `look`, until that returns a value, or the error by which this end
    /// cannot take part.
    pub(super) async fn watch_run<T>(
        &self,
        mut look: impl FnMut(&SyncRun) -> Result<Option<T>, MeetingError>,
    ) -> Result<T, MeetingError> {
        loop {
            match self.follow(&mut look).await? {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => tracing::info!(error = chain(&error), "looking at the SyncRun again"),
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads the SyncRun and every change of it until the watch ends, or `look` returns something.
    async fn follow<T>(
        &self,
        look: &mut impl FnMut(&SyncRun) -> Result<Option<T>, MeetingError>,
    ) -> Result<kube::Result<Option<T>>, MeetingError> {
        let Some(api) = &self.api else { return Err(MeetingError::NoApiServer) };
        let run = match timeout(REQUEST_TIMEOUT, api.get_opt(&self.name)).await {
            Ok(Ok(run)) => run.ok_or_else(|| MeetingError::Over(self.name.clone()))?,
            Ok(Err(error)) => return Ok(Err(error)),
            Err(_) => return Ok(Ok(None)),
        };
        if let Some(found) = look(&run)? {
            return Ok(Ok(Some(found)));
        }
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let changes = match api.watch(&only, &run.resource_version().unwrap_or_default()).await {
            Ok(changes) => changes,
            Err(error) => return Ok(Err(error)),
        };
        let mut changes = pin!(changes);
        while let Some(change) = changes.next().await {
            let found = match change {
                Ok(WatchEvent::Added(run) | WatchEvent::Modified(run)) => look(&run)?,
                Ok(WatchEvent::Deleted(_)) => return Err(MeetingError::Over(self.name.clone())),
                Ok(WatchEvent::Bookmark(_)) => None,
                Ok(WatchEvent::Error(error)) => return Ok(Err(kube::Error::Api(error))),
                Err(error) => return Ok(Err(error)),
            };
            if found.is_some() {
                return Ok(Ok(found));
            }
        }
        Ok(Ok(None))
    }

    /// Checks the SyncRun, and sends the peer's contact the first time that it appears.
    fn inspect(
        &self,
        run: &SyncRun,
        own: &Contact,
        tell: &mut Option<oneshot::Sender<Contact>>,
    ) -> Result<(), MeetingError> {
        let status = self.own_try(run)?;
        let contact = |side| status.contacts.as_ref()?.get(&self.contact_key(side));
        if contact(self.side) != Some(own) {
            return Err(MeetingError::Replaced { end: self.contact_key(self.side), run: self.name.clone() });
        }
        if let Some(peer) = contact(shard_pairs::other(self.side))
            && let Some(tell) = tell.take()
        {
            drop(tell.send(peer.clone()));
        }
        Ok(())
    }

    /// Returns the status of this pod's try. Fails if the SyncRun is another one, or has another try.
    pub(super) fn own_try<'a>(&self, run: &'a SyncRun) -> Result<&'a SyncRunStatus, MeetingError> {
        let status = run.status.as_ref().filter(|status| status.try_number == Some(self.number));
        let status = status.filter(|_| run.metadata.uid.as_ref() == Some(&self.uid));
        status.ok_or_else(|| MeetingError::Over(self.name.clone()))
    }

    /// Returns the key of this pod's entry, or of its peer's, in maps of the status.
    pub(super) fn contact_key(&self, side: Side) -> String {
        reports::end_name(side, self.shard.map(|shard| shard.index))
    }
}

#[cfg(test)]
mod tests {
    use contract::Fingerprint;

    use super::*;
    use crate::api::SyncRunSpec;

    fn contact(key: &str) -> Contact {
        Contact { fingerprint: Fingerprint::of(key.as_bytes()), address: None }
    }

    fn run(number: i32, contacts: &[(&str, &str)]) -> SyncRun {
        let mut run = SyncRun::new("web-1", SyncRunSpec::default());
        run.metadata.uid = Some("u".into());
        let contacts = contacts.iter().map(|(end, key)| (end.to_string(), contact(key))).collect();
        run.status = Some(SyncRunStatus {
            try_number: Some(number),
            contacts: Some(contacts),
            ..SyncRunStatus::default()
        });
        run
    }

    fn source() -> Publisher {
        let ids = ["web-1", "u", "web-1.retry1"].map(String::from);
        let [name, uid, run] = ids;
        Publisher { name, uid, run, number: 2, side: Side::Source, ..Publisher::offline() }
    }

    /// Returns how a source judges a SyncRun: its peer's contact, if any, or the error with which it gives up.
    fn seen(run: &SyncRun) -> Result<Option<Contact>, MeetingError> {
        let (tell, mut told) = oneshot::channel();
        source().inspect(run, &contact("mine"), &mut Some(tell))?;
        Ok(told.try_recv().ok())
    }

    #[test]
    fn a_peer_is_believed_only_beside_this_ends_own_contact_in_the_same_try() {
        let here = [("source", "mine"), ("sink", "theirs")];
        assert_eq!(seen(&run(2, &here)).unwrap(), Some(contact("theirs")));
        assert_eq!(seen(&run(2, &here[..1])).unwrap(), None);
        assert!(matches!(seen(&run(1, &here)), Err(MeetingError::Over(_))));
        for wrong in [&[("source", "other"), ("sink", "theirs")][..], &here[1..]] {
            assert!(matches!(seen(&run(2, wrong)), Err(MeetingError::Replaced { .. })));
        }
        let mut reborn = run(2, &here);
        reborn.metadata.uid = Some("v".into());
        assert!(matches!(seen(&reborn), Err(MeetingError::Over(_))));
    }

    #[tokio::test]
    async fn without_an_api_server_there_is_nobody_to_meet() {
        let (tell, told) = oneshot::channel();
        assert!(matches!(source().meet(contact("mine"), tell).await, MeetingError::NoApiServer));
        assert!(told.await.is_err());
    }
}
