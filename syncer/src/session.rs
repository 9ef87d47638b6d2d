//! What programs call: runs and sessions, which make one tree equal to another.

pub use crate::destination::remove_folder;

pub use crate::{
    ends::{overlap::is_same_tree, stored_tree::Restore},
    plan::{
        guards::owners_demands::check_request,
        plan_id::{PlanHasher, PlanId},
    },
    run::{
        check_free::check_free,
        entry_points::{not_begun, receive, restore, send, send_each, sync},
        history_session::{HistoryOffer, offer_to_service, take_from_service},
        key_exchange::{Exchange, Meets},
        link_options::{Endpoint, LinkOptions, show_key},
        local_session::LocalSession,
        offsite_run::{OpenOffsite, snapshot_offsite},
        outcome::Outcome,
        restore::{all_but, outermost},
        send_session::SendSession,
        service::{Service, ServiceLimits, ServiceVisit},
    },
    session_error::SessionError,
};
pub use crate::{
    transport::{
        Guests,
        quic::{Asked, ByteStream, LinkMode, Sockets},
    },
    wire::PROTOCOL,
};
