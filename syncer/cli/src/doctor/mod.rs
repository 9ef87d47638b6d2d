//! `volferry doctor`: checks two folders, or the way to another end, and reports the problems that a run would have.

mod finding;
mod free_space;
mod probes;

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Weak, mpsc},
};

use contract::{
    BusyAnswer, ExitCode, Identity, Report, RunParams, Side, chain,
    human::{bytes, measured},
    printable,
};
use syncer::{
    monitor::Monitor,
    mounts::MountTable,
    root::{Root, TreeLocation},
    session::{self, Endpoint, LinkMode, LinkOptions, Outcome},
    snapshot::Store,
};

use crate::{flags::DoctorFlags, messages, output, refuse_own_folder, snapshot::damage_of_list};
use finding::{Check, Diagnosis, Finding, Severity};

/// The size that a socket's buffer should be able to have, in bytes.
const UDP_BUFFER_BYTES: u64 = 2 << 20;

/// Prints the findings in the requested form.
pub(super) fn run(flags: &DoctorFlags) -> ExitCode {
    let diagnosis = match (&flags.source, &flags.destination, &flags.connect) {
        _ if flags.schema => {
            return output::print_json(&schemars::schema_for!(Diagnosis))
                .map_or(ExitCode::Failed, |()| ExitCode::Done);
        }
        (Some(source), Some(destination), _) => folders(source, destination),
        (_, _, Some(address)) => link(address, flags),
        _ => Diagnosis::default(),
    };
    let printed = if flags.json { output::print_json(&diagnosis) } else { print_text(&diagnosis) };
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::Failed,
        _ => diagnosis.exit(),
    }
}

fn print_text(diagnosis: &Diagnosis) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for Finding { severity, message, hint, .. } in &diagnosis.findings {
        let word = match severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        out.write_all(messages::lines(word, message).as_bytes())?;
        if let Some(hint) = hint {
            writeln!(out, "hint: {}", printable(hint))?;
        }
    }
    Ok(())
}

/// Checks a run of `sync`.
fn folders(source: &Path, destination: &Path) -> Diagnosis {
    if let Err(error) = refuse_own_folder::check(destination) {
        let hint = "name a folder beside it; `volferry snapshot` has the commands for what is in it";
        return Diagnosis {
            findings: vec![Finding::new(Check::OwnFolder, Severity::Error, error.to_string(), hint)],
        };
    }
    let mut findings = Vec::new();
    let nearest = nearest_folder(destination);
    findings.extend(volume("source", source));
    findings.extend(nearest.as_deref().map(|folder| volume("destination", folder)).unwrap_or_default());
    findings.extend(nearest.as_deref().map(free_space::findings).unwrap_or_default());
    findings.extend(own_folder(destination));
    findings.extend(snapshots(destination));
    findings.extend(nearest.as_deref().map(probes::all).unwrap_or_default());
    let params = RunParams { dry_run: true, ..RunParams::default() };
    let outcome = session::sync(source, destination, &params, &Monitor::default());
    findings.extend(dry_run(&outcome));
    Diagnosis { findings }
}

/// Returns the destination, or the folder that it would be made in.
fn nearest_folder(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize();
    real.or_else(|_| {
        path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")).canonicalize()
    })
    .ok()
}

/// Reports the file system that a folder is on, and those that are mounted inside it.
fn volume(end: &str, path: &Path) -> Vec<Finding> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    let mounts = MountTable::read().unwrap_or_default();
    let kind = mounts.of(&real).map_or("an unknown file system".into(), |mount| mount.kind());
    let message = format!("the {end} {} is on {kind}", real.display());
    let mut findings = vec![Finding::ok(Check::Volume, message)];
    findings.extend(mounts.below(&real).map(|mount| {
        let message = format!("{} is mounted inside the {end}, at {}", mount.kind(), mount.point().display());
        Finding::new(Check::Mounts, Severity::Note, message, "--one-file-system leaves it out")
    }));
    findings
}

/// Checks that a `.volferry` at the destination is one that this user's runs made.
fn own_folder(destination: &Path) -> Option<Finding> {
    let path = destination.join(".volferry");
    let found = fs::symlink_metadata(&path).ok()?;
    let message = if found.uid() != rustix::process::geteuid().as_raw() {
        format!("{} belongs to the user {}, and not to this one", path.display(), found.uid())
    } else if !found.is_dir() {
        format!("{} is not a folder, and runs keep their files there", path.display())
    } else {
        return None;
    };
    let hint = "run as that user; or move it away, if no job uses it";
    Some(Finding::new(Check::OwnFolder, Severity::Error, message, hint))
}

/// Checks that the list of the destination's snapshots can be read, if it has any.
fn snapshots(destination: &Path) -> Option<Finding> {
    let root = Root::enter(&TreeLocation::from(destination)).ok()?;
    let store = Store::open(&root, destination).transpose()?;
    let read = store.and_then(|store| Ok((store.roots()?, store)));
    match read {
        Ok((roots, store)) => {
            let message = damage_of_list(&store, &roots)?;
            let hint =
                "`volferry snapshot repair DIR` shows what it would bring back and what it would forget";
            Some(Finding::new(Check::Snapshots, Severity::Error, message, hint))
        }
        Err(error) => {
            let hint = error.hint().unwrap_or_else(|| "see that this user may read it".into());
            Some(Finding::new(Check::Snapshots, Severity::Error, chain(&error), &hint))
        }
    }
}

/// Checks the way to a `volferry receive`, by a dry run of an empty folder.
fn link(address: &str, flags: &DoctorFlags) -> Diagnosis {
    let mut findings = udp_buffers();
    findings.push(match flags.identity.as_deref().map(Identity::read) {
        Some(Ok(identity)) if identity.side() == Side::Source => match meet(address, identity, flags) {
            Ok(Meeting { busy: Some(BusyAnswer { peer, since, .. }), .. }) => {
                let message = format!("{address} answers, and is busy with a run of {peer} since {since}");
                Finding::new(Check::Link, Severity::Note, message, "a run that starts now waits for its turn")
            }
            Ok(Meeting { outcome, busy: None }) => met(address, &outcome),
            Err(error) => {
                Finding::new(Check::Link, Severity::Error, chain(&error), "see that TMPDIR can be written to")
            }
        },
        Some(Ok(_)) => {
            let message = "the identity file is that of the receiving end".into();
            Finding::new(Check::Link, Severity::Error, message, "use the file `source` of the same pair")
        }
        Some(Err(error)) => {
            let hint = "`volferry keygen --out DIR` makes the files of both ends";
            Finding::new(Check::Link, Severity::Error, chain(&error), hint)
        }
        None => return Diagnosis { findings },
    });
    Diagnosis { findings }
}

/// An empty run.
struct Meeting {
    outcome: Outcome,
    /// The answer of a busy end.
    busy: Option<BusyAnswer>,
}

/// Makes an empty run; one that would have to wait for a busy end is stopped.
fn meet(address: &str, identity: Identity, flags: &DoctorFlags) -> io::Result<Meeting> {
    let empty = env::temp_dir().join(format!("volferry-doctor-{}", process::id()));
    fs::create_dir(&empty)?;
    let connect_timeout = flags.connect_timeout.unwrap_or(crate::flags::CONNECT_TIMEOUT);
    let (endpoint, mode) = (Endpoint::Connect(address.into()), LinkMode::Auto);
    let link = LinkOptions { endpoint, mode, identity, others: Vec::new(), connect_timeout };
    let params = RunParams { dry_run: true, run: "doctor".into(), ..RunParams::default() };
    let (tell, told) = mpsc::channel();
    let monitor = Arc::new_cyclic(|own: &Weak<Monitor>| {
        let own = Weak::clone(own);
        Monitor::default().with_waiting(move |answer| {
            let _ = tell.send(answer.clone());
            own.upgrade().iter().for_each(|monitor| monitor.cancel());
        })
    });
    let outcome = session::send(&empty, &link, &params, &monitor);
    let _ = fs::remove_dir_all(&empty);
    Ok(Meeting { outcome, busy: told.try_recv().ok() })
}

fn met(address: &str, outcome: &Outcome) -> Finding {
    let Report { timings, message, link, .. } = &outcome.report;
    match outcome.exit {
        ExitCode::Done => {
            let took = measured(std::time::Duration::from_millis(timings.connect));
            let by = link.map(|link| format!(" over {}", link.kind)).unwrap_or_default();
            Finding::ok(Check::Link, format!("{address} answered{by} within {took}, and would take a run"))
        }
        _ => {
            let hint = "see that `volferry receive` listens there with the other file of the pair, and that UDP or TCP is open";
            Finding::new(Check::Link, Severity::Error, message.clone(), hint)
        }
    }
}

/// Checks the largest buffers that the kernel lets sockets have.
fn udp_buffers() -> Vec<Finding> {
    let limit = |name: &str| {
        let bytes: u64 =
            fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok()?;
        (bytes < UDP_BUFFER_BYTES).then(|| {
            let message =
                format!("the kernel gives UDP sockets at most {} (net.core.{name})", self::bytes(bytes));
            let hint = format!("sysctl -w net.core.{name}={UDP_BUFFER_BYTES} makes fast links faster");
            Finding::new(Check::UdpBuffers, Severity::Note, message, &hint)
        })
    };
    ["rmem_max", "wmem_max"].into_iter().filter_map(limit).collect()
}

/// Turns the outcome of a dry run into findings.
fn dry_run(outcome: &Outcome) -> Vec<Finding> {
    let Report { work, failures, message, notes, .. } = &outcome.report;
    let hint = "`volferry help sync` explains the flags";
    let note = |note: &String| Finding::new(Check::DryRun, Severity::Note, note.clone(), hint);
    let mut findings: Vec<Finding> = notes.iter().map(note).collect();
    findings.push(match outcome.exit {
        ExitCode::Done => {
            let message = format!(
                "a run would create {} and update {} entries",
                work.files_created, work.files_updated
            );
            Finding::ok(Check::DryRun, message)
        }
        ExitCode::Partial => {
            let first = failures.first().map(|first| format!(", first {}: {}", first.path, first.error));
            let message =
                format!("{} entries cannot be synced{}", work.files_failed, first.unwrap_or_default());
            Finding::new(
                Check::DryRun,
                Severity::Warning,
                message,
                "give this user the right to read them, or exclude them",
            )
        }
        _ => {
            let hint = "put this right first; `volferry sync -n SRC DST` tries again";
            Finding::new(Check::DryRun, Severity::Error, message.clone(), hint)
        }
    });
    findings
}
