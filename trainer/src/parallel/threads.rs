//! Ranks that are threads of one process.

use std::sync::Arc;

use super::{
    RankPlace,
    collectives::{RankTransport, Ranks},
    recv_queue::{Message, Patience, RankFailure, RecvQueue},
    status::Status,
};

/// One of some threads that train together.
#[derive(Clone, Debug)]
pub(super) struct ThreadMember {
    pub(super) place: RankPlace,
    recv_queues: Arc<Vec<Arc<RecvQueue>>>,
}

/// So many threads.
pub(super) fn members(world: usize) -> Vec<ThreadMember> {
    let status: Vec<Arc<Status>> = (0..world).map(|_| Arc::default()).collect();
    let recv_queue = || Arc::new(RecvQueue::new(status.clone()));
    let recv_queues: Arc<Vec<Arc<RecvQueue>>> =
        Arc::new((0..world).map(|_| recv_queue()).collect());
    let member = |rank| ThreadMember {
        place: RankPlace { rank, world },
        recv_queues: Arc::clone(&recv_queues),
    };
    (0..world).map(member).collect()
}

impl ThreadMember {
    /// Status of this rank.
    pub(super) fn status(&self) -> &Status {
        let rank = self.place.rank;
        &self.recv_queues[rank].status[rank]
    }

    /// Joins the others; once.
    pub(super) fn join(&self, patience: Patience) -> Ranks {
        // Threads of one process stop and die together: there is no silence to listen for.
        let patience = Patience {
            silence: None,
            ..patience
        };
        let from = self.place.rank;
        let transport = |to: usize| -> Option<Box<dyn RankTransport>> {
            let recv_queue = Arc::clone(&self.recv_queues[to]);
            (to != from)
                .then(|| Box::new(ThreadTransport { from, recv_queue }) as Box<dyn RankTransport>)
        };
        let transports = (0..self.place.world).map(transport).collect();
        Ranks::new(
            self.place,
            Arc::clone(&self.recv_queues[from]),
            transports,
            patience,
        )
    }
}

/// Leads to another thread.
#[derive(Debug)]
struct ThreadTransport {
    from: usize,
    recv_queue: Arc<RecvQueue>,
}

impl RankTransport for ThreadTransport {
    fn send(&self, message: Message) -> Result<(), String> {
        self.recv_queue.deliver(self.from, message);
        Ok(())
    }

    fn leave(&self, failure: Option<&RankFailure>) {
        match failure {
            None => self.recv_queue.finished(self.from),
            Some(failure) => self.recv_queue.failed(self.from, failure.clone()),
        }
    }
}
