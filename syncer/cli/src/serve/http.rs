//! Answers `/metrics`, `/healthz` and `/readyz` on a port of its own.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use contract::client_bounds::ClientBounds;

use super::service_state::ServiceState;

/// The longest request line, and how long a client may take for it.
const MAX_LINE_BYTES: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(2);

const STACK_BYTES: usize = 256 << 10;

/// How long to wait when the system cannot accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts to answer on `address`, until the process ends. Returns the address with the real port.
pub(super) fn start(address: SocketAddr, state: Arc<ServiceState>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let bounds = ClientBounds::default();
    let serve = move || {
        for connection in listener.incoming() {
            let Ok(connection) = connection else {
                // For example without a free descriptor, which the next attempt will not have either.
                thread::sleep(PAUSE);
                continue;
            };
            let from = connection.peer_addr().map(|from| from.ip());
            let Some(admitted) = from.ok().and_then(|from| bounds.admit(from)) else { continue };
            // Each has a thread, so that a silent client holds up no probe.
            let state = Arc::clone(&state);
            let answer = move || {
                let _admitted = admitted;
                if let Err(error) = answer(connection, &state) {
                    tracing::debug!(%error, "a request for metrics failed");
                }
            };
            let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(answer);
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(serve)?;
    Ok(address)
}

fn answer(mut connection: TcpStream, state: &ServiceState) -> io::Result<()> {
    connection.set_write_timeout(Some(PATIENCE))?;
    let line = read_line(&mut connection)?;
    let (status, text) = match line.split(' ').nth(1) {
        Some("/metrics") => ("200 OK", state.counts.text(&state.queues(), state.rules().peers.len())),
        // The port listens before this one does.
        Some("/healthz" | "/readyz") => ("200 OK", "ok\n".into()),
        _ => ("404 Not Found", "there is /metrics, /healthz and /readyz\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    connection.write_all((head + &text).as_bytes())
}

/// Reads the first line of a request, for all of which a client has [`PATIENCE`].
fn read_line(connection: &mut TcpStream) -> io::Result<String> {
    let began = Instant::now();
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < MAX_LINE_BYTES {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        let mut part = [0; 512];
        match connection.read(&mut part)? {
            0 => break,
            len => line.extend_from_slice(&part[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&line).lines().next().unwrap_or_default().to_owned())
}
