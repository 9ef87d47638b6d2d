//! `volferry snapshot show`, `ls`, `cat`, `diff`, `history` and `log`.

use contract::ExitCode;

use super::{
    Looked,
    flags::{LogFlags, OneFlags},
    json::{ChangeJson, EventJson, NodeJson, SnapshotJson, VersionJson},
    look_flags::{CatFlags, DiffFlags, HistoryFlags, LsFlags},
    open, print, say, say_json, text_diff,
};
use crate::output;
use syncer::{
    path::RelPath,
    snapshot::{
        SnapshotError,
        browse::{
            Change, Node, What, diff_nodes, file_at, files_in_motion, linked_node_at, node_at, nodes,
            path_versions, select_snapshot,
        },
        store::{ReadObjects, SizedContent},
    },
};

/// The number of bytes that are read at once of a file that is written to standard output.
const PIECE_BYTES: u64 = 1 << 20;

pub(super) fn show(store: Looked<'_>, flags: &OneFlags) -> Result<ExitCode, SnapshotError> {
    let snapshot = select_snapshot(store.roots, &flags.id)?;
    let in_motion = files_in_motion(store.objects, snapshot)?;
    if flags.volume.json {
        let in_motion = in_motion.iter().map(ToString::to_string).collect();
        say_json(&SnapshotJson { in_motion, ..SnapshotJson::from(snapshot) });
    } else {
        say(&print::show(snapshot, &in_motion));
    }
    Ok(ExitCode::Done)
}

pub(super) fn ls(store: Looked<'_>, flags: &LsFlags) -> Result<ExitCode, SnapshotError> {
    let snapshot = select_snapshot(store.roots, &flags.id)?;
    let missing = || SnapshotError::NoPath { id: snapshot.id, path: flags.path.to_string() };
    let node = node_at(store.objects, snapshot, &flags.path)?.ok_or_else(missing)?;
    let mut listed = Vec::new();
    let mut tell = |path: &RelPath, node: &Node| {
        if flags.volume.json { listed.push(NodeJson::new(path, node)) } else { say(&print::node(path, node)) }
    };
    match &node.what {
        What::Dir(_) => list(store.objects, &node, &flags.path, flags.recursive, &mut tell)?,
        _ => tell(&flags.path, &node),
    }
    if flags.volume.json {
        say_json(&listed);
    }
    Ok(ExitCode::Done)
}

fn list(
    store: &dyn ReadObjects,
    node: &Node,
    path: &RelPath,
    recursive: bool,
    tell: &mut dyn FnMut(&RelPath, &Node),
) -> Result<(), SnapshotError> {
    let What::Dir(folder) = &node.what else { return Ok(()) };
    for (name, node) in nodes(&store.folder(folder)?) {
        let Ok(below) = path.join(name) else { continue };
        tell(&below, &node);
        if recursive {
            list(store, &node, &below, true, tell)?;
        }
    }
    Ok(())
}

pub(super) fn cat(store: Looked<'_>, flags: &CatFlags) -> Result<ExitCode, SnapshotError> {
    let snapshot = select_snapshot(store.roots, &flags.id)?;
    let found = file_at(store.objects, snapshot, &flags.path)?;
    let Some(SizedContent { content, len }) = found else { return Ok(ExitCode::Done) };
    let file = store.objects.checked(&content, len, &|_, _| Ok(()))?;
    let name = store.objects.name_of(&content);
    let mut at = 0;
    let mut is_read = true;
    while at < len && is_read {
        let mut bytes = vec![0; (len - at).min(PIECE_BYTES) as usize];
        let failed = |source| SnapshotError::Io { operation: "read", path: (&name).into(), source };
        file.slice().read_exact_at(&mut bytes, at).map_err(failed)?;
        is_read = output::print(&bytes);
        at += bytes.len() as u64;
    }
    Ok(ExitCode::Done)
}

pub(super) fn diff(store: Looked<'_>, flags: &DiffFlags) -> Result<ExitCode, SnapshotError> {
    let one = select_snapshot(store.roots, &flags.one)?;
    let other = select_snapshot(store.roots, &flags.other)?;
    let before = linked_node_at(store.objects, one, &flags.path)?;
    let after = linked_node_at(store.objects, other, &flags.path)?;
    if before.is_none() && after.is_none() {
        return Err(SnapshotError::NoPath { id: other.id, path: flags.path.to_string() });
    }
    let mut changes = Vec::new();
    let mut shown = Ok(());
    let snapshots = [one, other];
    diff_nodes(
        store.objects,
        snapshots,
        before.as_ref(),
        after.as_ref(),
        &flags.path,
        &mut |change, path, node| {
            if flags.volume.json {
                changes.push(ChangeJson::new(change, path, node));
            } else {
                say(&format!("{} {path}\n", change.sign()));
                if flags.content && change != Change::Metadata && shown.is_ok() {
                    shown = text_diff::text_diff(store.objects, one, other, path).map(|text| say(&text));
                }
            }
        },
    )?;
    shown?;
    if flags.volume.json {
        say_json(&changes);
    }
    Ok(ExitCode::Done)
}

pub(super) fn history(store: Looked<'_>, flags: &HistoryFlags) -> Result<ExitCode, SnapshotError> {
    let versions = path_versions(store.objects, store.roots.kept(), &flags.path)?;
    if versions.is_empty() {
        return Err(SnapshotError::NoHistory(flags.path.to_string()));
    }
    if flags.volume.json {
        say_json(&versions.iter().map(|version| VersionJson::new(&flags.path, version)).collect::<Vec<_>>());
    } else {
        versions.iter().for_each(|version| say(&print::version(version)));
    }
    Ok(ExitCode::Done)
}

pub(super) fn log(flags: &LogFlags) -> Result<ExitCode, SnapshotError> {
    let opened = open(&flags.volume.dir)?;
    let log = opened.store.audit(&opened.roots)?;
    if flags.volume.json {
        say_json(&log.events.iter().map(EventJson::from).collect::<Vec<_>>());
    } else {
        log.events.iter().for_each(|event| {
            say(&format!(
                "{}  {:9}  {}  {}{}\n",
                event.time,
                event.action,
                event.by,
                event.snapshots.join(" "),
                if event.note.is_empty() { String::new() } else { format!("  {}", event.note) }
            ));
        });
    }
    match log.broken {
        None => Ok(ExitCode::Done),
        Some(line) => {
            print::complain(&format!(
                "error: line {line} of the log is missing or does not fit what is before it\n"
            ));
            Ok(ExitCode::Partial)
        }
    }
}
