use proptest::prelude::*;
use serde_json::json;

use super::bytes_form;
use crate::admission::admit;

const BANDWIDTH_MIN: u64 = 64 << 10;

/// Returns whether the CRD's rules accept a manifest with that part.
fn is_admitted(part: &serde_json::Value) -> bool {
    let mut spec = json!({
        "source": {"persistentVolumeClaim": {"claimName": "a"}},
        "destination": {"persistentVolumeClaim": {"claimName": "b"}},
    });
    spec.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    let meta = json!({"name": "web"});
    admit(json!({
        "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "metadata": meta, "spec": spec,
    }))
    .is_ok()
}

#[test]
fn fields_take_every_spelling_of_a_size_that_the_command_line_takes() {
    let mut spellings = vec![("100000".to_string(), 1)];
    for (name, unit) in contract::BYTE_UNITS {
        spellings.extend([(format!("100{name}"), unit), (format!("100{name}B"), unit)]);
    }
    for (text, unit) in spellings {
        let bytes = if unit == 1 { 100_000 } else { 100 * unit };
        assert_eq!(contract::parse_bytes(&text), Ok(bytes), "{text}");
        let retain = json!({"snapshots": {"retain": {"maxBytes": text}}});
        assert!(is_admitted(&json!({"files": {"minSize": text}})), "minSize {text}");
        assert!(is_admitted(&json!({"files": {"maxSize": text}})), "maxSize {text}");
        assert!(is_admitted(&retain), "maxBytes {text}");
        assert!(is_admitted(&json!({"transfer": {"bandwidthLimit": text}})), "bandwidthLimit {text}");
    }
}

#[test]
fn retention_takes_the_tags_that_the_engine_takes() {
    for tag in ["gold", "latest", "as-of:2026-11-22", "latest-one", "two words", "as-off"] {
        let retain = json!({"snapshots": {"retain": {"tags": [tag]}}});
        assert_eq!(is_admitted(&retain), contract::is_tag(tag), "{tag}");
    }
}

#[test]
fn the_least_bandwidth_is_64_ki_in_every_spelling() {
    for text in ["65535", "65k", "65K", "65kB", "65KB", "63Ki", "63KiB", "66k", "66KB", "64KiB", "1MB", "0M"]
    {
        let expected = contract::parse_bytes(text).unwrap() >= BANDWIDTH_MIN;
        assert_eq!(is_admitted(&json!({"transfer": {"bandwidthLimit": text}})), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn the_pattern_and_the_command_line_take_the_same_sizes(
        number in "[+-]?(0|[1-9][0-9]{0,6})?(\\.[0-9])?", suffix in "[kKMGTEiB ]{0,3}",
    ) {
        let text = format!("{number}{suffix}");
        let read = contract::parse_bytes(&text);
        // Above that value, the command line accepts more digits than the pattern.
        prop_assume!(!read.as_ref().is_ok_and(|bytes| *bytes >= 10_u64.pow(18)));
        let matches = regex::Regex::new(&bytes_form()).unwrap().is_match(&text);
        prop_assert_eq!(matches, read.is_ok(), "{}", text);
    }

    #[test]
    fn whatever_the_pattern_takes_can_be_read(number in "[0-9]{1,20}", suffix in "|[kKMGT]i?B?") {
        let text = format!("{number}{suffix}");
        if regex::Regex::new(&bytes_form()).unwrap().is_match(&text) {
            prop_assert!(contract::parse_bytes(&text).is_ok(), "{}", text);
        }
    }
}
