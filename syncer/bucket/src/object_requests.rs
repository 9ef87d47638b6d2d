//! Requests for the objects of a store: reads, writes, lists and removes them, with retries.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use contract::BucketUrl;
use futures::{
    FutureExt as _, StreamExt as _, TryFutureExt as _, TryStreamExt as _,
    future::{self, BoxFuture, Shared},
    stream::{self, BoxStream},
};
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload,
    RetryConfig, path::Path,
};
use tokio::runtime::Runtime;

use super::{
    bucket_error::BucketError,
    client_from_environment, failure_hints,
    trusted_authorities::{OneTryIfRefused, refused_certificate, trust},
};

/// Requests that are answered at the same time.
pub(crate) const REQUESTS: usize = 8;

/// The longest that one request may take, unless AWS_TIMEOUT says otherwise: that of a pack on a line of 500 kbit/s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The tries of a request, and how long they may take together: long enough for a second one after a first without an
/// answer.
const MAX_RETRIES: usize = 20;
const RETRY_TIMEOUT: Duration = Duration::from_secs(330);

/// The pauses between tries of a put that the client does not repeat itself, because it is conditional.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// The longest object that is written under a name that others may take, in bytes.
pub(crate) const MAX_NEW_BYTES: u64 = 256 << 20;

/// The most objects of a folder: as packs of the usual length, 64 TiB.
const MAX_LISTED: usize = 4 << 20;

/// What the client says of an answer that there is no such object, whatever has answered.
const HTTP_NOT_FOUND: &str = "status code: 404";

/// What the client says of an answer that the request is wrong.
const HTTP_BAD_REQUEST: &str = "status code: 400";

/// What is wrong with an object that ends before what is read of it.
const SHORTER: &str = "it is shorter than it was";

/// The objects below a prefix of a bucket.
pub(crate) struct Objects {
    pub url: BucketUrl,
    /// Where requests go, unless they go to Amazon S3.
    endpoint: Option<String>,
    store: Arc<dyn ObjectStore>,
    runtime: Runtime,
    stop: Stop,
}

/// Is over when a run is told to stop, and its requests with it.
pub(crate) type Stop = Shared<BoxFuture<'static, ()>>;

/// Returns what never stops: a command ends at once by its signals.
pub(crate) fn never() -> Stop {
    future::pending().boxed().shared()
}

/// An object as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name below the folder.
    pub name: String,
    pub bytes: u64,
    /// When it was written, by the clock of the store, in seconds since 1970.
    pub written: i64,
}

impl Objects {
    /// Sets up requests by the environment's settings.
    pub(crate) fn connect(url: &BucketUrl, stop: Stop) -> Result<Self, BucketError> {
        if !client_from_environment::has_credentials() {
            return Err(BucketError::NoCredentials(url.clone()));
        }
        let retry =
            RetryConfig { max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
        let builder = client_from_environment::client(trust(url)?.with_timeout(REQUEST_TIMEOUT))?
            .with_bucket_name(&url.bucket)
            .with_retry(retry)
            .with_http_connector(OneTryIfRefused);
        let endpoint = client_from_environment::endpoint(&builder);
        let store = builder.build().map_err(|source| BucketError::Setup { url: url.clone(), source })?;
        Self::of(url.clone(), endpoint, Arc::new(store), stop)
    }

    fn of(
        url: BucketUrl,
        endpoint: Option<String>,
        store: Arc<dyn ObjectStore>,
        stop: Stop,
    ) -> Result<Self, BucketError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("bucket")
            .enable_all()
            .build()
            .map_err(BucketError::Runtime)?;
        Ok(Self { url, endpoint, store, runtime, stop })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(self.url.key(name))
    }

    /// Returns the runtime that requests run on.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Waits for requests.
    ///
    /// # Errors
    /// If the run is told to stop meanwhile.
    pub(crate) fn wait<T>(&self, requests: impl Future<Output = T>) -> Result<T, BucketError> {
        let stop = self.stop.clone();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                done = requests => Ok(done),
                () = stop => Err(self.lost("reach", "", "the run was told to stop")),
            }
        })
    }

    /// Reads an object of at most `max` bytes; `None` if there is none.
    pub(crate) fn get(&self, name: &str, max: u64) -> Result<Option<Bytes>, BucketError> {
        match self.wait(self.read(name, None, max))? {
            Err(BucketError::Missing { .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Reads a range of an object.
    pub(crate) fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, BucketError> {
        self.wait(self.read_range(name, range))?
    }

    /// Reads these ranges of objects in their order, some at the same time, and passes each on with its number.
    pub(crate) fn get_ranges(
        &self,
        ranges: &[(String, Range<u64>)],
        take: &mut dyn FnMut(usize, Result<Bytes, BucketError>) -> Result<(), BucketError>,
    ) -> Result<(), BucketError> {
        let read = |(name, range): &(String, Range<u64>)| {
            let (name, range) = (name.clone(), range.clone());
            async move { self.read_range(&name, range).await }
        };
        let mut reads = stream::iter(ranges.iter().map(read)).buffered(REQUESTS);
        let mut nth = 0;
        while let Some(bytes) = self.wait(reads.next())? {
            take(nth, bytes)?;
            nth += 1;
        }
        Ok(())
    }

    async fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes, BucketError> {
        let len = range.end - range.start;
        let bytes = self.read(name, Some(GetRange::Bounded(range)), len).await?;
        if bytes.len() as u64 == len { Ok(bytes) } else { Err(self.damaged(name, SHORTER)) }
    }

    async fn read(&self, name: &str, range: Option<GetRange>, max: u64) -> Result<Bytes, BucketError> {
        let failed = |error| self.failed("read", name, &error);
        let options = GetOptions { range, ..GetOptions::default() };
        let found = self.store.get_opts(&self.path(name), options).await.map_err(failed)?;
        let len = found.range.end.saturating_sub(found.range.start);
        if len > max {
            return Err(self.damaged(name, "it is longer than any that this program writes"));
        }
        let (mut parts, mut read) = (found.into_stream(), Vec::new());
        while let Some(part) = parts.try_next().await.map_err(failed)? {
            if (read.len() + part.len()) as u64 > len {
                return Err(self.damaged(name, "it is longer than the store says"));
            }
            read.extend_from_slice(&part);
        }
        Ok(read.into())
    }

    /// Writes an object.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), BucketError> {
        let done = self.store.put(&self.path(name), PutPayload::from(bytes)).await;
        done.map(|_| ()).map_err(|error| self.failed("write", name, &error))
    }

    /// Writes an object if there is none of this name. Returns whether it did.
    pub(crate) fn put_new(&self, name: &str, bytes: &Bytes) -> Result<bool, BucketError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let Err(error) = self.try_to_create(name, bytes)? else { return Ok(true) };
            // An answer that was lost leaves it open whether the object was written; its bytes are like no other's.
            let is_taken = matches!(error, Error::AlreadyExists { .. });
            match (self.get(name, MAX_NEW_BYTES)?, self.failed("write", name, &error)) {
                (Some(found), _) if found == *bytes => return Ok(true),
                (Some(_), _) => return Ok(false),
                // The object is gone again: others have gone on.
                (None, _) if is_taken => return Ok(false),
                (None, BucketError::Lost { .. }) if pause <= LAST_PAUSE => self.pause(&mut pause)?,
                (None, error) => return Err(error),
            }
        }
    }

    /// Returns whether the store refuses to write an object where there is one. It is asked to write the same bytes
    /// once more, so that one that does not refuse changes nothing.
    pub(crate) fn refuses_to_overwrite(&self, name: &str, same: &Bytes) -> Result<bool, BucketError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_to_create(name, same)? {
                Ok(()) => return Ok(false),
                Err(Error::AlreadyExists { .. }) => return Ok(true),
                Err(error) => match self.failed("write", name, &error) {
                    BucketError::Lost { .. } if pause <= LAST_PAUSE => self.pause(&mut pause)?,
                    error => return Err(error),
                },
            }
        }
    }

    /// Asks once to write an object if there is none of this name.
    fn try_to_create(&self, name: &str, bytes: &Bytes) -> Result<object_store::Result<()>, BucketError> {
        let (path, payload) = (self.path(name), PutPayload::from(bytes.clone()));
        let put = self.store.put_opts(&path, payload, PutMode::Create.into());
        self.wait(put.map_ok(|_| ()))
    }

    /// Waits before the next try, and longer before the one after it.
    pub(crate) fn pause(&self, pause: &mut Duration) -> Result<(), BucketError> {
        self.wait(async { tokio::time::sleep(*pause).await })?;
        *pause *= 2;
        Ok(())
    }

    /// Lists the objects of a folder in the order of their names: all, or the first page only.
    pub(crate) fn list(&self, folder: &str, first: bool) -> Result<Vec<Listed>, BucketError> {
        const PAGE: usize = 100;
        let prefix = self.path(folder);
        let objects = self.store.list(Some(&prefix));
        let objects = if first { objects.take(PAGE).boxed() } else { objects };
        let listed = self.wait(collect(objects, MAX_LISTED))?;
        let found = listed.map_err(|error| self.failed("list", folder, &error))?;
        let found =
            found.ok_or_else(|| self.lost("list", folder, "it lists more objects than a store has"))?;
        let named = found.into_iter().filter_map(|meta| {
            let name = meta.location.filename()?.to_owned();
            Some(Listed { name, bytes: meta.size, written: meta.last_modified.timestamp() })
        });
        let mut named: Vec<Listed> = named.collect();
        named.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(named)
    }

    /// Removes objects. One that is missing counts as removed.
    pub(crate) fn delete(&self, names: &[String]) -> Result<(), BucketError> {
        let paths: Vec<Path> = names.iter().map(|name| self.path(name)).collect();
        let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut removed = self.store.delete_stream(paths);
        let removing = async move {
            while let Some(one) = removed.next().await {
                match one {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let name = names.first().map_or("", String::as_str);
        self.wait(removing)?.map_err(|error| self.failed("remove", name, &error))
    }

    /// Returns the error for an object that is not what the store has written.
    pub(crate) fn damaged(&self, object: &str, what: &'static str) -> BucketError {
        BucketError::Damaged { url: self.url.clone(), object: object.into(), what }
    }

    /// Returns the error for an object that has to be there.
    pub(crate) fn missing(&self, object: &str) -> BucketError {
        BucketError::Missing { url: self.url.clone(), object: object.into() }
    }

    /// Returns the error for an answer that makes no sense.
    pub(crate) fn lost(&self, operation: &'static str, object: &str, why: &str) -> BucketError {
        self.lost_with(operation, object, why.into(), failure_hints::AGAIN)
    }

    fn lost_with(
        &self,
        operation: &'static str,
        object: &str,
        why: String,
        hint: &'static str,
    ) -> BucketError {
        BucketError::Lost { place: self.at(&self.url), operation, object: object.into(), why, hint }
    }

    /// Names a place with the server where it was looked for.
    fn at(&self, place: &dyn std::fmt::Display) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{place} at {endpoint}"),
            None => place.to_string(),
        }
    }

    /// Says what an answer means.
    fn failed(&self, operation: &'static str, object: &str, source: &Error) -> BucketError {
        let text = source.to_string();
        let code = code_in(&text);
        let refused = |why: &str, hint| {
            let place = self.at(&self.url);
            BucketError::Refused { place, operation, object: object.into(), why: why.into(), hint }
        };
        match (source, code) {
            (_, Some("NoSuchBucket")) => BucketError::NoBucket(self.at(&self.url.bucket)),
            (_, Some("RequestTimeTooSkewed")) => BucketError::Clock(self.at(&self.url)),
            (_, Some("InvalidRange")) => self.damaged(object, SHORTER),
            (Error::NotFound { .. }, Some("NoSuchKey")) => self.missing(object),
            // A store in memory has no answers.
            (Error::NotFound { .. }, None) if !text.contains(HTTP_NOT_FOUND) => self.missing(object),
            (Error::NotFound { .. }, code) => {
                let code = code.unwrap_or("404 Not Found, without a word of S3");
                refused(code, failure_hints::refusal(code).unwrap_or(failure_hints::other_refusal(true)))
            }
            // What a server without the condition answers.
            (_, Some("NotImplemented")) if operation == "write" => {
                BucketError::NotConditional(self.url.clone())
            }
            (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }, code) => {
                let code = code.unwrap_or("the credentials are wrong or lack the right");
                refused(code, failure_hints::refusal(code).unwrap_or(failure_hints::other_refusal(false)))
            }
            (_, Some(code)) => match failure_hints::refusal(code) {
                Some(hint) => refused(code, hint),
                // Another try would get the same answer.
                None if text.contains(HTTP_BAD_REQUEST) && !failure_hints::may_pass(code) => {
                    let said = between(&text, "<Message>", "</Message>").unwrap_or_default();
                    refused(format!("{code} {said}").trim_end(), failure_hints::BAD_REQUEST)
                }
                None => self.lost(operation, object, &format!("it answers {code}")),
            },
            (_, None) => self.unanswered(operation, object, source),
        }
    }

    /// Says what it means that no store has answered.
    fn unanswered(&self, operation: &'static str, object: &str, source: &Error) -> BucketError {
        let why = innermost(source);
        match (refused_certificate(source), failure_hints::bare_redirect(&why)) {
            (Some(why), _) => BucketError::Untrusted { place: self.at(&self.url), why: why.to_string() },
            (None, Some(hint)) => {
                let (place, object) = (self.at(&self.url), object.into());
                BucketError::Refused { place, operation, object, why: "the bucket is elsewhere".into(), hint }
            }
            (None, None) => self.lost_with(operation, object, why, failure_hints::no_answer(source)),
        }
    }
}

/// Collects a list of at most `most` objects; `None` if it has more, since a store that lies may go on forever.
async fn collect(
    objects: BoxStream<'_, object_store::Result<ObjectMeta>>,
    most: usize,
) -> object_store::Result<Option<Vec<ObjectMeta>>> {
    let found: Vec<ObjectMeta> = objects.take(most + 1).try_collect().await?;
    Ok((found.len() <= most).then_some(found))
}

/// Returns the last cause of an error, which says most.
fn innermost(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

/// Returns the code that an answer in XML has, or that of one for an object of many, which the client puts in brackets.
fn code_in(text: &str) -> Option<&str> {
    let code = between(text, "<Code>", "</Code>").or_else(|| between(text, "(code: ", ")"))?;
    code.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(code)
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    impl Objects {
        /// Makes a bucket that is gone with its process.
        pub(crate) fn in_memory() -> Self {
            let store = object_store::memory::InMemory::new();
            Self::of("s3://memory/of/web".parse().unwrap(), None, Arc::new(store), never()).unwrap()
        }
    }

    #[test]
    fn a_list_without_end_is_given_up() {
        let object = || ObjectMeta {
            location: Path::from("packs/a"),
            last_modified: Default::default(),
            size: 1,
            e_tag: None,
            version: None,
        };
        let endless = || stream::repeat_with(move || Ok(object())).boxed();
        assert_eq!(block_on(collect(endless(), 3)).unwrap(), None);
        assert_eq!(block_on(collect(endless().take(3).boxed(), 3)).unwrap(), Some(vec![object(); 3]));
    }

    #[test]
    fn the_code_of_an_answer_is_found_in_both_of_its_forms() {
        assert_eq!(code_in("a <Code>AccessDenied</Code>"), Some("AccessDenied"));
        assert_eq!(code_in("cannot delete a: Access Denied (code: AccessDenied)"), Some("AccessDenied"));
        assert_eq!((code_in("<Code>no code</Code>"), code_in("nothing")), (None, None));
    }

    #[test]
    fn a_run_that_is_told_to_stop_waits_for_no_answer() {
        let mut objects = Objects::in_memory();
        assert_eq!(objects.wait(async { 1 }).unwrap(), 1);
        objects.stop = future::ready(()).boxed().shared();
        assert!(objects.wait(future::pending::<()>()).is_err());
    }
}
