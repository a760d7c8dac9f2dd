//! Ranks that are threads of one process.

use std::sync::Arc;

use super::{
    RankPlace,
    inbox::{Inbox, Message, Patience, RankFailure},
    ranks::{Post, Ranks},
    status::Status,
};

/// One of some threads that train together.
#[derive(Clone, Debug)]
pub(super) struct ThreadMember {
    pub(super) place: RankPlace,
    inboxes: Arc<Vec<Arc<Inbox>>>,
}

/// So many threads.
pub(super) fn members(world: usize) -> Vec<ThreadMember> {
    let status: Vec<Arc<Status>> = (0..world).map(|_| Arc::default()).collect();
    let inbox = || Arc::new(Inbox::new(status.clone()));
    let inboxes: Arc<Vec<Arc<Inbox>>> = Arc::new((0..world).map(|_| inbox()).collect());
    let member = |rank| ThreadMember {
        place: RankPlace { rank, world },
        inboxes: Arc::clone(&inboxes),
    };
    (0..world).map(member).collect()
}

impl ThreadMember {
    /// Status of this rank.
    pub(super) fn status(&self) -> &Status {
        let rank = self.place.rank;
        &self.inboxes[rank].status[rank]
    }

    /// Joins the others; once.
    pub(super) fn join(&self, patience: Patience) -> Ranks {
        // Threads of one process stop and die together: there is no silence to listen for.
        let patience = Patience {
            silence: None,
            ..patience
        };
        let from = self.place.rank;
        let post = |to: usize| -> Option<Box<dyn Post>> {
            let inbox = Arc::clone(&self.inboxes[to]);
            (to != from).then(|| Box::new(ThreadPost { from, inbox }) as Box<dyn Post>)
        };
        let posts = (0..self.place.world).map(post).collect();
        Ranks::new(self.place, Arc::clone(&self.inboxes[from]), posts, patience)
    }
}

/// Leads to another thread.
#[derive(Debug)]
struct ThreadPost {
    from: usize,
    inbox: Arc<Inbox>,
}

impl Post for ThreadPost {
    fn send(&self, message: Message) -> Result<(), String> {
        self.inbox.deliver(self.from, message);
        Ok(())
    }

    fn leave(&self, failure: Option<&RankFailure>) {
        match failure {
            None => self.inbox.finished(self.from),
            Some(failure) => self.inbox.failed(self.from, failure.clone()),
        }
    }
}
