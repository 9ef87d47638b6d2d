//! Converts configurations of other tools to SyncJobs. No cluster is read or written.
//!
//! `volsync` converts VolSync's objects, and `pv_migrate` the command line of pv-migrate. `draft` prints the result.

mod draft;
mod fields;
pub(super) mod migrate_error;
mod pv_migrate;
mod retain;
mod volsync;

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use draft::Draft;
use migrate_error::{MAX_BYTES, MigrateError};
use serde_json::Value;

use super::{args::MigrateCommand, error::PluginError, output};

/// Returns the note on a claim in another namespace than the SyncJob's.
fn needs_grant(namespace: &str) -> String {
    format!("The namespace {namespace} has to allow this by a SyncGrant, which the SyncJob's status prints.")
}

/// Prints a SyncJob for each pair of VolSync's objects, or for a command line of pv-migrate. SyncJobs without a
/// namespace get `namespace`.
pub(super) fn run(command: MigrateCommand, namespace: Option<&String>) -> Result<(), PluginError> {
    let drafts = match command {
        MigrateCommand::Volsync { file } => volsync_drafts(&file)?,
        MigrateCommand::PvMigrate { args } => vec![pv_migrate::draft(&args)?],
    };
    for mut draft in drafts {
        draft.namespace = draft.namespace.or_else(|| namespace.cloned());
        output::lines(&draft.lines().map_err(PluginError::Migrate)?)?;
    }
    Ok(())
}

fn volsync_drafts(path: &Path) -> Result<Vec<Draft>, MigrateError> {
    let objects = objects(&read(path)?)
        .map_err(|source| MigrateError::Parse { path: path.into(), source: Box::new(source) })?;
    let drafts = volsync::drafts(&objects)?;
    if drafts.is_empty() { Err(MigrateError::Nothing { path: path.into() }) } else { Ok(drafts) }
}

fn read(path: &Path) -> Result<String, MigrateError> {
    let failed = |source| MigrateError::Read { path: path.into(), source };
    let mut text = String::new();
    let length = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        fs::File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_string(&mut text)
    };
    if length.map_err(failed)? as u64 > MAX_BYTES {
        return Err(MigrateError::TooLong { path: path.into() });
    }
    Ok(text)
}

/// Returns the objects of all documents, including the items of lists.
fn objects(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let items = documents.into_iter().flat_map(|mut document| match document["items"].take() {
        Value::Array(items) => items,
        _ => vec![document],
    });
    Ok(items.collect())
}

#[cfg(test)]
mod tests;
