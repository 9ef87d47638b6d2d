//! Each kind of stored object, byte for byte as each version of the program wrote it: today's reader reads all of them,
//! and today's writer writes the newest. A change of these bytes needs a new version, and its fixture beside the old
//! ones.

use std::{fs, os::fd::AsFd as _};

use super::store::{
    audit_log::{self, Log},
    folder::{self, EncodedFolder, Folder, NotFolder},
    folder_changes::{self, StoredFolder},
    snapshot_list::{self, NotRoots, Roots},
    store_files::{OLD_PACK_MAGIC, PACK_MAGIC},
};

const ROOTS_1: &[u8] = include_bytes!("fixtures/roots-1");
const ROOTS_2: &[u8] = include_bytes!("fixtures/roots-2");
const ROOTS_3: &[u8] = include_bytes!("fixtures/roots-3");
const ROOTS_4: &[u8] = include_bytes!("fixtures/roots-4");
const FOLDER_1: &[u8] = include_bytes!("fixtures/folder-1");
const FOLDER_2: &[u8] = include_bytes!("fixtures/folder-2");
const FOLDER_1_ID: &str = "51e2c9518b927c2242036bf5f86f549e10319e2165dc4d612d16ca98ed7bcc77";
const AUDIT_1: &[u8] = include_bytes!("fixtures/audit-1");

/// Pins, forgotten snapshots, tags and the rules of jobs are all in the list.
#[test]
fn the_list_has_the_bytes_that_it_always_had() {
    let list = snapshot_list::tests::three();
    assert_eq!(list.encode(), ROOTS_3);
    assert_eq!(Roots::decode(ROOTS_3), Ok(list.clone()));
    let uncounted = Roots { changes: 0, ..list };
    assert_eq!(Roots::decode(ROOTS_2), Ok(uncounted.clone()));
    assert_eq!(Roots::decode(ROOTS_1), Ok(Roots { rules: Default::default(), ..uncounted }));
}

#[test]
fn a_directory_has_the_bytes_that_it_always_had() {
    let sample = folder::tests::sample();
    let EncodedFolder { id, bytes } = sample.encode();
    assert_eq!(bytes, FOLDER_1);
    assert_eq!(Folder::decode(FOLDER_1), Ok(sample));
    assert_eq!(blake3::Hash::from_bytes(id.0).to_hex().as_str(), FOLDER_1_ID);
    assert_eq!((PACK_MAGIC, OLD_PACK_MAGIC), (b"vfpack\x02\0", b"vfpack\x01\0"));
}

#[test]
fn what_differs_of_a_directory_has_the_bytes_that_it_always_had() {
    let (changed, changes) = folder_changes::tests::changed_sample();
    assert_eq!(changes.encode(), FOLDER_2);
    let StoredFolder::Changes(read) = StoredFolder::decode(FOLDER_2).unwrap() else { panic!("it is whole") };
    assert_eq!(read.apply(&Folder::decode(FOLDER_1).unwrap()), Ok(changed));
}

#[test]
fn the_log_has_the_bytes_that_it_always_had() {
    let dir = tempfile::tempdir().unwrap();
    let fd = fs::File::open(dir.path()).unwrap();
    let events: Vec<_> = (0..3).map(audit_log::tests::event).collect();
    events
        .iter()
        .for_each(|event| audit_log::append(fd.as_fd(), event, &|_| false, audit_log::Durable::Now).unwrap());
    assert_eq!(fs::read(dir.path().join("audit")).unwrap(), AUDIT_1);
    assert_eq!(Log::decode(AUDIT_1), Log { events, broken: None });
}

#[test]
fn a_version_that_is_not_known_is_named() {
    for version in [5, 9, u32::MAX] {
        let head = [&ROOTS_3[..8], &version.to_le_bytes(), &ROOTS_3[12..20]].concat();
        let list = [&head[..], &folder::check_of(&head), &ROOTS_3[28..]].concat();
        assert_eq!(Roots::decode(&list), Err(NotRoots::Version(version)));
    }
    let mut bytes = FOLDER_1[..FOLDER_1.len() - 8].to_vec();
    bytes[0] = 3;
    assert_eq!(StoredFolder::decode(&folder::with_check(bytes)), Err(NotFolder::Version(3)));
}

/// Only a list with a snapshot that was copied from another volume is of version 4.
#[test]
fn a_list_with_a_copied_snapshot_has_the_bytes_that_it_always_had() {
    let mut list = snapshot_list::tests::three();
    list.snapshots[1].origin = Some(contract::VolumeId::new([7; 16]));
    assert_eq!(list.encode(), ROOTS_4);
    assert_eq!(Roots::decode(ROOTS_4), Ok(list));
}
