//! The stages of a run, and the decisions in each of them. A stage is recorded in the status before it is acted on.
//! Pure.

pub mod capturing;
pub mod dismiss_partner;
pub mod due_run;
pub mod finishing;
mod give_place;
pub mod hook_stage;
pub mod imaging;
mod key_not_accepted;
pub mod plan;
pub mod preparing;
pub mod queued;
pub mod running;
pub mod situation;
pub mod step;
pub mod volume_in_use;
