//! TLS 1.3 with raw public keys (RFC 7250): both ends show an Ed25519 key, and each accepts exactly one.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::SeqCst},
};

use contract::{Fingerprint, Identity, OwnKey, service_job};
use quinn::crypto::rustls::HandshakeData;
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, ResolvesClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature_with_raw_key,
    },
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        ClientHello, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::{
    transport::accepted_peers::Guests,
    wire::{PROTOCOL, QUEUE_SUFFIX, protocol_of, queue_protocol_of},
};

/// The bytes before the 32 bytes of the key in an Ed25519 SubjectPublicKeyInfo (RFC 8410).
const ED25519_SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The name that the dialling end requests; it has no effect.
pub(super) const SERVER_NAME: &str = "volferry";

/// Makes the configuration of the dialling end.
pub(super) fn client(identity: &Identity) -> Result<rustls::ClientConfig, Error> {
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned::new(vec![Guests::only(identity.peer())])))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own_key(
            identity.pkcs8(),
        )?)));
    let job = identity.job();
    config.alpn_protocols = vec![protocol_of(job), queue_protocol_of(job), PROTOCOL.to_vec()];
    // A session kept for the next connection would be a second way in.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Lets one of several attempts that dial at once prove this end, so that the peer never takes one for the link that
/// this end gives up for another.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// The number of the attempt that may; 0 for none yet.
    attempt: AtomicU8,
}

impl Proof {
    /// Returns a configuration that proves this end only if no other `attempt` has.
    pub(super) fn only_of_one(
        proof: &Arc<Self>,
        attempt: u8,
        mut config: rustls::ClientConfig,
    ) -> rustls::ClientConfig {
        let (proof, key) = (Arc::clone(proof), config.client_auth_cert_resolver);
        config.client_auth_cert_resolver = Arc::new(ProvesOnce { proof, attempt, key });
        config
    }

    /// Returns whether this attempt may prove this end.
    pub(super) fn is_of(&self, attempt: u8) -> bool {
        self.attempt.load(SeqCst) == attempt
    }

    /// Lets another attempt prove this end, because this one failed.
    pub(super) fn take_back(&self, attempt: u8) {
        let _ = self.attempt.compare_exchange(attempt, 0, SeqCst, SeqCst);
    }
}

/// Shows this end's key if its attempt is the first that is asked for it.
#[derive(Debug)]
struct ProvesOnce {
    proof: Arc<Proof>,
    attempt: u8,
    key: Arc<dyn ResolvesClientCert>,
}

impl ResolvesClientCert for ProvesOnce {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let taken = self.proof.attempt.compare_exchange(0, self.attempt, SeqCst, SeqCst);
        let may = taken.is_ok() || taken == Err(self.attempt);
        may.then(|| self.key.resolve(hints, schemes)).flatten()
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Makes the configuration of a listening end, which takes peers of its jobs for this `link_use`.
pub(super) fn server(hosts: &Hosts, link_use: LinkUse) -> Result<rustls::ServerConfig, Error> {
    let guests = hosts.0.iter().map(|host| host.guests.clone()).collect();
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(Pinned::new(guests)))
        .with_cert_resolver(Arc::new(hosts.clone()));
    let own = hosts.0.iter().map(|host| host.protocol(link_use));
    config.alpn_protocols = own.chain([PROTOCOL.to_vec()]).collect();
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The jobs of a listening end, of which a peer names one: for each, this end's key and the peers that it accepts.
#[derive(Debug, Clone)]
pub(crate) struct Hosts(Arc<[Host]>);

#[derive(Debug)]
struct Host {
    job: String,
    key: Arc<CertifiedKey>,
    guests: Guests,
}

impl Host {
    fn protocol(&self, link_use: LinkUse) -> Vec<u8> {
        match link_use {
            LinkUse::Runs => protocol_of(&self.job),
            LinkUse::Queue => queue_protocol_of(&self.job),
        }
    }
}

impl Hosts {
    /// Takes identities, each of which names a job and its one peer.
    pub(crate) fn of_identities<'a>(
        identities: impl IntoIterator<Item = &'a Identity>,
    ) -> Result<Self, Error> {
        let host = |identity: &Identity| {
            let (job, key) = (identity.job().into(), own_key(identity.pkcs8())?);
            Ok(Host { job, key, guests: Guests::only(identity.peer()) })
        };
        identities.into_iter().map(host).collect::<Result<_, _>>().map(Self)
    }

    /// Takes the keys of a service, each of which accepts the same guests.
    pub(crate) fn of_service(keys: &[OwnKey], guests: &Guests) -> Result<Self, Error> {
        let host = |key: &OwnKey| {
            let (job, guests) = (service_job(key.fingerprint()), guests.clone());
            Ok(Host { job, key: own_key(key.pkcs8())?, guests })
        };
        keys.iter().map(host).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether the peer of an established connection belongs to the job that it named.
    pub(super) fn admit(&self, connection: &quinn::Connection) -> bool {
        let protocol = agreed_protocol(connection).unwrap_or_default();
        let named = self.0.iter().find(|host| host.speaks(&protocol));
        named.zip(peer_of(connection)).is_some_and(|(host, peer)| host.guests.have(peer))
    }
}

impl Host {
    fn speaks(&self, protocol: &[u8]) -> bool {
        [LinkUse::Runs, LinkUse::Queue].iter().any(|link_use| self.protocol(*link_use) == protocol)
    }
}

/// Shows a peer the key of the job that it names. Another peer is turned away by any key.
impl ResolvesServerCert for Hosts {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut named = hello.alpn()?;
        let host = named.find_map(|name| self.0.iter().find(|host| host.speaks(name)));
        host.or(self.0.first()).map(|host| Arc::clone(&host.key))
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// Returns the fingerprint of the key that the peer has shown.
pub(super) fn peer_of(connection: &quinn::Connection) -> Option<Fingerprint> {
    let shown = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    shown.first().and_then(fingerprint_of)
}

fn fingerprint_of(shown: &CertificateDer<'_>) -> Option<Fingerprint> {
    let key = shown.strip_prefix(&ED25519_SPKI_PREFIX).filter(|key| key.len() == 32);
    key.map(Fingerprint::of)
}

/// The use of a connection between two ends of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkUse {
    /// Runs begin at once.
    Runs,
    /// The listening end is busy, and tells when runs begin.
    Queue,
}

/// Returns the use that both ends of an established connection agreed on; `None` if they belong to different jobs.
pub(super) fn use_of(connection: &quinn::Connection) -> Option<LinkUse> {
    let protocol = agreed_protocol(connection).filter(|protocol| protocol != PROTOCOL)?;
    Some(if protocol.ends_with(QUEUE_SUFFIX) { LinkUse::Queue } else { LinkUse::Runs })
}

fn agreed_protocol(connection: &quinn::Connection) -> Option<Vec<u8>> {
    connection.handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
}

/// Returns the cryptography provider, with AES-128 before AES-256, which takes 14 rounds a block instead of 10.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = provider::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn own_key(pkcs8: &[u8]) -> Result<Arc<CertifiedKey>, Error> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8));
    let key = provider::sign::any_eddsa_type(match &der {
        PrivateKeyDer::Pkcs8(pkcs8) => pkcs8,
        _ => return Err(Error::General("the private key is not PKCS #8".into())),
    })?;
    let spki = key.public_key().ok_or_else(|| Error::General("the private key has no public half".into()))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], key)))
}

/// Accepts the keys of these peers.
#[derive(Debug)]
struct Pinned {
    peers: Vec<Guests>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(peers: Vec<Guests>) -> Self {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        Self { peers, algorithms }
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match fingerprint_of(shown).filter(|shown| self.peers.iter().any(|peers| peers.have(*shown))) {
            Some(_) => Ok(()),
            None => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }
}

/// Gives both verifiers the same checks of signatures: in TLS 1.3 only, by raw Ed25519 keys.
macro_rules! signatures_of_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let spki = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &spki, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    signatures_of_raw_keys!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    signatures_of_raw_keys!();
}

#[cfg(test)]
mod tests {
    use contract::IdentityPair;

    use super::*;

    #[test]
    fn one_attempt_at_a_time_shows_the_key() {
        let identity = IdentityPair::generate("job").unwrap().source;
        let proof = Arc::<Proof>::default();
        let attempt = |number| Proof::only_of_one(&proof, number, client(&identity).unwrap());
        let shows =
            |config: &rustls::ClientConfig| config.client_auth_cert_resolver.resolve(&[], &[]).is_some();
        let (first, second) = (attempt(1), attempt(2));
        assert!(shows(&second) && !shows(&first) && shows(&second));
        proof.take_back(1);
        assert!(!shows(&first), "it had nothing to give back");
        proof.take_back(2);
        assert!(shows(&first) && !shows(&second));
    }
}
