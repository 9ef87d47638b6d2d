//! One rule, and the forms that most have.

use serde::Serialize;

/// One entry of `x-kubernetes-validations`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rule {
    rule: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expression: Option<String>,
}

/// Builds a rule with a fixed message.
pub(crate) fn rule(rule: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule { rule: rule.into(), message: message.into(), message_expression: None }
}

/// Builds a rule on a string whose message begins with that string, followed by `is_not`.
pub(crate) fn quoting(rule: String, is_not: &str) -> [Rule; 1] {
    let message = format!("the value {is_not}");
    let message_expression = Some(format!(r#"'"' + self + '" {is_not}'"#));
    [Rule { rule, message, message_expression }]
}

/// Builds a rule on a list of strings; `valid` checks one of them as `it`. The message begins with the first that
/// fails.
pub(crate) fn each(valid: &str, is_not: &str) -> [Rule; 1] {
    let message_expression = Some(format!(r#"'"' + self.filter(it, !({valid}))[0] + '" {is_not}'"#));
    [Rule {
        rule: format!("self.all(it, {valid})"),
        message: format!("an entry {is_not}"),
        message_expression,
    }]
}
