//! Checks the snapshot that a remote source serves, before the destination is changed.

use std::collections::BTreeSet;

use crate::{
    ends::damaged_content::{WrittenFile, written},
    path::RelPath,
    plan::{
        compare_contents::{HashBatch, SourceHashes},
        planned::Compared,
    },
    session_error::SessionError,
    source::hash_files::HashRequest,
    wire::{FileGroup, Hashed},
};

/// Asks the source to read every file that is to be written, and returns the damaged ones in the order of their paths.
/// A source that serves a snapshot answers with a hash only if the content has its id.
///
/// # Errors
/// If the connection is lost.
pub(crate) fn find_damaged(
    compared: &Compared,
    source: &mut dyn SourceHashes,
) -> Result<BTreeSet<RelPath>, SessionError> {
    let mut bad = BTreeSet::new();
    let mut batch = HashBatch::default();
    for dir in &compared.dirs {
        let mut group = FileGroup { dir: dir.source, indices: Vec::new() };
        for WrittenFile { index, entry, len } in written(dir).filter(|file| file.len > 0) {
            batch.files.extend(HashRequest::new(dir.source, &dir.path, &entry));
            batch.bytes += len;
            group.indices.push(index);
            if batch.is_full() {
                let rest = FileGroup { dir: dir.source, indices: Vec::new() };
                batch.groups.push(std::mem::replace(&mut group, rest));
                check(&std::mem::take(&mut batch), source, &mut bad)?;
            }
        }
        batch.groups.extend(Some(group).filter(|group| !group.indices.is_empty()));
    }
    check(&batch, source, &mut bad)?;
    Ok(bad)
}

fn check(
    batch: &HashBatch,
    source: &mut dyn SourceHashes,
    bad: &mut BTreeSet<RelPath>,
) -> Result<(), SessionError> {
    if batch.files.is_empty() {
        return Ok(());
    }
    source.ask(batch)?;
    let hashes = source.next(batch)?;
    let files = batch.files.iter().zip(hashes);
    bad.extend(files.filter(|(_, hash)| !matches!(hash, Hashed::Is(_))).map(|(file, _)| file.path()));
    Ok(())
}
