//! The reports of the ends of a run, as its pods write them into the status of a SyncRun.

use std::{collections::BTreeMap, sync::LazyLock};

use contract::{Report, Side};
use schemars::Schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{active_run::MAX_PARALLELISM, crd_schema, rules::rule};

/// The maximum length of an end's report.
pub const MAX_REPORT: usize = 64 << 10;
/// The maximum length of a shard's report, since those of 128 ends have to fit into one object.
pub const MAX_SHARD_REPORT: usize = 2 << 10;

/// What the ends of a try reported, each as JSON, named as their contacts. Pods write it, so what is not of a report's
/// schema counts as absent: it could neither be added up nor written to a status. Its name is kept, so that a status
/// without it differs: an earlier operator wrote objects, which the API server refuses by now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reports(BTreeMap<String, Option<Report>>);

impl Reports {
    /// Returns the report of one end, or of one shard of it.
    pub fn of(&self, side: Side, shard: Option<u32>) -> Option<&Report> {
        self.0.get(&end_name(side, shard))?.as_ref()
    }
}

impl Serialize for Reports {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(end, report)| (end, report.as_ref().map(write))))
    }
}

impl<'de> Deserialize<'de> for Reports {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let report = |text: &Value| read(serde_json::from_str(text.as_str()?).ok()?);
        let written = Map::deserialize(from)?.into_iter();
        Ok(Self(written.map(|(end, text)| (end, report(&text))).collect()))
    }
}

/// Returns the schema of what the ends of a run report, each as JSON: the operator checks it, since the API server
/// would need the schema of a report, whose fields are those of `status.report`, once more.
pub(super) fn schema(_: &mut schemars::SchemaGenerator) -> Schema {
    let is_bounded = rule(
        format!("self.size() <= 2 || self.all(end, self[end].size() <= {MAX_SHARD_REPORT})"),
        "the report of a shard is too long",
    );
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 2 * MAX_PARALLELISM,
        "additionalProperties": {"type": "string", "maxLength": MAX_REPORT},
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [is_bounded],
    })
}

/// Returns a report as an end writes it into the status.
pub fn write(report: &Report) -> String {
    serde_json::to_string(report).unwrap_or_default()
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
            let reports = read(json!({"source": bad.to_string(), "sink": good.to_string()}));
            assert_eq!(reports.of(Side::Source, None), None, "{bad}");
            assert_eq!(reports.of(Side::Sink, None).unwrap().result, RunResult::PartiallyFailed);
        }
        let odd = read(json!({"source": good, "sink-3": good.to_string()}));
        assert_eq!(odd.of(Side::Source, None), None, "it is no text");
        assert_eq!(odd.of(Side::Sink, Some(3)).unwrap().run, "web-1");
        assert_eq!(read(json!(odd)), odd);
    }
}
