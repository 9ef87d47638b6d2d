//! Trees on volumes: listings made by programs other than the tested ones, and a script that makes a tree with every
//! attribute that a run has to keep.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::syncjob;

/// One entry of a tree, as `find` and `sha256sum` see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `f`, `d` or `l`.
    pub kind: String,
    /// Permission bits, octal.
    pub mode: String,
    /// Seconds since the epoch, with nanoseconds.
    pub mtime: String,
    /// `user:group`, by number.
    pub owner: String,
    /// Bytes; empty for a directory, whose size has no meaning.
    pub size: String,
    /// The path that a symbolic link contains.
    pub target: Vec<u8>,
    /// SHA-256 of a file's content.
    pub hash: String,
}

/// All entries of a tree by their paths, without its root and `.volferry`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing(pub BTreeMap<Vec<u8>, Entry>);

impl Listing {
    /// A script that lists the entries of its working folder.
    pub const FIND: &str =
        r"find . -mindepth 1 -path ./.volferry -prune -o -printf '%y\0%m\0%T@\0%U:%G\0%s\0%l\0%P\0'";
    /// A script that hashes the files of its working folder.
    pub const HASH: &str = "find . -path ./.volferry -prune -o -type f -print0 | xargs -0r sha256sum -z";

    /// Parses the output of the two scripts.
    pub fn parse(entries: &[u8], hashes: &[u8]) -> Result<Self> {
        let mut listing = Self::default();
        let fields: Vec<&[u8]> =
            entries.strip_suffix(b"\0").unwrap_or(entries).split(|byte| *byte == 0).collect();
        for entry in fields.chunks(7).filter(|entry| entry.len() > 1) {
            let [kind, mode, mtime, owner, size, target, path] = entry else {
                anyhow::bail!("the listing breaks off at {}", entry.concat().escape_ascii());
            };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let size = if *kind == b"d" { String::new() } else { text(size) };
            let entry = Entry {
                kind: text(kind),
                mode: text(mode),
                mtime: text(mtime),
                owner: text(owner),
                size,
                target: target.to_vec(),
                hash: String::new(),
            };
            listing.0.insert(path.to_vec(), entry);
        }
        listing.read_hashes(hashes)?;
        Ok(listing)
    }

    fn read_hashes(&mut self, hashes: &[u8]) -> Result<()> {
        for line in hashes.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let (hash, path) = line.split_at_checked(64).context("a line without a hash")?;
            let path = path.strip_prefix(b"  ./").context("a line without a path")?;
            let entry = self.0.get_mut(path).context("a hash of what was not listed")?;
            entry.hash = String::from_utf8_lossy(hash).into_owned();
        }
        let missing = self.0.iter().find(|(_, entry)| entry.kind == "f" && entry.hash.is_empty());
        ensure!(missing.is_none(), "a file without a hash: {missing:?}");
        Ok(())
    }

    /// Returns the sum of the sizes of the files.
    pub fn bytes(&self) -> u64 {
        let files = self.0.values().filter(|entry| entry.kind == "f");
        files.filter_map(|entry| entry.size.parse::<u64>().ok()).sum()
    }

    /// Returns the listing without owners, for a sink that may not set them.
    #[must_use]
    pub fn without_owners(mut self) -> Self {
        self.0.values_mut().for_each(|entry| entry.owner.clear());
        self
    }
}

/// Compares two trees. Panics with the first differences, if there are any.
#[track_caller]
pub fn assert_same(source: &Listing, destination: &Listing) {
    let paths: BTreeSet<_> = source.0.keys().chain(destination.0.keys()).collect();
    let differing = paths.into_iter().filter(|path| source.0.get(*path) != destination.0.get(*path));
    let shown = differing.take(10).map(|path| {
        let (from, to) = (source.0.get(path), destination.0.get(path));
        format!("{}:\n  source {from:?}\n  destination {to:?}\n", path.escape_ascii())
    });
    let differences: String = shown.collect();
    assert!(differences.is_empty(), "the trees differ:\n{differences}");
}

/// A script that makes a tree with everything that a run keeps: nested and empty directories, empty, small and large
/// files, modes, times down to the nanosecond, links that point to a file, a folder, nothing and out of the tree, names
/// with blanks, newlines and bytes that are not UTF-8.
pub const VARIED: &str = r#"
    mkdir -p site/css site/img/deep/deeper empty/nested private
    for i in $(seq 200); do echo 'page '$i > site/page-$i.html; done
    for i in 1 2 3; do head -c $((i * 1000003)) /dev/urandom > site/img/photo-$i.raw; done
    head -c 20000000 /dev/urandom > site/img/deep/video.raw
    : > site/css/empty.css
    printf 'secret' > private/key; chmod 600 private/key; chmod 2750 private
    printf '#!/bin/sh\n' > site/run.sh; chmod 755 site/run.sh
    printf x > 'name with  blanks '; printf y > $'new\nline'; printf z > $'not-utf8-\xff\xfe'; printf q > $'quote\'\"\\'
    ln -s site/page-1.html to-file; ln -s site to-folder; ln -s nowhere dangling; ln -s ../../outside out; ln -s /etc/passwd absolute
    touch -h -d '2001-02-03 04:05:06.123456789' to-file
    touch -d '1999-12-31 23:59:59.999999999' site/page-2.html
    touch -d '2038-01-19 03:14:08.000000001' site/page-3.html
    chmod 555 site/css; touch -d '2020-02-02 02:02:02.020202020' site/css empty/nested empty site/img/deep
"#;

/// A script that makes a tree which takes a run with the spec of [`slowly`] many seconds to copy.
pub const SLOW: &str = "mkdir data; for i in $(seq 40); do head -c 5000000 /dev/urandom > data/$i; done";

/// A script that makes a tree of a single large file: whenever a run is stopped after its first bytes, it has received
/// a part of that file.
pub const ONE_LARGE_FILE: &str = "head -c 200000000 /dev/urandom > large";

/// Returns spec fields that make a run slow, so that a test can act before the run ends.
pub fn slowly() -> Value {
    json!({"pods": {"resources": {"limits": {"cpu": "60m"}, "requests": {"cpu": "10m"}}}})
}

/// Returns whether the status shows a run that has moved some of its data, but not all.
pub fn data_moves(run: &DynamicObject) -> bool {
    let number = |name: &str| syncjob::status(run, "/progress")[name].as_u64().unwrap_or(0);
    number("bytes") > 0 && number("bytes") < number("bytesTotal")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: &[u8] = b"d\x00755\x001.5\x000:0\x004096\x00\x00dir\x00f\x00644\x002.25\x001:2\x003\x00\x00dir/a\nb\x00l\x00777\x003\x000:0\x001\x00x\x00ln\x00";

    fn hashes() -> Vec<u8> {
        [&[b'0'; 64][..], b"  ./dir/a\nb\0"].concat()
    }

    #[test]
    fn a_listing_is_read_whatever_the_names_are() {
        let listing = Listing::parse(ENTRIES, &hashes()).unwrap();
        assert_eq!(listing.0.len(), 3);
        assert_eq!(listing.0[&b"dir/a\nb"[..]].mtime, "2.25");
        assert_eq!(listing.0[&b"ln"[..]].target, b"x");
        assert_eq!(listing.0[&b"dir"[..]].size, "");
        assert_eq!(listing.bytes(), 3);
    }

    #[test]
    fn a_file_that_was_not_hashed_is_an_error() {
        assert!(Listing::parse(ENTRIES, b"").is_err());
    }

    #[test]
    #[should_panic(expected = "the trees differ")]
    fn trees_that_differ_in_an_mtime_differ() {
        let listing = Listing::parse(ENTRIES, &hashes()).unwrap();
        let mut other = listing.clone();
        other.0.get_mut(&b"dir"[..]).unwrap().mtime = "1.6".into();
        assert_same(&listing, &other);
    }

    #[test]
    fn an_empty_volume_lists_nothing() {
        assert_eq!(Listing::parse(b"", b"").unwrap(), Listing::default());
    }
}
