//! The lines of text files that differ between two snapshots.

use similar::TextDiff;
use syncer::{
    path::RelPath,
    snapshot::{
        Snapshot, SnapshotError,
        browse::{What, linked_node_at},
        store::ReadObjects,
    },
};

/// The longest file whose lines are compared, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Returns how the text of the file at `path` differs, in the form of `diff -u`; nothing if it is no file in either
/// snapshot, and a sentence if it is too long or no text.
///
/// # Errors
/// If a directory or content cannot be read.
pub(super) fn text_diff(
    store: &dyn ReadObjects,
    one: &Snapshot,
    other: &Snapshot,
    path: &RelPath,
) -> Result<String, SnapshotError> {
    let (Some(before), Some(after)) = (text_of(store, one, path)?, text_of(store, other, path)?) else {
        return Ok(format!("the contents of {path} are no text, or longer than 1 MiB\n"));
    };
    let names = [one, other].map(|snapshot| format!("{}:{path}", snapshot.id));
    let [from, to] = names;
    Ok(TextDiff::from_lines(&before, &after).unified_diff().header(&from, &to).to_string())
}

/// Returns the text of a file; empty for what is no file; `None` if it is no text, or too long.
fn text_of(
    store: &dyn ReadObjects,
    snapshot: &Snapshot,
    path: &RelPath,
) -> Result<Option<String>, SnapshotError> {
    let what = linked_node_at(store, snapshot, path)?.map(|node| node.what);
    let Some(What::File { len, content: Some(content) }) = what else { return Ok(Some(String::new())) };
    if len > MAX_BYTES {
        return Ok(None);
    }
    let open = store.checked(&content, len, &|_, _| Ok(()))?;
    let mut bytes = vec![0; len as usize];
    let failed =
        |source| SnapshotError::Io { operation: "read", path: store.name_of(&content).into(), source };
    open.slice().read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}
