//! What is written of a status that has changed, as a JSON merge patch (RFC 7386). Pure.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::{SyncJobStatus, crd_schema::clamp};

/// Returns the JSON merge patch from `old` to `new`, bound to one version of the object, so that the API
/// server answers 409 if the object has changed since; `None` if they are equal.
pub fn patch(
    old: &SyncJobStatus,
    new: &SyncJobStatus,
    resource_version: &str,
) -> serde_json::Result<Option<Value>> {
    let difference = difference(old, new)?;
    Ok(difference.map(|status| json!({"metadata": {"resourceVersion": resource_version}, "status": status})))
}

/// Returns the JSON merge patch from `old` to `new`, within the bounds of numbers of the CRDs; `None` if they are
/// equal.
pub fn difference<T: Serialize>(old: &T, new: &T) -> serde_json::Result<Option<Value>> {
    let mut new = serde_json::to_value(new)?;
    clamp(&mut new);
    Ok(merge_patch(&serde_json::to_value(old)?, &new))
}

fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        if let Some(change) = merge_patch(old.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), change);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ActiveRun, SyncJobPhase, SyncRunStatus};

    #[test]
    fn a_patch_holds_what_changed_removes_what_is_gone_and_is_bound_to_a_version() {
        let run = Some(ActiveRun::default());
        let old =
            SyncJobStatus { active_run: run, phase: Some(SyncJobPhase::Running), ..SyncJobStatus::default() };
        let new = SyncJobStatus { active_run: None, phase: Some(SyncJobPhase::Canceled), ..old.clone() };
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "status": {"activeRun": null, "phase": "Canceled"},
        });
        assert_eq!(patch(&old, &new, "7").unwrap(), Some(expected));
    }

    #[test]
    fn a_merge_patch_turns_any_value_into_the_other() {
        let old = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": {"f": 1}});
        let new = json!({"a": 1, "b": {"c": [2]}, "g": {"h": {}}});
        let expected = json!({"b": {"c": [2], "d": null}, "e": null, "g": {"h": {}}});
        assert_eq!(merge_patch(&old, &new), Some(expected));
        assert_eq!(merge_patch(&old, &old), None);
    }

    #[test]
    fn what_no_operator_can_read_of_an_end_is_removed_by_the_next_try() {
        let read =
            |ends: Value| -> SyncRunStatus { serde_json::from_value(json!({ "ends": ends })).unwrap() };
        let old = read(json!({"source": {"run": "web-1", "result": "Failed"}, "sink": "no JSON"}));
        assert_eq!(difference(&old, &old).unwrap(), None);
        let removed = json!({"ends": {"source": null, "sink": null}});
        assert_eq!(difference(&old, &read(json!({}))).unwrap(), Some(removed));
    }
}
