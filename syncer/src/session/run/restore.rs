//! A run whose source is a snapshot.

use contract::{Phase, Report, RunParams};

use crate::{
    apply::Settings,
    path::RelPath,
    report::Stopwatch,
    session::{
        local::{stored_source::StoredSource, stored_tree::Restore},
        plan::subject::Subject,
        run::choose_sink::onto_tree,
        session_error::SessionError,
        sink::traits::Run,
    },
    snapshot::SnapshotError,
};

/// Patterns that leave out of a run everything but a path, what is below it, and the folders on the way to it.
///
/// # Errors
/// When the path is not UTF-8, as patterns are.
pub fn all_but(path: &RelPath) -> Result<Vec<String>, SnapshotError> {
    let mut patterns = Vec::new();
    let mut at = String::new();
    for name in path.names() {
        let name = std::str::from_utf8(name).map_err(|_| {
            SnapshotError::Invalid(format!("{path} is not UTF-8: restore the folder that it is in"))
        })?;
        patterns.push(format!("{at}/*"));
        at.push('/');
        name.chars().for_each(|c| {
            if matches!(c, '\\' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '#' | ' ') {
                at.push('\\');
            }
            at.push(c);
        });
        patterns.push(format!("!{at}"));
    }
    Ok(patterns)
}

impl Restore<'_> {
    pub(crate) fn run(&self, params: &RunParams, watch: &mut Stopwatch<'_>) -> Result<Report, SessionError> {
        watch.enter(Phase::Scan);
        let (run, subject) = (Run::new(params, watch.monitor()), Subject::of_tree(&self.to));
        let settings = Settings::resolve(&params.preserve)?;
        onto_tree(StoredSource::new(self, &run), (&subject, settings), None, &run, watch)
    }
}
