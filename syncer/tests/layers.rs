//! No imports in a circle: no file imports another that imports it, directly or through others, and no folder of the
//! engine does; no module of the engine imports one of a higher layer. The layers are the table in
//! `syncer/doc/design.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

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

/// The imports of each file: module paths of other files, by its own module path.
type Imports = BTreeMap<String, BTreeSet<String>>;

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

/// Returns whether a file has only tests.
fn is_test(module: &str) -> bool {
    module.split("::").any(|name| name == "tests")
}

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

/// Returns whether a module is the module `of`, or below it.
fn is_in(module: &str, of: &str) -> bool {
    module.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn circles_and_imports_are_found_where_they_are() {
    let text = "use crate::{a::B, c::{self, D as E}};\nuse super::f; // use crate::g;\n\
        #[cfg(test)]\nmod tests {\n    use crate::h;\n}\nfn i() { crate::j::k(super::l::m) }\n";
    let found = paths_in(&without_tests(text));
    assert_eq!(found, ["crate::a::B", "crate::c", "crate::c::D", "super::f", "crate::j::k", "super::l::m"]);
    let imports = |pairs: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in pairs {
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        imports
    };
    assert_eq!(circle_in(&imports(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    let circle = circle_in(&imports(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap();
    assert_eq!(circle, ["b", "c", "b"]);
}

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

/// The modules that remove or rename directory entries, and those entries; no other module of the engine does so.
const REMOVERS: [(&str, &str); 14] = [
    ("destination::state::made_mark", "the name under which a mark is written"),
    ("destination::remove_old_versions", "entries of the destination"),
    ("destination::state::dirty_mark", ".volferry/dirty-N"),
    ("destination::in_place::write_by_journal", ".volferry/journal"),
    ("destination::state::leftovers", ".volferry/staging"),
    ("destination::state::motion_notes", ".volferry/in-motion-N"),
    ("destination::state::private_dir", ".volferry of another user"),
    ("destination::staging::staged_dir", "new folders in staging, and files in them"),
    ("destination::state::state_dir", ".volferry/staging"),
    ("destination::state::state_names", ".volferry/staging"),
    ("destination::metadata::probe_file", "a file in staging that metadata is tried on"),
    ("destination::state::volume_id", ".volferry/volume"),
    ("source::remove_source_files", "entries of the source that a run moves"),
    ("snapshot", ".volferry/snapshots"),
];

/// The calls that remove or rename a directory entry, by any import.
const REMOVING: [&str; 9] = [
    "renameat",
    "renameat_with",
    "unlinkat",
    "unlink",
    "rmdir",
    "rename",
    "remove_file",
    "remove_dir",
    "remove_dir_all",
];

#[test]
fn old_versions_of_entries_leave_by_one_file() {
    let mut files = BTreeMap::new();
    find_files(&repository().join("syncer/src"), &mut Vec::new(), &mut files);
    let removing = |text: &str| {
        let text = without_tests(text);
        REMOVING.into_iter().find(|call| calls(&text, call))
    };
    let is_allowed = |module: &str| is_test(module) || REMOVERS.iter().any(|(of, _)| is_in(module, of));
    for (module, text) in files.iter().filter(|(module, _)| !is_allowed(module)) {
        if let Some(call) = removing(text) {
            panic!(
                "syncer/src: {module} calls {call}: old versions of entries leave by destination::remove_old_versions only"
            );
        }
    }
    for (of, what) in REMOVERS {
        let mut inside = files.iter().filter(|(module, _)| is_in(module, of));
        assert!(inside.any(|(_, text)| removing(text).is_some()), "{of} does not remove {what} any more");
    }
    for text in [
        "rustix::fs::unlinkat(dir, name)",
        "use rustix::fs::unlinkat;",
        "fs::rename(a, b)",
        "std::fs::remove_file(a)",
    ] {
        assert!(removing(text).is_some(), "{text}");
    }
    for text in
        ["destination.remove_file(dir, name)", "fn unlink(&self)", "renamed(listing)", "// fs::rename(a, b)"]
    {
        assert!(removing(text).is_none(), "{text}");
    }
}

/// Returns whether a file imports a function of a module `fs`, or calls it by its path.
fn calls(text: &str, function: &str) -> bool {
    let imported = uses_of(text).0.into_iter().any(|path| {
        path.rsplit_once("::").is_some_and(|(module, name)| name == function && module.ends_with("fs"))
    });
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let path = format!("fs::{function}");
    imported || text.match_indices(&path).any(|(at, _)| !text[at + path.len()..].starts_with(is_part))
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

fn repository() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    Path::new(&package).join("..")
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

/// Returns each file's imports of the other files below `src`. A file's name is its module path; that of the crate's
/// root is empty.
fn imports_of(src: &Path) -> Imports {
    let mut files = BTreeMap::new();
    find_files(src, &mut Vec::new(), &mut files);
    let resolve = |(module, text): (&String, &String)| {
        let paths = paths_in(&without_tests(text)).into_iter();
        let imported =
            paths.filter_map(|path| file_of(&path, module, &files)).filter(|other| other != module);
        (module.clone(), imported.collect())
    };
    files.iter().map(resolve).collect()
}

fn find_files(folder: &Path, above: &mut Vec<String>, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap_or_else(|error| panic!("{error}")).path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            above.push(name);
            find_files(&path, above, files);
            above.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_folder = ["mod", "lib"].contains(&name.as_str());
            let module: Vec<_> = above.iter().cloned().chain((!is_folder).then_some(name)).collect();
            files.insert(module.join("::"), fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// Returns the module path of the file with the item `path`, as used in the file of `module`; `None` for items of
/// another crate.
fn file_of(path: &str, module: &str, files: &BTreeMap<String, String>) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").filter(|name| !name.is_empty()).collect();
    let mut names = path.split("::").peekable();
    match names.peek().copied() {
        Some("crate") => at.clear(),
        Some("super" | "self") => {}
        Some(first) if files.contains_key(&join(&at, first)) => {}
        _ => return None,
    }
    for name in names {
        match name {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            name if files.contains_key(&join(&at, name)) => at.push(name),
            _ => break,
        }
    }
    Some(at.join("::"))
}

fn join(above: &[&str], name: &str) -> String {
    above.iter().copied().chain([name]).collect::<Vec<_>>().join("::")
}

/// Returns the imports among the files and folders that are directly in a folder. Files of tests may import anything.
fn among(folder: &str, imports: &Imports) -> Imports {
    let child = |module: &str| {
        let below =
            if folder.is_empty() { module } else { module.strip_prefix(folder)?.strip_prefix("::")? };
        below.split("::").next().filter(|name| !name.is_empty()).map(str::to_owned)
    };
    let mut inside = Imports::new();
    for (file, imported) in imports.iter().filter(|(file, _)| !file.ends_with("tests")) {
        let Some(from) = child(file) else { continue };
        let to = imported.iter().filter_map(|import| child(import)).filter(|to| *to != from);
        inside.entry(from.clone()).or_default().extend(to);
    }
    inside
}

/// Returns the text without comments and without the modules of tests.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().map(|line| line.split("//").next().unwrap_or_default()).peekable();
    while let Some(line) = lines.next() {
        let is_module = |next: &&str| next.contains("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(is_module) {
            lines.by_ref().take_while(|line| *line != "}").for_each(drop);
            continue;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Returns the paths that a file imports by `use`, and the paths in its code from the root of its crate.
fn paths_in(text: &str) -> Vec<String> {
    let (mut paths, rest) = uses_of(text);
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let is_whole = |at: usize| !rest[..at].ends_with(is_path);
    let begins = ["crate::", "super::"].into_iter().flat_map(|begin| rest.match_indices(begin));
    let inline = begins.map(|(at, _)| at).filter(|at| is_whole(*at));
    paths.extend(inline.map(|at| rest[at..].chars().take_while(|c| is_path(*c)).collect::<String>()));
    paths
}

/// Returns the paths that a file imports by `use`, and the rest of its text.
fn uses_of(text: &str) -> (Vec<String>, String) {
    let (mut paths, mut rest, mut tree) = (Vec::new(), String::new(), None::<String>);
    for line in text.lines() {
        let begun = tree.take().or_else(|| used_in(line).map(|_| String::new()));
        let Some(mut begun) = begun else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        begun.push_str(used_in(line).unwrap_or(line));
        match begun.split_once(';') {
            Some((whole, _)) => expand("", whole, &mut paths),
            None => tree = Some(begun),
        }
    }
    (paths, rest)
}

/// Returns the text after `use` in a line that begins with it.
fn used_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = ["pub(crate) ", "pub(super) ", "pub "]
        .iter()
        .find_map(|word| line.strip_prefix(word))
        .unwrap_or(line);
    line.strip_prefix("use ")
}

/// Expands a tree of paths in braces into single paths.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((path, inside)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        let path = format!("{prefix}{name}");
        return paths.push(path.strip_suffix("::self").map_or(path.clone(), str::to_owned));
    };
    let prefix = format!("{prefix}{}", path.trim());
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let item = inside.get(start..at).unwrap_or_default();
                if !item.trim().is_empty() {
                    expand(&prefix, item, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Returns a circle among the imports, from a file to itself, if there is one.
fn circle_in(imports: &Imports) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    imports.keys().find_map(|file| circle_from(file, imports, &mut Vec::new(), &mut done))
}

fn circle_from<'i>(
    file: &'i str,
    imports: &'i Imports,
    above: &mut Vec<&'i str>,
    done: &mut BTreeSet<&'i str>,
) -> Option<Vec<String>> {
    if let Some(at) = above.iter().position(|other| *other == file) {
        return Some(above[at..].iter().copied().chain([file]).map(str::to_owned).collect());
    }
    if done.contains(file) {
        return None;
    }
    above.push(file);
    let circle = imports
        .get(file)
        .and_then(|imported| imported.iter().find_map(|import| circle_from(import, imports, above, done)));
    above.pop();
    done.insert(file);
    circle
}
