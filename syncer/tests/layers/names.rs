//! Types of the engine and of the operator, and files of the engine, have names of their own.

use std::collections::BTreeMap;

use crate::{imports::find_files, is_in, is_test, repository};

/// Where each name is, to find those of several.
type Places = BTreeMap<String, Vec<String>>;

#[test]
fn no_type_and_no_file_of_the_engine_has_the_name_of_another() {
    let (mut types, mut names) = (Places::new(), Places::new());
    for folder in ["syncer/core", "syncer"] {
        let src = repository().join(folder).join("src");
        let mut files = BTreeMap::new();
        find_files(&src, &mut Vec::new(), &mut files);
        for (module, text) in files.iter().filter(|(module, _)| !is_test(module)) {
            let place = format!("{folder} {module}");
            let is_folder = files.keys().any(|other| other.starts_with(&format!("{module}::")));
            let name = module.rsplit("::").next().filter(|name| !is_folder && !name.is_empty());
            name.into_iter().for_each(|name| names.entry(name.to_owned()).or_default().push(place.clone()));
            types_in(text).for_each(|name| types.entry(name.to_owned()).or_default().push(place.clone()));
        }
    }
    assert!(types.len() > 300 && names.len() > 90, "{} types, {} files", types.len(), names.len());
    let shared = [shared(&types), shared(&names)].concat();
    assert!(shared.is_empty(), "names of several:\n{}", shared.join("\n"));
}

#[test]
fn no_type_of_the_operator_has_the_name_of_another() {
    let (mut types, mut files) = (Places::new(), BTreeMap::new());
    find_files(&repository().join("operator/src"), &mut Vec::new(), &mut files);
    // These are programs of their own.
    let is_program = |module: &str| ["main", "bin"].iter().any(|program| is_in(module, program));
    for (module, text) in files.iter().filter(|(module, _)| !is_test(module) && !is_program(module)) {
        types_in(text).for_each(|name| types.entry(name.to_owned()).or_default().push(module.clone()));
    }
    assert!(types.len() > 300, "{} types", types.len());
    assert!(shared(&types).is_empty(), "names of several:\n{}", shared(&types).join("\n"));
}

/// Returns the names that are at several places.
fn shared(names: &Places) -> Vec<String> {
    let shared = names.iter().filter(|(_, places)| places.len() > 1);
    shared.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

/// Returns the names of the types that a file defines, without the associated types of traits.
fn types_in(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let is_visibility = |word: &&str| word.starts_with("pub") || *word == "super::super)";
        let mut words = line.split_whitespace().skip_while(is_visibility);
        let is_type = ["struct", "enum", "trait", "type"].contains(&words.next()?);
        let name = words.next()?.split(|letter: char| !letter.is_alphanumeric()).next()?;
        let is_own = !line.starts_with(' ') || !line.trim_start().starts_with("type");
        (is_type && is_own).then_some(name)
    })
}
