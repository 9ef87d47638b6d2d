//! Converts configurations of other tools to SyncJobs. No cluster is read or written.
//!
//! `volsync` converts VolSync's objects, and `pv_migrate` the command line of pv-migrate. `draft` prints the result.

mod draft;
mod fields;
mod migrate_error;
mod pv_migrate;
mod restic_retention;
mod volsync;

use std::path::Path;

use api::manifest_file::objects;

pub use draft::Draft;
pub use migrate_error::MigrateError;

/// Returns the note on a claim in another namespace than the SyncJob's.
fn needs_grant(namespace: &str) -> String {
    format!("The namespace {namespace} has to allow this by a SyncGrant, which the SyncJob's status prints.")
}

/// Returns the draft for a command line of pv-migrate. Its name may be longer than a SyncJob's should be.
///
/// # Errors
/// If it is none that pv-migrate takes.
pub fn pv_migrate_draft(args: &[String]) -> Result<Draft, MigrateError> {
    pv_migrate::draft(args)
}

/// Returns a draft for each pair of VolSync's objects in a file; `-` is standard input.
///
/// # Errors
/// If the file cannot be read, or has no such object, or one with fields that VolSync does not have.
pub fn volsync_drafts(path: &Path) -> Result<Vec<Draft>, MigrateError> {
    let drafts = volsync::drafts(&objects(path)?)?;
    if drafts.is_empty() { Err(MigrateError::Nothing { path: path.into() }) } else { Ok(drafts) }
}

#[cfg(test)]
mod tests;
