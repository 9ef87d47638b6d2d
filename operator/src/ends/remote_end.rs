//! The end of a job that another cluster or machine serves. Pure.

use std::fmt;

use contract::{PublicKey, is_name};

use crate::{
    api::{RemoteEndpoint, RunFolder},
    spec::{
        fields::{ValidationError, invalid},
        inner_folder::InnerFolder,
    },
};

/// The port of a service, unless another one is named.
const SERVICE_PORT: u16 = 7400;

/// A folder that another cluster or machine serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEnd {
    /// `HOST:PORT::FOLDER`, in the one form in which addresses can be compared.
    pub address: String,
    /// The path below that folder.
    pub below: InnerFolder,
    /// The key that the other side has to show.
    pub public_key: PublicKey,
    /// The Secret with the key to show there; `None` for the job's own.
    pub identity: Option<String>,
}

impl fmt::Display for RemoteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)?;
        if self.below.as_str() == "/" { Ok(()) } else { f.write_str(self.below.as_str()) }
    }
}

impl RemoteEnd {
    /// Returns the folder as runs and statuses record it.
    pub fn run_folder(&self) -> RunFolder {
        let (address, path) = (Some(self.address.clone()), self.below.as_str().into());
        RunFolder { address, path, ..RunFolder::default() }
    }

    /// Parses the endpoint that a spec names in `field`.
    ///
    /// # Errors
    /// The address or the key cannot be read.
    pub fn parse(field: &str, endpoint: &RemoteEndpoint) -> Result<Self, ValidationError> {
        let typed = &endpoint.address;
        let (address, below) = split(typed).ok_or_else(|| {
            let problem = format!("`{typed}` is no address of an endpoint; write HOST:PORT::FOLDER");
            invalid(format!("{field}.endpoint.address"), problem)
        })?;
        let key = endpoint.public_key.parse::<PublicKey>();
        let public_key =
            key.map_err(|error| invalid(format!("{field}.endpoint.publicKey"), format!("{error}")))?;
        let identity = endpoint.identity.as_ref().map(|identity| identity.secret_name.clone());
        Ok(Self { address, below, public_key, identity })
    }
}

/// Splits `HOST[:PORT]::FOLDER[/PATH]` into `HOST:PORT::FOLDER` and `/PATH`.
fn split(typed: &str) -> Option<(String, InnerFolder)> {
    // The two colons of an IPv6 address are in brackets.
    let from = if typed.starts_with('[') { typed.find(']')? } else { 0 };
    let at = from + typed[from..].find("::")?;
    let (place, folder) = (&typed[..at], &typed[at + 2..]);
    let (host, port) = match place[from..].rsplit_once(':') {
        Some((_, port)) => (&place[..place.len() - port.len() - 1], port.parse().ok().filter(|it| *it > 0)?),
        None => (place, SERVICE_PORT),
    };
    let (folder, below) = match folder.find('/') {
        Some(slash) if folder.len() == slash + 1 => return None,
        Some(slash) => (&folder[..slash], &folder[slash..]),
        None => (folder, "/"),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    let is_named = host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(is_host);
    let is_address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_address = is_address.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
    let below = InnerFolder::new(below).filter(|_| (is_named || is_address) && is_name(folder))?;
    Some((format!("{}:{port}::{folder}", host.to_ascii_lowercase()), below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";

    fn parsed(address: &str, public_key: &str) -> Result<RemoteEnd, ValidationError> {
        let endpoint =
            RemoteEndpoint { address: address.into(), public_key: public_key.into(), identity: None };
        RemoteEnd::parse("destination", &endpoint)
    }

    #[test]
    fn an_address_is_what_a_syncendpoint_says_and_the_command_line_takes() {
        for (typed, address, below) in [
            ("copy.example.org::web", "copy.example.org:7400::web", "/"),
            ("Copy.Example.org:31000::web/up loads/x", "copy.example.org:31000::web", "/up loads/x"),
            ("10.0.0.9:1::a.b", "10.0.0.9:1::a.b", "/"),
            ("[fd00::7]::web", "[fd00::7]:7400::web", "/"),
            ("[fd00::7]:9::web/x", "[fd00::7]:9::web", "/x"),
        ] {
            let folder = parsed(typed, KEY).unwrap();
            assert_eq!((folder.address.as_str(), folder.below.as_str()), (address, below), "{typed}");
        }
        assert_eq!(parsed("h::web/x", KEY).unwrap().to_string(), "h:7400::web/x");
        assert_eq!(parsed("h::web", KEY).unwrap().to_string(), "h:7400::web");
    }

    #[test]
    fn what_leads_to_no_folder_of_a_service_is_named() {
        for typed in [
            "",
            "web",
            "h:web",
            "h:/web",
            "h::",
            "::web",
            "h:0::web",
            "h:99999::web",
            "-h::web",
            "me@h::web",
            "h::web/",
            "h::web/../x",
            "h::../x",
            "fd00::7::web",
            "[x]::web",
            "[fd00::7",
            "h::web/.volferry",
        ] {
            let said = parsed(typed, KEY).map(|it| it.to_string()).unwrap_err().to_string();
            assert!(said.starts_with("spec.destination.endpoint.address: "), "{typed}: {said}");
        }
        let said = parsed("h::web", "x").unwrap_err().to_string();
        assert!(said.starts_with("spec.destination.endpoint.publicKey: "), "{said}");
    }
}
