//! Ranks that are processes which `mpirun` started, with MPI between them.
//!
//! MPI starts when a process first meets the others and ends with the last [`Handle`]: a process can start it only once,
//! but its ranks may meet again and again, each time in a session of its own.
//!
//! MPI carries messages from one rank to another and nothing else; sums are taken as everywhere, so they have the same
//! bits. An error of MPI itself ends all processes, and `mpirun` says why; so does the death of one.

mod process;
mod queue;
mod thread_state;
mod wire;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use xxhash_rust::xxh3::xxh3_64;

use self::process::Running;
use super::{
    frame::FrameKind,
    inbox::{Inbox, Message, Patience, RankFailure},
    meeting::{MAGIC, Meeting, another},
    ranks::{Post, Ranks},
};
use crate::error::Error;

/// Name of the rendezvous in errors.
const WORLD: &str = "MPI_COMM_WORLD";

/// A share in the MPI of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Handle {
    running: Arc<Mutex<Option<Running>>>,
}

impl Handle {
    /// Meets the other ranks, which must have the same `identity`, as soon as all are there.
    ///
    /// # Errors
    /// [`Error::Meeting`]: MPI does not start, somebody does not come within `limit`, or ranks do not belong together.
    pub(super) fn join(
        &self,
        meeting: &Meeting,
        identity: &str,
        patience: Patience,
        limit: Duration,
    ) -> Result<Ranks, Error> {
        let place = meeting.place;
        let refused = |reason| Error::Meeting {
            rank: place.rank,
            address: WORLD.to_owned(),
            reason,
        };
        let (inbox, posts) = self.session(meeting, patience, limit).map_err(refused)?;
        let until_met = Patience {
            message: limit,
            ..patience
        };
        if let Err(failure) = hello(identity, &inbox, &posts, until_met) {
            for post in posts.iter().flatten() {
                post.leave(Some(&failure));
            }
            return Err(refused(format!(
                "rank {}: {}",
                failure.rank, failure.reason
            )));
        }
        Ok(Ranks::new(place, inbox, posts, patience))
    }

    /// Starts MPI if need be, and a session.
    fn session(
        &self,
        meeting: &Meeting,
        patience: Patience,
        limit: Duration,
    ) -> Result<(Arc<Inbox>, Posts), String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            *running = Some(Running::start(meeting, patience, limit)?);
        }
        let Some(running) = running.as_ref() else {
            return Err("MPI has not started".to_owned());
        };
        let (session, inbox) = running.open_session();
        let post = |to| -> Option<Box<dyn Post>> {
            let line = running.line(to)?;
            let process = self.clone();
            Some(Box::new(MpiPost {
                session,
                line,
                _process: process,
            }))
        };
        Ok((inbox, (0..meeting.place.world).map(post).collect()))
    }
}

/// By rank; none to this one.
type Posts = Vec<Option<Box<dyn Post>>>;

/// Leads to another process.
#[derive(Debug)]
struct MpiPost {
    session: u64,
    line: process::RankLine,
    /// MPI does not end before its sessions.
    _process: Handle,
}

impl Post for MpiPost {
    fn send(&self, message: Message) -> Result<(), String> {
        let Message { number, bytes } = message;
        self.line
            .send(self.session, FrameKind::Message, number, bytes)
    }

    fn leave(&self, failure: Option<&RankFailure>) {
        let said = match failure {
            None => self
                .line
                .send(self.session, FrameKind::Finished, 0, Vec::new()),
            Some(failure) => {
                self.line.fail();
                let (number, reason) = (failure.rank as u64, failure.reason.clone().into_bytes());
                self.line
                    .send(self.session, FrameKind::Failed, number, reason)
            }
        };
        // Who does not hear it any more hears nothing at all, and says so.
        said.ok();
    }
}

/// Compares what must be the same on all ranks: 8 bytes that name this version of what ranks say, and a hash.
fn hello(
    identity: &str,
    inbox: &Inbox,
    posts: &[Option<Box<dyn Post>>],
    patience: Patience,
) -> Result<(), RankFailure> {
    let own = [MAGIC, xxh3_64(identity.as_bytes()).to_le_bytes()].concat();
    for (rank, post) in posts.iter().enumerate() {
        let message = Message {
            number: 0,
            bytes: own.clone(),
        };
        let sent = post.as_ref().map_or(Ok(()), |post| post.send(message));
        sent.map_err(|reason| RankFailure { rank, reason })?;
    }
    let mut first = None;
    for (rank, post) in posts.iter().enumerate() {
        let said = match post {
            Some(_) => inbox.receive(rank, patience)?.bytes,
            None => own.clone(),
        };
        let first = first.get_or_insert_with(|| said.clone());
        if said.get(..8) != Some(&MAGIC) {
            let reason = "it is no rank of this version of feedline".to_owned();
            return Err(RankFailure { rank, reason });
        }
        if said != *first {
            let reason = another(rank);
            return Err(RankFailure { rank, reason });
        }
    }
    Ok(())
}
