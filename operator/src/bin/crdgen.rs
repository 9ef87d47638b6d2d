//! Prints the CRDs, or writes them to each of the given directories, as one file `GROUP_PLURAL.yaml` each.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use operator::api;
use thiserror::Error;

#[derive(Debug, Error)]
enum Error {
    #[error("cannot render a CRD")]
    Render(#[from] serde_saphyr::SerializeError),
    #[error("cannot write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn main() -> ExitCode {
    let directories: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let done = if directories.is_empty() {
        print()
    } else {
        directories.iter().try_for_each(|directory| write_into(directory))
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crdgen: {error}{}", cause(&error));
            ExitCode::FAILURE
        }
    }
}

fn print() -> Result<(), Error> {
    for (_, yaml) in api::crd_files()? {
        print!("{yaml}");
    }
    Ok(())
}

fn write_into(directory: &Path) -> Result<(), Error> {
    for (name, yaml) in api::crd_files()? {
        let path = directory.join(name);
        fs::write(&path, yaml).map_err(|source| Error::Write { path, source })?;
    }
    Ok(())
}

fn cause(error: &Error) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}
