//! `kubectl volferry migrate`: prints SyncJobs in the place of other tools' objects or command lines.

use super::{args::MigrateCommand, error::PluginError, output};
use crate::names;

/// The maximum length of a generated SyncJob name.
const MAX_NAME: usize = 50;

/// Prints a SyncJob for each pair of VolSync's objects, or for a command line of pv-migrate. SyncJobs without a
/// namespace get `namespace`.
pub(super) fn run(command: MigrateCommand, namespace: Option<&String>) -> Result<(), PluginError> {
    let drafts = match command {
        MigrateCommand::Volsync { file } => ::migrate::volsync_drafts(&file)?,
        MigrateCommand::PvMigrate { args } => {
            let mut draft = ::migrate::pv_migrate_draft(&args)?;
            draft.name = names::shorten(&draft.name, MAX_NAME);
            vec![draft]
        }
    };
    for mut draft in drafts {
        draft.namespace = draft.namespace.or_else(|| namespace.cloned());
        output::yaml(&draft.lines().map_err(PluginError::Migrate)?)?;
    }
    Ok(())
}
