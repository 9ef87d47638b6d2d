//! The result of the stages' decisions. Pure.

use contract::Side;
use jiff::Timestamp;

use crate::{
    api::{ActiveRun, Stage, StoppedRun},
    fault::Fault,
    hooks::hook_state::Point,
    run::outcome::Outcome,
    volumes::claims::Blocked,
};

/// The next step of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing is due.
    Rest,
    /// Start no run, because the job is suspended. A run that has not started is removed.
    Suspend,
    /// Remove the run under way, which has not started, because a restore that a person asks for goes first.
    Yield,
    /// Report that the spec cannot be run, or that a due run cannot start.
    Block(Blocked),
    /// Make the destination's claim fit.
    Claim(ClaimStep),
    /// Record a run before any of its objects are created, or record a newer spec for a run without objects.
    Begin(Box<ActiveRun>),
    /// Queue the run.
    Queue,
    /// Wait for other runs without any objects. A run that was started and has none counts as not started again.
    Wait(Fault),
    /// Record that it is the run's turn, before any of its objects are created.
    Admit,
    /// Go on with the hooks.
    Hook(HookStep),
    /// Go on with the capture of the source.
    Capture(StorageStep),
    /// Go on with the VolumeSnapshot of the destination.
    Image(StorageStep),
    /// Create the missing objects of the run under way.
    Launch,
    /// Remove the objects of the run under way, which does not run yet, to create them again.
    Withdraw,
    /// Wait for pods to start; with the obstacle, if any.
    Start(Option<Fault>),
    /// Wait for the ends, both of which are running.
    Run,
    /// Wait for the time of the next try.
    Await,
    /// Remove the running end, since the other cannot start; it is created again as soon as that one can.
    Dismiss(Side, Fault),
    /// Stop the run under way until a person has acted; then it starts over.
    Halt(Fault),
    /// Wait for some ends while others have ended, and leave the status unchanged.
    Linger,
    /// Record that the try failed, and try again at that time.
    Retry(Outcome, Timestamp),
    /// Record that the try found a volume in use, and take a place again at that time, which costs no retry.
    Postpone(Outcome, Timestamp),
    /// Record that the run has ended.
    Finish(Outcome),
}

/// What is done to the destination's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// Create it.
    Create,
    /// Expand it.
    Grow,
}

/// What is done about the hooks of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum HookStep {
    /// Record that the run has to run its hook `after`, since its pods are about to start and it has no hook `before`.
    Open,
    /// Record that a hook starts, before its command does.
    Begin {
        /// The hook.
        point: Point,
        /// Whether pods of the run may still be running, and have to be stopped.
        stops: bool,
        /// The result of the run, if it can no longer be determined after the hook.
        stopped: Option<Box<StoppedRun>>,
    },
    /// Run the command of a hook, or wait for it to end.
    Await(Point),
    /// Record that a hook has ended, with its failure if any.
    End(Point, Option<String>),
}

/// What is done about something that the storage takes of a volume at one instant.
#[derive(Debug, Clone, PartialEq)]
pub enum StorageStep {
    /// Record that it begins, under that name, before anything is made for it.
    Begin(String),
    /// Make what it needs and lacks, and wait for it; with the obstacle, if any.
    Wait(Option<Fault>),
    /// Record that it is taken. An image ends with the run, by [`Step::Finish`].
    End,
}

/// The next step of a job, and when to decide again although nothing has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The step.
    pub step: Step,
    /// That time; `None` if only a change matters.
    pub again: Option<Timestamp>,
}

impl From<Step> for Decision {
    fn from(step: Step) -> Self {
        Self { step, again: None }
    }
}

impl Step {
    /// Returns the decision for this step until that time.
    pub fn again(self, again: Option<Timestamp>) -> Decision {
        Decision { step: self, again }
    }

    /// Returns the stage of a run in this step, given its stage before.
    pub fn stage(&self, before: Stage) -> Stage {
        match self {
            Self::Rest | Self::Suspend | Self::Yield | Self::Block(_) | Self::Halt(_) => Stage::Queued,
            Self::Claim(_) | Self::Begin(_) | Self::Queue | Self::Wait(_) | Self::Postpone(..) => {
                Stage::Queued
            }
            Self::Admit | Self::Retry(..) => Stage::Preparing,
            Self::Hook(hook) => hook.stage(before),
            Self::Capture(_) => Stage::Capturing,
            Self::Launch | Self::Start(_) | Self::Dismiss(..) | Self::Withdraw => Stage::Starting,
            Self::Run => Stage::Running,
            Self::Image(_) | Self::Finish(_) => Stage::Finishing,
            Self::Await | Self::Linger => before,
        }
    }

    /// Returns whether this step removes the pods of the current try, so that a run which is still started has to look
    /// again for its turn.
    pub fn ends_launch(&self) -> bool {
        let stops = matches!(self, Self::Hook(HookStep::Begin { stops: true, .. }));
        stops || matches!(self, Self::Withdraw | Self::Retry(..) | Self::Postpone(..) | Self::Begin(_))
    }

    /// Returns the obstacle of a run in this step, if any.
    pub fn obstacle(&self) -> Option<&Fault> {
        match self {
            Self::Wait(fault) | Self::Dismiss(_, fault) | Self::Halt(fault) => Some(fault),
            Self::Block(Blocked::Waiting(fault) | Blocked::Stalled(fault)) => Some(fault),
            Self::Start(fault)
            | Self::Capture(StorageStep::Wait(fault))
            | Self::Image(StorageStep::Wait(fault)) => fault.as_ref(),
            _ => None,
        }
    }
}

impl HookStep {
    /// Returns the step that begins a hook while no pod of the run may still be running.
    pub fn begin(point: Point) -> Self {
        Self::Begin { point, stops: false, stopped: None }
    }

    fn stage(&self, before: Stage) -> Stage {
        let point = match self {
            Self::Open => return Stage::Preparing,
            Self::Begin { point, .. } | Self::Await(point) | Self::End(point, _) => point,
        };
        match (point, before) {
            // The pods of the run wait for this hook.
            (Point::Before, Stage::Starting) | (Point::After, Stage::Capturing) => before,
            (Point::Before, _) => Stage::Preparing,
            (Point::After, _) => Stage::Finishing,
        }
    }
}
