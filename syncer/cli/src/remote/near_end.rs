//! The end of a run that the user started: starts the far end, and meets it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    sync::{Arc, mpsc},
    time::Duration,
};

use contract::{Contact, Side};
use parking_lot::Mutex;
use syncer::{
    monitor::Monitor,
    session::{Exchange, LinkMode, LinkOptions, Meets},
};

use super::{
    bootstrap::{CopyError, ProgramCopy},
    ciphers,
    greeting::{self, Answer, GreetingError, Request},
    place::RemotePlace,
    ssh::{AnswerWatch, Heard, Pipes, Ssh},
    why_ssh_failed::{RemoteError, explain},
};
use crate::screen::Screen;

/// The name of the job. Both keys are made for one run, so it distinguishes nothing.
pub(crate) const JOB: &str = "volferry sync over ssh";

/// The far end of a run, as the command line names it.
#[derive(Debug)]
pub(crate) struct FarEnd {
    pub(crate) place: RemotePlace,
    /// The words of the command that leads there.
    pub(crate) rsh: Vec<OsString>,
    /// The program there, as its shell reads it.
    pub(crate) program: String,
    /// Whether this program is copied there instead.
    pub(crate) bootstrap: bool,
    pub(crate) mode: LinkMode,
    /// The end that this process is.
    pub(crate) side: Side,
    /// The command and flags of the far end.
    pub(crate) args: Vec<String>,
    /// The paths that the run is limited to.
    pub(crate) paths: Option<Vec<Vec<u8>>>,
    /// The longest time for the far end to answer over ssh; without one, as long as ssh tries.
    pub(crate) answer_timeout: Option<Duration>,
    /// The longest time to wait for the link, once the far end runs.
    pub(crate) connect_timeout: Duration,
}

/// A link to a far end, and the process that leads there.
pub(crate) struct StartedLink {
    pub(crate) link: LinkOptions,
    pub(crate) ssh: Ssh,
}

/// The stream of a far end, and the process that leads there.
pub(crate) struct StartedStream {
    pub(crate) pipes: Pipes,
    pub(crate) ssh: Ssh,
}

impl FarEnd {
    /// Starts the far end, and exchanges keys with it. The run goes over the link; the process has to outlive it.
    pub(crate) fn start(self, screen: &Arc<Screen>, monitor: &Monitor) -> Result<StartedLink, RemoteError> {
        let (host, copy) = (self.host(), self.copy()?);
        let ssh = self.open(copy.as_ref(), screen)?;
        let not_started = |source| self.not_started(source);
        let (files, stream) = (ssh.files().map_err(not_started)?, ssh.stream().map_err(not_started)?);
        let watch = self.watch(&ssh)?;
        let exchange = Exchange {
            side: self.side,
            job: JOB.into(),
            meets: Meets::Starting(stream),
            mode: self.mode,
            connect_timeout: self.connect_timeout,
        };
        let (tell, told) = mpsc::channel();
        let failure = Arc::<Mutex<Option<CopyError>>>::default();
        let talk = Talk { request: self.request_of(), paths: self.paths, copy, watch };
        let kept = Arc::clone(&failure);
        let hear = move || {
            let own = told.recv().map_err(io::Error::other)?;
            let answered = talk.hold(files, Some(own)).and_then(|answered| {
                answered.ok_or_else(|| GreetingError::Malformed("an answer without a contact".into()).into())
            });
            answered.map_err(|error| {
                *kept.lock() = Some(error);
                io::ErrorKind::Other.into()
            })
        };
        let met = exchange.link(|own| tell.send(own).map_err(io::Error::other), hear, monitor);
        match (met, failure.lock().take()) {
            (Ok(link), _) => Ok(StartedLink { link, ssh }),
            (Err(_), Some(error)) if !monitor.cancelled() => {
                Err(explain(host, self.program, self.answer_timeout, error, ssh))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Starts the far end for a request whose answers cross the stream as they are. The process has to outlive it.
    pub(crate) fn start_stream(self, screen: &Arc<Screen>) -> Result<StartedStream, RemoteError> {
        let copy = self.copy()?;
        let ssh = self.open(copy.as_ref(), screen)?;
        let not_started = |source| self.not_started(source);
        let (files, pipes) = (ssh.files().map_err(not_started)?, ssh.files().map_err(not_started)?);
        let talk = Talk { request: self.request_of(), paths: None, copy, watch: self.watch(&ssh)? };
        match talk.hold(files, None) {
            Ok(_) => Ok(StartedStream { pipes, ssh }),
            Err(error) => Err(explain(self.host(), self.program, self.answer_timeout, error, ssh)),
        }
    }

    fn watch(&self, ssh: &Ssh) -> Result<Option<AnswerWatch>, RemoteError> {
        let watch = self.answer_timeout.map(|within| ssh.expect_answer(within)).transpose();
        watch.map_err(|source| self.not_started(source))
    }

    /// Returns the name of the machine, as ssh takes it.
    pub(crate) fn host(&self) -> String {
        self.place.host.to_string_lossy().into_owned()
    }

    fn not_started(&self, source: io::Error) -> RemoteError {
        let program = self.rsh.first().map(|word| word.to_string_lossy().into_owned());
        RemoteError::Start { program: program.unwrap_or_default(), source }
    }

    /// Reads this program if it has to be copied to the far end.
    fn copy(&self) -> Result<Option<ProgramCopy>, RemoteError> {
        let copy = self.bootstrap.then(ProgramCopy::of_this_program).transpose();
        copy.map_err(|source| RemoteError::Copy { host: self.host(), source })
    }

    /// Starts the process that leads to the far end.
    fn open(&self, copy: Option<&ProgramCopy>, screen: &Arc<Screen>) -> Result<Ssh, RemoteError> {
        let own = || OsString::from(format!("{} remote", self.program));
        let command = copy.map_or_else(own, ProgramCopy::command);
        let mut rsh = self.rsh.clone();
        if matches!(self.mode, LinkMode::Auto | LinkMode::Ssh) {
            rsh.extend(ciphers::preference(&rsh, &self.place.host));
        }
        let ssh = match rsh.as_slice() {
            [stdio] if stdio == "-" => Ssh::of_stdio(),
            rsh => Ssh::start(rsh, &self.place.host, &command, screen),
        };
        ssh.map_err(|source| self.not_started(source))
    }

    fn request_of(&self) -> RequestOf {
        RequestOf {
            args: self.args.clone(),
            path: self.place.path.as_os_str().as_bytes().to_vec(),
            listens: self.mode != LinkMode::Ssh,
        }
    }
}

/// The request, without the contact.
struct RequestOf {
    args: Vec<String>,
    path: Vec<u8>,
    listens: bool,
}

/// The conversation before the packets.
struct Talk {
    request: RequestOf,
    paths: Option<Vec<Vec<u8>>>,
    copy: Option<ProgramCopy>,
    watch: Option<AnswerWatch>,
}

impl Talk {
    /// Copies the program if it has to, tells the far end what to do, and returns its contact, if it has one.
    fn hold(self, pipes: Pipes, contact: Option<Contact>) -> Result<Option<Contact>, CopyError> {
        let Pipes { from, mut to } = pipes;
        let mut from = Heard::new(from, self.watch, true);
        if let Some(copy) = &self.copy {
            copy.send(&mut from, &mut to)?;
        }
        let RequestOf { args, path, listens } = self.request;
        let request = Request { args, path, listens, has_paths: self.paths.is_some(), contact };
        let told = greeting::say(&mut to, &request).and_then(|()| match &self.paths {
            Some(paths) => greeting::say_bytes(&mut to, &ended_by_nul(paths)),
            None => Ok(()),
        });
        // A far end that has ended said more by its status and its errors.
        let answer = greeting::hear::<Answer>(&mut from, true)?;
        told.map_err(GreetingError::from)?;
        tracing::debug!(version = answer.version, "the far end answered");
        Ok(answer.contact)
    }
}

fn ended_by_nul(paths: &[Vec<u8>]) -> Vec<u8> {
    paths.iter().flat_map(|path| [path.as_slice(), &[0]]).flatten().copied().collect()
}

/// Returns the words of the command that leads to another machine, as typed or ssh's.
pub(crate) fn shell(typed: Option<&OsStr>) -> Vec<OsString> {
    words(typed.unwrap_or(OsStr::new("ssh -T")))
}

/// Returns the program of the far end, as typed or the usual one.
pub(crate) fn program(typed: Option<String>) -> String {
    typed.unwrap_or_else(|| "volferry".into())
}

/// Splits a command line at its blanks, outside of quotes.
fn words(line: &OsStr) -> Vec<OsString> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Vec<u8>>, None);
    for &byte in line.as_bytes() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'"' | b'\'') => (quote, word) = (Some(byte), Some(word.unwrap_or_default())),
            (None, b' ' | b'\t') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(|word| OsStr::from_bytes(&word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_at_blanks_outside_of_quotes() {
        let split = |line: &str| words(OsStr::new(line));
        assert_eq!(split("ssh  -p 22 "), ["ssh", "-p", "22"]);
        assert_eq!(split(r#"ssh -i 'my key' -o "A=b c""#), ["ssh", "-i", "my key", "-o", "A=b c"]);
        assert_eq!(split("'' a"), ["", "a"]);
        assert!(split(" ").is_empty());
    }
}
