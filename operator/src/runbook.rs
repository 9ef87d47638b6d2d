//! Makes the pages of the runbook: one for each alert of the chart, and one for each reason of a run or condition.

use std::fmt::Write as _;

use contract::Reason;
use serde_json::Value;

/// Where the pages are read; an alert's annotation `runbook_url` leads to its page there.
pub const ADDRESS: &str = "https://github.com/volferry/volferry/blob/main/docs/src/reference/runbooks";
/// The longest line of a page.
const COLUMNS: usize = 120;

/// A page, and the name of its file without the suffix.
#[derive(Debug)]
pub struct Page {
    /// The alert or the reason.
    pub name: String,
    /// The text in Markdown.
    pub text: String,
}

/// Returns the pages of all alerts in a file of Prometheus rules, those of all reasons, and the lists of both.
pub fn pages(rules: &Value) -> Vec<Page> {
    let rows = alerts(rules).map(|alert| (text_of(&alert["alert"]), summary_of(alert)));
    let alert_list = list("Alerts", rows);
    let rows = Reason::ALL.iter().map(|reason| (reason.to_string(), reason.meaning().into()));
    let reason_list = list("Reasons", rows);
    let pages = alerts(rules).map(alert_page).chain(Reason::ALL.iter().map(reason_page));
    pages.chain([alert_list, reason_list]).collect()
}

/// Returns a page with a table of other pages.
fn list(title: &str, rows: impl Iterator<Item = (String, String)>) -> Page {
    let mut text = format!("# {title}\n\n| page | |\n|---|---|\n");
    for (name, about) in rows {
        let _ = writeln!(text, "| [{name}]({name}.md) | {about} |");
    }
    Page { name: title.to_lowercase(), text }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

fn summary_of(alert: &Value) -> String {
    with_names(&text_of(&alert["annotations"]["summary"]))
}

/// Returns the alerts of a file of Prometheus rules.
pub fn alerts(rules: &Value) -> impl Iterator<Item = &Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
}

fn alert_page(alert: &Value) -> Page {
    let name = text_of(&alert["alert"]);
    let mut text = format!("# {name}\n\n");
    add_paragraph(&mut text, &summary_of(alert));
    let wait = alert["for"].as_str().map_or_else(|| "at once".into(), |wait| format!("after {wait}"));
    add_paragraph(
        &mut text,
        &format!("Severity: {}. It fires {wait}, if", text_of(&alert["labels"]["severity"])),
    );
    let expression = text_of(&alert["expr"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let expression = expression.replace(" and ", "\nand ");
    let _ = writeln!(text, "```promql\n{expression}\n```\n\n## What to do\n");
    add_paragraph(&mut text, &with_names(&text_of(&alert["annotations"]["runbook"])));
    let more = "`kubectl volferry doctor` looks for causes. The reason of a condition has a page of its own ([list](reasons.md)).";
    add_paragraph(&mut text, more);
    Page { name, text: ended(&text) }
}

fn reason_page(reason: &Reason) -> Page {
    let mut text = format!("# {reason}\n\n");
    add_paragraph(&mut text, reason.meaning());
    text.push_str("## What to do\n\n");
    add_paragraph(&mut text, if reason.next().is_empty() { "Nothing." } else { reason.next() });
    Page { name: reason.to_string(), text: ended(&text) }
}

/// Returns a template of Prometheus with words such as `NAMESPACE` in place of the labels.
fn with_names(template: &str) -> String {
    let mut parts = template.split("{{ ");
    let mut text = parts.next().unwrap_or_default().to_string();
    let mut condition = "";
    for part in parts {
        let (placeholder, rest) = part.split_once(" }}").unwrap_or((part, ""));
        match placeholder.strip_prefix("with $labels.") {
            Some(label) => condition = label,
            None if placeholder == "end" => {}
            None => text += &placeholder.strip_prefix("$labels.").unwrap_or(condition).to_uppercase(),
        }
        text += rest;
    }
    text
}

/// Adds a paragraph in lines of [`COLUMNS`] at most.
fn add_paragraph(text: &mut String, paragraph: &str) {
    let mut columns = 0;
    for word in paragraph.split_whitespace() {
        let long = word.chars().count();
        if columns > 0 && columns + 1 + long > COLUMNS {
            text.push('\n');
            columns = 0;
        } else if columns > 0 {
            text.push(' ');
            columns += 1;
        }
        text.push_str(word);
        columns += long;
    }
    text.push_str("\n\n");
}

fn ended(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_of_an_alert_has_its_expression_and_what_to_do() {
        let alert = json!({
            "alert": "A", "expr": "a\n > 1", "for": "5m", "labels": {"severity": "info"},
            "annotations": {"summary": "Of {{ $labels.namespace }}/{{ $labels.name }}.", "runbook": "Look."},
        });
        let pages = pages(&json!({"groups": [{"rules": [alert]}]}));
        let text = &pages[0].text;
        for part in [
            "# A\n\nOf NAMESPACE/NAME.\n",
            "Severity: info. It fires after 5m, if\n",
            "\na > 1\n",
            "\n\nLook.\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(pages.len(), 1 + Reason::ALL.len() + 2);
    }

    #[test]
    fn no_line_of_a_page_is_too_long() {
        for page in pages(&json!({})) {
            let mut prose = page.text.lines().filter(|line| !line.starts_with('|'));
            assert!(prose.all(|line| line.chars().count() <= COLUMNS), "{}", page.text);
        }
    }
}
