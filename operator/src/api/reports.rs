//! The reports of the ends of a run, as its pods write them into the status of a SyncRun.

use std::{collections::BTreeMap, sync::LazyLock};

use contract::{Report, Side};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::crd_schema;

/// What the ends of a try reported, named as their contacts. Pods write it, so what is not of a report's schema counts
/// as absent: it could neither be added up nor written to a status.
#[derive(JsonSchema, Serialize, Debug, Clone, Default, PartialEq)]
#[serde(transparent)]
pub struct Reports(BTreeMap<String, Report>);

impl Reports {
    /// Returns the report of one end, or of one shard of it.
    pub fn of(&self, side: Side, shard: Option<u32>) -> Option<&Report> {
        self.0.get(&end_name(side, shard))
    }
}

impl<'de> Deserialize<'de> for Reports {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut written = Map::deserialize(from)?;
        // Pods of an earlier operator write the reports of shards apart.
        if let Some(Value::Object(shards)) = written.remove("shards") {
            for (shard, ends) in shards {
                let ends = if let Value::Object(ends) = ends { ends } else { Map::new() };
                written.extend(ends.into_iter().map(|(side, report)| (format!("{side}-{shard}"), report)));
            }
        }
        let reports = written.into_iter().filter_map(|(end, value)| Some((end, read(value)?)));
        Ok(Self(reports.collect()))
    }
}

/// Returns the name of an end in a SyncRun's status, or of one shard of it.
pub fn end_name(side: Side, shard: Option<u32>) -> String {
    shard.map_or_else(|| side.to_string(), |shard| format!("{side}-{shard}"))
}

/// Returns the report that a pod wrote, if it is one.
pub fn read(written: Value) -> Option<Report> {
    SCHEMA.as_ref()?.is_valid(&written).then(|| serde_json::from_value(written).ok()).flatten()
}

/// The schema of a report, cached because compiling it takes far longer than its use.
static SCHEMA: LazyLock<Option<jsonschema::Validator>> = LazyLock::new(|| {
    jsonschema::validator_for(&serde_json::to_value(crd_schema::of::<Report>()?).ok()?).ok()
});

#[cfg(test)]
mod tests {
    use contract::RunResult;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_that_no_status_could_hold_is_absent_and_the_others_are_not() {
        let read = |written: Value| -> Reports { serde_json::from_value(written).unwrap() };
        let good =
            json!({"run": "web-1", "result": "PartiallyFailed", "work": {"filesScanned": 7}, "newer": 1});
        for bad in [
            json!(7),
            json!({"result": "Splendid"}),
            json!({"work": {"filesScanned": 18_446_744_073_709_551_615_u64}}),
            json!({"work": {"filesScanned": -1}}),
            json!({"message": "x".repeat(70_000)}),
            json!({"notes": vec!["x"; 5000]}),
        ] {
            let reports = read(json!({"source": bad, "sink": good}));
            assert_eq!(reports.of(Side::Source, None), None, "{bad}");
            assert_eq!(reports.of(Side::Sink, None).unwrap().result, RunResult::PartiallyFailed);
        }
        let earlier = read(json!({"shards": {"3": {"sink": good}, "4": 7}, "benchmarks": {}}));
        assert_eq!(earlier.of(Side::Sink, Some(3)).unwrap().run, "web-1");
        assert_eq!(earlier.of(Side::Sink, Some(4)), None);
    }
}
