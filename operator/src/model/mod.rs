//! What the operator knows and decides of SyncJobs and their runs, as pure functions: no client, no clock.

pub mod benchmark;
pub mod children;
pub mod claims;
pub mod creation;
pub mod destination;
pub mod fields;
pub mod hooks;
pub mod kinds;
pub mod locality;
pub mod observe;
pub mod outcome;
pub mod pairs;
pub mod place;
pub mod placement;
pub mod queue;
pub mod record;
pub mod restore;
pub mod retry;
pub mod rivals;
pub mod security;
pub mod snapshots;
pub mod spec_hash;
pub mod status;
pub mod trend;
pub mod validate;
pub mod warnings;
