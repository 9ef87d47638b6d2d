//! The paths of the programs that the tests start.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

/// Returns the root of the repository that the running test belongs to. Cargo names it when it starts a test; a
/// compiled-in path could be another checkout's where two share a target folder.
pub fn repository() -> PathBuf {
    let member = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
    member.join("..")
}

/// Returns the path of a program that `e2e/cluster/build` makes.
///
/// # Errors
/// There is no such program; the message names the command that makes it.
pub fn of_cluster(name: &str) -> Result<PathBuf> {
    let path = cluster_cache()?.join("bin").join(name);
    ensure!(path.is_file(), "{} is missing: run `e2e/cluster/build tools apiserver`", path.display());
    Ok(path)
}

/// Returns a program that `.ci/tools test` installs: that of its cache, or else this machine's own.
///
/// # Errors
/// There is no such program; the message names the command that installs it.
pub fn of_tools(name: &str) -> Result<PathBuf> {
    let unpacked = cache().map(|cache| cache.join("tools/bin").join(name));
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let mut found = unpacked.into_iter().chain(installed);
    found.find(|path| path.is_file()).with_context(|| format!("{name} is missing: run `.ci/tools test`"))
}

/// Returns the folder with the manifests of a controller of Flux or Argo CD. An error tells how to make it.
pub fn manifests_of(controller: &str) -> Result<PathBuf> {
    let path = cluster_cache()?.join("copied").join(controller);
    ensure!(path.is_dir(), "{} is missing: run `e2e/cluster/build gitops-controllers`", path.display());
    Ok(path)
}

/// Returns a program of this workspace, in the folder that cargo built the running test into; the environment variable
/// `VOLFERRY_BIN_DIR` names another. An error tells how to build it.
pub fn of_workspace(name: &str) -> Result<PathBuf> {
    let path = workspace_programs()?.join(name);
    ensure!(path.is_file(), "{} is missing: run `cargo build --test gitignore --bin {name}`", path.display());
    Ok(path)
}

fn cluster_cache() -> Result<PathBuf> {
    let given = std::env::var_os("VOLFERRY_CLUSTER_CACHE").map(PathBuf::from);
    given.or_else(|| Some(cache()?.join("cluster"))).context("neither VOLFERRY_CLUSTER_CACHE nor HOME is set")
}

/// Returns the folder that keeps what is slow to make.
fn cache() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Some(caches?.join("volferry"))
}

fn workspace_programs() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("VOLFERRY_BIN_DIR") {
        return Ok(folder.into());
    }
    let test = std::env::current_exe().context("the path of the running test")?;
    let folder = test.ancestors().nth(2).context("a test lies in target/…/deps")?;
    Ok(folder.into())
}
