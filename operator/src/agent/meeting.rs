//! How the ends of a try learn of each other: each pod writes its contact into the SyncRun's status, and reads its
//! peer's there.
//!
//! A contact decides which key the peer accepts. So the API server lets nobody change one (`rules::contacts`), only the
//! run's own pods can write it (`resources::access`), and each pod sees to it that its own stays until the two have
//! met.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use contract::{Contact, Side};
use futures::StreamExt as _;
use kube::{
    ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use serde_json::json;
use thiserror::Error;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::publish::{Publisher, REQUEST_TIMEOUT};
use crate::{
    api::{SyncRun, SyncRunStatus},
    model::{pairs, record},
    telemetry::chain,
};

/// Between two tries to reach an API server that does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Why the two ends cannot meet, or cannot trust each other.
#[derive(Debug, Error)]
pub enum MeetingError {
    /// Nothing can be learned of the peer.
    #[error("there is no API server to learn of the peer from")]
    NoApiServer,
    /// The try is over.
    #[error("the SyncRun {0} is gone, or has another try")]
    Over(String),
    /// The contact in the status is not this pod's.
    #[error(
        "somebody else wrote or removed the contact of the {end} in the status of the SyncRun {run}: only the pods of the run \
         may; see to it that no other pod has their ServiceAccount"
    )]
    Replaced {
        /// Whose.
        end: String,
        /// In which SyncRun.
        run: String,
    },
    /// The API server does not take the contact.
    #[error("the contact of the {end} is refused by the API server: {words}")]
    Refused {
        /// Whose.
        end: String,
        /// What the API server says.
        words: String,
    },
}

/// A meeting under way, or none.
#[derive(Default)]
pub(super) struct Meeting<'a> {
    attempt: Option<Pin<Box<dyn Future<Output = MeetingError> + Send + 'a>>>,
    peer: Option<oneshot::Receiver<Contact>>,
}

impl<'a> Meeting<'a> {
    /// Begins to look for the peer of an end with this contact.
    pub(super) fn begin(publisher: &'a Publisher, own: Contact) -> Self {
        let (tell, peer) = oneshot::channel();
        Self { attempt: Some(Box::pin(publisher.meet(own, tell))), peer: Some(peer) }
    }

    /// Ends it, because the two ends have met.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Waits for the peer's contact, which comes once, or for the reason why the two ends cannot meet. May be dropped
    /// and asked for again.
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
    /// Writes this end's contact and tells the peer's once it is there. Then goes on looking whether anybody touches
    /// this end's. Returns only with an error.
    async fn meet(&self, own: Contact, tell: oneshot::Sender<Contact>) -> MeetingError {
        if let Err(error) = self.offer(&own).await {
            return error;
        }
        let mut tell = Some(tell);
        loop {
            match self.follow(&own, &mut tell).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::info!(error = chain(&error), "looking at the SyncRun again"),
                Err(error) => return error,
            }
            sleep(PAUSE).await;
        }
    }

    async fn offer(&self, own: &Contact) -> Result<(), MeetingError> {
        if self.api.is_none() {
            return Err(MeetingError::NoApiServer);
        }
        let path = format!("/contacts/{}", self.contact_key(self.side));
        while let Err(error) = self.patch(&[(path.clone(), json!(own))]).await {
            if error.is_final() {
                let (end, words) = (self.contact_key(self.side), chain(&error));
                return Err(MeetingError::Refused { end, words });
            }
            tracing::info!(error = chain(&error), "the contact is offered again");
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Reads the SyncRun and each change of it, until the watch ends.
    async fn follow(
        &self,
        own: &Contact,
        tell: &mut Option<oneshot::Sender<Contact>>,
    ) -> Result<kube::Result<()>, MeetingError> {
        let Some(api) = &self.api else { return Err(MeetingError::NoApiServer) };
        let run = match timeout(REQUEST_TIMEOUT, api.get_opt(&self.name)).await {
            Ok(Ok(run)) => run.ok_or_else(|| MeetingError::Over(self.name.clone()))?,
            Ok(Err(error)) => return Ok(Err(error)),
            Err(_) => return Ok(Ok(())),
        };
        self.look(&run, own, tell)?;
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let changes = match api.watch(&only, &run.resource_version().unwrap_or_default()).await {
            Ok(changes) => changes,
            Err(error) => return Ok(Err(error)),
        };
        let mut changes = pin!(changes);
        while let Some(change) = changes.next().await {
            match change {
                Ok(WatchEvent::Added(run) | WatchEvent::Modified(run)) => self.look(&run, own, tell)?,
                Ok(WatchEvent::Deleted(_)) => return Err(MeetingError::Over(self.name.clone())),
                Ok(WatchEvent::Bookmark(_)) => {}
                Ok(WatchEvent::Error(error)) => return Ok(Err(kube::Error::Api(error))),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Judges the SyncRun as it is, and tells the peer's contact the first time that it is there.
    fn look(
        &self,
        run: &SyncRun,
        own: &Contact,
        tell: &mut Option<oneshot::Sender<Contact>>,
    ) -> Result<(), MeetingError> {
        let none = SyncRunStatus::default();
        let status = run.status.as_ref().unwrap_or(&none);
        if run.metadata.uid.as_ref() != Some(&self.uid) || status.try_id.as_ref() != Some(&self.run) {
            return Err(MeetingError::Over(self.name.clone()));
        }
        let contact = |side| status.contacts.as_ref()?.get(&self.contact_key(side));
        if contact(self.side) != Some(own) {
            return Err(MeetingError::Replaced { end: self.contact_key(self.side), run: self.name.clone() });
        }
        if let Some(peer) = contact(pairs::other(self.side))
            && let Some(tell) = tell.take()
        {
            drop(tell.send(peer.clone()));
        }
        Ok(())
    }

    fn contact_key(&self, side: Side) -> String {
        record::contact_key(side, self.shard.map(|shard| shard.index))
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

    fn run(try_id: &str, contacts: &[(&str, &str)]) -> SyncRun {
        let mut run = SyncRun::new("web-1", SyncRunSpec::default());
        run.metadata.uid = Some("u".into());
        let contacts = contacts.iter().map(|(end, key)| (end.to_string(), contact(key))).collect();
        run.status = Some(SyncRunStatus {
            try_id: Some(try_id.into()),
            contacts: Some(contacts),
            ..SyncRunStatus::default()
        });
        run
    }

    fn source() -> Publisher {
        let ids = ["web-1", "u", "web-1.retry1"].map(String::from);
        let [name, uid, run] = ids;
        Publisher { name, uid, run, side: Side::Source, ..Publisher::offline() }
    }

    /// What a source makes of a SyncRun: its peer's contact, or why it gives up.
    fn seen(run: &SyncRun) -> Result<Option<Contact>, MeetingError> {
        let (tell, mut told) = oneshot::channel();
        source().look(run, &contact("mine"), &mut Some(tell))?;
        Ok(told.try_recv().ok())
    }

    #[test]
    fn a_peer_is_believed_only_beside_this_ends_own_contact_in_the_same_try() {
        let here = [("source", "mine"), ("sink", "theirs")];
        assert_eq!(seen(&run("web-1.retry1", &here)).unwrap(), Some(contact("theirs")));
        assert_eq!(seen(&run("web-1.retry1", &here[..1])).unwrap(), None);
        assert!(matches!(seen(&run("web-1", &here)), Err(MeetingError::Over(_))));
        for wrong in [&[("source", "other"), ("sink", "theirs")][..], &here[1..]] {
            assert!(matches!(seen(&run("web-1.retry1", wrong)), Err(MeetingError::Replaced { .. })));
        }
        let mut reborn = run("web-1.retry1", &here);
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
