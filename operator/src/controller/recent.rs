//! What a reconciliation did or found a moment ago, so that the next one need not do or ask it again.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long anything is kept at the longest.
const LONGEST: Duration = Duration::from_secs(3600);

/// Values by keys, each with its time.
#[derive(Debug)]
pub struct Recent<T> {
    values: Mutex<HashMap<String, (Instant, T)>>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { values: Mutex::default() }
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the value of that key, if it is younger than `age`.
    pub fn get(&self, key: &str, age: Duration) -> Option<T> {
        let values = self.lock();
        values.get(key).filter(|(at, _)| at.elapsed() < age).map(|(_, value)| value.clone())
    }

    /// Keeps a value, and forgets those that are too old.
    pub fn put(&self, key: &str, value: T) {
        let mut values = self.lock();
        values.retain(|_, (at, _)| at.elapsed() < LONGEST);
        values.insert(key.into(), (Instant::now(), value));
    }

    /// Forgets the value of that key.
    pub fn forget(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Instant, T)>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_while_it_is_young_and_until_it_is_forgotten() {
        let recent = Recent::default();
        recent.put("a", 1);
        assert_eq!(recent.get("a", LONGEST), Some(1));
        assert_eq!((recent.get("a", Duration::ZERO), recent.get("b", LONGEST)), (None, None));
        recent.forget("a");
        assert_eq!(recent.get("a", LONGEST), None);
    }
}
