//! The MPI of this process: its threads, and how they start and end.
//!
//! One thread hears all ranks, one sends to each, and one has them send a sign of life each second. MPI ends together on
//! all ranks, as it must: each says goodbye and waits for the others'.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    queue::{Parcel, Queue},
    wire,
};
use crate::parallel::{
    Place,
    frame::{Header, Kind, SIGN_OF_LIFE_EVERY},
    inbox::{Failure, Inbox, Patience},
    meeting::Meeting,
    status::Status,
};

/// Interval of checks while waiting for the end.
const TICK: Duration = Duration::from_millis(50);

/// Ticks that ranks have to say goodbye after a failure.
const FAREWELL_TICKS: u32 = 100;

/// In place of a session: a frame about the process itself. The only one says goodbye.
const PROCESS: u64 = u64::MAX;

/// Order to the listening thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Listen,
    /// End MPI: all other ranks do.
    Finalize,
    /// Leave MPI as it is: some rank is lost.
    Abandon,
}

/// State that the threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) place: Place,
    /// Status of this rank.
    own: Arc<Status>,
    sessions: Mutex<Sessions>,
    leaving: Mutex<Leaving>,
    changed: Condvar,
    /// Some rank has failed.
    failed: AtomicBool,
    expecting: AtomicBool,
    order: AtomicU8,
}

/// The session that this rank is in, and the one that others may be in already.
#[derive(Debug, Default)]
struct Sessions {
    current: u64,
    inboxes: BTreeMap<u64, Arc<Inbox>>,
}

/// Ranks that have not left.
#[derive(Debug)]
struct Leaving {
    /// By rank: whether it has said goodbye.
    goodbyes: Vec<bool>,
    /// By rank: frames that came from it.
    heard: Vec<u64>,
    /// Threads that send.
    sending: usize,
}

impl Shared {
    fn new(meeting: &Meeting) -> Self {
        let place = meeting.place;
        let leaving = Leaving {
            goodbyes: (0..place.world).map(|rank| rank == place.rank).collect(),
            heard: vec![0; place.world],
            sending: place.world - 1,
        };
        Self {
            place,
            own: Arc::clone(&meeting.status),
            sessions: Mutex::default(),
            leaving: Mutex::new(leaving),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
            expecting: AtomicBool::new(false),
            order: AtomicU8::new(Order::Listen as u8),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn order(&self) -> Order {
        let order = self.order.load(Ordering::Acquire);
        let orders = [Order::Listen, Order::Finalize, Order::Abandon];
        let found = orders.into_iter().find(|known| *known as u8 == order);
        found.unwrap_or(Order::Abandon)
    }

    /// The inbox of a session; `None` for one that is over.
    pub(super) fn inbox(&self, session: u64) -> Option<Arc<Inbox>> {
        let mut sessions = self.sessions();
        let known = session >= sessions.current && session != PROCESS;
        known.then(|| self.inbox_in(&mut sessions, session))
    }

    fn inbox_in(&self, sessions: &mut Sessions, session: u64) -> Arc<Inbox> {
        let new = || {
            let mut status: Vec<Arc<Status>> = Vec::new();
            status.resize_with(self.place.world, Arc::default);
            status[self.place.rank] = Arc::clone(&self.own);
            Arc::new(Inbox::new(status))
        };
        Arc::clone(sessions.inboxes.entry(session).or_insert_with(new))
    }

    fn open_session(&self) -> (u64, Arc<Inbox>) {
        let mut sessions = self.sessions();
        sessions.current += 1;
        let current = sessions.current;
        sessions.inboxes.retain(|session, _| *session >= current);
        let inbox = self.inbox_in(&mut sessions, current);
        drop(sessions);
        let goodbyes = self.leaving().goodbyes.clone();
        let gone = goodbyes.iter().enumerate().filter(|(_, gone)| **gone);
        gone.for_each(|(rank, _)| inbox.finished(rank));
        (current, inbox)
    }

    /// A rank sends what none sends.
    pub(super) fn failed(&self, from: usize, failure: &Failure) {
        self.failed.store(true, Ordering::Relaxed);
        for inbox in self.sessions().inboxes.values() {
            inbox.failed(from, failure.clone());
        }
    }

    /// Notes that a response to the sent frame comes soon.
    pub(super) fn expect(&self) {
        self.expecting.store(true, Ordering::Relaxed);
    }

    /// Returns true if a response comes soon; does so once.
    pub(super) fn expecting(&self) -> bool {
        self.expecting.swap(false, Ordering::Relaxed)
    }

    /// Takes a frame.
    pub(super) fn take(&self, from: usize, session: u64, header: Header, bytes: Vec<u8>) {
        self.heard(from);
        if header.kind == Kind::Failed {
            self.failed.store(true, Ordering::Relaxed);
        }
        if let Some(inbox) = self.inbox(session) {
            inbox.take(from, header, bytes);
        } else if session == PROCESS {
            self.leaving().goodbyes[from] = true;
            self.changed.notify_all();
            for inbox in self.sessions().inboxes.values() {
                inbox.finished(from);
            }
        }
    }

    /// Something came from a rank.
    pub(super) fn heard(&self, from: usize) {
        self.leaving().heard[from] += 1;
    }

    /// A thread that sends has ended.
    pub(super) fn sent_all(&self) {
        self.leaving().sending -= 1;
        self.changed.notify_all();
    }

    /// Waits until all ranks have left; whether they have. After a failure only for a while, else as long as those that
    /// are left show life.
    fn all_left(&self, silence: Duration) -> bool {
        let mut leaving = self.leaving();
        let mut heard: Vec<(u64, u32)> = leaving.heard.iter().map(|n| (*n, 0)).collect();
        let mut ticks = 0;
        while leaving.sending > 0 || leaving.goodbyes.contains(&false) {
            let failed = self.failed.load(Ordering::Relaxed);
            let silent = heard.iter().any(|(_, quiet)| TICK * *quiet >= silence);
            if silent || (failed && ticks >= FAREWELL_TICKS) {
                return false;
            }
            let (guard, timeout) = self
                .changed
                .wait_timeout(leaving, TICK)
                .unwrap_or_else(PoisonError::into_inner);
            leaving = guard;
            if timeout.timed_out() {
                ticks += 1;
                let now = leaving.heard.iter().zip(&leaving.goodbyes);
                for ((heard, quiet), (now, gone)) in heard.iter_mut().zip(now) {
                    *quiet = if *heard == *now && !gone {
                        *quiet + 1
                    } else {
                        0
                    };
                    *heard = *now;
                }
            }
        }
        true
    }
}

/// MPI, started.
pub(super) struct Running {
    shared: Arc<Shared>,
    /// By rank; none to this one.
    queues: Vec<Option<Arc<Queue>>>,
    listener: Option<JoinHandle<()>>,
    /// Ends the thread that has signs of life sent.
    alive: Option<mpsc::Sender<()>>,
    patience: Patience,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Leads to one rank.
#[derive(Clone, Debug)]
pub(super) struct Line {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    limit: Duration,
}

impl Line {
    /// Has a frame sent.
    ///
    /// # Errors
    /// Reason that it cannot be sent.
    pub(super) fn send(
        &self,
        session: u64,
        kind: Kind,
        number: u64,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        let parcel = Parcel {
            session,
            kind,
            number,
            bytes,
        };
        self.queue.push(parcel, self.limit)
    }

    /// Some rank has failed.
    pub(super) fn fail(&self) {
        self.shared.failed.store(true, Ordering::Relaxed);
    }
}

impl Running {
    /// Starts MPI, which waits for all ranks, within `limit`.
    ///
    /// # Errors
    /// Reason that it does not start.
    pub(super) fn start(
        meeting: &Meeting,
        patience: Patience,
        limit: Duration,
    ) -> Result<Self, String> {
        let place = meeting.place;
        let text = |error: std::io::Error| format!("the system gives no thread: {error}");
        let shared = Arc::new(Shared::new(meeting));
        let (say, started) = mpsc::channel();
        let listening = Arc::clone(&shared);
        let listener = thread::Builder::new().name("mpi".to_owned());
        let listener = listener
            .spawn(move || wire::listen(&listening, &say))
            .map_err(text)?;
        let seconds = limit.as_secs_f64();
        started.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                format!("MPI has not started within {seconds} s: some rank has not come")
            }
            RecvTimeoutError::Disconnected => "MPI does not start".to_owned(),
        })??;
        let mut queues: Vec<Option<Arc<Queue>>> = Vec::new();
        for rank in 0..place.world {
            let queue = (rank != place.rank).then(Arc::<Queue>::default);
            if let Some(queue) = queue.clone() {
                let (shared, listener) = (Arc::clone(&shared), listener.thread().clone());
                let sender = thread::Builder::new().name(format!("to-rank-{rank}"));
                let work = move || wire::send(rank, &queue, &shared, &listener);
                sender.spawn(work).map_err(text)?;
            }
            queues.push(queue);
        }
        let (alive, ended) = mpsc::channel();
        let (living, to) = (Arc::clone(&shared), queues.clone());
        let signs = thread::Builder::new().name("alive".to_owned());
        signs
            .spawn(move || show_life(&living, &to, &ended))
            .map_err(text)?;
        Ok(Self {
            shared,
            queues,
            listener: Some(listener),
            alive: Some(alive),
            patience,
        })
    }

    /// The next session: its number and its inbox.
    pub(super) fn open_session(&self) -> (u64, Arc<Inbox>) {
        self.shared.open_session()
    }

    /// Leads to `rank`; `None` to this one.
    pub(super) fn line(&self, rank: usize) -> Option<Line> {
        let queue = self.queues[rank].clone()?;
        Some(Line {
            shared: Arc::clone(&self.shared),
            queue,
            limit: self.patience.silence.unwrap_or(self.patience.message),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.alive.take();
        for queue in self.queues.iter().flatten() {
            queue.close(Parcel {
                session: PROCESS,
                kind: Kind::Finished,
                number: 0,
                bytes: Vec::new(),
            });
        }
        let silence = self.patience.silence.unwrap_or(self.patience.message);
        let all_left = self.shared.all_left(silence);
        let order = if all_left {
            Order::Finalize
        } else {
            tracing::warn!(
                "some rank has not said goodbye; MPI is not ended, `mpirun` ends the rest"
            );
            Order::Abandon
        };
        self.shared.order.store(order as u8, Ordering::Release);
        if let Some(listener) = self.listener.take() {
            listener.thread().unpark();
            if all_left {
                // It panics as little as MPI does; then there is nothing left to end.
                listener.join().ok();
            }
        }
    }
}

/// Shows the others each second that this rank is there, and where.
fn show_life(shared: &Shared, queues: &[Option<Arc<Queue>>], ended: &mpsc::Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SIGN_OF_LIFE_EVERY) {
        let session = shared.sessions().current;
        for queue in queues.iter().flatten() {
            // A message on its way shows as much.
            queue.push_if_empty(|| Parcel {
                session,
                kind: Kind::Alive,
                number: 0,
                bytes: shared.own.to_bytes().to_vec(),
            });
        }
    }
}
