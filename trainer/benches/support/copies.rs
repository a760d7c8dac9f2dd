//! Times of the copies to a device: the trainer opens a span for those of each batch.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use feedline_storage::clock::{Clock as _, SystemClock};
use tracing::{Event, Metadata, Subscriber, field, span};

/// Name of the span.
const SPAN: &str = "copy_batch";

/// Copies before the first that counts: memory of the device is taken by the first ones.
const WARM: usize = 20;

/// Copies so far.
static COPIES: Mutex<Vec<BatchCopy>> = Mutex::new(Vec::new());

/// Copies of the columns of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct BatchCopy {
    entered: Duration,
    took: Duration,
    bytes: u64,
}

/// Notes the spans of copies, and nothing else.
#[derive(Debug, Default)]
pub(crate) struct CopySpans {
    ids: AtomicU64,
    open: Mutex<BTreeMap<u64, BatchCopy>>,
}

/// Mean bytes of a batch as it is copied, and bytes per second while copies run; `None` where there were too few.
pub(crate) fn figures() -> Option<[f64; 2]> {
    let copies = COPIES.lock().unwrap();
    let timed = copies.get(WARM..).filter(|timed| !timed.is_empty())?;
    let bytes: u64 = timed.iter().map(|copy| copy.bytes).sum();
    let took: Duration = timed.iter().map(|copy| copy.took).sum();
    #[expect(clippy::cast_precision_loss, reason = "it is rounded when it is shown")]
    let (bytes, count) = (bytes as f64, timed.len() as f64);
    Some([bytes / count, bytes / took.as_secs_f64()])
}

impl CopySpans {
    fn change(&self, id: &span::Id, change: impl FnOnce(&mut BatchCopy)) {
        let mut open = self.open.lock().unwrap();
        change(open.entry(id.into_u64()).or_default());
    }
}

impl Subscriber for CopySpans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == SPAN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.ids.fetch_add(1, Relaxed) + 1)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        let mut bytes = CopiedBytes(0);
        values.record(&mut bytes);
        self.change(id, |copy| copy.bytes = bytes.0);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &span::Id) {
        self.change(id, |copy| copy.entered = SystemClock.monotonic());
    }

    fn exit(&self, id: &span::Id) {
        let now = SystemClock.monotonic();
        self.change(id, |copy| copy.took += now.saturating_sub(copy.entered));
    }

    fn try_close(&self, id: span::Id) -> bool {
        let copy = self.open.lock().unwrap().remove(&id.into_u64());
        COPIES.lock().unwrap().extend(copy);
        true
    }
}

/// The field of a span.
struct CopiedBytes(u64);

impl field::Visit for CopiedBytes {
    fn record_u64(&mut self, _: &field::Field, value: u64) {
        self.0 = value;
    }

    fn record_debug(&mut self, _: &field::Field, _: &dyn std::fmt::Debug) {}
}
