//! Hashes the fields of a spec that matter to a run, so that changes of other fields trigger none. Pure.

use crate::api::SyncJobSpec;

/// Returns the hash of the fields that affect a run and its result: 16 hexadecimal digits.
///
/// It differs between versions of the operator that know different fields, so it is compared only if the spec's
/// generation changed, too.
pub fn of(spec: &SyncJobSpec) -> String {
    let mut spec = spec.clone();
    spec.destination.create = None;
    if let Some(images) = &mut spec.destination.volume_snapshots {
        (images.retain, images.timeout) = Default::default();
    }
    spec.schedule = None;
    spec.trigger = None;
    spec.suspend = false;
    spec.concurrency_policy = Default::default();
    spec.priority = 0;
    spec.regression = None;
    spec.deletion_policy = Default::default();
    spec.history_limit = Default::default();
    for end in [&mut spec.source.pods, &mut spec.destination.pods] {
        end.labels.clear();
        end.annotations.clear();
    }
    spec.pods.labels.clear();
    spec.pods.annotations.clear();
    // The key order is deterministic: struct fields in declaration order, map keys sorted.
    let text = serde_json::to_vec(&spec).unwrap_or_default();
    blake3::hash(&text).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hash_with(change: &Value) -> String {
        let mut spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        let fields = change.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        of(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_does_not_matter_to_a_run_does_not_change_the_hash() {
        let plain = hash_with(&json!({}));
        for change in [
            json!({"suspend": true}),
            json!({"trigger": "x"}),
            json!({"schedule": {"interval": "1h"}}),
            json!({"historyLimit": {"succeeded": 1}}),
            json!({"concurrencyPolicy": "Replace"}),
            json!({"priority": 3}),
            json!({"deletionPolicy": "Delete"}),
            json!({"regression": {}}),
            json!({"pods": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
            json!({"destination": {"persistentVolumeClaim": {"claimName": "b"}, "pods": {"labels": {"a": "b"}}}}),
        ] {
            assert_eq!(hash_with(&change), plain, "{change}");
        }
    }

    #[test]
    fn what_matters_to_a_run_changes_the_hash() {
        let changes = [
            json!({}),
            json!({"files": {"exclude": ["*.tmp"]}}),
            json!({"source": {"persistentVolumeClaim": {"claimName": "c"}}}),
            json!({"source": {"persistentVolumeClaim": {"claimName": "a"}, "path": "/x"}}),
            json!({"limits": {"timeout": "1h"}}),
            json!({"parallelism": 2}),
            json!({"transfer": {"placement": "Local"}}),
            json!({"pods": {"nodeSelector": {"disk": "fast"}}}),
            json!({"source": {"persistentVolumeClaim": {"claimName": "a"}, "pods": {"nodeSelector": {"a": "b"}}}}),
        ];
        let hashes: std::collections::BTreeSet<String> = changes.iter().map(hash_with).collect();
        assert_eq!(hashes.len(), changes.len());
    }
}
