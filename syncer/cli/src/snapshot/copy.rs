//! `volferry snapshot copy`, on this machine and with another one.

use std::{path::Path, sync::Arc, time::Duration};

use bucket::BucketError;
use contract::{
    CopySelection, ExitCode, Side, chain,
    human::{bytes, counted},
    printable,
};

use super::{
    bucket_site::{self, CopiedBucket},
    copied_json::CopiedJson,
    flags::CopyFlags,
    history_ends::{into, offering},
    print, say, say_json, service_copy,
};
use crate::{
    remote::{
        history_request::{OFFER, take_args},
        near_end::{self, FarEnd, StartedStream},
        place::{Place, RemotePlace},
        why_ssh_failed::RemoteError,
    },
    run::LinkError,
    screen::Screen,
};
use syncer::{
    monitor::Monitor,
    session::{LinkMode, SessionError},
    snapshot::{
        SnapshotError,
        copy::{CopiedHistory, FarCopy, StreamedHistory, serve_history},
    },
};

/// What ends a copy before it has copied anything.
enum NotCopied {
    Here(SnapshotError),
    Way(RemoteError),
    Link(LinkError),
    Bucket(BucketError),
    /// The other end says why, with its hint.
    There(String),
}

impl From<SnapshotError> for NotCopied {
    fn from(error: SnapshotError) -> Self {
        Self::Here(error)
    }
}

impl From<BucketError> for NotCopied {
    fn from(error: BucketError) -> Self {
        Self::Bucket(error)
    }
}

impl From<LinkError> for NotCopied {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Session(SessionError::Snapshot(error)) => Self::Here(error),
            error => Self::Link(error),
        }
    }
}

/// Copies, and prints the ids of the snapshots that are new at the other volume.
pub(super) fn run(flags: &CopyFlags) -> Result<ExitCode, SnapshotError> {
    match copy(flags) {
        Ok(CopiedBucket { done, around }) => {
            if flags.json {
                say_json(&CopiedJson::from(&done));
            } else {
                report(&done, bucket_site::url_of(&flags.to).is_some());
            }
            let exit = bucket_site::tell_around(&around, flags.json);
            Ok(if done.failed.is_empty() { exit } else { ExitCode::Partial })
        }
        Err(NotCopied::Here(error)) => Err(error),
        Err(NotCopied::Bucket(error)) => bucket_site::finish(Err(error), flags.json),
        Err(NotCopied::Way(error)) => {
            print::complain(&format!("error: {}\n", chain(&error)));
            Ok(error.reason().exit())
        }
        Err(NotCopied::Link(error)) => {
            print::complain(&format!("error: {}\n", chain(&error)));
            Ok(match &error {
                LinkError::Session(error) => error.exit(),
                error => error.exit(),
            })
        }
        Err(NotCopied::There(why)) => {
            why.lines().enumerate().for_each(|(nth, line)| {
                let sign = if nth == 0 { "error: at the other end: " } else { "" };
                print::complain(&format!("{sign}{}\n", printable(line)));
            });
            Ok(ExitCode::Failed)
        }
    }
}

fn copy(flags: &CopyFlags) -> Result<CopiedBucket, NotCopied> {
    let read =
        |typed: &Path| Place::read(typed.into()).map_err(|error| SnapshotError::Invalid(error.to_string()));
    let selection = match &flags.since {
        _ if flags.all => CopySelection::All,
        Some(since) => CopySelection::Since(since.clone()),
        None if flags.ids.is_empty() => {
            let message = "name the snapshots to copy: by ID, such as `latest`, --all, or --since ID for those after one";
            return Err(SnapshotError::Invalid(message.into()).into());
        }
        None => CopySelection::Named(flags.ids.clone()),
    };
    match (bucket_site::url_of(&flags.from), bucket_site::url_of(&flags.to)) {
        (None, None) => {}
        (Some(from), None) => {
            let Place::Here(to) = read(&flags.to)? else { return Err(both_far().into()) };
            return Ok(bucket_site::pull(flags, &from?, &to, &selection)?);
        }
        (None, Some(to)) => {
            let Place::Here(from) = read(&flags.from)? else { return Err(both_far().into()) };
            return Ok(bucket_site::push(flags, &from, &to?, &selection)?);
        }
        (Some(_), Some(_)) => return Err(both_far().into()),
    }
    let done = match (read(&flags.from)?, read(&flags.to)?) {
        (Place::Here(from), Place::Here(to)) => {
            offering(&from, |history| into(&to, history, &selection, flags.wait_lock, &Monitor::default()))?
        }
        (Place::There(from), Place::Here(to)) => pull(flags, from, &to, &selection)?,
        (Place::Here(from), Place::There(to)) => push(flags, &from, to, &selection)?,
        (Place::Service(from), Place::Here(to)) => service_copy::pull(flags, from, &to, &selection)?,
        (Place::Here(from), Place::Service(to)) => service_copy::push(flags, &from, to, &selection)?,
        _ => return Err(both_far().into()),
    };
    Ok(CopiedBucket { done, around: Vec::new() })
}

fn both_far() -> SnapshotError {
    SnapshotError::Invalid("one of FROM and TO has to be on this machine".into())
}

fn far_end(flags: &CopyFlags, place: RemotePlace, args: Vec<String>) -> FarEnd {
    let shell = flags.shell.clone();
    FarEnd {
        place,
        rsh: near_end::shell(shell.rsh.as_deref()),
        program: near_end::program(shell.remote_program),
        bootstrap: shell.bootstrap,
        mode: LinkMode::Ssh,
        side: Side::Sink,
        args,
        paths: None,
        answer_timeout: shell.connect_timeout,
        connect_timeout: Duration::ZERO,
    }
}

/// Copies from a store of another machine.
fn pull(
    flags: &CopyFlags,
    from: RemotePlace,
    to: &Path,
    selection: &CopySelection,
) -> Result<CopiedHistory, NotCopied> {
    let screen = Arc::new(Screen::new(false));
    let far = far_end(flags, from, vec![OFFER.into()]);
    let StartedStream { pipes, ssh } = far.start_stream(&screen).map_err(NotCopied::Way)?;
    let mut source = StreamedHistory::new(pipes.from, pipes.to);
    let done = into(to, &mut source, selection, flags.wait_lock, &Monitor::default());
    let told = source.finish(&done);
    ssh.end();
    let done = done?;
    told?;
    Ok(done)
}

/// Has another machine copy from a store of this one.
fn push(
    flags: &CopyFlags,
    from: &Path,
    to: RemotePlace,
    selection: &CopySelection,
) -> Result<CopiedHistory, NotCopied> {
    let screen = Arc::new(Screen::new(false));
    offering(from, |history| {
        let far = far_end(flags, to, take_args(selection, flags.wait_lock));
        let StartedStream { pipes, ssh } = match far.start_stream(&screen) {
            Ok(started) => started,
            Err(error) => return Ok(Err(NotCopied::Way(error))),
        };
        let served = serve_history(history, pipes.from, pipes.to);
        ssh.end();
        Ok(match served? {
            FarCopy::Done(done) => Ok(done),
            FarCopy::Failed(why) => Err(NotCopied::There(why)),
        })
    })?
}

fn report(done: &CopiedHistory, is_far: bool) {
    done.copied.iter().for_each(|snapshot| say(&format!("{}\n", snapshot.id)));
    let also = [
        (done.present.len(), "there already"),
        (done.healed.len(), "with damaged objects that were replaced"),
        (done.forgotten.len(), "forgotten there, not brought back"),
    ];
    let also = also.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("; {count} {what}"));
    let copied = counted(done.copied.len() as u64, "snapshot");
    print::complain(&format!("Copied {copied}, {}{}\n", bytes(done.bytes), also.collect::<String>()));
    for (id, error) in &done.failed {
        print::complain(&format!("error: {id} is not copied: {error}\n"));
    }
    if !done.healed.is_empty() && !is_far {
        print::complain("hint: `volferry snapshot verify` heals the rest from what was replaced\n");
    }
}
