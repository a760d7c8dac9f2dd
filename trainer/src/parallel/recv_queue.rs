//! Messages that have arrived at a rank from the others, and time limits of waiting for them.
//!
//! Time is counted in the waiting rank's own ticks, so that after a machine was asleep no rank is
//! late.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use super::status::Status;

/// Interval at which a waiting rank checks the others.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// Ticks that a rank waits for a message that may be on its way although a third rank has failed: so that all ranks
/// report what they agreed on, rather than that one of them left after it.
const GRACE_TICKS: u32 = 20;

/// No rank.
const NOBODY: usize = usize::MAX;

/// A message of a collective operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Number of the operation, and of the message in it.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
}

/// Limits of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a message.
    pub(crate) message: Duration,
    /// For any sign of life; `None` where ranks give none.
    pub(crate) silence: Option<Duration>,
}

/// Whose fault it is that a message did not come, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankFailure {
    pub(crate) rank: usize,
    pub(crate) reason: String,
}

/// Messages from one rank.
#[derive(Debug, Default)]
struct Sender {
    messages: VecDeque<Message>,
    /// Bytes of these.
    waiting: u64,
    /// Signs of life.
    heard: u64,
    /// Reason that nothing more will come.
    ended: Option<Ended>,
}

#[derive(Clone, Debug)]
enum Ended {
    /// It has done all it had to.
    Finished,
    Failed(RankFailure),
}

/// Messages from all ranks.
#[derive(Debug)]
pub(super) struct RecvQueue {
    senders: Mutex<Vec<Sender>>,
    arrived: Condvar,
    /// A message was taken.
    taken: Condvar,
    /// The rank that the receiving thread waits for in the middle of a frame; [`NOBODY`] when it
    /// does not.
    reading: AtomicUsize,
    /// Status of each rank.
    pub(super) status: Vec<Arc<Status>>,
}

impl RecvQueue {
    pub(super) fn new(status: Vec<Arc<Status>>) -> Self {
        Self {
            senders: Mutex::new(status.iter().map(|_| Sender::default()).collect()),
            arrived: Condvar::new(),
            taken: Condvar::new(),
            reading: AtomicUsize::new(NOBODY),
            status,
        }
    }

    /// Bytes of the messages of a rank that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self, from: usize) -> u64 {
        self.senders()[from].waiting
    }

    fn senders(&self) -> MutexGuard<'_, Vec<Sender>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message has come.
    pub(super) fn deliver(&self, from: usize, message: Message) {
        let mut senders = self.senders();
        senders[from].heard += 1;
        senders[from].waiting += message.bytes.len() as u64;
        senders[from].messages.push_back(message);
        self.arrived.notify_all();
    }

    /// Waits until at most `bytes` of messages of a rank wait. Returns whether that was so `within` this time.
    pub(super) fn await_room(&self, from: usize, bytes: u64, within: Duration) -> bool {
        let mut senders = self.senders();
        let mut ticks = 0;
        while senders[from].waiting > bytes {
            if TICK * ticks >= within {
                return false;
            }
            // The rank is there, whatever it has said in the meantime.
            senders[from].heard += 1;
            let waited = self.taken.wait_timeout(senders, TICK);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            senders = guard;
            ticks += u32::from(timeout.timed_out());
        }
        true
    }

    /// A rank has shown that it is there.
    pub(super) fn sign_of_life(&self, from: usize) {
        self.senders()[from].heard += 1;
    }

    /// The rank whose frame one thread, which hears all, is in the middle of: while that rank is quiet, all are.
    #[cfg(feature = "mpi")]
    pub(super) fn reading(&self, from: Option<usize>) {
        self.reading.store(from.unwrap_or(NOBODY), Relaxed);
    }

    /// A rank leaves with its work done.
    pub(super) fn finished(&self, from: usize) {
        self.end(from, Ended::Finished);
    }

    /// Nothing more comes from a rank, by the fault of `failure.rank`.
    pub(super) fn failed(&self, from: usize, failure: RankFailure) {
        self.end(from, Ended::Failed(failure));
    }

    fn end(&self, from: usize, ended: Ended) {
        self.senders()[from].ended.get_or_insert(ended);
        self.arrived.notify_all();
    }

    /// Waits for the next message of a rank.
    ///
    /// # Errors
    /// When it does not come: because some rank failed, gave no sign of life, or took too long.
    pub(super) fn receive(&self, from: usize, patience: Patience) -> Result<Message, RankFailure> {
        let mut senders = self.senders();
        let mut vigil = Vigil::new(&senders);
        let mut ticks = 0;
        loop {
            if let Some(message) = senders[from].messages.pop_front() {
                senders[from].waiting -= message.bytes.len() as u64;
                self.taken.notify_all();
                return Ok(message);
            }
            if let Some(failure) = senders[from].failure() {
                return Err(failure);
            }
            if ticks >= GRACE_TICKS {
                if let Some(failure) = senders.iter().find_map(Sender::failure) {
                    return Err(failure);
                }
                if senders[from].ended.is_some() {
                    let reason = "it has finished, and others have not".to_owned();
                    return Err(RankFailure { rank: from, reason });
                }
            }
            if let Some(failure) = self.silence(&vigil, patience) {
                return Err(failure);
            }
            if TICK * ticks >= patience.message {
                let seconds = patience.message.as_secs_f64();
                let reason = format!("the others have waited for it for {seconds} s");
                return Err(RankFailure { rank: from, reason });
            }
            let (guard, timeout) = self
                .arrived
                .wait_timeout(senders, TICK)
                .unwrap_or_else(PoisonError::into_inner);
            senders = guard;
            if timeout.timed_out() {
                ticks += 1;
                vigil.tick(&senders);
            }
        }
    }

    fn silence(&self, vigil: &Vigil, patience: Patience) -> Option<RankFailure> {
        let limit = patience.silence?;
        let rank = vigil.silent(limit)?;
        let reading = Some(self.reading.load(Relaxed)).filter(|rank| *rank != NOBODY);
        let seconds = limit.as_secs_f64();
        Some(RankFailure {
            rank: reading.unwrap_or(rank),
            reason: format!("it has given no sign of life for {seconds} s"),
        })
    }

    /// For whoever waits for something else than a message, and comes back each [`TICK`].
    #[cfg(feature = "nvidia")]
    pub(super) fn vigil(&self) -> Vigil {
        Vigil::new(&self.senders())
    }

    /// Looks around a tick later: a rank that has failed or is silent.
    #[cfg(feature = "nvidia")]
    pub(super) fn look(&self, vigil: &mut Vigil, patience: Patience) -> Option<RankFailure> {
        let senders = self.senders();
        vigil.tick(&senders);
        let failure = senders.iter().find_map(Sender::failure);
        failure.or_else(|| self.silence(vigil, patience))
    }
}

/// Silence of ranks: for each the last count of its signs of life, and ticks since then.
#[derive(Debug)]
pub(super) struct Vigil(Vec<(u64, u32)>);

impl Vigil {
    fn new(senders: &[Sender]) -> Self {
        Self(senders.iter().map(|sender| (sender.heard, 0)).collect())
    }

    fn tick(&mut self, senders: &[Sender]) {
        for ((heard, quiet), sender) in self.0.iter_mut().zip(senders) {
            let same = *heard == sender.heard && sender.ended.is_none();
            *quiet = if same { *quiet + 1 } else { 0 };
            *heard = sender.heard;
        }
    }

    /// A rank other than this one that has been quiet for so long. This one is in the list too, and says nothing to
    /// itself: its entry is marked as ended when the receive queue is made.
    fn silent(&self, limit: Duration) -> Option<usize> {
        let mut ranks = self.0.iter();
        ranks.position(|(_, quiet)| TICK * *quiet >= limit)
    }
}

impl Sender {
    fn failure(&self) -> Option<RankFailure> {
        match &self.ended {
            Some(Ended::Failed(failure)) => Some(failure.clone()),
            _ => None,
        }
    }
}
