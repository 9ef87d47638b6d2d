//! Files of the operator that decide use no client and no clock.

use std::{collections::BTreeMap, fs};

use crate::{
    imports::{find_files, imports_of, without_tests},
    is_in, is_test, repository,
};

/// What a file names that talks to the API server, or reads the clock.
const ACTING: [&str; 5] = ["Client", "Api", "Timestamp::now", "SystemTime::now", "Instant::now"];

#[test]
fn files_of_the_operator_that_decide_use_no_client_and_no_clock() {
    let (src, acting) = (repository().join("operator/src"), acting_files());
    let acts = |module: &str| acting.iter().any(|of| is_in(module, of));
    let mut files = BTreeMap::new();
    find_files(&src, &mut Vec::new(), &mut files);
    let imports = imports_of(&src);
    for (module, text) in files.iter().filter(|(module, _)| !acts(module) && !is_test(module)) {
        if let Some(what) = acting_in(text) {
            panic!(
                "operator/src: {module} uses {what}, and operator/doc/design.md does not say that it acts"
            );
        }
        if let Some(import) = imports[module].iter().find(|import| acts(import)) {
            panic!("operator/src: {module} decides, and imports {import}, which acts");
        }
    }
    for folder in ["operator/api/src", "operator/migrate/src"] {
        let mut files = BTreeMap::new();
        find_files(&repository().join(folder), &mut Vec::new(), &mut files);
        for (module, text) in files.iter().filter(|(module, _)| !is_test(module)) {
            assert_eq!(acting_in(text), None, "{folder}: {module} acts");
        }
    }
    for of in &acting {
        let mut inside = files.keys().filter(|module| is_in(module, of));
        let is_needed = |module: &String| {
            acting_in(&files[module]).is_some()
                || imports[module].iter().any(|import| !is_in(import, of) && acts(import))
        };
        assert!(
            inside.any(is_needed) || ["bin", "main"].contains(&of.as_str()),
            "{of} does not act any more"
        );
    }
    assert_eq!(acting_in("// Client\nfn now(api: &Apis) -> Clients {}"), None);
    assert_eq!(acting_in("fn read(api: Api<Pod>) { jiff::Timestamp::now() }"), Some("Api"));
}

/// Returns the modules of the operator that may act, by the table of `operator/doc/design.md`: whole rooms, or files.
fn acting_files() -> Vec<String> {
    let design = fs::read_to_string(repository().join("operator/doc/design.md")).unwrap_or_default();
    let rows = design.lines().skip_while(|line| *line != "| room | files that act |").skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).flat_map(|line| {
        let mut quoted = line.split('`').skip(1).step_by(2);
        let room = quoted.next().unwrap_or_default();
        let files: Vec<_> = quoted.map(|file| format!("{room}::{file}")).collect();
        if files.is_empty() { vec![room.to_owned()] } else { files }
    });
    let acting: Vec<_> = rows.collect();
    assert!(acting.len() > 10, "operator/doc/design.md has no table of the files that act");
    acting
}

/// Returns the first name in a text, apart from its tests, that only files that act may use.
fn acting_in(text: &str) -> Option<&'static str> {
    let text = without_tests(text);
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    ACTING.into_iter().find(|name| {
        text.match_indices(name)
            .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
    })
}
