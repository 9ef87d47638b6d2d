//! Reads the imports of Rust files, and finds circles among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The imports of each file: module paths of other files, by its own module path.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns each file's imports of the other files below `src`. A file's name is its module path; that of the crate's
/// root is empty.
pub(crate) fn imports_of(src: &Path) -> Imports {
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

pub(crate) fn find_files(folder: &Path, above: &mut Vec<String>, files: &mut BTreeMap<String, String>) {
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
pub(crate) fn among(folder: &str, imports: &Imports) -> Imports {
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
pub(crate) fn without_tests(text: &str) -> String {
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
pub(crate) fn paths_in(text: &str) -> Vec<String> {
    let (mut paths, rest) = uses_of(text);
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let is_whole = |at: usize| !rest[..at].ends_with(is_path);
    let begins = ["crate::", "super::"].into_iter().flat_map(|begin| rest.match_indices(begin));
    let inline = begins.map(|(at, _)| at).filter(|at| is_whole(*at));
    paths.extend(inline.map(|at| rest[at..].chars().take_while(|c| is_path(*c)).collect::<String>()));
    paths
}

/// Returns the paths that a file imports by `use`, and the rest of its text.
pub(crate) fn uses_of(text: &str) -> (Vec<String>, String) {
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
pub(crate) fn circle_in(imports: &Imports) -> Option<Vec<String>> {
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
