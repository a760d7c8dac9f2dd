//! A fake of page-locking, and the warnings of a test.
#![expect(
    unsafe_code,
    reason = "reads the memory it was given, as a device would"
)]

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tracing::{Event, Level, Metadata, Subscriber, field, span};

use super::{HostLock, LockRefused, memory::ALIGNMENT};

/// Locks memory up to a limit and notes what is locked.
#[derive(Debug)]
pub(crate) struct FakeLock {
    limit: usize,
    /// Bytes by address.
    locked: Mutex<BTreeMap<usize, usize>>,
}

impl FakeLock {
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self {
            limit,
            locked: Mutex::default(),
        }
    }

    /// Bytes locked now.
    pub(crate) fn locked(&self) -> usize {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        locked.values().sum()
    }
}

impl HostLock for FakeLock {
    fn lock(&self, address: usize, bytes: usize) -> Result<(), LockRefused> {
        assert_eq!((address % ALIGNMENT, bytes % ALIGNMENT), (0, 0));
        if self.locked() + bytes > self.limit {
            return Err(LockRefused::new("the limit of this fake is reached"));
        }
        let mut locked = self.locked.lock().unwrap();
        let before = locked.range(..address + bytes).next_back();
        assert!(
            before.is_none_or(|(start, length)| start + length <= address),
            "locked twice"
        );
        locked.insert(address, bytes);
        Ok(())
    }

    fn unlock(&self, address: usize) {
        let bytes = self.locked.lock().unwrap().remove(&address);
        let last = address + bytes.expect("it was locked") - 1;
        for byte in [address, last] {
            // SAFETY: memory stays allocated until it is unlocked, and was initialised when it was allocated; address
            // sanitizers see it when that is not so.
            unsafe { std::ptr::with_exposed_provenance::<u8>(byte).read_volatile() };
        }
    }
}

/// Runs `work` and collects the texts and fields of its warnings.
pub(crate) fn warnings<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    keep_listening();
    let collect = Collect::default();
    let texts = Arc::clone(&collect.0);
    let result = tracing::subscriber::with_default(collect, work);
    let texts = texts.lock().unwrap().clone();
    (result, texts)
}

/// Keeps a second subscriber for good. With a single one, a callsite that a thread without a
/// subscriber reaches first is cached as disabled, and its later events are lost.
pub(crate) fn keep_listening() {
    static SECOND: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(Collect::default()));
    LazyLock::force(&SECOND);
}

#[derive(Default)]
struct Collect(Arc<Mutex<Vec<String>>>);

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = CapturedText(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct CapturedText(String);

impl field::Visit for CapturedText {
    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}
