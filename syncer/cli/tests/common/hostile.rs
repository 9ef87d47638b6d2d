//! A peer that has the right key and breaks the protocol: a test chooses every byte that it sends.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use contract::{Identity, RunParams};
use quinn::{
    ConnectionError, Endpoint, IdleTimeout, RecvStream, SendStream, TransportConfig,
    crypto::rustls::QuicClientConfig,
};
use rustls::{
    DigitallySignedStruct, Error, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    sign::CertifiedKey,
};
use syncer::internals::{
    attrs::Attrs,
    codec::put_varint,
    entry::{Entry, Kind, Meta},
    hash::TreeDigest,
    kept_xattrs::Classes,
    listing::ListingBuilder,
    tree::dir::Totals,
    wire::{
        HEADER_BYTES, Header, Hello, Listed, MAX_MESSAGE_BYTES, Message, Needs, TreeHead, Welcome,
        begin_frame, code, end_frame, protocol_of, read_header, stamp_frame,
    },
};
use tokio::{runtime::Runtime, time::timeout};

use super::process::PATIENCE;

/// The connection of a hostile peer.
pub struct Hostile {
    runtime: Runtime,
    connection: quinn::Connection,
    send: SendStream,
    recv: RecvStream,
    endpoint: Endpoint,
}

impl Hostile {
    /// Connects to an end that listens, with the other end's key.
    pub fn dial(address: SocketAddr, key: &Path) -> Self {
        Self::try_dial(address, key, &protocol_of("job")).unwrap()
    }

    /// Connects in any protocol, with the other end's key.
    pub fn try_dial(address: SocketAddr, key: &Path, protocol: &[u8]) -> Result<Self, ConnectionError> {
        let identity: Identity = fs::read_to_string(key).unwrap().parse().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let connected: Result<_, ConnectionError> = runtime.block_on(async {
            let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let connecting = endpoint.connect_with(config(&identity, protocol), address, "any").unwrap();
            let connection = timeout(PATIENCE, connecting).await.expect("no answer")?;
            let (send, recv) = connection.open_bi().await?;
            Ok((endpoint, connection, send, recv))
        });
        let (endpoint, connection, send, recv) = connected?;
        Ok(Self { runtime, connection, send, recv, endpoint })
    }

    /// Sends bytes on the control stream. Returns false if the peer has gone or does not take them.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let send = &mut self.send;
        let written =
            self.runtime.block_on(async { timeout(Duration::from_secs(2), send.write_all(bytes)).await });
        matches!(written, Ok(Ok(())))
    }

    pub fn say(&mut self, message: &Message) -> bool {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.write(&frame)
    }

    /// Ends the control stream.
    pub fn finish(&mut self) {
        let _ = self.send.finish();
    }

    /// Returns the next message, or `None` if the peer has closed the stream.
    pub fn hear(&mut self) -> Option<Message> {
        let recv = &mut self.recv;
        let heard = async {
            let mut header = [0; HEADER_BYTES];
            recv.read_exact(&mut header).await.ok()?;
            let Header { kind, len, .. } = read_header(header, MAX_MESSAGE_BYTES).unwrap();
            let mut body = vec![0; len];
            recv.read_exact(&mut body).await.ok()?;
            Some(Message::decode(kind, &body).unwrap())
        };
        self.runtime.block_on(async { timeout(PATIENCE, heard).await.expect("the peer says nothing") })
    }

    /// Sends bytes on a new data stream and ends it. Returns false if the peer does not take them.
    pub fn data(&mut self, bytes: &[u8]) -> bool {
        self.runtime.block_on(async {
            let Ok(mut stream) = self.connection.open_uni().await else { return false };
            stream.write_all(bytes).await.is_ok() && stream.finish().is_ok()
        })
    }

    /// Opens as many data streams as the peer allows, each with these bytes.
    pub fn flood(&mut self, bytes: &[u8]) -> Vec<SendStream> {
        let mut streams = Vec::new();
        self.runtime.block_on(async {
            while let Some(Ok(mut stream)) = now(self.connection.open_uni()).await {
                stream.write_all(bytes).await.unwrap();
                streams.push(stream);
            }
        });
        streams
    }

    /// Sends the rest of a frame on each of these streams.
    pub fn go_on(&mut self, streams: Vec<SendStream>, rest: &[u8]) {
        self.runtime.block_on(async {
            for mut stream in streams {
                // The peer takes no more once the run is over.
                let _ = stream.write_all(rest).await;
                let _ = stream.finish();
            }
        });
    }

    /// Waits until the peer has closed the connection; returns its code, if it gave one.
    pub fn closed(self) -> Option<u64> {
        let closed = self.runtime.block_on(async { timeout(PATIENCE, self.connection.closed()).await });
        match closed.expect("the peer does not close") {
            ConnectionError::ApplicationClosed(close) => Some(close.error_code.into_inner()),
            _ => None,
        }
    }

    /// Closes the connection.
    pub fn close(self) {
        self.connection.close(code::DONE.into(), b"");
        self.runtime.block_on(async { timeout(PATIENCE, self.endpoint.wait_idle()).await }).unwrap();
    }

    /// Stops without closing the connection.
    pub fn vanish(self) {
        self.runtime.shutdown_background();
    }
}

/// Polls a future once; returns its value if it is ready.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

/// The hostile peer as a source.
impl Hostile {
    pub fn hello(&mut self) -> bool {
        self.say(&hello())
    }

    /// Begins a run with a tree whose root has these entries.
    pub fn offer(&mut self, entries: &[Entry<'_>]) {
        let pushed = [hello(), listed(0, 1, entries), tree()];
        let _ = pushed.iter().all(|message| self.say(message));
    }

    /// Waits until the peer requests files, and returns the request.
    pub fn need(&mut self) -> Needs {
        loop {
            match self.hear() {
                Some(Message::Need(needs)) => return needs,
                Some(Message::Welcome(_) | Message::Want(_) | Message::Forecast(_)) => {}
                Some(Message::SampleRequest(request)) => {
                    let files: usize = request.files.iter().map(|group| group.indices.len()).sum();
                    self.say(&Message::Samples(vec![Vec::new(); files]));
                }
                other => panic!("{} came", other.map_or("nothing", |message| message.what())),
            }
        }
    }

    /// Reports that all is sent, waits for the report, and closes the connection.
    pub fn done(&mut self) {
        self.say(&Message::SourceDone(Box::default()));
        while !matches!(self.hear(), None | Some(Message::Report(_))) {}
        self.connection.close(code::DONE.into(), b"");
    }
}

/// The hostile peer as a sink.
impl Hostile {
    /// Waits until the source has sent its whole tree.
    pub fn welcome(&mut self) {
        self.say(&Message::Welcome(Welcome { version: "0".into(), dry_run: false }));
        while !matches!(self.hear().expect("there is no tree"), Message::Tree(_)) {}
    }

    /// Requests something, and ends the run as if all had arrived.
    pub fn request(&mut self, request: &Message) {
        self.say(request);
        self.say(&Message::NeedsEnd);
        while !matches!(self.hear(), Some(Message::SourceDone(_)) | None) {}
        self.say(&Message::Report(Box::default()));
        while self.hear().is_some() {}
    }
}

/// Writes a file, and makes the folders above it.
pub fn put(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn hello() -> Message {
    hello_of(None)
}

pub fn hello_of(device: Option<u64>) -> Message {
    Message::Hello(Box::new(Hello {
        params: RunParams::default(),
        attrs: Classes::NONE,
        device,
        file: None,
        whereabouts: Default::default(),
        last: true,
    }))
}

/// Makes the message of a tree that consists of holes, so no run is refused for lack of space.
pub fn tree() -> Message {
    Message::Tree(Box::new(TreeHead {
        root_meta: Meta { mode: 0o755, ..Meta::default() },
        digest: TreeDigest { entries: [7; 16], ..TreeDigest::default() },
        totals: Totals { sparse: u64::MAX, ..Totals::default() },
        ..TreeHead::default()
    }))
}

pub fn entry<'a>(name: &'a [u8], kind: Kind<'a>) -> Entry<'a> {
    let mode = if kind == Kind::Dir { 0o755 } else { 0o644 };
    Entry { name, kind, meta: Meta { mode, ..Meta::default() }, attrs: Attrs::default() }
}

pub fn file(name: &str, size: u64) -> Entry<'_> {
    entry(name.as_bytes(), Kind::File { size })
}

pub fn dir(name: &str) -> Entry<'_> {
    entry(name.as_bytes(), Kind::Dir)
}

/// Makes a listing of any entries, without checks.
pub fn listed(dir: u32, first_child: u32, entries: &[Entry<'_>]) -> Message {
    let mut listing = ListingBuilder::default();
    entries.iter().for_each(|entry| listing.push(entry));
    let listing = listing.finish();
    let digest = TreeDigest { entries: [dir as u8; 16], ..TreeDigest::default() };
    Message::Listed(Listed {
        dir,
        first_child,
        children: vec![digest; listing.dirs() as usize],
        listing,
        rules: Box::default(),
    })
}

/// Makes a frame of this kind.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    begin_frame(&mut frame, kind);
    frame.extend_from_slice(body);
    end_frame(&mut frame, 0);
    frame
}

/// Stamps a frame with the number of another run.
pub fn of_run(run: u32, mut frame: Vec<u8>) -> Vec<u8> {
    stamp_frame(&mut frame, run);
    frame
}

/// Encodes numbers one after the other.
pub fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbers.iter().for_each(|number| put_varint(&mut bytes, *number));
    bytes
}

fn config(identity: &Identity, protocol: &[u8]) -> quinn::ClientConfig {
    let key = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(identity.pkcs8())).unwrap();
    let public = CertificateDer::from(key.public_key().unwrap().to_vec());
    let key = Arc::new(CertifiedKey::new(vec![public], key));
    let mut crypto = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyKey))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
    crypto.alpn_protocols = vec![protocol.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto).unwrap()));
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(IdleTimeout::try_from(PATIENCE).ok());
    transport.keep_alive_interval(Some(Duration::from_secs(1)));
    config.transport_config(Arc::new(transport));
    config
}

/// A verifier that accepts any certificate of the peer.
#[derive(Debug)]
struct AnyKey;

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("this is TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
