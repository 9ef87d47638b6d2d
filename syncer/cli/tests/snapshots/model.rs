//! Random edits, snapshots, forgets, prunes, restores and damage of the list, against a map in memory.

use std::collections::BTreeMap;

use crate::common::prelude::*;
use crate::{damage::flip, volume::Volume};

#[test]
fn a_store_does_what_a_map_in_memory_does() {
    for seed in 1..4 {
        let (volume, mut rng) = (Volume::new(), Rng::new(seed));
        tree::random(volume.path(), &mut rng, 40, Shape::Unprivileged);
        let mut model: BTreeMap<String, Snapshot> = BTreeMap::new();
        let mut order: Vec<String> = Vec::new();
        for step in 0..40 {
            let what = format!("seed {seed}, step {step}");
            match rng.below(8) {
                0..=2 => {
                    for _ in 0..6 {
                        rng.pick(&Edit::ALL).unwrap().apply(volume.path(), &mut rng);
                    }
                    let id = volume.create(&[]);
                    model.insert(id.clone(), Snapshot::of(volume.path()));
                    order.push(id);
                }
                3 if !order.is_empty() => {
                    let id = order.remove(rng.below(order.len() as u64) as usize);
                    volume.ok("forget", &[&id]);
                    if rng.once_in(2) {
                        volume.ok("forget", &[&id, "--undo"]);
                        order.push(id);
                        order.sort_by_key(|id| volume.list().iter().position(|one| one["id"] == id.as_str()));
                    } else {
                        model.remove(&id);
                    }
                }
                4 if order.len() > 4 => {
                    volume.ok("prune", &["--keep-last", "4"]);
                    let gone = order.len() - 4;
                    order.drain(..gone).for_each(|id| drop(model.remove(&id)));
                }
                _ if !order.is_empty() => {
                    let id = rng.pick(&order).unwrap();
                    volume.ok("restore", &[id, "--no-safety", "--compare", "content"]);
                    Snapshot::of(volume.path()).assert_like(&model[id], COPY, &what);
                }
                _ => {}
            }
            let roots = volume.store("roots");
            let is_flipped = roots.exists() && rng.once_in(4);
            if is_flipped {
                flip(&roots, rng.below(roots.metadata().unwrap().len()));
            }
            let listed: Vec<String> =
                volume.list().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
            assert_eq!(listed, order, "{what}");
            if is_flipped && rng.once_in(2) {
                assert_eq!(volume.run("verify", &[]).code, Some(3), "{what}: the list is damaged, and heals");
            } else if is_flipped {
                volume.ok("prune", &["--forgotten"]);
                volume.ok("repair", &["--apply"]);
            }
        }
        volume.ok("verify", &["--no-heal"]);
    }
}
