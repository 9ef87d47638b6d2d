//! The link of an end that another machine started.

use std::{
    fs::File,
    io,
    net::{IpAddr, SocketAddr},
};

use contract::Contact;
use syncer::{
    monitor::Monitor,
    session::{Exchange, LinkOptions, SessionError},
};

use super::greeting::{self, Answer};

/// The link to the end that started this one.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) exchange: Exchange,
    /// Where to answer.
    pub(crate) to: File,
    /// The other end's contact.
    pub(crate) contact: Contact,
    /// The address of this machine that the other end reached by ssh.
    pub(crate) own_ip: Option<IpAddr>,
}

impl Started {
    /// Answers the other end, and returns the way to meet it.
    pub(crate) fn link(self, monitor: &Monitor) -> Result<LinkOptions, SessionError> {
        let Self { exchange, mut to, contact, own_ip } = self;
        let answer = |own: Contact| {
            let port = own.address.and_then(|address| Some(address.parse::<SocketAddr>().ok()?.port()));
            let address = own_ip.zip(port).map(|at| SocketAddr::from(at).to_string());
            let contact = Contact { address, ..own };
            greeting::say(
                &mut to,
                &Answer { version: env!("CARGO_PKG_VERSION").into(), contact: Some(contact) },
            )
        };
        exchange.link(answer, move || io::Result::Ok(contact), monitor)
    }
}
