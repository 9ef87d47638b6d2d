//! No command writes to a volume's own folder, by whatever option and path.

use crate::common::prelude::*;
use crate::{repair::store_of, volume::Volume};

/// The own folder of a volume with a snapshot, as commands may be told of it.
struct Own {
    volume: Volume,
    /// Beside the volume, with the file `other`.
    source: PathBuf,
    places: Vec<PathBuf>,
    _bound: Option<Mount>,
}

impl Own {
    fn new() -> Self {
        let volume = Volume::new();
        fs::write(volume.path().join("file"), "content").unwrap();
        volume.create(&[]);
        let place = volume.path().parent().unwrap();
        let (source, link, bound) = (place.join("source"), place.join("link"), place.join("bound"));
        fs::create_dir(&source).unwrap();
        fs::write(source.join("other"), vec![1; 4096]).unwrap();
        symlink(volume.store(""), &link).unwrap();
        fs::create_dir(&bound).unwrap();
        let _bound = scratch::is_root().then(|| Mount::bind(&volume.store(""), &bound));
        let own = volume.path().join(".volferry");
        let mut places = vec![
            own.clone(),
            own.join("new"),
            volume.store(""),
            volume.store("packs"),
            link.clone(),
            link.join("new"),
        ];
        places.extend(_bound.is_some().then_some(bound));
        Self { volume, source, places, _bound }
    }
}

const SAID: [&str; 3] = [".volferry", "own folder", "through a mount"];

#[test]
fn no_command_writes_to_the_own_folder_of_a_volume() {
    let Own { volume, source, places, _bound } = Own::new();
    let before = store_of(&volume);
    let (at, source) = (volume.path().to_str().unwrap(), source.to_str().unwrap());
    let there = volume.path().parent().unwrap().join("there");
    for to in &places {
        let to = to.to_str().unwrap();
        let (file, image) = (format!("{source}/other"), format!("{to}/roots"));
        let (backup, report) = (format!("--backup-dir={to}"), format!("--report={image}"));
        let commands: [&[&str]; 11] = [
            &["sync", "--delete", "--force", source, to],
            &["sync", "-n", source, to],
            &["sync", &file, to],
            &["sync", "--image", &file, &image],
            &["sync", &backup, source, there.to_str().unwrap()],
            &["sync", &report, source, there.to_str().unwrap()],
            &["snapshot", "restore", at, "latest", "--delete", "--force", "--to", to],
            &["snapshot", "create", to],
            &["bench", "--tree", "small", "--rounds", "1", source, to],
            &["keygen", "--out", to],
            &["generate", "--man", to],
        ];
        for command in commands {
            let said = Command::new(program()).args(command).output().unwrap();
            assert!(!said.status.success(), "{command:?}: {said:?}");
            let told = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(SAID.iter().any(|word| told.contains(word)), "{command:?}: {told}");
            assert!(store_of(&volume) == before, "{command:?}");
        }
    }
    assert!(!volume.path().join(".volferry/new").exists());
}

#[test]
fn no_receiver_writes_to_the_own_folder_of_a_volume_whatever_the_source_asks_for() {
    let Own { volume, source, places, _bound } = Own::new();
    let before = store_of(&volume);
    for way in Way::NETWORK {
        let mut pair = Pair::new(way);
        for to in &places {
            pair.destination.clone_from(to);
            for (from, flags) in [(&source, &["--delete", "--force"][..]), (&source.join("other"), &[])] {
                pair.source.clone_from(from);
                let run = pair.run_to(ExitCode::Failed, flags);
                let told: String = run.ends().map(|end| &*end.stderr).collect();
                assert!(SAID.iter().any(|word| told.contains(word)), "{way:?}, {to:?}: {told}");
                assert!(store_of(&volume) == before, "{way:?}, {to:?}");
            }
        }
    }
    assert!(!volume.path().join(".volferry/new").exists());
}
