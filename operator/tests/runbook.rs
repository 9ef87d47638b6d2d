//! Tests that the runbook has a page for each alert and for each reason that the programs give.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use contract::reason;
use operator::runbook;
use regex::Regex;
use serde_json::Value;

fn repository(path: &str) -> PathBuf {
    Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Returns what the group of a pattern matches in a text.
fn found(text: &str, pattern: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).unwrap_or_else(|error| panic!("{error}"));
    pattern.captures_iter(text).map(|found| found[1].to_string()).collect()
}

/// Returns the reasons in a source file, without those of its tests.
fn reasons(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let forms = [
        r#"ExitCode::[A-Za-z]+, "([A-Z][A-Za-z]+)"\)"#,
        r#"reason: (?:Some\()?"([A-Z][A-Za-z]+)""#,
        r#"reason = (?:Some\()?"([A-Z][A-Za-z]+)""#,
        r#"Fault::new\(\s*"([A-Z][A-Za-z]+)""#,
    ];
    let constants = code.split("pub mod reason {").nth(1).and_then(|module| module.split("\n}").next());
    let constants = found(constants.unwrap_or_default(), r#"&str = "([A-Z][A-Za-z]+)""#);
    forms.iter().flat_map(|form| found(code, form)).chain(constants).collect()
}

#[test]
fn each_reason_that_a_program_gives_is_in_the_runbook() {
    let mut files = Vec::new();
    for folder in ["syncer/src", "syncer/cli/src", "syncer/contract/src", "operator/src"] {
        sources(&repository(folder), &mut files);
    }
    let given: BTreeSet<String> = files.iter().flat_map(|file| reasons(&read(file))).collect();
    assert!(given.len() > 60, "{given:?}");
    let missing: Vec<&String> = given.iter().filter(|name| reason::find(name).is_none()).collect();
    assert!(missing.is_empty(), "syncer/contract/src/reason.rs lacks {missing:?}");
}

#[test]
fn each_alert_leads_to_its_page_and_the_book_lists_every_page() {
    let rules: Value =
        serde_saphyr::from_str(&read(&repository("charts/volferry/files/monitoring/alerts.yaml"))).unwrap();
    for alert in runbook::alerts(&rules) {
        let page = format!("{}/{}.md", runbook::ADDRESS, alert["alert"].as_str().unwrap());
        assert_eq!(alert["annotations"]["runbook_url"], page.as_str());
    }
    let contents = read(&repository("docs/src/SUMMARY.md"));
    for page in runbook::pages(&rules) {
        let link = format!("(reference/runbooks/{}.md)", page.name);
        assert!(contents.contains(&link), "docs/src/SUMMARY.md lacks {link}");
    }
}
