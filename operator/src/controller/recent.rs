//! Remembers what a reconciliation did or found a moment ago, so that the next one need not repeat it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The maximum age of a value, after which it is dropped.
const LONGEST: Duration = Duration::from_secs(3600);

/// Values by their keys, each with the time at which it was stored.
#[derive(Debug)]
pub struct Recent<T> {
    values: Mutex<HashMap<String, (Instant, T)>>,
    asking: tokio::sync::Mutex<()>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { values: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the value of that key if it is younger than `age`.
    pub fn get(&self, key: &str, age: Duration) -> Option<T> {
        let values = self.lock();
        values.get(key).filter(|(at, _)| at.elapsed() < age).map(|(_, value)| value.clone())
    }

    /// Returns the value of `key` if it is younger than `age`, and asks for it otherwise. Callers that ask at the same
    /// time share one request.
    pub async fn get_or_ask<E>(
        &self,
        key: &str,
        age: Duration,
        ask: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if let Some(value) = self.get(key, age) {
            return Ok(value);
        }
        let _asking = if age.is_zero() { None } else { Some(self.asking.lock().await) };
        if let Some(value) = self.get(key, age) {
            return Ok(value);
        }
        let value = ask.await?;
        self.put(key, value.clone());
        Ok(value)
    }

    /// Stores a value, and drops all that are older than an hour.
    pub fn put(&self, key: &str, value: T) {
        let mut values = self.lock();
        values.retain(|_, (at, _)| at.elapsed() < LONGEST);
        values.insert(key.into(), (Instant::now(), value));
    }

    /// Removes the value of that key.
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

    #[tokio::test]
    async fn of_several_who_would_share_a_value_one_asks() {
        let (recent, asked) = (Recent::default(), std::cell::Cell::new(0));
        let get = |age| {
            recent.get_or_ask("a", age, async {
                asked.set(asked.get() + 1);
                tokio::task::yield_now().await;
                Ok::<_, ()>(asked.get())
            })
        };
        assert_eq!(tokio::join!(get(LONGEST), get(LONGEST), get(LONGEST)), (Ok(1), Ok(1), Ok(1)));
        assert_eq!((get(Duration::ZERO).await, get(LONGEST).await), (Ok(2), Ok(2)));
    }

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
