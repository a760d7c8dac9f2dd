//! Faults for tests: a wrapper that fails before or after a call is applied, delays it, or
//! truncates a read.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{
    Answer, Error, Listed, ReadFailure, ReadOnce,
    backend::{Backend, Created},
};

/// Calls that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `get` and `get_range`.
    Read,
    /// `put`.
    Put,
    /// `put_new`.
    Create,
    /// `delete`.
    Delete,
    /// `rename`, by its source path.
    Rename,
}

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call fails and has not been applied.
    FailBefore,
    /// The call has been applied, and fails: its response is lost.
    FailAfter,
    /// The call takes this much longer.
    Delay(Duration),
    /// A read returns at most this many bytes.
    ShortRead(usize),
    /// A write finds the disk full.
    Full,
    /// A creation reports that the object exists, and it does not: S3 returns 409 for a conflict
    /// that no writer wins.
    Conflict,
    /// A read returns its bytes with this bit (counted from the first byte's lowest) flipped.
    FlipBit(usize),
}

/// One fault.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Calls it is about.
    pub operation: Operation,
    /// Only paths that contain this text; every path contains the empty one.
    pub path_contains: String,
    /// Matching calls to let through first.
    pub skip: u64,
    /// Matching calls to hit after that.
    pub times: u64,
    /// Effect on them.
    pub effect: Effect,
}

/// A list of faults, shared with the stores that use it; rules may be added while they are in use.
///
/// ```
/// use feedline_storage::{Effect, Faults, Operation, PutNew, Rule, Store};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let rule = Rule {
///     operation: Operation::Create,
///     path_contains: "log/".to_owned(),
///     skip: 0,
///     times: 1,
///     effect: Effect::FailAfter,
/// };
/// let store = Store::memory().with_faults(Faults::new(vec![rule]));
/// // The response of the write is lost; reading back shows that it landed.
/// assert_eq!(store.put_new("log/0", "run 7".into()).await?, PutNew::Created);
/// # Ok::<(), feedline_storage::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    /// True if every creation that may have landed counts as landed.
    never_reads_back: bool,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}

impl Faults {
    /// Makes a list of `rules`.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Arc<Self> {
        Arc::new(Self {
            rules: Mutex::new(rules),
            never_reads_back: false,
        })
    }

    /// Makes a list of `rules` for a deliberately wrong writer. It takes a creation for success if
    /// its response is lost or the object exists, as if [`Store::put_new`](crate::Store::put_new)
    /// did not read back. A test that such a writer passes proves nothing.
    #[must_use]
    pub fn without_read_back(rules: Vec<Rule>) -> Arc<Self> {
        Arc::new(Self {
            rules: Mutex::new(rules),
            never_reads_back: true,
        })
    }

    /// Adds a rule.
    pub fn add(&self, rule: Rule) {
        self.rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(rule);
    }

    /// The effect of the first rule that hits this call.
    fn hit(&self, operation: Operation, path: &str) -> Option<Effect> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        for rule in rules
            .iter_mut()
            .filter(|r| r.operation == operation && path.contains(&r.path_contains))
        {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                return Some(rule.effect);
            }
        }
        None
    }
}

/// A backend whose calls are subject to faults.
#[derive(Debug)]
pub(crate) struct FaultyBackend {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) faults: Arc<Faults>,
}

impl FaultyBackend {
    async fn run<T, E: From<Error>>(
        &self,
        operation: Operation,
        name: &'static str,
        path: &str,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<(T, Option<Effect>), E> {
        let effect = self.faults.hit(operation, path);
        self.run_with(effect, name, path, call).await
    }

    async fn run_with<T, E: From<Error>>(
        &self,
        effect: Option<Effect>,
        name: &'static str,
        path: &str,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<(T, Option<Effect>), E> {
        let injected = |when| Error::Injected {
            operation: name,
            url: self.inner.url_of(path),
            when,
        };
        match effect {
            Some(Effect::FailBefore) => Err(injected("before").into()),
            Some(Effect::Full) => Err(Error::io(
                name,
                self.inner.url_of(path),
                std::io::ErrorKind::StorageFull.into(),
            )
            .into()),
            Some(Effect::FailAfter) => {
                call.await?;
                Err(injected("after").into())
            }
            Some(Effect::Delay(time)) => {
                tokio::time::sleep(time).await;
                Ok((call.await?, None))
            }
            effect => Ok((call.await?, effect)),
        }
    }

    async fn read(
        &self,
        path: &str,
        call: impl Future<Output = Result<Bytes, Error>> + Send,
    ) -> Result<Bytes, Error> {
        let (bytes, effect) = self.run(Operation::Read, "read", path, call).await?;
        Ok(damaged(bytes, effect))
    }
}

/// `bytes` after a read's own effects.
fn damaged(bytes: Bytes, effect: Option<Effect>) -> Bytes {
    match effect {
        Some(Effect::ShortRead(most)) => bytes.slice(..bytes.len().min(most)),
        Some(Effect::FlipBit(bit)) if !bytes.is_empty() => {
            let mut flipped = bytes.to_vec();
            let byte = bit / 8 % flipped.len();
            flipped[byte] ^= 1 << (bit % 8);
            flipped.into()
        }
        _ => bytes,
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn url_of(&self, path: &str) -> String {
        self.inner.url_of(path)
    }
    async fn get(&self, path: &str) -> Result<Bytes, Error> {
        self.read(path, self.inner.get(path)).await
    }
    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error> {
        self.read(path, self.inner.get_range(path, range)).await
    }
    async fn read_once(&self, path: &str, read: &ReadOnce) -> Result<Answer, ReadFailure> {
        let call = self.inner.read_once(path, read);
        let (answer, effect) = self.run(Operation::Read, "read", path, call).await?;
        if effect.is_none() {
            return Ok(answer);
        }
        let body: BytesMut = answer.body.try_collect().await?;
        let body = damaged(body.freeze(), effect);
        Ok(Answer {
            body: stream::once(async { Ok(body) }).boxed(),
            ..answer
        })
    }
    fn reconnect(&self) {
        self.inner.reconnect();
    }
    async fn size(&self, path: &str) -> Result<u64, Error> {
        self.inner.size(path).await
    }
    async fn look_up(&self, path: &str) -> Result<Listed, Error> {
        self.inner.look_up(path).await
    }

    async fn modified(&self, path: &str) -> Result<Duration, Error> {
        self.inner.modified(path).await
    }
    async fn put(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        self.run(Operation::Put, "write", path, self.inner.put(path, parts))
            .await
            .map(|(done, _)| done)
    }
    async fn create(&self, path: &str, bytes: Bytes) -> Result<Created, Error> {
        let effect = self.faults.hit(Operation::Create, path);
        let done = if effect == Some(Effect::Conflict) {
            Ok(Created::AlreadyThere)
        } else {
            let call = self.inner.create(path, bytes);
            let done = self.run_with(effect, "create", path, call).await;
            done.map(|(done, _)| done)
        };
        match done {
            Err(error) if !error.is_retryable() => Err(error),
            _ if self.faults.never_reads_back => Ok(Created::Yes),
            done => done,
        }
    }
    async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        self.run(Operation::Rename, "move", from, self.inner.rename(from, to))
            .await
            .map(|(done, _)| done)
    }
    async fn swap(&self, path: &str, before: Option<Bytes>, bytes: Bytes) -> Result<bool, Error> {
        let call = self.inner.swap(path, before, bytes);
        self.run(Operation::Put, "write", path, call)
            .await
            .map(|(done, _)| done)
    }
    async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        self.inner.list(folder).await
    }
    async fn delete(&self, path: &str) -> Result<(), Error> {
        self.run(Operation::Delete, "delete", path, self.inner.delete(path))
            .await
            .map(|(done, _)| done)
    }
}
