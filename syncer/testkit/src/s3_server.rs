//! A real S3 server of a test, with a bucket that is empty at first.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{ports, process::KilledOnDrop, wait};

pub const ACCESS_KEY: &str = "tester";
pub const SECRET_KEY: &str = "a secret of the tests";

/// A server that listens, with the folder in which it keeps its bucket.
#[derive(Debug)]
pub struct S3Server {
    // Ends before its folder is removed.
    _server: KilledOnDrop,
    dir: TempDir,
    bucket: String,
    address: SocketAddr,
}

impl S3Server {
    /// Starts a server with an empty bucket of that name, which it keeps in `dir`.
    pub fn start(dir: TempDir, bucket: &str) -> Self {
        Self::start_at(dir, bucket, Ipv4Addr::LOCALHOST.into())
    }

    /// Starts a server that other machines reach at that address of this one.
    pub fn start_at(dir: TempDir, bucket: &str, host: IpAddr) -> Self {
        let root = dir.path().join("root");
        fs::create_dir_all(root.join(bucket)).unwrap();
        let address = SocketAddr::new(host, ports::unused().port());
        let server = Command::new(program())
            .args(["--host", &host.to_string(), "--port", &address.port().to_string()])
            .args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY])
            .arg(root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("s3s-fs: {error}: run .ci/tools test"));
        let server = Self { _server: KilledOnDrop(server), dir, bucket: bucket.into(), address };
        wait::poll(|| TcpStream::connect(address).is_ok(), || "the S3 server does not listen".into());
        server
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a folder for what belongs to the test, beside those of the server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a path in the bucket, which the server keeps as a folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(&self.bucket).join(name)
    }
}

/// Returns the server, which `.ci/tools test` builds into the cache if the machine has none.
fn program() -> PathBuf {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let built = cache.map(|cache| cache.join("volferry/tools/bin/s3s-fs")).filter(|it| it.is_file());
    built.unwrap_or_else(|| "s3s-fs".into())
}
