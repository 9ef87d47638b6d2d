//! Tests that the pages of the book say what the programs know: their SyncJobs are admitted, their commands have no
//! flag that the reference does not have, and what they claim over other tools has a test.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use operator::{
    api::admission::{Admitted, admit},
    sets::members,
    spec::validate::validate,
};
use regex::{Captures, Regex};
use serde_json::Value;

fn book() -> PathBuf {
    Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../docs/src")
}

/// Returns the pages that people write, each with its name and text.
fn pages(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("reference") {
            found.append(&mut pages(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

/// Returns the blocks of code of a page in one of those languages.
fn blocks(text: &str, languages: &[&str]) -> Vec<String> {
    let fence = Regex::new(r"(?ms)^```([a-z]+)\n(.*?)^```$").unwrap();
    let blocks = fence.captures_iter(text).filter(|block| languages.contains(&&block[1]));
    blocks.map(|block| block[2].to_string()).collect()
}

/// Returns the manifests of a page: its blocks of YAML, and what its commands apply.
fn manifests(text: &str) -> Vec<String> {
    let applied = Regex::new(r"(?ms)<<'?EOF'?\n(.*?)^EOF$").unwrap();
    let commands = blocks(text, &["sh", "console"]);
    let applied = commands.iter().flat_map(|block| applied.captures_iter(block));
    let applied: Vec<_> = applied.map(|found| with_variables(&found[1])).collect();
    [blocks(text, &["yaml"]), applied].concat()
}

/// Puts values in the place of what the commands of a page have found out.
fn with_variables(manifest: &str) -> String {
    let key = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";
    let time = "2026-11-25T18:00:00Z";
    manifest.replace("$address", "203.0.113.7::web").replace("$key", key).replace("$(cat yesterday)", time)
}

#[test]
fn each_sync_job_of_the_book_is_admitted() {
    let mut jobs = 0;
    for (page, text) in pages(&book()) {
        for manifest in manifests(&text).iter().filter(|it| it.contains("kind: SyncJob")) {
            let parsed: Vec<Value> = serde_saphyr::from_multiple(manifest)
                .unwrap_or_else(|error| panic!("{page}: {error}:\n{manifest}"));
            for object in parsed.iter().filter(|it| it["kind"] == "SyncJobSet") {
                let Ok(Admitted::SyncJobSet(set)) = admit(object.clone()) else {
                    panic!("{page}:\n{manifest}")
                };
                assert_eq!(members::plan(&set, &[], &[]).problems, [], "{page}");
            }
            for object in parsed.into_iter().filter(|it| it["kind"] == "SyncJob") {
                let Admitted::SyncJob(job) =
                    admit(object).unwrap_or_else(|error| panic!("{page}: {error}:\n{manifest}"))
                else {
                    panic!("{page}: not a SyncJob:\n{manifest}")
                };
                validate(&job.spec, "page", "default").unwrap_or_else(|error| panic!("{page}: {error}"));
                jobs += 1;
            }
        }
    }
    assert!(jobs > 15, "{jobs} SyncJobs were found");
}

#[test]
fn commands_of_the_book_have_only_flags_of_the_reference() {
    let programs = [("kubectl volferry", "kubectl-volferry"), ("volferry-operator", "volferry-operator")];
    let flag = Regex::new(r"(?:^|\s)(--[a-z][a-z0-9-]+)").unwrap();
    // What the plugin passes on to `volferry` follows two dashes.
    let passed_on = Regex::new(r"kubectl volferry (push|pull|copy) [^\n]* -- ").unwrap();
    let mut seen = BTreeSet::new();
    for (page, text) in pages(&book()) {
        let code = blocks(&text, &["sh", "console", "ini"]).concat().replace("\\\n", " ");
        let code =
            passed_on.replace_all(&code, |found: &Captures<'_>| format!("{}\nvolferry sync ", &found[0]));
        let commands = code.lines().flat_map(|line| line.split(['|', ';', '#']));
        let ours = |it: &&str| it.contains("volferry ") || it.starts_with("OPTIONS=");
        let of_others = |it: &&str| it.contains("helm ") || it.contains("pv-migrate ");
        for command in commands.filter(ours).filter(|it| !of_others(it)) {
            let program = programs.iter().find(|(typed, _)| command.contains(typed));
            let program = match program {
                Some((_, program)) => program,
                None if command.contains("kubectl ") => continue,
                None => "volferry",
            };
            let reference = fs::read_to_string(book().join(format!("reference/{program}.md"))).unwrap();
            for found in flag.captures_iter(command).map(|found| found[1].to_string()) {
                let known = Regex::new(&format!(r"(?m)(^|\s){found}([ =\[,]|$)")).unwrap();
                assert!(known.is_match(&reference), "{page}: {program} has no {found}: {command}");
                seen.insert(found);
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn each_ability_in_the_table_of_features_has_its_test() {
    let link = r#"\[test\]\(https://github.com/volferry/volferry/blob/main/(\S+) "(\w+)"\)"#;
    let link = Regex::new(link).unwrap();
    let page = fs::read_to_string(book().join("features.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    let mut shown = 0;
    for row in rows {
        let is_there = row.split('|').nth(2).unwrap().trim() != "–";
        let test = link.captures(row);
        assert_eq!(test.is_some(), is_there, "{row}");
        // What Volferry does not do, the roadmap wants or does not want.
        assert!(is_there || row.contains("wanted](project/roadmap.md"), "{row}: is it still missing?");
        let Some(test) = test else { continue };
        let tests = fs::read_to_string(book().join("../..").join(&test[1]))
            .unwrap_or_else(|error| panic!("{row}: {error}"));
        assert!(tests.contains(&format!("fn {}(", &test[2])), "{row}: there is no such test");
        shown += 1;
    }
    assert!(shown > 40, "{shown} rows were found");
}

#[test]
fn the_page_of_features_names_the_version_of_volsync_that_was_measured() {
    let root = book().join("../..");
    let page = fs::read_to_string(book().join("features.md")).unwrap();
    let said = Regex::new(r"with VolSync (v[0-9.]+),").unwrap().captures(&page).unwrap()[1].to_string();
    let measured = fs::read_to_string(root.join("benches/results/beside-volsync.md")).unwrap();
    assert!(measured.contains(&format!("VolSync {said},")), "{said} was not measured");
}
