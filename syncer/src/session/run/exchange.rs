//! Meets a peer whose key is not known at the start: both ends make a key in memory, and another program passes their
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

/// An end that makes its own key, for one run.
#[derive(Debug)]
pub struct Exchange {
    /// The end that this process is.
    pub side: Side,
    /// The name of the job, equal at both ends: 1 to 512 bytes.
    pub job: String,
    /// The address that this end listens on; `None` where it dials the address in the peer's contact.
    pub listen: Option<SocketAddr>,
    /// The longest time to dial.
    pub connect_timeout: Duration,
}

impl Exchange {
    /// Makes the key, passes this end's contact to `tell`, and waits until `hear` returns the peer's or the end is told
    /// to stop. A listening end binds its socket first, so packets of a peer that dials at once are not lost.
    ///
    /// # Errors
    /// When the socket, the contacts or the key cannot be used.
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
