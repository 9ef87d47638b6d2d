//! A `volferry serve` of a test, with its files, and the users of it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
};

use contract::{AuthorizedKey, OwnKey, PublicKey};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{
    ports,
    process::{Ended, Running, program},
    scratch, wait,
};

/// The files of a service.
pub struct Served {
    dir: TempDir,
    pub key: PublicKey,
    /// The address at which it listens.
    pub address: String,
    pub metrics: SocketAddr,
    process: Option<Running>,
}

/// A user of the service, with a key of its own.
pub struct ServiceUser {
    pub name: String,
    pub key: PublicKey,
    pub home: PathBuf,
}

impl Served {
    /// Makes the files of a service with these folders, as the tables of its configuration.
    pub fn prepare(folders: &str) -> Self {
        let dir = scratch::scratch();
        let key = OwnKey::generate().unwrap();
        key.write(&dir.path().join("service.key")).unwrap();
        let (address, metrics) = (ports::unused().to_string(), ports::unused());
        let served = Self { key: key.public(), dir, address, metrics, process: None };
        fs::write(served.path("authorized"), "").unwrap();
        served.configure(folders);
        served
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an empty folder.
    pub fn folder(&self, name: &str) -> PathBuf {
        scratch::dir(self.dir.path(), name)
    }

    /// Writes the configuration.
    pub fn configure(&self, folders: &str) {
        let text = format!("listen = \"{}\"\nmetrics = \"{}\"\n{folders}", self.address, self.metrics);
        fs::write(self.path("serve.toml"), text).unwrap();
    }

    /// Starts the service, at the same address if it was started before.
    pub fn start(&mut self) {
        self.start_by(Command::new(program()));
    }

    /// Starts the service by a command that takes the program's arguments.
    pub fn start_by(&mut self, mut command: Command) {
        let config = self.path("serve.toml");
        let text = fs::read_to_string(&config).unwrap();
        let (_, folders) = text.split_once("\n").unwrap();
        fs::write(&config, format!("listen = \"{}\"\n{folders}", self.address)).unwrap();
        command.arg("serve").arg(&config);
        let mut process = Running::start(command);
        self.address = process.listening().to_string();
        self.process = Some(process);
    }

    /// Tells the service to stop, and waits for its end.
    pub fn stop(&mut self) -> Ended {
        let process = self.process.take().unwrap();
        process.signal(Signal::TERM);
        process.wait()
    }

    /// Stops the service, and starts it at the same address.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    pub fn signal(&self, signal: Signal) {
        self.process.as_ref().unwrap().signal(signal);
    }

    /// Makes a user whom the service does not know.
    pub fn stranger(&self, name: &str) -> ServiceUser {
        let home = scratch::dir(self.dir.path(), &format!("home-{name}"));
        let key = OwnKey::generate().unwrap();
        key.write(&home.join("key")).unwrap();
        ServiceUser { name: name.into(), key: key.public(), home }
    }

    /// Makes a user whose key the service accepts.
    pub fn user(&self, name: &str) -> ServiceUser {
        let user = self.stranger(name);
        self.authorize(&user, "");
        user
    }

    /// Adds a line to the file of keys.
    pub fn authorize(&self, user: &ServiceUser, options: &str) {
        let line = AuthorizedKey {
            key: user.key,
            peer: user.name.clone(),
            read: Default::default(),
            write: Default::default(),
        };
        self.edit_keys(|text| format!("{text}{line} {options}\n"));
    }

    /// Changes the file of keys.
    pub fn edit_keys(&self, edit: impl FnOnce(String) -> String) {
        let path = self.path("authorized");
        let text = edit(fs::read_to_string(&path).unwrap());
        fs::write(self.path("authorized.new"), text).unwrap();
        fs::rename(self.path("authorized.new"), path).unwrap();
    }

    /// Returns the name of a folder, as a user writes it.
    pub fn place(&self, folder: &str) -> String {
        format!("{}::{folder}", self.address)
    }

    /// Starts `volferry sync` as a user.
    pub fn start_sync(&self, user: &ServiceUser, ends: [&str; 2], flags: &[&str]) -> Running {
        let mut command = Command::new(program());
        command.args(["sync", "--progress=json", "--service-key", &self.key.to_string()]);
        command.arg("--identity").arg(user.home.join("key"));
        command.args(ends).args(flags);
        Running::start(command)
    }

    /// Runs `volferry sync` as a user.
    pub fn sync(&self, user: &ServiceUser, ends: [&str; 2], flags: &[&str]) -> Ended {
        self.start_sync(user, ends, flags).wait()
    }

    /// Waits until the page of metrics has this line.
    #[track_caller]
    pub fn wait_for_metric(&self, line: &str) {
        let has_line = || self.metrics().lines().any(|found| found == line);
        wait::poll(has_line, || format!("no `{line}` in {}", self.metrics()));
    }

    fn metrics(&self) -> String {
        let mut connection = TcpStream::connect(self.metrics).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        connection.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        page
    }
}
