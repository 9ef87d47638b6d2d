//! A way to the bucket of a test by TLS, with a certificate that no authority of the system has signed.

use std::{
    fs,
    io::{self, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::object_storage::{Bucket, read_head};

/// The certificate is of one server, and not of an authority.
const SETTINGS: &str = "[req]\ndistinguished_name = name\nx509_extensions = extensions\n[name]\n[extensions]\n\
                        subjectAltName = IP:127.0.0.1\n";

/// A server of TLS before a bucket.
pub struct SecureWay {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// The file with its certificate.
    pub certificate: PathBuf,
}

impl SecureWay {
    pub fn to(bucket: &Bucket) -> Self {
        let [settings, key, certificate] = ["tls.conf", "tls.key", "tls.crt"].map(|name| bucket.beside(name));
        fs::write(&settings, SETTINGS).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=bucket", "-config"])
            .args([settings.as_path(), "-keyout".as_ref(), &key, "-out".as_ref(), &certificate])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap());
        let (config, to) = (Arc::new(config.unwrap()), bucket.address());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                seen.fetch_add(1, SeqCst);
                let config = Arc::clone(&config);
                // A client that refuses the certificate ends only its own connection.
                thread::spawn(move || drop(carry(client, config, to)));
            }
        });
        Self { address, connections, certificate }
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Carries one request and its answer.
fn carry(client: TcpStream, config: Arc<ServerConfig>, to: SocketAddr) -> io::Result<()> {
    let tls = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut client = BufReader::new(StreamOwned::new(tls, client));
    let (request, head) = read_head(&mut client)?;
    let mut server = TcpStream::connect(to)?;
    server.write_all(head.as_bytes())?;
    io::copy(&mut (&mut client).take(request.len), &mut server)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    let client = client.get_mut();
    client.write_all(&answer)?;
    client.conn.send_close_notify();
    client.flush()
}
