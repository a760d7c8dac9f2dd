//! The MPI of this process: its threads, and how they start and end.
//!
//! One thread hears all ranks, one sends to each, and one has them send a sign of life each second. MPI ends together on
//! all ranks, as it must: each says goodbye and waits for the others'.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    queue::{Parcel, Queue},
    thread_state::{ListenerOrder, PROCESS, SharedThreadState},
    wire,
};
use crate::parallel::{
    frame::{FrameKind, SIGN_OF_LIFE_EVERY},
    recv_queue::{Patience, RecvQueue},
    rendezvous::Rendezvous,
};

/// MPI, started.
pub(super) struct Running {
    shared: Arc<SharedThreadState>,
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
pub(super) struct RankLine {
    shared: Arc<SharedThreadState>,
    queue: Arc<Queue>,
    limit: Duration,
}

impl RankLine {
    /// Has a frame sent.
    ///
    /// # Errors
    /// Reason that it cannot be sent.
    pub(super) fn send(
        &self,
        session: u64,
        kind: FrameKind,
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
        rendezvous: &Rendezvous,
        patience: Patience,
        limit: Duration,
    ) -> Result<Self, String> {
        let place = rendezvous.place;
        let text = |error: std::io::Error| format!("the system gives no thread: {error}");
        let shared = Arc::new(SharedThreadState::new(rendezvous));
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

    /// The next session: its number and its receive queue.
    pub(super) fn open_session(&self) -> (u64, Arc<RecvQueue>) {
        self.shared.open_session()
    }

    /// Leads to `rank`; `None` to this one.
    pub(super) fn line(&self, rank: usize) -> Option<RankLine> {
        let queue = self.queues[rank].clone()?;
        Some(RankLine {
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
                kind: FrameKind::Finished,
                number: 0,
                bytes: Vec::new(),
            });
        }
        let silence = self.patience.silence.unwrap_or(self.patience.message);
        let all_left = self.shared.all_left(silence);
        let order = if all_left {
            ListenerOrder::Finalize
        } else {
            tracing::warn!(
                "some rank has not said goodbye; MPI is not ended, `mpirun` ends the rest"
            );
            ListenerOrder::Abandon
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
fn show_life(
    shared: &SharedThreadState,
    queues: &[Option<Arc<Queue>>],
    ended: &mpsc::Receiver<()>,
) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SIGN_OF_LIFE_EVERY) {
        let session = shared.sessions().current;
        for queue in queues.iter().flatten() {
            // A message on its way shows as much.
            queue.push_if_empty(|| Parcel {
                session,
                kind: FrameKind::Alive,
                number: 0,
                bytes: shared.own.to_bytes().to_vec(),
            });
        }
    }
}
