//! Remembers what a reconciliation did or found a moment ago, so that the next one need not repeat it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The maximum age of a value, after which it is dropped.
const LONGEST: Duration = Duration::from_secs(3600);

/// Values by their keys, each with the time at which it was stored.
#[derive(Debug)]
pub struct Recent<T> {
    values: Mutex<HashMap<String, (Instant, T)>>,
    /// The keys that somebody asks for at present; each ends with its request.
    asking: Mutex<HashMap<String, watch::Receiver<()>>>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { values: Mutex::default(), asking: Mutex::default() }
    }
}

/// A request for the value of a key, which others wait for until this is dropped.
struct Asking<'a> {
    key: &'a str,
    all: &'a Mutex<HashMap<String, watch::Receiver<()>>>,
    _ends: watch::Sender<()>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(self.key);
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the value of that key if it is younger than `age`.
    pub fn get(&self, key: &str, age: Duration) -> Option<T> {
        let values = self.values.lock();
        values.get(key).filter(|(at, _)| at.elapsed() < age).map(|(_, value)| value.clone())
    }

    /// Returns the value of `key` if it is younger than `age`, and asks for it otherwise. Callers that wait for a value
    /// share the next request; what was asked before a caller came does not answer one with the age zero.
    pub async fn get_or_ask<E>(
        &self,
        key: &str,
        age: Duration,
        ask: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let came = Instant::now();
        loop {
            if let Some(value) = self.get(key, age.max(came.elapsed())) {
                return Ok(value);
            }
            match self.begin(key) {
                Ok(_asking) => {
                    let began = Instant::now();
                    let value = ask.await?;
                    self.put_of(key, value.clone(), began);
                    return Ok(value);
                }
                // Fails when the other request ends, which is what is waited for.
                Err(mut other) => drop(other.changed().await),
            }
        }
    }

    /// Begins the request for a key; fails with the end of another one that is under way.
    fn begin<'a>(&'a self, key: &'a str) -> Result<Asking<'a>, watch::Receiver<()>> {
        let mut asking = self.asking.lock();
        if let Some(other) = asking.get(key) {
            return Err(other.clone());
        }
        let (ends, end) = watch::channel(());
        asking.insert(key.into(), end);
        Ok(Asking { key, all: &self.asking, _ends: ends })
    }

    /// Stores a value, and drops all that are older than an hour.
    pub fn put(&self, key: &str, value: T) {
        self.put_of(key, value, Instant::now());
    }

    fn put_of(&self, key: &str, value: T, at: Instant) {
        let mut values = self.values.lock();
        values.retain(|_, (at, _)| at.elapsed() < LONGEST);
        values.insert(key.into(), (at, value));
    }

    /// Removes the value of that key.
    pub fn forget(&self, key: &str) {
        self.values.lock().remove(key);
    }
}

impl Recent<u32> {
    /// Counts a failure of that key. Returns the number of those before it in a row: a success forgets the key.
    pub fn failed(&self, key: &str) -> u32 {
        let before = self.get(key, Duration::MAX).unwrap_or(0);
        self.put(key, before.saturating_add(1));
        before
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
        let anew = || get(Duration::ZERO);
        assert_eq!(tokio::join!(anew(), anew(), anew()), (Ok(3), Ok(4), Ok(4)), "the second began for both");
    }

    #[tokio::test]
    async fn a_request_that_takes_long_holds_up_no_other_key_and_one_that_fails_is_made_anew() {
        let recent = Recent::default();
        let mut slow =
            Box::pin(recent.get_or_ask("slow", LONGEST, std::future::pending::<Result<i32, ()>>()));
        assert!(futures::poll!(&mut slow).is_pending());
        assert_eq!(recent.get_or_ask("quick", LONGEST, async { Ok::<_, ()>(1) }).await, Ok(1));
        let mut waits = Box::pin(recent.get_or_ask("slow", LONGEST, async { Ok::<_, ()>(2) }));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(slow);
        assert_eq!(waits.await, Ok(2), "the request before it was given up");
        assert_eq!(recent.get_or_ask("bad", LONGEST, async { Err::<i32, _>(()) }).await, Err(()));
        assert_eq!(recent.get_or_ask("bad", LONGEST, async { Ok::<_, ()>(3) }).await, Ok(3));
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
