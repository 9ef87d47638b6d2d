//! A list of the paths that a run is limited to, looked up directory by directory. Pure: the paths come in as bytes.

use std::{iter, ops::Range, sync::Arc};

use crate::tree::path::{PathError, RelPath};

/// The listed paths at or below one directory.
#[derive(Debug, Clone)]
pub struct PathList {
    /// All of the list, sorted; no path is below another.
    paths: Arc<[RelPath]>,
    /// The range of the paths at or below the directory.
    range: Range<usize>,
    /// The length of the directory's path, with the slash behind it.
    prefix: usize,
}

impl PathList {
    /// Reads paths relative to the root, in any order.
    ///
    /// # Errors
    /// If one is not a path below the root.
    pub fn parse(paths: &[Vec<u8>]) -> Result<Self, PathError> {
        let mut paths = paths.iter().map(|path| RelPath::parse(path)).collect::<Result<Vec<_>, _>>()?;
        paths.sort_unstable_by(|a, b| a.names().cmp(b.names()));
        // A path sorts behind its parents, which cover it.
        paths.dedup_by(|below, above| below.starts_with(above));
        Ok(Self { range: 0..paths.len(), paths: paths.into(), prefix: 0 })
    }

    /// Yields the names in the directory that are listed or lead to listed paths, in order. A name has the list below
    /// it unless it is listed itself, with everything in it.
    pub fn names(&self) -> impl Iterator<Item = (&[u8], Option<Self>)> {
        let mut at = self.range.start;
        iter::from_fn(move || {
            let (name, start) = (self.name_at(at)?, at);
            let is_listed = self.paths[start].as_bytes().len() == self.prefix + name.len();
            let rest = start..self.range.end;
            at += rest.clone().take_while(|at| self.name_at(*at) == Some(name)).count();
            let (range, prefix) = (start..at, self.prefix + name.len() + 1);
            let below = (!is_listed).then(|| Self { paths: Arc::clone(&self.paths), range, prefix });
            Some((name, below))
        })
    }

    /// Yields the listed paths.
    pub fn paths(&self) -> &[RelPath] {
        &self.paths[self.range.clone()]
    }

    /// Returns the name in the directory that leads to the path at this index.
    fn name_at(&self, index: usize) -> Option<&[u8]> {
        let path = self.paths.get(index).filter(|_| self.range.contains(&index))?;
        let rest = path.as_bytes().get(self.prefix..)?;
        rest.split(|byte| *byte == b'/').next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(paths: &[&str]) -> PathList {
        PathList::parse(&paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>()).unwrap()
    }

    /// Walks the list. Returns each name with its depth, and a plus if everything below it is listed.
    fn walk(list: &PathList, depth: usize, found: &mut Vec<String>) {
        for (name, below) in list.names() {
            let mark = if below.is_none() { "+" } else { "" };
            found.push(format!("{depth}{}{mark}", String::from_utf8_lossy(name)));
            below.iter().for_each(|below| walk(below, depth + 1, found));
        }
    }

    fn walked(paths: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        walk(&list(paths), 0, &mut found);
        found
    }

    #[test]
    fn names_come_once_and_in_order_whatever_the_order_of_the_list() {
        assert_eq!(
            walked(&["b", "a/y", "a.z/q", "a/x/deep", "a/y"]),
            ["0a", "1x", "2deep+", "1y+", "0a.z", "1q+", "0b+"]
        );
        assert_eq!(walked(&[]), [] as [&str; 0]);
    }

    #[test]
    fn a_listed_directory_stands_for_everything_below_it() {
        assert_eq!(walked(&["a/x/deep", "a", "a/y", "ab"]), ["0a+", "0ab+"]);
        assert_eq!(list(&["a/x", "a", "ab"]).paths().len(), 2);
    }

    #[test]
    fn what_leads_out_of_the_root_is_no_path() {
        for bad in ["", "/a", "a/", "../a", "a/../b", "a//b", "a\0"] {
            assert!(PathList::parse(&[bad.as_bytes().to_vec()]).is_err(), "{bad:?}");
        }
    }
}
