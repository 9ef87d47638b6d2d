//! An S3 server of a test, with a bucket, and a proxy before it that fails as it is told.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use parking_lot::{Condvar, Mutex};
use testkit::s3_server::{ACCESS_KEY, S3Server, SECRET_KEY};

use super::scratch;

/// A bucket that is empty at first.
pub struct Bucket {
    server: S3Server,
    proxy: SocketAddr,
    shared: Arc<Shared>,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It passes.
    None,
    /// It is answered by 503 `SlowDown`.
    SlowDown,
    /// It is answered by 403 and this code.
    Refuse(&'static str),
    /// It passes when [`Bucket::release`] is called.
    Hold,
    /// Its body is cut off after so many bytes.
    CutRequest(u64),
    /// The server does it, and its answer is cut off after so many bytes.
    CutAnswer(u64),
    /// The server does it, and in the body of its answer a bit is another one: that at so many thousandths of it.
    FlipAnswer(usize),
    /// It passes, and replaces what is there, as on a server that ignores conditions.
    Overwrite,
    /// It is answered by these bytes.
    Answer(&'static str),
}

/// A request, by its head.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub is_conditional: bool,
    /// Whether it asks for a part of an object.
    pub is_range: bool,
    pub len: u64,
}

type Decide = dyn FnMut(&Request) -> Fault + Send;

struct Shared {
    server: SocketAddr,
    /// The folder that has the server's buckets.
    root: PathBuf,
    decide: Mutex<Box<Decide>>,
    seen: Mutex<Vec<Request>>,
    /// Conditional puts pass one by one: this server looks first and writes then.
    conditional: Mutex<()>,
    /// Whether held requests may pass.
    is_released: Mutex<bool>,
    released: Condvar,
    stop: AtomicBool,
}

impl Bucket {
    pub fn new() -> Self {
        let server = S3Server::start(scratch::scratch(), "snapshots");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: server.address(),
            root: server.path(".."),
            decide: Mutex::new(Box::new(|_| Fault::None)),
            seen: Mutex::default(),
            conditional: Mutex::default(),
            is_released: Mutex::default(),
            released: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { server, proxy, shared }
    }

    /// Lets `decide` choose what becomes of each request from now on.
    pub fn fail(&self, decide: impl FnMut(&Request) -> Fault + Send + 'static) {
        *self.shared.decide.lock() = Box::new(decide);
    }

    /// Lets held requests pass, also those that are still to come.
    pub fn release(&self) {
        *self.shared.is_released.lock() = true;
        self.shared.released.notify_all();
    }

    /// Returns the requests since the last call.
    pub fn seen(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.seen.lock())
    }

    /// Sets the environment by which a command reaches the bucket.
    pub fn set(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.proxy))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }

    /// Returns the address by which a command reaches the bucket.
    pub fn address(&self) -> SocketAddr {
        self.proxy
    }

    /// Returns a path in the bucket, which the server keeps as a folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.server.path(name)
    }

    /// Returns a path beside the bucket, for keys.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.server.dir().join(name)
    }

    /// Returns the lengths of all objects below a prefix, by their names.
    pub fn objects(&self, prefix: &str) -> BTreeMap<String, u64> {
        let (mut found, root) = (BTreeMap::new(), self.path(prefix));
        files_below(&root, &mut |path| {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            found.insert(name, path.metadata().unwrap().len());
        });
        found
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.release();
        let _ = TcpStream::connect(self.proxy);
    }
}

fn files_below(dir: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, visit) } else { visit(&path) }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().map_while(Result::ok) {
            if self.stop.load(SeqCst) {
                return;
            }
            let shared = Arc::clone(self);
            // A client that leaves early ends only its own connection.
            thread::spawn(move || drop(shared.carry(&client)));
        }
    }

    /// Carries one request and its answer; each has a connection of its own.
    fn carry(&self, mut client: &TcpStream) -> io::Result<()> {
        let mut from_client = BufReader::new(client);
        let (request, head) = read_head(&mut from_client)?;
        self.seen.lock().push(request.clone());
        let fault = (self.decide.lock())(&request);
        let refusal = match fault {
            Fault::SlowDown => Some(("503 Slow Down", "SlowDown")),
            Fault::Refuse(code) => Some(("403 Forbidden", code)),
            _ => None,
        };
        if let Some((status, code)) = refusal {
            io::copy(&mut from_client.take(request.len), &mut io::sink())?;
            let body = format!("<Error><Code>{code}</Code></Error>");
            let len = body.len();
            write!(client, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")?;
            return client.shutdown(Shutdown::Write);
        }
        if let Fault::Answer(bytes) = fault {
            io::copy(&mut from_client.take(request.len), &mut io::sink())?;
            client.write_all(bytes.as_bytes())?;
            return client.shutdown(Shutdown::Write);
        }
        if fault == Fault::Hold {
            let mut is_released = self.is_released.lock();
            self.released.wait_while(&mut is_released, |is_released| !*is_released);
        }
        let _one_by_one = request.is_conditional.then(|| self.conditional.lock());
        if fault == Fault::Overwrite {
            // The condition is signed, and cannot be left out: it is made true instead.
            let _ = fs::remove_file(self.root.join(request.path.trim_start_matches('/')));
        }
        let mut server = TcpStream::connect(self.server)?;
        server.write_all(head.as_bytes())?;
        let body = match fault {
            Fault::CutRequest(bytes) => request.len.min(bytes),
            _ => request.len,
        };
        let sent = io::copy(&mut (&mut from_client).take(body), &mut server)?;
        // Without the rest, which a client that was killed does not send, the server waits for it.
        if sent < request.len {
            return Ok(());
        }
        let answer = match fault {
            Fault::CutAnswer(bytes) => bytes,
            _ => u64::MAX,
        };
        let mut answered = Vec::new();
        server.read_to_end(&mut answered)?;
        if let Fault::FlipAnswer(thousandths) = fault {
            flip_in_body(&mut answered, thousandths);
        }
        let passed = answered.len().min(usize::try_from(answer).unwrap_or(usize::MAX));
        client.write_all(&answered[..passed])?;
        client.shutdown(Shutdown::Write)
    }
}

/// Changes a bit of the body of an answer, if it has one.
fn flip_in_body(answered: &mut [u8], thousandths: usize) {
    const BLANK: &[u8] = b"\r\n\r\n";
    let head = answered.windows(BLANK.len()).position(|some| some == BLANK).map(|at| at + BLANK.len());
    let body = &mut answered[head.unwrap_or_default()..];
    let at = body.len() * thousandths / 1000;
    if let Some(byte) = body.get_mut(at) {
        *byte ^= 1 << (thousandths % 8);
    }
}

/// Reads the head of a request, and returns it as it is passed on.
pub fn read_head(from: &mut impl io::BufRead) -> io::Result<(Request, String)> {
    let mut first = String::new();
    from.read_line(&mut first)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut request = Request { method, path, is_conditional: false, is_range: false, len: 0 };
    let mut head = first;
    for line in from.lines() {
        let line = line?;
        if line.is_empty() {
            head.push_str("connection: close\r\n\r\n");
            return Ok((request, head));
        }
        let lower = line.to_ascii_lowercase();
        request.is_range |= lower.starts_with("range:");
        request.is_conditional |= lower.starts_with("if-none-match:");
        if let Some(len) = lower.strip_prefix("content-length:") {
            request.len = len.trim().parse().unwrap_or(0);
        }
        if !lower.starts_with("connection:") {
            head.push_str(&line);
            head.push_str("\r\n");
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
