//! The process in the pod.

use std::{
    ffi::OsString,
    io::{self, Read as _, Write as _},
    process::{ExitCode, Stdio},
    thread,
};

use clap::Args;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Command,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::frames::{MAX_PIECE_BYTES, end, output};

/// What the pod runs once its user is attached.
#[derive(Debug, Clone, Args)]
pub struct AnswerArgs {
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Waits for a byte on standard input, runs the command, and sends its output in frames on standard output. Ends when
/// the user leaves, before or after the command has ended.
pub async fn run(args: &AnswerArgs) -> ExitCode {
    match answer(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn answer(args: &AnswerArgs) -> io::Result<()> {
    let mut user = watch_user()?;
    if user.recv().await.is_none() {
        return Err(io::Error::other("nobody is attached"));
    }
    let [program, rest @ ..] = &args.command[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(from) = child.stdout.take() {
        tokio::select! {
            sent = send_all(from) => sent?,
            () = gone(&mut user) => return Err(io::Error::other("the user has left")),
        }
    }
    let status = child.wait().await?.code().and_then(|code| u8::try_from(code).ok());
    say(&end(status.unwrap_or(1)))?;
    gone(&mut user).await;
    Ok(())
}

/// Reads standard input on a thread of its own, which a process that ends does not wait for. The channel closes when
/// the input ends.
fn watch_user() -> io::Result<UnboundedReceiver<()>> {
    let (tell, told) = unbounded_channel();
    let watch = move || {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1)) && tell.send(()).is_ok() {}
    };
    thread::Builder::new().name("user".into()).spawn(watch)?;
    Ok(told)
}

/// Waits until the user has left.
async fn gone(user: &mut UnboundedReceiver<()>) {
    while user.recv().await.is_some() {}
}

async fn send_all(mut from: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; MAX_PIECE_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            len => say(&output(&buffer[..len]))?,
        }
    }
}

fn say(bytes: &[u8]) -> io::Result<()> {
    let mut to = io::stdout().lock();
    to.write_all(bytes)?;
    to.flush()
}
