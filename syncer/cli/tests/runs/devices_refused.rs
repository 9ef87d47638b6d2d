//! Block devices and images that a run refuses, and leaves as they are.

use std::fs::File;

use super::devices::{End, MIB, Stage, write, write_new};
use crate::common::{disk, loops::Loop, prelude::*, watch::LastClose};

#[test]
fn a_tree_and_a_device_do_not_go_together() {
    for way in Way::ALL {
        let mut pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        let image = pair.dir().join("image");
        write_new(&image, &[5; 5000]);
        let (folder, destination) = (pair.source.clone(), pair.destination.clone());
        let device = Loop::new(pair.dir(), "disk", MIB);
        let devices = [Some(image), device.as_ref().map(|device| device.device.clone())];
        for device in devices.into_iter().flatten() {
            (pair.source, pair.destination, pair.is_of_devices) = (folder.clone(), device.clone(), false);
            assert_mismatch(&pair, &device);
            (pair.source, pair.destination, pair.is_of_devices) = (device.clone(), destination.clone(), true);
            assert_mismatch(&pair, &destination);
            assert_eq!(fs::read_dir(&destination).unwrap().count(), 0, "{way:?}");
        }
        assert_eq!(fs::read(pair.dir().join("image")).unwrap(), [5; 5000], "{way:?}");
    }
}

#[track_caller]
fn assert_mismatch(pair: &Pair, named: &Path) {
    for flags in [&[][..], &["--dry-run"]] {
        let run = pair.run_to(ExitCode::Usage, flags);
        for end in run.ends() {
            assert_eq!(end.reason(), "KindMismatch", "{:?}", pair.way);
            let message = &end.report().message;
            assert!(message.contains(text(named)) && message.contains("name a"), "{message}");
        }
    }
}

#[test]
fn flags_of_files_and_folders_are_refused() {
    for way in Way::ALL {
        let stage = Stage::new(way, [End::Image; 2], [MIB; 2]).unwrap();
        for flag in ["--delete", "--exclude=x", "--min-size=1", "--no-times", "--force", "--source-path=x"] {
            let run = stage.pair.run_to(ExitCode::Usage, &[flag]);
            let name = flag.split('=').next().unwrap();
            for end in run.ends() {
                assert_eq!(end.reason(), "NotForDevices", "{way:?} {flag}");
                assert!(end.report().message.starts_with(name), "{}", end.report().message);
            }
        }
        assert!(!stage.pair.destination.exists());
    }
}

#[test]
fn a_device_is_not_synced_onto_itself() {
    let mut stage = Stage::new(Way::Local, [End::Image; 2], [MIB; 2]).unwrap();
    stage.pair.destination = stage.pair.dir().join("link");
    symlink(&stage.pair.source, &stage.pair.destination).unwrap();
    let run = stage.pair.run_to(ExitCode::Failed, &[]);
    assert_eq!(run.report().reason.as_deref(), Some("SameTree"));
}

#[test]
fn an_image_that_another_run_writes_to_is_refused() {
    for way in Way::ALL {
        let stage = Stage::new(way, [End::Image; 2], [MIB; 2]).unwrap();
        write_new(&stage.pair.destination, b"old");
        let held = File::open(&stage.pair.destination).unwrap();
        held.lock().unwrap();
        let run = stage.pair.run_to(ExitCode::Failed, &[]);
        run.ends().for_each(|end| assert_eq!(end.reason(), "DestinationBusy", "{way:?}"));
        assert_eq!(fs::read(&stage.pair.destination).unwrap(), b"old", "{way:?}");
    }
}

#[test]
fn a_device_that_another_process_writes_to_is_refused_and_one_that_is_only_read_is_not() {
    let Some(stage) = Stage::new(Way::Local, [End::Device; 2], [MIB; 2]) else { return };
    write(&stage.pair.source, 0, &Rng::new(21).bytes(MIB as usize));
    let opened = File::options().write(true).open(&stage.pair.destination).unwrap();
    let closed = LastClose::of(&opened);
    let run = stage.pair.run_to(ExitCode::Failed, &[]);
    assert_eq!(run.report().reason.as_deref(), Some("DestinationBusy"));
    drop(opened);
    closed.wait();
    let _reading = File::open(&stage.pair.destination).unwrap();
    stage.pair.done(&[]);
}

#[test]
fn a_source_without_bytes_and_a_place_without_a_folder_are_refused() {
    for way in Way::ALL {
        let stage = Stage::new(way, [End::Image; 2], [0; 2]).unwrap();
        write_new(&stage.pair.destination, b"a good backup");
        let run = stage.pair.run_to(ExitCode::Failed, &[]);
        run.ends().for_each(|end| assert_eq!(end.reason(), "DeviceUnreadable", "{way:?}"));
        assert_eq!(fs::read(&stage.pair.destination).unwrap(), b"a good backup", "{way:?}");
        let mut stage = Stage::new(way, [End::Image; 2], [MIB; 2]).unwrap();
        stage.pair.destination = stage.pair.dir().join("no/such/image");
        let run = stage.pair.run_to(ExitCode::Failed, &[]);
        let missing: PathBuf = stage.pair.dir().join("no/such");
        let message = &run.ends().last().unwrap().report().message;
        assert!(message.contains(text(&missing)), "{message}");
    }
}

#[test]
fn an_image_that_something_uses_is_refused_and_stays() {
    for way in Way::ALL {
        let Some(stage) = Stage::new(way, [End::Image; 2], [MIB; 2]) else { return };
        write(&stage.pair.source, 0, &Rng::new(20).bytes(MIB as usize));
        let refused = |by: &str| {
            let run = stage.pair.run_to(ExitCode::Failed, &[]);
            run.ends().for_each(|end| assert_eq!(end.reason(), "DestinationBusy", "{way:?}"));
            let (Run::Local(sink) | Run::Network { sink, .. }) = &run;
            let message = sink.report().message.clone();
            assert!(message.contains(by), "{message}");
            message
        };
        write_new(&stage.pair.destination, b"old");
        let opened = File::options().read(true).write(true).open(&stage.pair.destination).unwrap();
        let closed = LastClose::of(&opened);
        let message = refused("in use by process ");
        // A child that another test has just forked has it open, too.
        let (_, process) = message.split_once("in use by process ").unwrap();
        assert!(process.split_once(" (").unwrap().0.parse::<u32>().is_ok(), "{message}");
        drop(opened);
        closed.wait();
        assert_eq!(fs::read(&stage.pair.destination).unwrap(), b"old", "{way:?}");
        let folder = stage.pair.destination.parent().unwrap();
        fs::remove_file(&stage.pair.destination).unwrap();
        let name = stage.pair.destination.file_name().unwrap().to_str().unwrap();
        if let Some(device) = Loop::new(folder, name, MIB) {
            refused(&format!("in use by the loop device {}", device.device.display()));
            assert!(fs::read(&stage.pair.destination).unwrap().iter().all(|byte| *byte == 0), "{way:?}");
        }
        stage.pair.done(&[]);
    }
}

#[test]
fn a_device_that_is_in_use_is_refused_untouched() {
    for way in Way::ALL {
        let Some(stage) = Stage::new(way, [End::Image, End::Device], [64 * MIB; 2]) else { return };
        let device = &stage.pair.destination;
        disk::run(Command::new("/usr/sbin/mkfs.ext4").arg("-q").arg(device)).unwrap();
        let mounted = scratch::dir(stage.pair.dir(), "mounted");
        disk::run(Command::new("mount").arg("-o").arg("ro").args([device, &mounted])).unwrap();
        let before = stage.loops[1].as_ref().unwrap().sectors_written();
        let run = stage.pair.run(&[]);
        disk::run(Command::new("umount").arg(&mounted)).unwrap();
        run.assert_exit(ExitCode::Failed);
        for end in run.ends() {
            assert_eq!(end.reason(), "DestinationBusy", "{way:?}");
            let message = &end.report().message;
            assert!(message.contains(text(device)) && message.contains("unmount it"), "{message}");
        }
        assert_eq!(stage.loops[1].as_ref().unwrap().sectors_written(), before, "{way:?}");
        stage.sync(&[], "unmounted");
    }
}
