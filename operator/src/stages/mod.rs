//! The stages of a run, each of which says what is done in it. A stage is recorded before anything is done. Pure.

pub mod done;
pub mod finishing;
pub mod hooks;
pub mod plan;
pub mod preparing;
pub mod queued;
pub mod running;
pub mod situation;
pub mod starting;
