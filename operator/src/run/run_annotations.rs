//! Decides which run an annotation of a SyncJob is about: the one to cancel, to go on after, or whose refusal a person
//! overrules. Pure.

use crate::{
    api::{ActiveRun, Run},
    names,
};

/// What an annotation may call a run.
#[derive(Debug, Clone, Copy)]
pub struct RunNames<'a> {
    id: &'a str,
    number: i64,
    uid: Option<&'a str>,
    /// Whether a version of the operator recorded it that noted no UIDs.
    is_older: bool,
}

impl<'a> From<&'a ActiveRun> for RunNames<'a> {
    fn from(run: &'a ActiveRun) -> Self {
        Self { id: &run.id, number: run.number, uid: run.uid.as_deref(), is_older: false }
    }
}

impl<'a> From<&'a Run> for RunNames<'a> {
    fn from(run: &'a Run) -> Self {
        Self { id: &run.id, number: run.number, uid: run.uid.as_deref(), is_older: run.uid.is_none() }
    }
}

impl<'a> RunNames<'a> {
    /// Returns what an annotation has to say to mean the run.
    pub fn word(self) -> &'a str {
        self.uid.unwrap_or(self.id)
    }

    /// Returns whether an annotation of the SyncJob `job` means the run. The operator never gives a name twice. A
    /// person may create a SyncRun of the same name again, long after the annotation was written, so that only its UID
    /// counts.
    pub fn is_meant(self, annotation: &str, job: &str) -> bool {
        let is_unique = self.is_older || self.id == names::run_id(job, self.number);
        self.uid == Some(annotation) || is_unique && annotation == self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_person_chose_may_come_again_and_does_not_count() {
        let of = |id: &str, number, uid: Option<&str>| Run {
            id: id.into(),
            number,
            uid: uid.map(Into::into),
            ..Run::default()
        };
        for (run, annotation, is_meant) in [
            (of("web-7", 7, Some("u1")), "web-7", true),
            (of("web-7", 7, Some("u1")), "u1", true),
            (of("web-7", 7, Some("u1")), "web-6", false),
            (of("drill", 7, Some("u1")), "drill", false),
            (of("drill", 7, Some("u1")), "u1", true),
            (of("drill", 7, Some("u1")), "u0", false),
            (of("web-3", 7, Some("u1")), "web-3", false),
            (of("drill", 7, None), "drill", true),
        ] {
            let names = RunNames::from(&run);
            assert_eq!(names.is_meant(annotation, "web"), is_meant, "{names:?} {annotation}");
        }
    }
}
