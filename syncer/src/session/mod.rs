//! Runs, which make one tree equal to another: the only module that sees both ends.
//!
//! Bottom-up; each folder imports only from those above it in this list:
//!
//! - [`session_error`]: why a run failed.
//! - [`reading`]: files of either end, opened, hashed, sampled.
//! - [`plan`]: the plan of a run, and the guards that may refuse it.
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

pub use crate::apply::remove_folder;

pub use self::{
    local::stored_tree::Restore,
    plan::{
        owners_demands::check_request,
        plan_id::{PlanHasher, PlanId},
    },
    run::{
        endpoint::{not_begun, receive, restore, send, send_each, sync},
        exchange::{Exchange, Meets},
        free::check_free,
        history_session::{offer_to_service, take_from_service},
        link_options::{Endpoint, LinkOptions, show_key},
        local_run::is_same_tree,
        local_session::LocalSession,
        outcome::Outcome,
        restore::{all_but, outermost},
        service::{Service, ServiceLimits, ServiceVisit},
        source_session::SendSession,
    },
    session_error::SessionError,
};
pub use crate::{
    transport::{
        Guests,
        quic::{ByteStream, LinkMode, Sockets},
    },
    wire::PROTOCOL,
};
