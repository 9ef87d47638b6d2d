//! Publishes Kubernetes events about the changes of SyncJobs and SyncJobSets.

use contract::{Reason, chain};
use jiff::Timestamp;
use k8s_openapi::{
    api::events::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};

use crate::{
    api::{
        Stage, SyncJobStatus,
        conditions::{self, CORRUPT, OWNERS_NOT_KEPT, PERFORMANCE_REGRESSED},
    },
    fault::Fault,
    hooks::hook_state::Point,
    human,
    names::{FIELD_MANAGER, shorten},
    status::readiness,
};

/// The API server takes notes of up to 1,024 bytes.
const MAX_NOTE_BYTES: usize = 1000;
/// An event's name is a DNS subdomain that ends with a dot and 16 hexadecimal digits, which distinguish a job's events.
const MAX_NAME: usize = 253 - 17;

/// The content of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whether a person should look.
    pub warning: bool,
    /// The reason.
    pub reason: Reason,
    /// The message.
    pub message: String,
}

/// Publishes notes as Kubernetes events.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: &'static str,
    instance: String,
}

impl Events {
    /// Creates the publisher. The replica `instance` is the events' reporter.
    pub fn new(client: Client, instance: &str) -> Self {
        Self::reporting_as(client, FIELD_MANAGER, instance)
    }

    /// Creates the publisher of another program than the controller.
    pub fn reporting_as(client: Client, controller: &'static str, instance: &str) -> Self {
        Self { client, controller, instance: instance.into() }
    }

    /// Publishes a note as an event of its own, so that events of different runs are never merged. A note that cannot
    /// be published is dropped, since the status says the same.
    pub async fn publish(&self, about: &impl kube::Resource<DynamicType = ()>, note: &Note) {
        let mut event = event(about, note, &self.instance, Timestamp::now());
        event.reporting_controller = Some(self.controller.into());
        let events = Api::<Event>::namespaced(self.client.clone(), &about.namespace().unwrap_or_default());
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::debug!(about = about.name_any(), error = chain(&error), "an event is lost");
        }
    }
}

fn event(
    about: &impl kube::Resource<DynamicType = ()>,
    note: &Note,
    instance: &str,
    now: Timestamp,
) -> Event {
    let name = format!("{}.{:016x}", shorten(&about.name_any(), MAX_NAME), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: about.namespace(), ..ObjectMeta::default() },
        event_time: Some(MicroTime(now)),
        type_: Some(if note.warning { "Warning" } else { "Normal" }.into()),
        reason: Some(note.reason.to_string()),
        note: Some(human::clipped(&note.message, MAX_NOTE_BYTES)),
        action: Some("Reconcile".into()),
        regarding: Some(about.object_ref(&())),
        reporting_controller: Some(FIELD_MANAGER.into()),
        reporting_instance: Some(instance.into()),
        ..Event::default()
    }
}

/// Returns the note about a status change: what the job does, waits for or came to.
pub fn of_change(old: &SyncJobStatus, new: &SyncJobStatus) -> Option<Note> {
    let Fault { reason, message } = readiness::told(new)?;
    if readiness::told(old).is_some_and(|before| before.reason == reason) {
        return None;
    }
    // A run that is starting is reported once it runs, and one that is ending once it has ended.
    let untold = [Stage::Preparing, Stage::Capturing, Stage::Queued, Stage::Starting, Stage::Finishing]
        .map(Stage::reason);
    if untold.contains(&reason) {
        return None;
    }
    let calm = [
        Reason::WaitingForRun,
        Reason::ClaimGrows,
        Reason::Running,
        Reason::Replaced,
        Reason::Succeeded,
        Reason::Suspended,
        Reason::Scheduled,
    ];
    Some(Note { warning: !calm.contains(&reason), reason, message })
}

/// Returns the note that a copy has come to lack its owners.
pub fn of_owners(old: &SyncJobStatus, new: &SyncJobStatus) -> Option<Note> {
    if conditions::is_true(&old.conditions, OWNERS_NOT_KEPT) {
        return None;
    }
    let now = conditions::find(&new.conditions, OWNERS_NOT_KEPT)?;
    Some(Note { warning: true, reason: OWNERS_NOT_KEPT.into(), message: now.message.clone() })
}

/// Returns the note about a change of the runs' duration: that they have become slower, or are as usual again.
pub fn of_trend(old: &SyncJobStatus, new: &SyncJobStatus) -> Option<Note> {
    let is_slower = |status: &SyncJobStatus| conditions::is_true(&status.conditions, PERFORMANCE_REGRESSED);
    let warning = is_slower(new);
    if warning == is_slower(old) {
        return None;
    }
    let now = conditions::find(&new.conditions, PERFORMANCE_REGRESSED)?;
    let reason = if warning { Reason::PerformanceRegressed } else { Reason::PerformanceRecovered };
    Some(Note { warning, reason, message: now.message.clone() })
}

/// Returns a note for each hook of a run that failed, whether the run continues or not.
pub fn of_hooks(old: &SyncJobStatus, new: &SyncJobStatus) -> Vec<Note> {
    let failures = |status: &SyncJobStatus| -> Vec<String> {
        let run = status.active_run.as_ref();
        let states = [Point::Before, Point::After].map(|point| run.and_then(|run| point.state(run)));
        states.into_iter().flatten().filter_map(|state| state.failure.clone()).collect()
    };
    let known = failures(old);
    let new = failures(new).into_iter().filter(|failure| !known.contains(failure));
    new.map(|message| Note { warning: true, reason: Reason::HookFailed, message }).collect()
}

/// Returns the note about a snapshot verification: damage without a good copy, or that no damage is left.
pub fn of_damage(old: &SyncJobStatus, new: &SyncJobStatus) -> Option<Note> {
    let count = |status: &SyncJobStatus| status.snapshots.as_ref().and_then(|snapshots| snapshots.damaged);
    let (before, after) = (count(old).unwrap_or(0), count(new)?);
    let message = match after {
        after if after == before => return None,
        0 => "The check finds no damage in the snapshots of the destination any more.".into(),
        _ => conditions::find(&new.conditions, CORRUPT)?.message.clone(),
    };
    let reason = if after > 0 { CORRUPT } else { "SnapshotsHealed" };
    Some(Note { warning: after > 0, reason: reason.into(), message })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::status::run_status;

    fn changed(change: impl Fn(&mut SyncJobStatus)) -> (SyncJobStatus, SyncJobStatus) {
        let mut old = SyncJobStatus::default();
        run_status::begin(
            &mut old,
            run_status::new_run("web", 1, 1, None, Timestamp::UNIX_EPOCH),
            Timestamp::UNIX_EPOCH,
        );
        let mut new = old.clone();
        change(&mut new);
        (old, new)
    }

    #[test]
    fn a_new_reason_is_an_event_and_a_fault_is_a_warning() {
        let (old, new) = changed(|status| {
            run_status::running(status, Timestamp::UNIX_EPOCH);
            status.active_run.as_mut().unwrap().stage = Stage::Running;
        });
        let note = of_change(&old, &new).unwrap();
        assert_eq!((note.warning, note.reason.as_str()), (false, "Running"));
        let fault = Fault::new(Reason::PodPending, "no node");
        let (old, new) = changed(|status| run_status::preparing(status, Some(&fault), Timestamp::UNIX_EPOCH));
        let note = of_change(&old, &new).unwrap();
        assert_eq!((note.warning, note.message.as_str()), (true, "no node"));
    }

    #[test]
    fn events_of_one_reason_have_names_of_their_own_also_for_the_longest_name() {
        let job = crate::api::SyncJob::new(&"x".repeat(253), crate::api::SyncJobSpec::default());
        let said = |nanosecond: i128, message: &str| {
            let note = Note { warning: false, reason: "Succeeded".into(), message: message.into() };
            event(
                &job,
                &note,
                "i",
                Timestamp::from_nanosecond(1_800_000_000_000_000_000 + nanosecond).unwrap(),
            )
        };
        let (first, second) = (said(0, "Run web-1"), said(1, "Run web-2"));
        assert_ne!(first.metadata.name, second.metadata.name);
        assert_eq!(second.note.as_deref(), Some("Run web-2"));
        assert!(first.metadata.name.unwrap().len() <= 253);
    }

    #[test]
    fn slower_runs_are_one_warning_until_they_are_as_usual_again() {
        let with = |slower: bool, message: &str| {
            let mut status = SyncJobStatus::default();
            let cause = conditions::Cause { reason: &Reason::Slower, message, generation: 1 };
            let kind = PERFORMANCE_REGRESSED;
            conditions::set(&mut status.conditions, kind, slower, cause, Timestamp::UNIX_EPOCH);
            status
        };
        let (usual, slow, slower) = (with(false, "usual"), with(true, "slow"), with(true, "slower"));
        let said = |old, new| of_trend(old, new).map(|note| (note.warning, note.reason, note.message));
        assert_eq!(said(&usual, &slow), Some((true, "PerformanceRegressed".into(), "slow".into())));
        assert_eq!((said(&slow, &slower), said(&usual, &usual)), (None, None));
        assert_eq!(said(&slower, &usual), Some((false, "PerformanceRecovered".into(), "usual".into())));
        assert_eq!(said(&slower, &SyncJobStatus::default()), None, "nobody compares any more");
    }

    #[test]
    fn wording_is_no_event() {
        let (old, new) = changed(|status| run_status::preparing(status, None, Timestamp::UNIX_EPOCH));
        assert_ne!(old.conditions, new.conditions);
        assert_eq!(of_change(&old, &new), None);
    }
}
