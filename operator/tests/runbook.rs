//! Tests that the runbook has a page for each alert, and that no reason is outside of the table that its pages are of.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use contract::Reason;
use operator::runbook;
use serde_json::Value;

/// Reasons that are also phases of Kubernetes, stages of a run, columns, or types of conditions.
const ALSO_OTHER_WORDS: [&str; 8] = [
    "Failed",
    "PerformanceRegressed",
    "Queued",
    "Running",
    "SnapshotFailed",
    "SnapshotsGone",
    "Succeeded",
    "Suspended",
];

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

#[test]
fn no_reason_is_spelled_outside_of_its_table() {
    let mut files = Vec::new();
    for folder in [
        "syncer/src",
        "syncer/bucket/src",
        "syncer/core/src",
        "syncer/cli/src",
        "syncer/contract/src",
        "syncer/testkit/src",
        "syncer/trend/src",
        "operator/src",
        "operator/api/src",
        "operator/migrate/src",
        "benches/src",
        "e2e/src",
    ] {
        sources(&repository(folder), &mut files);
    }
    assert!(files.len() > 300, "{} files", files.len());
    let spelled = files.iter().filter(|file| !file.ends_with("reason/table.rs")).flat_map(|file| {
        let words = reasons_in(&read(file)).into_iter();
        words.map(|word| format!("{}: {word}", file.display())).collect::<Vec<_>>()
    });
    let spelled: Vec<String> = spelled.collect();
    assert!(spelled.is_empty(), "write Reason::… in place of {spelled:#?}");
}

/// Returns the reasons that the code of a file spells: as a whole literal, or in a longer one if the word has several
/// parts, since one like `Slower` also begins sentences.
fn reasons_in(text: &str) -> BTreeSet<String> {
    let code = text.split("mod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "").replace("'\"'", "");
    let is_reason =
        |word: &&str| !ALSO_OTHER_WORDS.contains(word) && !matches!(Reason::from(*word), Reason::Other(_));
    let has_parts = |word: &&str| word.chars().skip(1).any(char::is_uppercase);
    let whole = code.split('"').filter(is_reason);
    let literals = code.split('"').skip(1).step_by(2);
    let words = literals.flat_map(|literal| literal.split(|c: char| !c.is_alphanumeric()));
    whole.chain(words.filter(has_parts).filter(is_reason)).map(str::to_owned).collect()
}

#[test]
fn reasons_are_found_in_literals_and_not_in_code_and_comments() {
    let code = "// \"PeerLost\"\nlet a = Reason::PeerLost;\nlet b = [\"Slower\", \"Slower: than \\\"usual\\\"\"];\n\
        let c = '\"';\nlet d = \"reason=Capturing,NotAllowed\";\nmod tests {\n\"PodLost\"";
    assert_eq!(Vec::from_iter(reasons_in(code)), ["NotAllowed", "Slower"]);
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
