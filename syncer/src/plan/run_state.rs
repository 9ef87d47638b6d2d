//! One run: its parameters, and its results so far.

use contract::RunParams;
use parking_lot::Mutex;

use crate::{
    measure::{failures::Failures, monitor::Monitor, report::Counters},
    plan::plan_id::ExpectedPlan,
};

/// One run: its parameters, and its results so far.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub params: &'a RunParams,
    pub monitor: &'a Monitor,
    pub failures: Failures,
    pub counters: Counters,
    /// Whether a volume is brought back to its own snapshot: what no snapshot has, or another job's, is not deleted.
    pub restores_in_place: bool,
    /// Whether only some paths are restored: names of a file outside of them keep its data and its metadata.
    pub restores_paths: bool,
    /// The plan that was shown, if only that may be carried out.
    pub expected_plan: Option<ExpectedPlan<'a>>,
    notes: Mutex<Vec<String>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(params: &'a RunParams, monitor: &'a Monitor) -> Self {
        let (failures, counters) = (Failures::default(), Counters::default());
        Self {
            params,
            monitor,
            failures,
            counters,
            restores_in_place: false,
            restores_paths: false,
            expected_plan: None,
            notes: Mutex::default(),
        }
    }

    /// Adds notes to the report.
    pub(crate) fn note(&self, notes: impl IntoIterator<Item = String>) {
        self.notes.lock().extend(notes);
    }

    /// Takes the notes, once, for the report.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock())
    }
}
