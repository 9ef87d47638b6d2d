//! The CEL rules of the CRDs: what a manifest can be judged by without a look at the cluster.
//!
//! A value of the wrong shape is refused by a rule and not by the schema's `pattern`, whose message would be the
//! pattern itself. A rule says what was written and what to write instead. No expression holds a single quote but
//! around its strings, and every string and list that one looks at is bounded, as the API server's cost budget
//! demands.

use schemars::Schema;
use serde::Serialize;
use serde_json::Value;

/// One entry of `x-kubernetes-validations`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    rule: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expression: Option<String>,
}

/// A rule with a fixed message.
pub(super) fn rule(rule: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule { rule: rule.into(), message: message.into(), message_expression: None }
}

/// A rule on a string whose message begins with that string; `is_not` goes on after it.
fn quoting(rule: String, is_not: &str) -> [Rule; 1] {
    let message = format!("the value {is_not}");
    let message_expression = Some(format!(r#"'"' + self + '" {is_not}'"#));
    [Rule { rule, message, message_expression }]
}

/// A rule on a list of strings; `valid` judges one of them as `it`. The message begins with the first that fails.
fn each(valid: &str, is_not: &str) -> [Rule; 1] {
    let message_expression = Some(format!(r#"'"' + self.filter(it, !({valid}))[0] + '" {is_not}'"#));
    [Rule {
        rule: format!("self.all(it, {valid})"),
        message: format!("an entry {is_not}"),
        message_expression,
    }]
}

pub(crate) const IS_NOT_CRON: &str = "is not a cron schedule: write five fields (minute, hour, day of month, month, day of week), such as \"0 3 * * *\" for \
     each day at 03:00 or \"*/15 8-18 * * MON-FRI\", or one of @hourly, @daily, @weekly, @monthly, @yearly; a range goes \
     from the lower to the higher, and one of the months has such a day";

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// The pattern of a cron schedule in capitals: five fields, or a macro. Which range is empty it does not say.
pub(crate) fn cron_form() -> String {
    const STEP: &str = "/[1-9][0-9]?";
    let range = |one: &str| format!("{one}(-{one})?");
    let field = |item: &str| format!(r"(\*|{item}(,{item})*)");
    let stepped = |ranges: &str| field(&format!(r"(\*{STEP}|{ranges}({STEP})?)"));
    let names = MONTHS.join("|");
    let fields = [
        stepped(&range("[0-5]?[0-9]")),
        stepped(&range("([01]?[0-9]|2[0-3])")),
        stepped(&range("(0?[1-9]|[12][0-9]|3[01])")),
        field(&format!(r"(\*{STEP}|{}|{})", range("(0?[1-9]|1[0-2])"), range(&format!("({names})")))),
        stepped(&format!("({}|{})", range("[0-7]"), range("(SUN|MON|TUE|WED|THU|FRI|SAT)"))),
    ]
    .join(" +");
    format!("^({fields}|@(HOURLY|DAILY|WEEKLY|MONTHLY|YEARLY))$")
}

/// The patterns of what has that form and no day in any year. Each range of two months or more has one of 31 days.
fn cron_never() -> [String; 2] {
    let month = |number: usize| {
        let one = format!("(0?{number}|{})", MONTHS[number - 1]).replace("0?11", "11");
        format!("{one}(-{one})?")
    };
    let of = |day: &str, months: &[usize]| {
        let months = months.iter().map(|number| month(*number)).collect::<Vec<_>>().join("|");
        format!(r" {day}[-/0-9]*(,{day}[-/0-9]*)* +({months})(,({months}))* +\*$")
    };
    [of("3[01]", &[2]), of("31", &[2, 4, 6, 9, 11])]
}

/// A cron schedule that comes to pass.
pub(super) fn cron() -> [Rule; 1] {
    const NAMES: &str = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC.SUNMONTUEWEDTHUFRISATSUN";
    let ranges = |pattern: &str, low: &str, high: &str| {
        format!("self.upperAscii().findAll('{pattern}').all(r, {low} <= {high})")
    };
    let numbers = ranges("[0-9]+-[0-9]+", "int(r.split('-')[0])", "int(r.split('-')[1])");
    let (low, high) =
        (format!("'{NAMES}'.indexOf(r.split('-')[0])"), format!("'{NAMES}'.lastIndexOf(r.split('-')[1])"));
    let [thirtieth, last] = cron_never();
    let rule = [
        format!("self.upperAscii().matches(r'{}')", cron_form()),
        numbers,
        ranges("[A-Z]+-[A-Z]+", &low, &high),
        format!("!self.upperAscii().matches(r'{thirtieth}')"),
        format!("!self.upperAscii().matches(r'{last}')"),
    ];
    quoting(rule.join(" && "), IS_NOT_CRON)
}

/// The name of a time zone, by its shape.
pub(super) fn time_zone() -> [Rule; 1] {
    quoting(
        "self != 'Local' && self.matches(r'^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$')".into(),
        "is not a time zone: write a name of the IANA database such as Europe/Berlin, America/New_York or UTC",
    )
}

/// Which fields go with which kind of schedule.
pub(super) fn schedule() -> [Rule; 2] {
    [
        rule(
            "has(self.cron) != has(self.interval)",
            "a schedule has exactly one of cron, for runs at times of the clock, and interval, for the time from run to run",
        ),
        rule(
            "has(self.cron) || !(has(self.timeZone) || has(self.jitter))",
            "timeZone and jitter go with cron: remove them, or write a cron schedule in place of interval",
        ),
    ]
}

/// A duration of at least a second and at most 9999 hours.
pub(super) fn duration() -> [Rule; 1] {
    quoting(
        "self.matches(r'^([0-9]{1,4}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$') && duration(self) >= duration('1s')"
            .into(),
        "is not a duration of a second or more: write hours, minutes and seconds such as 90s, 10m or 1h30m",
    )
}

/// Makes the pattern of a number of bytes, so that the rules take what `contract::parse_bytes` reads. The digits are
/// bounded for each suffix, so that what matches is below 2^64.
pub(crate) fn bytes_form() -> String {
    let mut forms = vec!["[0-9]{1,18}".to_string()];
    for thousands in 1..=4 {
        let units = contract::BYTE_UNITS.iter().filter(|(_, unit)| unit.ilog10() / 3 == thousands);
        let names = units.map(|(name, _)| *name).collect::<Vec<_>>().join("|");
        forms.push(format!("[0-9]{{1,{}}}({names})B?", 18 - 3 * thousands));
    }
    format!("^({})$", forms.join("|"))
}

/// Bytes per second. A quantity of Kubernetes knows fewer spellings, so that others are turned into its own.
pub(super) fn bandwidth() -> [Rule; 1] {
    const QUANTITY: &str = "quantity(self.replace('B', '').replace('K', 'k').replace('ki', 'Ki'))";
    quoting(
        format!("self.matches(r'{}') && {QUANTITY}.compareTo(quantity('64Ki')) >= 0", bytes_form()),
        "is not a bandwidth of 64Ki or more: write whole bytes per second with a suffix such as 500k, 100Mi or 1Gi",
    )
}

/// The size of a file.
pub(super) fn file_size() -> [Rule; 1] {
    quoting(
        format!("self.matches(r'{}')", bytes_form()),
        "is not a size: write whole bytes, or with a suffix such as 500k, 100Mi or 1Gi",
    )
}

/// The size of a volume.
pub(super) fn volume_size() -> [Rule; 1] {
    quoting(
        "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))".into(),
        "is not a size: write a number of bytes with a suffix such as 500Mi, 10Gi or 1Ti",
    )
}

/// How many times the baseline a run may take.
pub(super) fn threshold() -> [Rule; 1] {
    quoting(
        r"self.matches(r'^[1-9][0-9]{0,2}(\.[0-9]{1,3})?$') && double(self) > 1.0".into(),
        "is not a factor above 1: write a decimal number in quotes such as \"1.5\" for half as long again",
    )
}

/// A folder inside a volume, in the one form that paths can be compared in.
pub(super) fn folder() -> [Rule; 1] {
    quoting(
        r"self.matches(r'^/$|^(/[^/\x00]+)+$') && !self.matches(r'/(\.|\.\.|\.volferry)(/|$)')".into(),
        "is not a folder inside the volume: write / for all of it, or a path such as /data/uploads that begins with /, \
         does not end with it, and has no part that is empty, ., .. or .volferry",
    )
}

const OBJECT_NAME: &str = r"matches(r'^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')";
pub(super) const IS_NOT_OBJECT_NAME: &str =
    "is not the name of an object: write lower-case letters, digits, - and . only";

/// What [`object_name`] judges, for a name that no rule of a CRD can be set on.
pub(super) fn is_object_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |part: &str| {
        let part = part.as_bytes();
        part.iter().all(|&c| inner(c) || c == b'-')
            && part.first().is_some_and(|&c| inner(c))
            && part.last().is_some_and(|&c| inner(c))
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// The name of an object of most kinds.
pub(super) fn object_name() -> [Rule; 1] {
    quoting(format!("self.{OBJECT_NAME}"), IS_NOT_OBJECT_NAME)
}

/// A list of gitignore patterns.
pub(super) fn each_glob() -> [Rule; 1] {
    each(
        r"it.matches(r'\S') && !it.matches(r'[\n\r\x00]')",
        "is not a gitignore pattern: write one pattern an entry, such as *.tmp or /cache/",
    )
}

/// The name of a snapshot, or a time with its zone.
pub(super) fn snapshot() -> [Rule; 1] {
    quoting(
        r"!self.startsWith('as-of:') || self.matches(r'^as-of:[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})$')"
            .into(),
        "is not a time: write as-of: and a time with its zone, such as as-of:2026-11-22T18:00:00Z",
    )
}

/// Which fields of the destination stay as they are.
pub(super) fn destination() -> [Rule; 3] {
    [
        rule(
            "self.persistentVolumeClaim == oldSelf.persistentVolumeClaim",
            "the destination's claim cannot change, since what was written there would be left behind: create another \
             SyncJob in place of this one",
        ),
        rule(
            "self.path == oldSelf.path",
            "destination.path cannot change, since what was written there would be left behind: create another SyncJob \
             in place of this one",
        ),
        rule(
            "!has(self.create) || !has(oldSelf.create) || self.create == oldSelf.create",
            "destination.create cannot change, since it is read only when the claim is made: change the claim itself, \
             or create another SyncJob",
        ),
    ]
}

/// What source, destination and deletion policy may be to each other.
pub(super) fn spec() -> [Rule; 3] {
    let claim = |side: &str| format!("self.{side}.persistentVolumeClaim.claimName");
    let below = |a: &str, b: &str| format!("({a} == '/' || {b} == {a} || {b}.startsWith({a} + '/'))");
    let (source, destination) = ("self.source.path", "self.destination.path");
    [
        rule(
            format!(
                "{} != {} || !({} || {})",
                claim("source"),
                claim("destination"),
                below(source, destination),
                below(destination, source),
            ),
            "source and destination overlap: name another claim, or folders of which neither holds the other",
        ),
        rule(
            "self.deletionPolicy == 'Retain' || has(self.destination.create)",
            "deletionPolicy: Delete is of the claim that destination.create makes: set that, or remove deletionPolicy",
        ),
        rule(
            "self.deletionPolicy == oldSelf.deletionPolicy",
            "deletionPolicy cannot change, since it is read only when the claim is made: create another SyncJob in place \
             of this one",
        ),
    ]
}

/// The rule of the contacts of a run's ends: a pod cannot put another key or address in the place of one that is there.
pub(super) fn contacts() -> [Rule; 1] {
    let is_same = "oldSelf.all(end, !(end in self) || self[end] == oldSelf[end])";
    [rule(is_same, "the contact of an end is written once in a try, and cannot be changed")]
}

/// What a SyncRun says stays as it is. Of one that a person made the operator fills in the rest, once.
pub(super) fn run() -> [Rule; 2] {
    [
        rule(
            "has(oldSelf.number) ? self == oldSelf : self.syncJob.name == oldSelf.syncJob.name",
            "the spec of a SyncRun cannot change: create another SyncRun to run again",
        ),
        rule(
            "!has(self.restore) || !has(self.benchmark)",
            "a SyncRun has restore or benchmark: remove one of the two, and create another SyncRun for it",
        ),
    ]
}

/// A benchmark has one tree.
pub(super) fn benchmark() -> [Rule; 1] {
    [rule(
        "!has(self.tree) || !has(self.files)",
        "benchmark.tree names a tree, and benchmark.files describes one: remove one of the two",
    )]
}

/// Which fields of the files go together.
pub(super) fn files() -> [Rule; 2] {
    [
        rule(
            "self.delete || !self.deleteAnyway",
            "files.deleteAnyway goes with delete: true; remove it, or set that",
        ),
        rule(
            "self.delete || self.deleteTiming == 'After'",
            "files.deleteTiming: Before goes with delete: true; remove it, or set that",
        ),
    ]
}

/// Which fields of the transfer go together.
pub(super) fn transfer() -> [Rule; 2] {
    [
        rule(
            "self.compression == 'Zstd' || !has(self.compressionLevel)",
            "transfer.compressionLevel goes with compression: Zstd; remove it, or set that",
        ),
        rule(
            "self.placement != 'Local' || !has(self.bandwidthLimit)",
            "transfer.bandwidthLimit limits the network, and placement: Local uses none; remove one of the two",
        ),
    ]
}

/// Some snapshot is kept.
pub(super) fn retain() -> [Rule; 1] {
    [rule(
        "self.last + self.hourly + self.daily + self.weekly + self.monthly + self.yearly > 0 || has(self.within) \
         || has(self.maxBytes) || (has(self.tags) && size(self.tags) > 0)",
        "snapshots.retain would keep no snapshot: set one of last, hourly, daily, weekly, monthly and yearly above 0, \
         or within, tags or maxBytes, or remove snapshots",
    )]
}

/// Some hook is there.
pub(super) fn hooks() -> [Rule; 1] {
    [rule("has(self.before) || has(self.after)", "hooks needs before, after or both")]
}

/// Gives requests and limits the pattern of a quantity, the one that controller-gen writes. The one value that a
/// pattern judges: neither its length nor the number of its keys is bounded, which no rule's budget allows for.
pub(super) fn quantities(schema: &mut Schema) {
    const QUANTITY: &str = concat!(
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    );
    for field in ["requests", "limits"] {
        let amounts = schema.pointer_mut(&format!("/properties/{field}/additionalProperties"));
        if let Some(Value::Object(amount)) = amounts {
            amount.insert("pattern".into(), QUANTITY.into());
        }
    }
}

/// Labels that are not the operator's own.
pub(super) fn labels() -> [Rule; 1] {
    [rule(
        "self.all(key, !key.startsWith('volferry.dev/') && !key.startsWith('app.kubernetes.io/'))",
        "labels that begin with volferry.dev/ or app.kubernetes.io/ are set by the operator: choose another prefix",
    )]
}

/// Annotations that are not the operator's own.
pub(super) fn annotations() -> [Rule; 1] {
    [rule(
        "self.all(key, !key.startsWith('volferry.dev/'))",
        "annotations that begin with volferry.dev/ are set by the operator: choose another prefix",
    )]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::bytes_form;
    use crate::api::admission::admit;

    const BANDWIDTH_MIN: u64 = 64 << 10;

    /// What the CRD's rules say of a manifest with such a part.
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
    fn the_least_bandwidth_is_64_ki_in_every_spelling() {
        for text in
            ["65535", "65k", "65K", "65kB", "65KB", "63Ki", "63KiB", "66k", "66KB", "64KiB", "1MB", "0M"]
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
            // Above that, the command line takes more digits than the pattern.
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
}
