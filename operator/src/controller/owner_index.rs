//! Finds the objects of a store by their namespace, and by the SyncJob that they are of.

use std::{collections::BTreeSet, sync::Arc};

use kube::{
    Resource, ResourceExt as _,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher::Event,
    },
};
use parking_lot::RwLock;

use crate::{
    api::SyncRun,
    names::{ANNOTATION_SYNCJOB, LABEL_SYNCJOB},
};

/// The namespace of an object, the SyncJob that it is of, and its name.
type Key = (String, String, String);

/// An index of a store, with the function that says what SyncJob an object is of. The store holds the objects.
pub(super) struct OwnerIndex<K> {
    owner: fn(&K) -> &str,
    keys: RwLock<BTreeSet<Key>>,
}

/// Returns the label by which Jobs and pods name their SyncJob.
pub(crate) fn label<K: Resource>(object: &K) -> &str {
    object.labels().get(LABEL_SYNCJOB).map_or("", String::as_str)
}

/// Returns the name of a SyncRun's SyncJob. One that cannot be read has it as an annotation only.
pub(crate) fn of_run(run: &SyncRun) -> &str {
    match run.spec.sync_job.name.as_str() {
        "" => run.annotations().get(ANNOTATION_SYNCJOB).map_or("", String::as_str),
        name => name,
    }
}

impl<K: Resource<DynamicType = ()> + Clone> OwnerIndex<K> {
    pub(super) fn new(owner: fn(&K) -> &str) -> Self {
        Self { owner, keys: RwLock::default() }
    }

    /// Returns the objects of a namespace: those of one SyncJob, or all.
    pub(super) fn find(&self, store: &Store<K>, namespace: &str, owner: Option<&str>) -> Vec<Arc<K>> {
        let first = (namespace.to_string(), owner.unwrap_or_default().to_string(), String::new());
        let keys = self.keys.read();
        let found = keys.range(first..).take_while(|(in_namespace, of, _)| {
            in_namespace == namespace && owner.is_none_or(|owner| of == owner)
        });
        found.filter_map(|(_, _, name)| store.get(&ObjectRef::new(name).within(namespace))).collect()
    }

    /// Takes the events that a store is about to apply.
    pub(super) fn apply(&self, events: &[Event<K>], store: &Store<K>) {
        let mut keys = self.keys.write();
        for event in events {
            let (Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = event else {
                continue;
            };
            // It may have been of another SyncJob.
            if let Some(old) = store.get(&ObjectRef::from_obj(object)) {
                keys.remove(&self.key(&old));
            }
            if !matches!(event, Event::Delete(_)) {
                keys.insert(self.key(object));
            }
        }
    }

    fn key(&self, object: &K) -> Key {
        (object.namespace().unwrap_or_default(), (self.owner)(object).into(), object.name_any())
    }
}
