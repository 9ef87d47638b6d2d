//! Types and files of the engine have names of their own.

use std::collections::BTreeMap;

use crate::{imports::find_files, is_test, repository};

#[test]
fn no_type_and_no_file_of_the_engine_has_the_name_of_another() {
    let mut types = BTreeMap::<String, Vec<String>>::new();
    let mut names = BTreeMap::<String, Vec<String>>::new();
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
    let shared = types.iter().chain(&names).filter(|(_, places)| places.len() > 1);
    let shared: Vec<_> = shared.map(|(name, places)| format!("{name}: {}", places.join(", "))).collect();
    assert!(shared.is_empty(), "names of several:\n{}", shared.join("\n"));
}

/// Returns the names of the types that a file defines, without the associated types of traits.
fn types_in(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        let is_type = ["struct", "enum", "trait", "type"].contains(&words.next()?);
        let name = words.next()?.split(|letter: char| !letter.is_alphanumeric()).next()?;
        let is_own = !line.starts_with(' ') || !line.trim_start().starts_with("type");
        (is_type && is_own).then_some(name)
    })
}
