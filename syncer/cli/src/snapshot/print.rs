//! Formats snapshots as text for users.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{self, Write as _},
};

use super::{
    damage_json::RepairStepJson,
    json::{engine_name, period_name},
    time::rfc3339,
};
use contract::{
    human::{bytes, count, counted},
    printable,
};
use syncer::{
    failures::Failures,
    path::{RelPath, display},
    snapshot::{
        Engine, ListState, Roots, Snapshot, SnapshotId, Store,
        browse::{Change, Node, Version, What},
        check::{DamagedPath, ListDamage, StoreShare, Verified},
        retention::{KeptBy, Until, Verdict},
        store::Period,
    },
};

/// A snapshot, and why it is kept.
pub(super) struct Listed<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) verdict: Option<&'a Verdict>,
}

/// Formats a table with a line for each snapshot and the reasons to keep it, below a line of headings.
pub(super) fn list(snapshots: &[Listed<'_>]) -> String {
    if snapshots.is_empty() {
        return "no snapshots\n".into();
    }
    let widest = |of: &dyn Fn(&Snapshot) -> String| {
        snapshots.iter().map(|it| of(it.snapshot).chars().count()).max().unwrap_or(0)
    };
    let job_of = |snapshot: &Snapshot| printable(&snapshot.job).into_owned();
    // A volume that no job writes to needs no column for jobs.
    let job_width = Some(widest(&job_of)).filter(|width| *width > 0).map(|width| width.max(3));
    let job = |job: &str| job_width.map(|width| format!("{job:width$}  ")).unwrap_or_default();
    let width = widest(&labels).max(4);
    let mut text = format!(
        "{:16}  {:20}  {:>10}  {:>10}  {:>10}  {:6}  {}{:width$}  {}\n",
        "ID",
        "TAKEN",
        "ENTRIES",
        "SIZE",
        "ADDED",
        "ENGINE",
        job("JOB"),
        "TAGS",
        "KEPT BY"
    );
    for Listed { snapshot, verdict } in snapshots {
        let _ = writeln!(
            text,
            "{}  {:20}  {:>10}  {:>10}  {:>10}  {:6}  {}{:width$}  {}",
            snapshot.id,
            rfc3339(snapshot.taken),
            count(snapshot.entries),
            bytes(snapshot.bytes),
            bytes(snapshot.added_bytes),
            engine_name(snapshot.engine),
            job(&job_of(snapshot)),
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

fn reason(reason: &KeptBy) -> String {
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
        let entries = if snapshot.failed == 1 { "entry" } else { "entries" };
        labels.push(format!("({} {entries} missing)", count(snapshot.failed)));
    }
    if snapshot.is_exposed {
        labels.push("(not trusted)".into());
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

/// The number of files in motion that are named.
const MAX_NAMED: usize = 10;

/// Names files that may be a mix, because another process may have been writing to them while they were read.
fn motion(files: &[RelPath]) -> String {
    let mut named: Vec<String> = files.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    named.extend((files.len() > MAX_NAMED).then(|| format!("and {} more", files.len() - MAX_NAMED)));
    named.join(", ")
}

/// Formats all properties of a snapshot, one on each line. `in_motion` are its files that may be a mix.
pub(super) fn show(snapshot: &Snapshot, in_motion: &[RelPath]) -> String {
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
        ("origin", snapshot.origin.map(|volume| format!("volume {volume}")).unwrap_or_default()),
        ("tags", labels(snapshot)),
        ("motion", motion(in_motion)),
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
    let motion = if node.in_motion { " (in motion)" } else { "" };
    format!("{kind} {mode:04o} {owner:>11} {size:>14} {} {path}{to}{motion}\n", rfc3339(meta.mtime))
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

/// What a prune without a change, one that is done, and one that others keep from it say of the freed space.
pub(super) const WOULD_FREE: &str = "Dry run, nothing was changed: this would free";
pub(super) const FREED: &str = "Freed";
pub(super) const FREED_LATER: &str = "Not freed yet:";

/// Formats the results of a prune: the kept snapshots with their reasons, the removed ones, and what is `done` with
/// their space.
pub(super) fn prune(
    before: &Roots,
    verdicts: &[Verdict],
    removed: &[SnapshotId],
    freed: u64,
    done: &str,
) -> String {
    let mut text = String::new();
    for verdict in verdicts.iter().filter(|verdict| verdict.is_kept()) {
        let taken = before.get(verdict.id).map(|snapshot| rfc3339(snapshot.taken)).unwrap_or_default();
        let _ = writeln!(text, "keep    {}  {taken}  {}", verdict.id, kept_by(verdict));
    }
    for id in removed {
        let taken = before.get(*id).map(|snapshot| rfc3339(snapshot.taken)).unwrap_or_default();
        let _ = writeln!(text, "remove  {id}  {taken}");
    }
    let snapshots = counted(removed.len() as u64, "snapshot");
    let _ = writeln!(text, "{done} {} in {snapshots}", bytes(freed));
    text
}

/// Returns what is wrong with the list of snapshots, if anything.
pub(crate) fn damage_of_list(store: &Store, roots: &Roots) -> Option<String> {
    let path = store.path().join("roots");
    let what = match roots.state {
        _ if roots.damages() > 0 => {
            "is damaged, and some snapshots may not be listed; `volferry snapshot repair` shows what can be done"
        }
        ListState::Read => return None,
        ListState::Known => {
            "is damaged, and its copy is read; the next change of the snapshots writes it anew"
        }
        ListState::OnlyCopy => {
            "is missing or damaged, and its copy, which may be older, is read; `volferry snapshot repair` shows what \
             can be done"
        }
    };
    Some(format!("{} {what}", path.display()))
}

/// Formats the steps of a repair.
pub(super) fn repair(steps: &[RepairStepJson], is_done: bool) -> String {
    let mut text = String::new();
    for step in steps {
        let _ = writeln!(text, "{}", step.message);
    }
    text.push_str(match (steps.is_empty(), is_done) {
        (true, _) => "Nothing needs a repair; `volferry snapshot verify` checks the objects\n",
        (false, true) => "Repaired\n",
        (false, false) => "Nothing was changed\n",
    });
    text
}

/// Formats the damaged objects, the files that need them, and the origin of healed ones.
pub(super) fn verified(part: StoreShare, verified: &Verified, roots: &Roots) -> String {
    let mut text = String::new();
    for damage in &verified.damaged {
        // Most errors name the object themselves.
        let error =
            damage.error.strip_prefix(&damage.object).and_then(|rest| rest.strip_prefix(" is damaged: "));
        let error = error.unwrap_or(&damage.error);
        let _ = writeln!(text, "damaged: {}: {error}", damage.object);
        for DamagedPath { path, first, last, snapshots } in &damage.files {
            let more =
                if *snapshots > 1 { format!(" to {last} ({snapshots} snapshots)") } else { String::new() };
            let _ = writeln!(text, "  needed by {path} in {first}{more}");
        }
        if let Some(from) = &damage.healed_from {
            let _ = writeln!(text, "  put right from {from}");
        }
    }
    for id in damaged_snapshots(verified, roots) {
        let _ = writeln!(text, "damaged: snapshot {id} is not whole");
    }
    if verified.damaged_records > 0 {
        let _ = writeln!(text, "damaged: {} places of the list of snapshots", verified.damaged_records);
    }
    if let Some(list) = verified.list {
        let what = match list {
            ListDamage::List => "the list of snapshots, all of which is known",
            ListDamage::OnlyCopy => "the list of snapshots, of which only the copy is left",
            ListDamage::Copy => "the copy of the list of snapshots",
        };
        let healed = if verified.is_list_healed { "\n  put right" } else { "" };
        let _ = writeln!(text, "damaged: {what}{healed}");
    }
    if let Some(line) = verified.audit_broken_at {
        let _ = writeln!(text, "damaged or cut: the audit log from line {line} on");
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

/// Returns the snapshots that need an object that nothing healed, in the order of the list.
pub(super) fn damaged_snapshots(verified: &Verified, roots: &Roots) -> Vec<SnapshotId> {
    let places: HashMap<SnapshotId, usize> =
        roots.snapshots.iter().enumerate().map(|(place, snapshot)| (snapshot.id, place)).collect();
    let unhealed = verified.damaged.iter().filter(|damage| damage.healed_from.is_none());
    let spans = unhealed.flat_map(|damage| &damage.files);
    let mut damaged = vec![false; roots.snapshots.len()];
    for DamagedPath { first, last, .. } in spans {
        if let (Some(first), Some(last)) = (places.get(first), places.get(last)) {
            damaged[*first..=*last].fill(true);
        }
    }
    let snapshots = roots.snapshots.iter().zip(damaged);
    snapshots.filter(|(_, is_damaged)| *is_damaged).map(|(snapshot, _)| snapshot.id).collect()
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
