//! The rules on SyncEndpoints, and on what reaches one.

use super::rule::{Rule, quoting, rule};

/// Limits the combinations of the fields of an endpoint.
pub(crate) fn sync_endpoint() -> [Rule; 2] {
    [
        rule(
            "self.access == 'Write' || !has(self.snapshots)",
            "snapshots are taken after a run that writes: remove them, or write access: Write",
        ),
        rule(
            "self.access == 'Write' || !has(self.demands) || !(has(self.demands.deleteLimit) || has(self.demands.noDelete))",
            "demands.deleteLimit and noDelete are about runs that write: remove them, or write access: Write",
        ),
    ]
}

/// Limits the combinations of the fields of an endpoint's Service.
pub(crate) fn endpoint_service() -> [Rule; 3] {
    [
        rule(
            "!has(self.nodePort) || self.type != 'ClusterIP'",
            "service.nodePort goes with type: NodePort or LoadBalancer; remove it, or set one of these",
        ),
        rule(
            "!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",
            "service.loadBalancerClass goes with type: LoadBalancer; remove it, or set that",
        ),
        rule(
            "self.protocols.size() < 2 || self.protocols[0] != self.protocols[1]",
            "service.protocols names a protocol twice: write UDP, TCP or both",
        ),
    ]
}

/// Lets the number of a key grow by one at a time.
pub(crate) fn key_version() -> [Rule; 1] {
    [rule(
        "self == oldSelf || self == oldSelf + 1",
        "keyVersion grows by one at a time: after a leap, or a step back, peers that know the present key would be \
         turned away",
    )]
}

/// Requires the name of a peer.
pub(crate) fn peer_name() -> [Rule; 1] {
    quoting(
        "self.matches(r'^[A-Za-z0-9_][A-Za-z0-9._@-]*$')".into(),
        "is no name of a peer: write letters, digits and characters of ._@-, and none of .@- first",
    )
}

/// Requires the public half of a key.
pub(crate) fn public_key() -> [Rule; 1] {
    quoting(
        "self.matches(r'^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$')".into(),
        "is no public key: write the 44 characters that volferry enroll prints, or that a status has as publicKey",
    )
}

/// Requires the name or the address of a machine, without a port.
pub(crate) fn host_name() -> [Rule; 1] {
    quoting(
        "isIP(self) || self.matches(r'^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$')"
            .into(),
        "is neither the name nor the address of a machine: write one without a port",
    )
}
