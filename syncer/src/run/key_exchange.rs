//! Meets a peer whose key is not known at the start: both ends make a key in memory, and another program passes their
//! contacts on.

use std::{io, net::SocketAddr, time::Duration};

use contract::{Contact, Identity, IdentityError, OwnKey, Side};

use crate::{
    measure::monitor::Monitor,
    run::link_options::{Endpoint, LinkOptions},
    session_error::SessionError,
    transport::{
        TransportError,
        quic::{self, ByteStream, LinkMode, Sockets},
    },
};

/// How an end with a key of its own meets its peer.
#[derive(Debug)]
pub enum Meets {
    /// It listens on the address; port 0 takes any free port.
    Listening(SocketAddr),
    /// It dials the address in the peer's contact.
    Dialling,
    /// The peer started it by a command. It listens on the stream of the command, and on the address if one is given.
    Started(Option<SocketAddr>, ByteStream),
    /// It started the peer by a command, and dials the address in the peer's contact, or goes over the command.
    Starting(ByteStream),
}

/// An end that makes its own key, for one run.
#[derive(Debug)]
pub struct Exchange {
    /// The end that this process is.
    pub side: Side,
    /// The name of the job, equal at both ends: 1 to 512 bytes.
    pub job: String,
    /// Whether this end listens, or dials the address in the peer's contact.
    pub meets: Meets,
    /// The carriers to offer or to try.
    pub mode: LinkMode,
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
        let key = OwnKey::generate().map_err(|error| unusable(&error))?;
        let (listen, command, is_dialled) = match self.meets {
            Meets::Listening(address) => (Some(address), None, true),
            Meets::Started(address, command) => (address, Some(command), true),
            Meets::Dialling => (None, None, false),
            Meets::Starting(command) => (None, Some(command), false),
        };
        let sockets = listen.map(|address| Sockets::bind(address, self.mode)).transpose()?;
        let address = sockets.as_ref().map(|sockets| sockets.address().to_string());
        tell(Contact { fingerprint: key.fingerprint(), address }).map_err(|error| missing(&error))?;
        let peer = quic::await_contact(hear, monitor)?;
        let endpoint = match (is_dialled, command, peer.address) {
            (true, command, _) => Endpoint::Started { sockets, command },
            (false, Some(_), None) if matches!(self.mode, LinkMode::Udp | LinkMode::Tcp) => {
                let why = "it has no address of its own to dial; leave --link out";
                return Err(TransportError::NoContact(why.into()).into());
            }
            (false, Some(command), address) => Endpoint::Starts { command, address },
            (false, None, Some(address)) => Endpoint::Connect(address),
            (false, None, None) => {
                return Err(TransportError::NoContact("it has no address".into()).into());
            }
        };
        let identity = Identity::of_key(key, self.side, &self.job, peer.fingerprint);
        let identity = identity.map_err(|error| unusable(&error))?;
        Ok(LinkOptions {
            endpoint,
            mode: self.mode,
            identity,
            others: Vec::new(),
            connect_timeout: self.connect_timeout,
        })
    }
}

fn unusable(error: &IdentityError) -> TransportError {
    TransportError::Identity(error.to_string())
}

fn missing(error: &io::Error) -> TransportError {
    TransportError::NoContact(error.to_string())
}
