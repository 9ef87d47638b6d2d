//! TLS 1.3 with raw public keys (RFC 7250): both ends show an Ed25519 key, and each accepts exactly one.

use std::sync::Arc;

use contract::{Fingerprint, Identity};
use quinn::crypto::rustls::HandshakeData;
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature_with_raw_key,
    },
    pki_types::{
        CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{
        AlwaysResolvesServerRawPublicKeys,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use crate::wire::{PROTOCOL, protocol_of};

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
        .with_custom_certificate_verifier(Arc::new(Pinned::new(identity)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own_key(identity)?)));
    config.alpn_protocols = protocols(identity);
    // A session kept for the next connection would be a second way in.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Makes the configuration of the listening end.
pub(super) fn server(identity: &Identity) -> Result<rustls::ServerConfig, Error> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(Pinned::new(identity)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own_key(identity)?)));
    config.alpn_protocols = protocols(identity);
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Lists the protocol of the own job first. The other name distinguishes an end of another job from one of another
/// version.
fn protocols(identity: &Identity) -> Vec<Vec<u8>> {
    vec![protocol_of(identity.job()), PROTOCOL.to_vec()]
}

/// Returns whether both ends of an established connection belong to one job.
pub(super) fn is_of_one_job(connection: &quinn::Connection) -> bool {
    let data = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    data.and_then(|data| data.protocol).is_some_and(|protocol| protocol != PROTOCOL)
}

/// Returns the cryptography provider, with AES-128 before AES-256, which takes 14 rounds a block instead of 10.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = provider::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn own_key(identity: &Identity) -> Result<Arc<CertifiedKey>, Error> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.pkcs8()));
    let key = provider::sign::any_eddsa_type(match &der {
        PrivateKeyDer::Pkcs8(pkcs8) => pkcs8,
        _ => return Err(Error::General("the private key is not PKCS #8".into())),
    })?;
    let spki = key.public_key().ok_or_else(|| Error::General("the private key has no public half".into()))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], key)))
}

/// Accepts the one key whose fingerprint the identity file names.
#[derive(Debug)]
struct Pinned {
    peer: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(identity: &Identity) -> Self {
        Self {
            peer: identity.peer(),
            algorithms: provider::default_provider().signature_verification_algorithms,
        }
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let key = shown.strip_prefix(&ED25519_SPKI_PREFIX).filter(|key| key.len() == 32);
        match key.map(Fingerprint::of) {
            Some(shown) if shown == self.peer => Ok(()),
            _ => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
    }
}

const NO_TLS12: Error = Error::PeerIncompatible(rustls::PeerIncompatible::Tls12NotOffered);

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

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
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

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
