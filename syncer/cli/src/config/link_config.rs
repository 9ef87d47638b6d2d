//! The way to reach the other end, and the keys by which the two recognise each other.

use std::{path::PathBuf, time::Duration};

use contract::Side;
use syncer::session::{Endpoint, Exchange, LinkMode, Meets};

use super::config_error::ConfigError;
use crate::{
    flags::{CONNECT_TIMEOUT, LinkFlags},
    link_to_service::Asks,
    remote::link_to_starter::Started,
};

/// The way to reach the other end, and the keys by which the two recognise each other.
#[derive(Debug)]
pub(crate) enum LinkConfig {
    /// By files. They are read later, because a failure to read one has an exit code of its own.
    Known {
        endpoint: Endpoint,
        mode: LinkMode,
        side: Side,
        /// One, or one for each peer of an end that listens.
        identities: Vec<PathBuf>,
        connect_timeout: Duration,
    },
    /// By contacts that another program passes on.
    Exchanged(Exchange),
    /// By the words of the end that started this one.
    Started(Box<Started>),
    /// By a service, which is asked for a folder.
    Asks(Box<Asks>),
}

impl LinkConfig {
    pub(super) fn resolve(flags: LinkFlags, side: Side) -> Result<Self, ConfigError> {
        let LinkFlags { listen, connect, link, identity, exchange, connect_timeout } = flags;
        let mode = link.map_or(LinkMode::Auto, LinkMode::from);
        if connect_timeout.is_some() && listen.is_some() && connect.is_none() {
            return Err(ConfigError::TimeoutOfListener);
        }
        let connect_timeout = connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        if let Some(job) = exchange {
            let meets = listen.map_or(Meets::Dialling, Meets::Listening);
            return Ok(Self::Exchanged(Exchange { side, job, meets, mode, connect_timeout }));
        }
        let endpoint = match (listen, connect) {
            (Some(address), None) => Endpoint::Listen(address),
            (None, Some(address)) => Endpoint::Connect(address),
            (None, None) => return Err(ConfigError::NoEndpoint),
            (Some(_), Some(_)) => return Err(ConfigError::TwoEndpoints),
        };
        match (identity.len(), &endpoint) {
            (0, _) => Err(ConfigError::NoIdentity),
            (2.., Endpoint::Connect(_)) => Err(ConfigError::IdentitiesOfDialler),
            _ => Ok(Self::Known { endpoint, mode, side, identities: identity, connect_timeout }),
        }
    }

    /// Returns whether one session follows another until this end is told to stop.
    pub(super) fn may_serve(&self) -> bool {
        matches!(self, Self::Known { endpoint: Endpoint::Listen(_), .. })
    }

    pub(crate) fn listens(&self) -> bool {
        match self {
            Self::Known { endpoint, .. } => matches!(endpoint, Endpoint::Listen(_)),
            Self::Exchanged(exchange) => matches!(exchange.meets, Meets::Listening(_)),
            Self::Started(_) => true,
            Self::Asks(_) => false,
        }
    }
}

/// Refuses the flags of a link for a command without one.
pub(super) fn check_unlinked(link: &LinkFlags, bandwidth_limit: Option<u64>) -> Result<(), ConfigError> {
    let LinkFlags { listen, connect, link, identity, exchange, connect_timeout } = link;
    let given = [
        ("--listen", listen.is_some()),
        ("--connect", connect.is_some()),
        ("--link", link.is_some()),
        ("--identity", !identity.is_empty()),
        ("--exchange", exchange.is_some()),
        ("--connect-timeout", connect_timeout.is_some()),
        ("--bandwidth-limit", bandwidth_limit.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(ConfigError::LinkOfNoEnd(flag)),
        None => Ok(()),
    }
}
