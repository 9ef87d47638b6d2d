//! The sockets of a listening end: UDP and TCP at one port.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
};

use crate::transport::TransportError;

/// How often another free port is tried whose number is taken for TCP.
const TRIES: usize = 16;

/// The carriers that an end offers or tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkMode {
    /// UDP, and a stream of bytes if nothing answers there: TCP, or the command that started the other end.
    #[default]
    Auto,
    /// UDP only.
    Udp,
    /// TCP only.
    Tcp,
    /// Only the command that started the other end.
    Ssh,
}

impl LinkMode {
    /// Returns whether UDP is offered or tried.
    pub(super) fn has_udp(self) -> bool {
        matches!(self, Self::Auto | Self::Udp)
    }

    /// Returns whether TCP is offered or tried.
    pub(super) fn has_tcp(self) -> bool {
        matches!(self, Self::Auto | Self::Tcp)
    }
}

/// Bound sockets of one address. Packets and connections wait in them until a port listens on them.
#[derive(Debug)]
pub struct Sockets {
    pub(super) udp: Option<UdpSocket>,
    pub(super) tcp: Option<TcpListener>,
    address: SocketAddr,
}

impl Sockets {
    /// Binds the sockets of a `mode` to `address`; port 0 takes any port that is free for all of them.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn bind(address: SocketAddr, mode: LinkMode) -> Result<Self, TransportError> {
        let mut left = if address.port() == 0 { TRIES } else { 1 };
        loop {
            left -= 1;
            match Self::bind_once(address, mode) {
                Err(Unbound { error, carrier: "TCP" })
                    if left > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(Unbound { error, carrier }) => {
                    let (address, error) = (address.to_string(), format!("{carrier}: {error}"));
                    return Err(TransportError::Address { address, error });
                }
                Ok(sockets) => return Ok(sockets),
            }
        }
    }

    fn bind_once(mut address: SocketAddr, mode: LinkMode) -> Result<Self, Unbound> {
        let of = |carrier| move |error| Unbound { carrier, error };
        let udp = mode.has_udp().then(|| UdpSocket::bind(address)).transpose().map_err(of("UDP"))?;
        if let Some(udp) = &udp {
            address = udp.local_addr().map_err(of("UDP"))?;
        }
        let tcp = mode.has_tcp().then(|| TcpListener::bind(address)).transpose().map_err(of("TCP"))?;
        if let Some(tcp) = &tcp {
            address = tcp.local_addr().map_err(of("TCP"))?;
        }
        Ok(Self { udp, tcp, address })
    }

    /// Takes sockets that another program has bound to one address.
    ///
    /// # Errors
    /// If there is none, or they have different ports.
    pub fn of_bound(udp: Option<UdpSocket>, tcp: Option<TcpListener>) -> io::Result<Self> {
        let of_udp = udp.as_ref().map(UdpSocket::local_addr).transpose()?;
        let of_tcp = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        match (of_udp, of_tcp) {
            (Some(udp), Some(tcp)) if udp.port() != tcp.port() => {
                Err(io::Error::other("the sockets for UDP and TCP have different ports"))
            }
            (Some(address), _) | (None, Some(address)) => Ok(Self { udp, tcp, address }),
            (None, None) => Err(io::Error::other("there is neither a socket for UDP nor one for TCP")),
        }
    }

    /// Returns the address with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns other handles of the same sockets.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let udp = self.udp.as_ref().map(UdpSocket::try_clone).transpose()?;
        let tcp = self.tcp.as_ref().map(TcpListener::try_clone).transpose()?;
        Ok(Self { udp, tcp, ..*self })
    }
}

/// Why a socket cannot be bound.
struct Unbound {
    carrier: &'static str,
    error: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sockets_have_one_port_and_only_those_of_the_mode_are_bound() {
        let any = || "127.0.0.1:0".parse().unwrap();
        let both = Sockets::bind(any(), LinkMode::Auto).unwrap();
        assert_eq!(both.udp.as_ref().unwrap().local_addr().unwrap(), both.address());
        assert_eq!(both.tcp.as_ref().unwrap().local_addr().unwrap(), both.address());
        let udp = Sockets::bind(any(), LinkMode::Udp).unwrap();
        assert!(udp.tcp.is_none() && udp.address().port() != 0);
        let tcp = Sockets::bind(any(), LinkMode::Tcp).unwrap();
        assert!(tcp.udp.is_none() && tcp.address().port() != 0);
    }

    #[test]
    fn a_port_that_is_taken_for_tcp_is_said_with_the_carrier() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap();
        let refused = Sockets::bind(taken, LinkMode::Auto).unwrap_err().to_string();
        assert!(refused.contains(&taken.to_string()) && refused.contains("TCP: "), "{refused}");
        assert!(Sockets::bind(taken, LinkMode::Udp).is_ok());
    }
}
