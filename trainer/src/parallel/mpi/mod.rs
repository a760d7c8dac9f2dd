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

use self::process::Running;
use super::{
    collectives::{RankTransport, Ranks},
    frame::FrameKind,
    hello::MAGIC,
    identity::JobIdentity,
    recv_queue::{Message, Patience, RankFailure, RecvQueue},
    rendezvous::Rendezvous,
    resume_code::{resume_code, started_otherwise},
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
    /// [`Error::Rendezvous`]: MPI does not start, somebody does not come within `limit`, or ranks do not belong together.
    pub(super) fn join(
        &self,
        rendezvous: &Rendezvous,
        identity: &str,
        patience: Patience,
        limit: Duration,
    ) -> Result<Ranks, Error> {
        let place = rendezvous.place;
        let refused = |reason| Error::Rendezvous {
            rank: place.rank,
            address: WORLD.to_owned(),
            reason,
        };
        let (recv_queue, transports) =
            self.session(rendezvous, patience, limit).map_err(refused)?;
        let until_met = Patience {
            message: limit,
            ..patience
        };
        let code = resume_code(rendezvous.resume);
        if let Err(failure) = hello((identity, code), &recv_queue, &transports, until_met) {
            for transport in transports.iter().flatten() {
                transport.leave(Some(&failure));
            }
            return Err(refused(format!(
                "rank {}: {}",
                failure.rank, failure.reason
            )));
        }
        Ok(Ranks::new(place, recv_queue, transports, patience))
    }

    /// Starts MPI if need be, and a session.
    fn session(
        &self,
        rendezvous: &Rendezvous,
        patience: Patience,
        limit: Duration,
    ) -> Result<(Arc<RecvQueue>, RankTransports), String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_none() {
            *running = Some(Running::start(rendezvous, patience, limit)?);
        }
        let Some(running) = running.as_ref() else {
            return Err("MPI has not started".to_owned());
        };
        let (session, recv_queue) = running.open_session();
        let transport = |to| -> Option<Box<dyn RankTransport>> {
            let line = running.line(to)?;
            let process = self.clone();
            Some(Box::new(MpiTransport {
                session,
                line,
                _process: process,
            }))
        };
        Ok((
            recv_queue,
            (0..rendezvous.place.world).map(transport).collect(),
        ))
    }
}

/// By rank; none to this one.
type RankTransports = Vec<Option<Box<dyn RankTransport>>>;

/// Leads to another process.
#[derive(Debug)]
struct MpiTransport {
    session: u64,
    line: process::RankLine,
    /// MPI does not end before its sessions.
    _process: Handle,
}

impl RankTransport for MpiTransport {
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

/// Bytes of what ranks say first, without their handling of checkpoints.
const IDENTITY_BYTES: usize = MAGIC.len() + JobIdentity::BYTES;

/// Compares what must be the same on all ranks: 8 bytes that name this version of what ranks say, the [`JobIdentity`], and the
/// [`resume_code`].
fn hello(
    (identity, resume): (&str, u8),
    recv_queue: &RecvQueue,
    transports: &[Option<Box<dyn RankTransport>>],
    patience: Patience,
) -> Result<(), RankFailure> {
    let mut own = MAGIC.to_vec();
    own.extend(JobIdentity::new(identity, "").to_bytes());
    own.push(resume);
    for (rank, transport) in transports.iter().enumerate() {
        let message = Message {
            number: 0,
            bytes: own.clone(),
        };
        let sent = transport
            .as_ref()
            .map_or(Ok(()), |transport| transport.send(message));
        sent.map_err(|reason| RankFailure { rank, reason })?;
    }
    let mut first = None;
    for (rank, transport) in transports.iter().enumerate() {
        let said = match transport {
            Some(_) => recv_queue.receive(rank, patience)?.bytes,
            None => own.clone(),
        };
        let first = first.get_or_insert_with(|| said.clone());
        if said.get(..8) != Some(&MAGIC) {
            let reason = "it is no rank of this version of feedline".to_owned();
            return Err(RankFailure { rank, reason });
        }
        if said != *first {
            let identities = [&said, &*first].map(|said: &Vec<u8>| {
                JobIdentity::read(said.get(MAGIC.len()..IDENTITY_BYTES).unwrap_or_default())
            });
            let codes = [&said, &*first].map(|said| said.last().copied().unwrap_or_default());
            let difference = identities[0].difference(identities[1], rank);
            let reason = difference.unwrap_or_else(|| started_otherwise(rank, codes[0], codes[1]));
            return Err(RankFailure { rank, reason });
        }
    }
    Ok(())
}
