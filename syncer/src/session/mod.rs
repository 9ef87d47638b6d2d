//! One run, from two trees to one: the only place that sees both ends.
//!
//! Bottom-up; each folder imports only from those above it in this list:
//!
//! - [`session_error`]: why a run did not get to its end.
//! - [`reading`]: files of either end, opened, hashed, sampled.
//! - [`plan`]: what a run is to do, and whether it may.
//! - [`source`]: the end that answers: serves listings, reads and sends files.
//! - [`sink`]: the end that plans: carries a plan out, and asks a [`plan::need::Fetch`] for the content of files.
//! - [`local`]: a source in the same process.
//! - [`device`]: a destination that is a device.
//! - [`run`]: the runs, from their first step to their report.

mod device;
mod local;
mod plan;
mod reading;
mod run;
mod session_error;
mod sink;
mod source;

pub use self::{
    local::stored_tree::Restore,
    run::{
        endpoint::{not_begun, receive, restore, send, sync},
        exchange::Exchange,
        link_options::{Endpoint, LinkOptions},
        outcome::Outcome,
        restore::all_but,
        source_session::SendSession,
    },
    session_error::SessionError,
};
