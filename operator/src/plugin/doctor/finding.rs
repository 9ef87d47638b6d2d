use contract::Side;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Fine.
    Ok,
    /// For information.
    Note,
    /// Runs succeed, but a person should look.
    Warning,
    /// Runs fail, or none starts.
    Error,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) text: String,
    pub(super) hint: Option<String>,
}

impl Finding {
    pub(super) fn ok(text: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, text: text.into(), hint: None }
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self { severity: Severity::Note, text: text.into(), hint: None }
    }

    pub(super) fn warning(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, text: text.into(), hint: Some(hint.into()) }
    }

    pub(super) fn error(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { severity: Severity::Error, text: text.into(), hint: Some(hint.into()) }
    }

    /// Returns a note about an object that the user may not read.
    pub(super) fn unseen(what: &str) -> Self {
        Self::note(format!("{what}: not checked, because your role may not read this"))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let hint = self.hint.iter().map(|hint| format!("hint: {hint}"));
        [format!("{}: {}", self.severity.word(), self.text)].into_iter().chain(hint).collect()
    }
}

/// Returns the name of an end as in a SyncJob.
pub(super) fn end(side: Side) -> &'static str {
    match side {
        Side::Source => "source",
        Side::Sink => "destination",
    }
}
