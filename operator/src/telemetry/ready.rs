//! Asks a controller over the network whether it is ready, as `helm test` does.

use std::{io, process::ExitCode, time::Duration};

use clap::Args;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout_at},
};

/// The most bytes that are read of an answer.
const MAX_ANSWER_BYTES: u64 = 16 << 10;
/// The pause between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// The flags of `volferry-operator ready`.
#[derive(Debug, Args)]
pub struct ReadyArgs {
    /// Where the controller serves /readyz.
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// The time after which a controller that is not ready fails this.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

#[derive(Debug, Error)]
enum NotReady {
    #[error("{address} cannot be asked")]
    Connection { address: String, source: io::Error },
    #[error("{address} did not answer in time")]
    NoAnswer { address: String },
    #[error("{address} answers: {answer}")]
    Answer { address: String, answer: String },
}

/// Asks until the controller is ready, or the time is up.
pub async fn ready(args: &ReadyArgs) -> ExitCode {
    let end = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        let Err(error) = ask(&args.address, end).await else {
            println!("{} is ready", args.address);
            return ExitCode::SUCCESS;
        };
        if Instant::now() + PAUSE > end {
            eprintln!("error: {}", contract::chain(&error));
            eprintln!("hint: the operator's log says why; a NetworkPolicy may keep this pod from it");
            return ExitCode::FAILURE;
        }
        sleep(PAUSE).await;
    }
}

async fn ask(address: &str, end: Instant) -> Result<(), NotReady> {
    let answer = timeout_at(end, exchange(address)).await;
    let answer = answer
        .map_err(|_| NotReady::NoAnswer { address: address.into() })?
        .map_err(|source| NotReady::Connection { address: address.into(), source })?;
    let first = answer.lines().next().unwrap_or_default();
    if first.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body.trim());
    let answer = format!("{first} {body}").trim().escape_debug().to_string();
    Err(NotReady::Answer { address: address.into(), answer })
}

async fn exchange(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::probes::{self, Health};

    #[tokio::test]
    async fn a_controller_is_ready_when_it_says_so_and_its_answer_is_told_until_then() {
        let health = Arc::new(Health::default());
        let address =
            probes::serve("127.0.0.1:0".parse().unwrap(), health.clone()).await.unwrap().to_string();
        let end = Instant::now() + Duration::from_secs(60);
        let early = ask(&address, end).await.unwrap_err().to_string();
        assert!(early.contains("HTTP/1.1 503"), "{early}");
        health.set_ready();
        ask(&address, end).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_where_nobody_listens_is_named() {
        let args = ReadyArgs { address: "127.0.0.1:1".into(), timeout: 0 };
        let error = ask(&args.address, Instant::now() + Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(error.to_string(), "127.0.0.1:1 cannot be asked");
        assert_eq!(format!("{:?}", ready(&args).await), format!("{:?}", ExitCode::FAILURE));
    }
}
