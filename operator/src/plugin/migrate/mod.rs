//! Converts configurations of other tools to SyncJobs. No cluster is read or written.
//!
//! `volsync` converts VolSync's objects, and `pv_migrate` the command line of pv-migrate. `draft` prints the result.

mod draft;
mod fields;
pub(super) mod migrate_error;
mod pv_migrate;
mod restic_retention;
mod volsync;

use std::path::Path;

use draft::Draft;
use migrate_error::MigrateError;

use super::{args::MigrateCommand, error::PluginError, output};
use crate::manifest_file::objects;

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
    let drafts = volsync::drafts(&objects(path)?)?;
    if drafts.is_empty() { Err(MigrateError::Nothing { path: path.into() }) } else { Ok(drafts) }
}

#[cfg(test)]
mod tests;
