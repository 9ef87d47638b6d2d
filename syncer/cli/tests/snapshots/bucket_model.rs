//! Two volumes and a store in object storage, at random: what is listed there is what a map in memory has, and all of
//! it comes back, also after damage.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::prelude::*;
use crate::{
    bucket::{URL, ok, pull, push, run, text},
    common::object_storage::Bucket,
    copy::digests,
    volume::Volume,
};

/// What is to be there: the trees of snapshots by their ids.
type Trees = BTreeMap<String, String>;

/// A store, the volumes that copy into it, and what it is to have.
struct Modelled {
    bucket: Bucket,
    volumes: [Volume; 2],
    listed: Trees,
    gone: BTreeSet<String>,
}

fn has_some(volume: &Volume) -> bool {
    volume.path().join(".volferry").exists()
}

impl Modelled {
    fn new(rng: &mut Rng) -> Self {
        let volumes = [Volume::new(), Volume::new()];
        for volume in &volumes {
            tree::random(volume.path(), rng, 30, Shape::Unprivileged);
            fs::write(volume.path().join("long"), rng.bytes(3 << 20)).unwrap();
        }
        Self { bucket: Bucket::new(), volumes, listed: Trees::new(), gone: BTreeSet::new() }
    }

    /// Takes all snapshots of a volume, as a copy that has ended.
    fn copied(&mut self, here: usize) {
        let all = digests(&self.volumes[here]).into_iter();
        self.listed.extend(all.filter(|(id, _)| !self.gone.contains(id)));
    }

    fn step(&mut self, rng: &mut Rng) {
        let (bucket, here) = (&self.bucket, rng.below(2) as usize);
        let volume = &self.volumes[here];
        match rng.below(10) {
            0..=2 => {
                (0..4).for_each(|_| drop(rng.pick(&Edit::ALL).unwrap().apply(volume.path(), rng)));
                volume.create(&[]);
            }
            3 if has_some(volume) => {
                push(bucket, volume);
                self.copied(here);
            }
            4 | 5 if self.volumes.iter().all(has_some) => {
                thread::scope(|scope| {
                    self.volumes.iter().for_each(|volume| drop(scope.spawn(|| push(bucket, volume))));
                });
                (0..2).for_each(|here| self.copied(here));
            }
            6 if self.listed.len() > 2 => {
                let id = self.listed.keys().nth(rng.below(2) as usize).unwrap().clone();
                ok(bucket, &["forget", URL, &id]);
                ok(bucket, &["prune", "--forgotten", URL]);
                self.listed.remove(&id);
                self.gone.insert(id);
            }
            7 => self.bring_back(here),
            8 if !self.listed.is_empty() => self.damage(rng),
            _ if !self.listed.is_empty() => {
                let to = Volume::new();
                pull(bucket, &to);
                assert_eq!(digests(&to), self.listed);
                to.ok("verify", &["--no-heal"]);
            }
            _ => {}
        }
    }

    /// Copies a snapshot by its id that was pruned.
    fn bring_back(&mut self, here: usize) {
        let volume = &self.volumes[here];
        let mut all = if has_some(volume) { digests(volume) } else { Trees::new() }.into_iter();
        if let Some((id, tree)) = all.find(|(id, _)| self.gone.contains(id)) {
            ok(&self.bucket, &["copy", text(volume), URL, &id]);
            self.gone.remove(&id);
            self.listed.insert(id, tree);
        }
    }

    /// Damages a pack or an index, and lets both volumes send again what was lost.
    fn damage(&mut self, rng: &mut Rng) {
        let folder = *rng.pick(&["of/web/packs", "of/web/indexes"]).unwrap();
        let there = self.bucket.objects(folder);
        let (name, len) = there.iter().nth(rng.below(there.len() as u64) as usize).unwrap();
        let path = self.bucket.path(folder).join(name);
        let mut bytes = fs::read(&path).unwrap();
        let at = rng.below(*len) as usize;
        match rng.below(3) {
            0 => fs::remove_file(&path).unwrap(),
            1 => fs::write(&path, &bytes[..at]).unwrap(),
            _ => {
                bytes[at] ^= 1;
                fs::write(&path, bytes).unwrap();
            }
        }
        // What a pack has after its blobs is not needed.
        let code = run(&self.bucket, &["verify", URL]).code;
        assert!([Some(0), Some(3)].contains(&code), "{code:?}");
        for here in (0..2).filter(|here| has_some(&self.volumes[*here])).collect::<Vec<_>>() {
            push(&self.bucket, &self.volumes[here]);
            self.copied(here);
        }
        ok(&self.bucket, &["verify", URL]);
    }
}

#[test]
fn a_store_that_two_volumes_copy_to_has_what_a_map_in_memory_has() {
    for seed in 1..3 {
        let mut rng = Rng::new(seed);
        let mut all = Modelled::new(&mut rng);
        for step in 0..20 {
            eprintln!("seed {seed}, step {step}");
            all.step(&mut rng);
            let listed = run(&all.bucket, &["list", "--json", URL]);
            if all.bucket.objects("").is_empty() {
                assert!(listed.code == Some(1) && listed.stderr.contains("has no snapshots"), "{listed:?}");
                continue;
            }
            let listed = listed.json();
            let ids = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned());
            assert_eq!(ids.collect::<BTreeSet<_>>(), all.listed.keys().cloned().collect());
        }
        ok(&all.bucket, &["verify", URL]);
        let to = Volume::new();
        pull(&all.bucket, &to);
        assert_eq!(digests(&to), all.listed);
    }
}
