//! The queue of runs: who comes next, and whom it waits for.

pub mod claim_rivals;
pub mod place;
pub mod turns;
