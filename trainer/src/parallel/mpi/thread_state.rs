//! State that the threads of MPI share: sessions, ranks that have left, and failures.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use crate::parallel::{
    RankPlace,
    frame::{FrameHeader, FrameKind},
    recv_queue::{RankFailure, RecvQueue},
    rendezvous::Rendezvous,
    status::Status,
};

/// Interval of checks while waiting for the end.
const TICK: Duration = Duration::from_millis(50);

/// Ticks that ranks have to say goodbye after a failure.
const FAREWELL_TICKS: u32 = 100;

/// In place of a session: a frame about the process itself. The only one says goodbye.
pub(super) const PROCESS: u64 = u64::MAX;

/// Order to the listening thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenerOrder {
    Listen,
    /// End MPI: all other ranks do.
    Finalize,
    /// Leave MPI as it is: some rank is lost.
    Abandon,
}

/// State that the threads share.
#[derive(Debug)]
pub(super) struct SharedThreadState {
    pub(super) place: RankPlace,
    /// Status of this rank.
    pub(super) own: Arc<Status>,
    sessions: Mutex<Sessions>,
    leaving: Mutex<Leaving>,
    changed: Condvar,
    /// Some rank has failed.
    pub(super) failed: AtomicBool,
    expecting: AtomicBool,
    pub(super) order: AtomicU8,
}

/// The session that this rank is in, and the one that others may be in already.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub(super) current: u64,
    recv_queues: BTreeMap<u64, Arc<RecvQueue>>,
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

impl SharedThreadState {
    pub(super) fn new(rendezvous: &Rendezvous) -> Self {
        let place = rendezvous.place;
        let leaving = Leaving {
            goodbyes: (0..place.world).map(|rank| rank == place.rank).collect(),
            heard: vec![0; place.world],
            sending: place.world - 1,
        };
        Self {
            place,
            own: Arc::clone(&rendezvous.status),
            sessions: Mutex::default(),
            leaving: Mutex::new(leaving),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
            expecting: AtomicBool::new(false),
            order: AtomicU8::new(ListenerOrder::Listen as u8),
        }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn order(&self) -> ListenerOrder {
        let order = self.order.load(Ordering::Acquire);
        let orders = [
            ListenerOrder::Listen,
            ListenerOrder::Finalize,
            ListenerOrder::Abandon,
        ];
        let found = orders.into_iter().find(|known| *known as u8 == order);
        found.unwrap_or(ListenerOrder::Abandon)
    }

    /// The receive queue of a session; `None` for one that is over.
    pub(super) fn recv_queue(&self, session: u64) -> Option<Arc<RecvQueue>> {
        let mut sessions = self.sessions();
        let known = session >= sessions.current && session != PROCESS;
        known.then(|| self.recv_queue_in(&mut sessions, session))
    }

    fn recv_queue_in(&self, sessions: &mut Sessions, session: u64) -> Arc<RecvQueue> {
        let new = || {
            let mut status: Vec<Arc<Status>> = Vec::new();
            status.resize_with(self.place.world, Arc::default);
            status[self.place.rank] = Arc::clone(&self.own);
            Arc::new(RecvQueue::new(status))
        };
        Arc::clone(sessions.recv_queues.entry(session).or_insert_with(new))
    }

    pub(super) fn open_session(&self) -> (u64, Arc<RecvQueue>) {
        let mut sessions = self.sessions();
        sessions.current += 1;
        let current = sessions.current;
        sessions
            .recv_queues
            .retain(|session, _| *session >= current);
        let recv_queue = self.recv_queue_in(&mut sessions, current);
        drop(sessions);
        let goodbyes = self.leaving().goodbyes.clone();
        let gone = goodbyes.iter().enumerate().filter(|(_, gone)| **gone);
        gone.for_each(|(rank, _)| recv_queue.finished(rank));
        (current, recv_queue)
    }

    /// A rank sends what none sends.
    pub(super) fn failed(&self, from: usize, failure: &RankFailure) {
        self.failed.store(true, Ordering::Relaxed);
        for recv_queue in self.sessions().recv_queues.values() {
            recv_queue.failed(from, failure.clone());
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
    pub(super) fn take(&self, from: usize, session: u64, header: FrameHeader, bytes: Vec<u8>) {
        self.heard(from);
        if header.kind == FrameKind::Failed {
            self.failed.store(true, Ordering::Relaxed);
        }
        if let Some(recv_queue) = self.recv_queue(session) {
            recv_queue.take(from, header, bytes);
        } else if session == PROCESS {
            self.leaving().goodbyes[from] = true;
            self.changed.notify_all();
            for recv_queue in self.sessions().recv_queues.values() {
                recv_queue.finished(from);
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
    pub(super) fn all_left(&self, silence: Duration) -> bool {
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
