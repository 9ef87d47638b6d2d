//! Formats snapshots as text for users.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use super::{
    json::{engine_name, period_name},
    time::rfc3339,
};
use syncer::{
    path::{RelPath, display},
    report::Failures,
    snapshot::{
        Engine, Roots, Snapshot,
        browse::{Change, Node, Version, What},
        collect::Plan,
        retain::{Period, Reason, Until, Verdict},
        scrub::StoreShare,
        verify::Verified,
    },
};
use trend::human::{bytes, count, counted, printable};

/// Formats a table with a line for each snapshot and the reasons to keep it, below a line of headings.
pub(super) fn list(snapshots: &[(&Snapshot, Option<&Verdict>)]) -> String {
    if snapshots.is_empty() {
        return "no snapshots\n".into();
    }
    let width =
        snapshots.iter().map(|(snapshot, _)| labels(snapshot).chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:16}  {:20}  {:>10}  {:>10}  {:>10}  {:6}  {:width$}  {}\n",
        "ID", "TAKEN", "ENTRIES", "SIZE", "ADDED", "ENGINE", "TAGS", "KEPT BY"
    );
    for (snapshot, verdict) in snapshots {
        let _ = writeln!(
            text,
            "{}  {:20}  {:>10}  {:>10}  {:>10}  {:6}  {:width$}  {}",
            snapshot.id,
            rfc3339(snapshot.taken),
            count(snapshot.entries),
            bytes(snapshot.bytes),
            bytes(snapshot.added_bytes),
            engine_name(snapshot.engine),
            labels(snapshot),
            verdict.map(kept_by).unwrap_or_default()
        );
    }
    text
}

/// Formats the reasons to keep a snapshot, and the events that end them.
fn kept_by(verdict: &Verdict) -> String {
    if !verdict.is_kept() {
        return "nothing: it goes after the next run".into();
    }
    let reasons: Vec<String> = verdict.reasons.iter().map(reason).collect();
    let room = if verdict.is_limited { "; the limit of bytes may end it sooner" } else { "" };
    format!("{}{room}", reasons.join(", "))
}

fn reason(reason: &Reason) -> String {
    let event = match reason.until {
        Until::Unpinned => "unpinned".into(),
        Until::Untagged => "untagged".into(),
        Until::Newer(Period::Snapshot, count) => format!("{count} newer"),
        Until::Newer(period, 1) => format!("a newer {} has one", period_name(period)),
        Until::Newer(period, count) => format!("{count} newer {}s have one", period_name(period)),
        Until::NewerInPeriod(period) => format!("a newer one of this {}", period_name(period)),
        Until::Time(time) => format!("a newer one after {}", rfc3339(time)),
        Until::Clock(time) => rfc3339(time),
        Until::NewerWhole => "a newer whole one".into(),
        Until::Room => "newer ones need the room".into(),
        Until::Prune => "a prune".into(),
    };
    format!("{} (until {event})", printable(&reason.to_string()))
}

fn labels(snapshot: &Snapshot) -> String {
    let mut labels: Vec<String> = snapshot.tags.iter().map(|tag| printable(tag).into_owned()).collect();
    if snapshot.pinned {
        labels.push("(pinned)".into());
    }
    if snapshot.failed > 0 {
        labels.push(format!("({} entries missing)", count(snapshot.failed)));
    }
    if let Some(when) = snapshot.forgotten {
        labels.push(format!("(forgotten {})", rfc3339(when)));
    }
    labels.join(" ")
}

/// Prints text on standard error.
pub(super) fn complain(text: &str) {
    // If the text cannot be printed, no other place is left to report that.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Formats all properties of a snapshot, one on each line.
pub(super) fn show(snapshot: &Snapshot) -> String {
    let protects = match snapshot.engine {
        Engine::Clone => {
            "clone: whoever writes to the volume's files does not change it; damage to blocks that both share does, and loss of the volume"
        }
        Engine::Copy => {
            "copy: whoever writes to the volume's files does not change it; loss of the volume does"
        }
    };
    let lines = [
        ("id", snapshot.id.to_string()),
        ("digest", snapshot.digest().to_hex().to_string()),
        ("begun", rfc3339(snapshot.began)),
        ("taken", rfc3339(snapshot.taken)),
        ("entries", count(snapshot.entries)),
        ("size", bytes(snapshot.bytes)),
        ("added", bytes(snapshot.added_bytes)),
        ("engine", protects.into()),
        ("run", printable(&snapshot.run).into_owned()),
        ("job", printable(&snapshot.job).into_owned()),
        ("by", printable(&snapshot.user).into_owned()),
        ("note", printable(&snapshot.note).into_owned()),
        ("tags", labels(snapshot)),
    ];
    let filled = lines.into_iter().filter(|(_, value)| !value.is_empty());
    filled.map(|(name, value)| format!("{name:8} {value}\n")).collect()
}

/// Formats an entry of a snapshot as one line like that of `ls -l`.
pub(super) fn node(path: &RelPath, node: &Node) -> String {
    let meta = &node.meta;
    let (kind, size, to) = match &node.what {
        What::File { len, .. } => ('-', *len, String::new()),
        What::Dir(_) => ('d', 0, String::new()),
        What::Symlink(target) => ('l', 0, format!(" -> {}", display(target))),
        What::HardLink(leader) => ('h', 0, format!(" = {}", display(leader))),
        What::Fifo => ('p', 0, String::new()),
        What::CharDevice(device) => ('c', *device, String::new()),
        What::BlockDevice(device) => ('b', *device, String::new()),
    };
    let (mode, owner) = (meta.mode, format!("{}:{}", meta.owner.uid, meta.owner.gid));
    format!("{kind} {mode:04o} {owner:>11} {size:>14} {} {path}{to}\n", rfc3339(meta.mtime))
}

/// Formats a version of a path as one line.
pub(super) fn version(version: &Version<'_>) -> String {
    let (first, last) = (version.first, version.last);
    let until = if first.id == last.id { String::new() } else { format!(" to {}", last.id) };
    let what = match version.node.as_ref().map(|node| &node.what) {
        None => "gone".into(),
        Some(What::File { len, .. }) => format!("file of {}", bytes(*len)),
        Some(what) => what.name().into(),
    };
    let sign = version.change.map_or(' ', Change::sign);
    format!("{sign} {}  {}{until}  {what}\n", rfc3339(first.taken), first.id)
}

/// Formats the results of a prune: the kept snapshots with their reasons, the removed ones, and the freed space.
pub(super) fn prune(before: &Roots, verdicts: &[Verdict], plan: &Plan, is_dry: bool) -> String {
    let mut text = String::new();
    for verdict in verdicts.iter().filter(|verdict| verdict.is_kept()) {
        let taken = before.get(verdict.id).map(|snapshot| rfc3339(snapshot.taken)).unwrap_or_default();
        let _ = writeln!(text, "keep    {}  {taken}  {}", verdict.id, kept_by(verdict));
    }
    for id in &plan.snapshots {
        let taken = before.get(*id).map(|snapshot| rfc3339(snapshot.taken)).unwrap_or_default();
        let _ = writeln!(text, "remove  {id}  {taken}");
    }
    let done = if is_dry { "Dry run, nothing was changed: this would free" } else { "Freed" };
    let snapshots = counted(plan.snapshots.len() as u64, "snapshot");
    let _ = writeln!(text, "{done} {} in {snapshots}", bytes(plan.bytes));
    text
}

/// Formats the damaged objects, the files that need them, and the origin of healed ones.
pub(super) fn verified(part: StoreShare, verified: &Verified) -> String {
    let mut text = String::new();
    for damage in &verified.damaged {
        let _ = writeln!(text, "damaged: {}: {}", damage.object, damage.error);
        for (id, path) in &damage.files {
            let _ = writeln!(text, "  needed by {path} in {id}");
        }
        let unnamed = damage.count - damage.files.len() as u64;
        if unnamed > 0 {
            let _ = writeln!(text, "  and by {} more", count(unnamed));
        }
        if let Some(from) = &damage.healed_from {
            let _ = writeln!(text, "  put right from {from}");
        }
    }
    if verified.damaged_records > 0 {
        let _ = writeln!(text, "damaged: {} places of the list of snapshots", verified.damaged_records);
    }
    if let Some(line) = verified.audit_broken_at {
        let _ = writeln!(text, "damaged: the audit log from line {line} on");
    }
    let _ = writeln!(
        text,
        "{}{} objects, {} checked; {} damaged",
        if part.of > 1 { format!("part {part}: ") } else { String::new() },
        count(verified.objects),
        bytes(verified.bytes),
        verified.damaged.len()
    );
    text
}

/// Prints the entries that could not be read on standard error.
pub(super) fn failures(failures: &Failures) {
    let named = failures.named();
    let mut text = String::new();
    for failure in &named {
        let _ =
            writeln!(text, "error: {}: {}: {}", printable(&failure.path), failure.operation, failure.error);
    }
    let unnamed = failures.count().saturating_sub(named.len() as u64);
    if unnamed > 0 {
        let _ = writeln!(text, "error: and {} more", count(unnamed));
    }
    let _ = io::stderr().write_all(text.as_bytes());
}
