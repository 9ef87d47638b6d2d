//! A disk that is attached as another device than before.

use crate::common::prelude::*;
use crate::{common::loops::Loop, volume::Volume};

#[test]
fn a_snapshot_of_an_unchanged_disk_adds_nothing_whatever_device_it_is_attached_as() {
    let Some(disk) = Disk::new("ext4", 64 << 20, "") else { return };
    let place = disk.path().join("place");
    fs::create_dir_all(place.join("volume/dir")).unwrap();
    fs::write(place.join("volume/dir/small"), "content").unwrap();
    let volume = Volume::at(place.join("volume"));
    let packs = || fs::read_dir(volume.store("packs")).map_or(0, Iterator::count);
    volume.let_stamps_settle();
    volume.create(&[]);
    let device = || fs::metadata(volume.path()).unwrap().dev();
    let (before, first) = (device(), packs());
    let others = scratch::on_disk();
    let mut taken = Vec::new();
    disk.remount("", |_| taken.extend(Loop::new(others.path(), "other", 1 << 20)));
    if taken.is_empty() || device() == before {
        eprintln!("skipped: the disk is attached as the same device");
        return;
    }
    volume.create(&[]);
    assert_eq!(packs(), first);
}
