//! Checks that the folders of a service have nothing in common, and have none of the service's own files.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::service_config::ServiceConfig;

/// Returns how a folder of the configuration at `path` overlaps with another, or contains a file of the service.
pub(super) fn overlap(path: &Path, config: &ServiceConfig) -> Option<String> {
    let files = [(Some(path), "the configuration"), (Some(&config.authorized), "the file of keys")];
    let program = env::current_exe().ok();
    let files = files.into_iter().chain([(program.as_deref(), "the program")]);
    let files = files.chain(config.keys.iter().map(|key| (Some(key.as_path()), "a key")));
    let files: Vec<_> = files.filter_map(|(path, what)| Some((real(path?), what))).collect();
    let folders: Vec<_> = config.folders.iter().map(|(name, served)| (name, real(&served.path))).collect();
    for (name, folder) in &folders {
        if let Some((file, what)) = files.iter().find(|(file, _)| file.starts_with(folder)) {
            let file = file.display();
            return Some(format!(
                "`folders.{name}.path`: the folder contains {what} of the service, {file}\nhint: serve a folder beside it"
            ));
        }
        let other = folders.iter().find(|(other, at)| other != name && at.starts_with(folder));
        if let Some((other, _)) = other {
            return Some(format!(
                "`folders.{name}.path`: the folder is or contains that of `folders.{other}`\nhint: serve folders apart, because the \
                 queue and the demands of each are its own"
            ));
        }
    }
    None
}

/// Returns a path without symbolic links. What is not there yet has none.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    for above in absolute.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(above), absolute.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    absolute
}
