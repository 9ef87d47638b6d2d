//! The queue of runs: who comes next, and whom it waits for.

pub mod place;
pub mod priority;
pub mod runs_to_wait_for;
pub mod turns;
