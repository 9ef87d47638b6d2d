//! Bounds the connections of a port for probes and metrics, so that no client keeps others out.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// The most connections of one client at once. A network of 64 bits is one client in IPv6.
pub const MOST_OF_CLIENT: usize = 16;
/// The most connections of all clients at once.
pub const MOST_CLIENTS: usize = 128;

/// The connections that a port has, by client.
#[derive(Debug, Clone, Default)]
pub struct ClientBounds(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl ClientBounds {
    /// Admits a connection from that address, until the returned value is dropped; `None` if there are too many.
    pub fn admit(&self, from: IpAddr) -> Option<AdmittedClient> {
        let client = client(from);
        let mut present = self.0.lock();
        if present.values().sum::<usize>() >= MOST_CLIENTS {
            return None;
        }
        let own = present.entry(client).or_default();
        if *own >= MOST_OF_CLIENT {
            return None;
        }
        *own += 1;
        Some(AdmittedClient { bounds: self.clone(), client })
    }
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub struct AdmittedClient {
    bounds: ClientBounds,
    client: IpAddr,
}

impl Drop for AdmittedClient {
    fn drop(&mut self) {
        let mut present = self.bounds.0.lock();
        if let Some(own) = present.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                present.remove(&self.client);
            }
        }
    }
}

/// Returns what stands for a client: an address of IPv4, or the network of one of IPv6, which has any number of them.
fn client(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bounds: &ClientBounds, from: &str) -> Vec<AdmittedClient> {
        std::iter::from_fn(|| bounds.admit(from.parse().unwrap())).collect()
    }

    #[test]
    fn one_client_has_a_part_of_the_connections_and_gets_them_back() {
        let bounds = ClientBounds::default();
        let mut flood = all(&bounds, "10.0.0.1");
        assert_eq!(flood.len(), MOST_OF_CLIENT);
        assert!(bounds.admit("::ffff:10.0.0.1".parse().unwrap()).is_none(), "it is the same client");
        let probe = bounds.admit("10.0.0.2".parse().unwrap());
        assert!(probe.is_some());
        flood.pop();
        assert_eq!(all(&bounds, "10.0.0.1").len(), 1);
        drop((flood, probe));
        assert!(bounds.0.lock().is_empty(), "clients that are gone take no memory");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_all_together_have_a_bound() {
        let bounds = ClientBounds::default();
        let flood = all(&bounds, "2001:db8::1");
        assert!(bounds.admit("2001:db8::2".parse().unwrap()).is_none());
        let others: Vec<_> = (2..99).flat_map(|at| all(&bounds, &format!("10.0.0.{at}"))).collect();
        assert_eq!(flood.len() + others.len(), MOST_CLIENTS);
    }
}
