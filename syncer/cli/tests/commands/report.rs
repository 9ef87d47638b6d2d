//! `volferry report` on the reports of real runs.

use std::fs;

use crate::cli::volferry;

#[test]
fn runs_that_were_reported_are_told_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    fs::create_dir(path("source")).unwrap();
    fs::write(path("source/a"), "hello").unwrap();
    for report in ["1.json", "2.json"] {
        let ran = volferry(["sync", "--report", &path(report), &path("source"), &path("destination")]);
        assert!(ran.status.success(), "{ran:?}");
    }
    let files = [path("2.json"), path("1.json")];
    let told = |form: &[&str]| {
        let told = volferry([&["report", &files[0], &files[1]], form].concat());
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    };

    let table = told(&[]);
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.lines().nth(1).unwrap().contains("  first "), "{table}");
    let json: serde_json::Value = serde_json::from_str(&told(&["--json"])).unwrap();
    assert_eq!([&json["runs"][0]["kind"], &json["runs"][1]["kind"]], ["first", "unchanged"]);
    assert_eq!(told(&["--csv"]).lines().count(), 3);
    assert_eq!(told(&["--html", &path("page.html")]), "");
    assert!(fs::read_to_string(path("page.html")).unwrap().contains("id=\"run-1\""));
}

#[test]
fn a_file_that_is_no_report_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content, says) in [
        ("a", "{\"runs\": 3", "is not a report"),
        ("b", "", "has no report"),
        ("c", "{}", "is not a report"),
        ("d", "[]", "is not a report"),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let refused = volferry(["report", path.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1));
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(says), "{error}");
        assert_eq!(
            error.contains("hint: `volferry sync --report FILE`"),
            says == "is not a report",
            "{error}"
        );
    }
}
