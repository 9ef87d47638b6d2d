//! Events: a SyncJob's turns, for those who watch it go by.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource as _, ResourceExt as _,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::{
    api::{
        SyncJob, SyncJobStatus,
        conditions::{self, READY, STALLED, reason},
    },
    human,
    names::FIELD_MANAGER,
    telemetry::chain,
};

/// The API server takes notes of up to 1,024 bytes.
const MAX_NOTE_BYTES: usize = 1000;

/// What is said about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Somebody should look.
    pub warning: bool,
    /// A CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Publishes notes as Kubernetes events.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events that name the replica `instance` as their reporter.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: Some(instance.into()) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Publishes a note. That it cannot be published is no reason to stop: all that events say is in the
    /// status too. (It cannot for jobs whose names leave no room for the suffix that makes an event's name,
    /// from about 236 characters on.)
    pub async fn publish(&self, job: &SyncJob, note: &Note) {
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.clone(),
            note: Some(human::clipped(&note.message, MAX_NOTE_BYTES)),
            action: "Reconcile".into(),
            secondary: None,
        };
        let about: ObjectReference = job.object_ref(&());
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(job = job.name_any(), error = chain(&error), "an event is lost");
        }
    }
}

/// What is worth an event when a status changes: a new reason for why the job is, or is not, ready.
pub fn of_change(old: &SyncJobStatus, new: &SyncJobStatus) -> Option<Note> {
    let now = conditions::find(&new.conditions, READY)?;
    let same = |before: &&_| conditions_agree(before, now);
    if conditions::find(&old.conditions, READY).filter(same).is_some() {
        return None;
    }
    let calm =
        [reason::PREPARING, reason::RUNNING, reason::SUCCEEDED, reason::SUSPENDED].contains(&&*now.reason);
    Some(Note {
        warning: conditions::is_true(&new.conditions, STALLED) || !calm,
        reason: now.reason.clone(),
        message: now.message.clone(),
    })
}

fn conditions_agree(
    a: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition,
    b: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition,
) -> bool {
    a.reason == b.reason && a.status == b.status
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{controller::status, fault::Fault};

    fn changed(change: impl Fn(&mut SyncJobStatus)) -> (SyncJobStatus, SyncJobStatus) {
        let mut old = SyncJobStatus::default();
        status::begin(
            &mut old,
            status::new_run("web", 1, 1, None, Timestamp::UNIX_EPOCH),
            Timestamp::UNIX_EPOCH,
        );
        let mut new = old.clone();
        change(&mut new);
        (old, new)
    }

    #[test]
    fn a_new_reason_is_an_event_and_a_fault_is_a_warning() {
        let (old, new) = changed(|status| status::running(status, Timestamp::UNIX_EPOCH));
        let note = of_change(&old, &new).unwrap();
        assert_eq!((note.warning, note.reason.as_str()), (false, "Running"));
        let fault = Fault::new("PodPending", "no node");
        let (old, new) = changed(|status| status::preparing(status, Some(&fault), Timestamp::UNIX_EPOCH));
        let note = of_change(&old, &new).unwrap();
        assert_eq!((note.warning, note.message.as_str()), (true, "no node"));
    }

    #[test]
    fn progress_and_wording_are_no_events() {
        let (old, new) = changed(|status| status.progress = Some(Default::default()));
        assert_eq!(of_change(&old, &new), None);
        let (old, new) = changed(|status| status::preparing(status, None, Timestamp::UNIX_EPOCH));
        assert_ne!(old.conditions, new.conditions);
        assert_eq!(of_change(&old, &new), None);
    }
}
