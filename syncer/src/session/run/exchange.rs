//! Meets a peer whose key is not known at the start: both ends make a key in memory, and a third party passes their
//! contacts on.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use contract::{Contact, FreshKey, IdentityError, Side};

use crate::{
    monitor::Monitor,
    session::{
        run::link_options::{Endpoint, LinkOptions},
        session_error::SessionError,
    },
    transport::{TransportError, quic},
};

/// An end that makes its key itself, for one run.
#[derive(Debug)]
pub struct Exchange {
    /// Which end.
    pub side: Side,
    /// The name of the job that both ends have to be of: 1 to 512 bytes.
    pub job: String,
    /// Where this end listens; `None` where it dials the address in the peer's contact.
    pub listen: Option<SocketAddr>,
    /// How long to dial.
    pub connect_timeout: Duration,
}

impl Exchange {
    /// Makes the key, tells this end's contact, and waits until the peer's is heard or the end is told to stop. An end
    /// that listens has its socket before it tells where, so packets of a peer that dials at once are not lost.
    pub fn link(
        self,
        tell: impl FnOnce(Contact) -> io::Result<()>,
        hear: impl FnOnce() -> io::Result<Contact> + Send + 'static,
        monitor: &Monitor,
    ) -> Result<LinkOptions, SessionError> {
        let key = FreshKey::generate().map_err(|error| unusable(&error))?;
        let socket = self.listen.map(quic::bind).transpose()?;
        let address =
            socket.as_ref().map(UdpSocket::local_addr).transpose().map_err(|error| missing(&error))?;
        let address = address.map(|address| address.to_string());
        tell(Contact { fingerprint: key.fingerprint(), address }).map_err(|error| missing(&error))?;
        let peer = quic::await_contact(hear, monitor)?;
        let endpoint = match (socket, peer.address) {
            (Some(socket), _) => Endpoint::Bound(socket),
            (None, Some(address)) => Endpoint::Connect(address),
            (None, None) => return Err(TransportError::NoContact("it has no address".into()).into()),
        };
        let identity = key.into_identity(self.side, &self.job, peer.fingerprint);
        let identity = identity.map_err(|error| unusable(&error))?;
        Ok(LinkOptions { endpoint, identity, connect_timeout: self.connect_timeout })
    }
}

fn unusable(error: &IdentityError) -> TransportError {
    TransportError::Identity(error.to_string())
}

fn missing(error: &io::Error) -> TransportError {
    TransportError::NoContact(error.to_string())
}
