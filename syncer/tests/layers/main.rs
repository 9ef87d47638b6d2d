//! No imports in a circle: no file imports another that imports it, directly or through others, and no folder of the
//! engine does; no module of the engine imports one of a higher layer. The layers are the table in
//! `syncer/doc/design.md`.

mod acting;
mod imports;
mod lengths;
mod names;
mod removers;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use imports::{among, circle_in, imports_of};

/// The crates, by their folders, whose files may not import one another in a circle.
const CRATES: [&str; 11] = [
    "syncer/contract",
    "syncer/core",
    "syncer/testkit",
    "syncer/trend",
    "syncer",
    "syncer/bucket",
    "syncer/cli",
    "operator",
    "operator/api",
    "operator/migrate",
    "e2e",
];

#[test]
fn no_file_imports_another_in_a_circle() {
    for folder in CRATES {
        let mut imports = imports_of(&repository().join(folder).join("src"));
        assert!(imports.len() > 4, "{folder}: {} files", imports.len());
        if folder == "syncer" {
            // The engine's root only passes names on, in both directions.
            imports.remove("");
        }
        if let Some(circle) = circle_in(&imports) {
            panic!("{folder}: a circle of imports: {}", circle.join(" -> "));
        }
    }
}

#[test]
fn no_folder_of_the_engine_imports_another_in_a_circle() {
    for of in ["syncer/core", "syncer"] {
        let imports = imports_of(&repository().join(of).join("src"));
        let folders: BTreeSet<&str> =
            imports.keys().flat_map(|file| file.match_indices("::").map(|(at, _)| &file[..at])).collect();
        assert!(folders.len() > 2, "{of}: {folders:?}");
        for folder in folders.into_iter().chain([""]) {
            if let Some(circle) = circle_in(&among(folder, &imports)) {
                panic!("{of}/{folder}: a circle of imports: {}", circle.join(" -> "));
            }
        }
    }
}

#[test]
fn no_module_of_the_engine_imports_one_of_a_layer_above() {
    let layers = layers();
    for folder in ["syncer/core", "syncer"] {
        let imports = imports_of(&repository().join(folder).join("src"));
        let layer_of = |module: &str| {
            let top = module.split("::").next().unwrap_or_default();
            let found = layers.iter().position(|(of, names)| of == folder && names.contains(top));
            found.unwrap_or_else(|| panic!("{folder}: `{top}` is in no layer of syncer/doc/design.md"))
        };
        for (file, imported) in imports.iter().filter(|(file, _)| !file.is_empty()) {
            for import in imported.iter().filter(|import| !import.is_empty()) {
                assert!(
                    layer_of(import) <= layer_of(file),
                    "{folder}: {file} imports {import}, a layer above"
                );
            }
        }
        let known: BTreeSet<_> = imports.keys().filter_map(|file| file.split("::").next()).collect();
        for (_, names) in layers.iter().filter(|(of, _)| of == folder) {
            names
                .iter()
                .for_each(|name| assert!(known.contains(name.as_str()), "{folder}: no module {name}"));
        }
    }
}

/// Returns the rows of the table of layers, bottom first: the folder of a crate, and modules of it.
fn layers() -> Vec<(String, BTreeSet<String>)> {
    let design = fs::read_to_string(repository().join("syncer/doc/design.md")).unwrap_or_default();
    let rows =
        design.lines().skip_while(|line| *line != "| crate | modules, the lowest layer first |").skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let mut quoted = line.split('`').skip(1).step_by(2).map(str::to_owned);
        (quoted.next().unwrap_or_default(), quoted.collect())
    });
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 5, "syncer/doc/design.md has no table of layers");
    rows
}

/// Returns whether a file has only tests.
fn is_test(module: &str) -> bool {
    module.split("::").any(|name| name == "tests")
}

/// Returns whether a module is the module `of`, or below it.
fn is_in(module: &str, of: &str) -> bool {
    module.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn repository() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    Path::new(&package).join("..")
}
