//! Writes the tables of figures in documents from `benches/results`, or checks that they are up to date.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use benches::document::fill;
use clap::Parser;

/// Writes the tables of figures in documents from the files in benches/results.
#[derive(Debug, Parser)]
struct Args {
    /// Fail where a document has other figures, and write nothing
    #[arg(long)]
    check: bool,
    /// The folder that has the results
    #[arg(long, default_value = "benches/results")]
    results: PathBuf,
    /// The documents
    #[arg(default_values = ["docs/src/comparisons.md", "syncer/doc/snapshots.md"])]
    documents: Vec<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    for path in &args.documents {
        let name = || path.display().to_string();
        let old = fs::read_to_string(path).with_context(name)?;
        let new = fill(&old, &args.results).with_context(name)?;
        let is_fine = !args.check || old == new;
        ensure!(is_fine, "{}: figures differ from benches/results\nhint: make tables", name());
        if old != new {
            fs::write(path, new).with_context(name)?;
        }
    }
    Ok(())
}
