//! Frames as MPI messages.
//!
//! A frame is a first MPI message, which is its session (8 bytes, little-endian), its header and as much of its bytes as
//! fit in [`FIRST`], and then messages of up to [`PIECE`] bytes. MPI keeps the messages from one rank to another in
//! order, and each has one thread that sends and one that receives it.

use std::{
    sync::mpsc,
    thread::{self, Thread},
    time::Duration,
};

use ::mpi::{
    Rank, Threading,
    environment::Universe,
    point_to_point::{Message, Status},
    topology::SimpleCommunicator,
    traits::{Communicator as _, Destination as _, Equivalence as _, Source as _},
};

use super::{
    queue::{Parcel, Queue},
    thread_state::{ListenerOrder, SharedThreadState},
};
use crate::parallel::{
    RankPlace,
    frame::{FrameHeader, FrameKind, PIECE},
    recv_queue::RankFailure,
};

/// Longest first message: what MPI libraries send along without asking the receiver.
const FIRST: usize = 4096;

/// Session and header.
const PREFIX: usize = 32;

/// Times that a thread which hears nothing looks again before it sleeps.
const EAGER: u32 = 64;

/// Longest time that a thread which hears nothing sleeps.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Messages that are received from one rank before the next has its turn.
const TURN: usize = 8;

fn mpi_rank(rank: usize) -> Rank {
    Rank::try_from(rank).unwrap_or(Rank::MAX)
}

/// Body of a thread that sends to one rank.
pub(super) fn send(to: usize, queue: &Queue, shared: &SharedThreadState, listener: &Thread) {
    let world = SimpleCommunicator::world();
    let peer = world.process_at_rank(mpi_rank(to));
    while let Some(parcel) = queue.pop() {
        let Parcel {
            session,
            kind,
            number,
            bytes,
        } = parcel;
        let len = bytes.len();
        let header = FrameHeader { kind, number, len };
        let (first, rest) = bytes.split_at(len.min(FIRST - PREFIX));
        peer.send(&[&session.to_le_bytes(), &header.to_bytes()[..], first].concat()[..]);
        for piece in rest.chunks(PIECE) {
            peer.send(piece);
        }
        if kind == FrameKind::Message {
            shared.expect();
            listener.unpark();
        }
    }
    shared.sent_all();
}

/// Body of the thread that starts MPI, hears all ranks and ends MPI. It says when MPI has started, or why not.
pub(super) fn listen(shared: &SharedThreadState, say: &mpsc::Sender<Result<(), String>>) {
    let universe = match start(shared.place) {
        Ok(universe) => universe,
        Err(reason) => {
            say.send(Err(reason)).ok();
            return;
        }
    };
    if say.send(Ok(())).is_err() {
        // Whoever asked has gone; the others may not come at all.
        std::mem::forget(universe);
        return;
    }
    let world = universe.world();
    let mut incoming: Vec<Incoming> = Vec::new();
    incoming.resize_with(shared.place.world, Incoming::default);
    let mut quiet = 0;
    loop {
        match shared.order() {
            ListenerOrder::Listen => {}
            ListenerOrder::Finalize => return drop(universe),
            ListenerOrder::Abandon => return std::mem::forget(universe),
        }
        let mut heard = shared.expecting();
        for (rank, incoming) in incoming.iter_mut().enumerate() {
            let peer = world.process_at_rank(mpi_rank(rank));
            for _ in 0..TURN {
                let Some((message, status)) = peer.immediate_matched_probe() else {
                    break;
                };
                heard = true;
                incoming.receive(message, &status, rank, shared);
            }
        }
        quiet = if heard { 0 } else { quiet + 1 };
        pause(quiet);
    }
}

/// Starts MPI.
fn start(place: RankPlace) -> Result<Universe, String> {
    let started = ::mpi::initialize_with_threading(Threading::Multiple);
    let (universe, level) =
        started.ok_or("MPI was started before in this process, and can be started only once")?;
    let world = universe.world();
    let number = |n: Rank| usize::try_from(n).unwrap_or_default();
    let (rank, size) = (number(world.rank()), number(world.size()));
    let reason = if level < Threading::Multiple {
        format!(
            "this MPI library lets only some threads in ({level:?}), ranks need several; install another build of it"
        )
    } else if (rank, size) != (place.rank, place.world) {
        format!(
            "MPI says that it is rank {rank} of {size}; start the ranks with the `mpirun` of the MPI library that this \
             program was built with"
        )
    } else {
        return Ok(universe);
    };
    std::mem::forget(universe);
    Err(reason)
}

/// Message that is coming from one rank.
#[derive(Debug, Default)]
enum Incoming {
    #[default]
    Nothing,
    Frame {
        session: u64,
        header: FrameHeader,
        bytes: Vec<u8>,
    },
    /// It sent what no rank sends.
    Broken,
}

impl Incoming {
    /// Receives a message that has arrived, and hands over the frame that it ends.
    fn receive(
        &mut self,
        message: Message,
        status: &Status,
        from: usize,
        shared: &SharedThreadState,
    ) {
        let count = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or_default();
        shared.heard(from);
        let (session, header, bytes) = match std::mem::take(self) {
            Self::Nothing => {
                let mut buffer = vec![0; count];
                message.matched_receive_into(&mut buffer[..]);
                match prefix(&buffer) {
                    Some((session, header)) => (session, header, buffer.split_off(PREFIX)),
                    None => return self.broken(from, shared),
                }
            }
            Self::Frame {
                session,
                header,
                mut bytes,
            } => {
                let recv_queue = shared.recv_queue(session);
                let reading = |rank| {
                    recv_queue
                        .iter()
                        .for_each(|recv_queue| recv_queue.reading(rank))
                };
                let at = bytes.len();
                bytes.resize(at + count, 0);
                reading(Some(from));
                message.matched_receive_into(&mut bytes[at..]);
                reading(None);
                recv_queue
                    .iter()
                    .for_each(|recv_queue| recv_queue.sign_of_life(from));
                (session, header, bytes)
            }
            Self::Broken => {
                message.matched_receive_into(&mut vec![0_u8; count][..]);
                *self = Self::Broken;
                return;
            }
        };
        match bytes.len().cmp(&header.len) {
            std::cmp::Ordering::Less => {
                *self = Self::Frame {
                    session,
                    header,
                    bytes,
                };
            }
            std::cmp::Ordering::Equal => shared.take(from, session, header, bytes),
            std::cmp::Ordering::Greater => self.broken(from, shared),
        }
    }

    fn broken(&mut self, from: usize, shared: &SharedThreadState) {
        *self = Self::Broken;
        let reason = "it sent what no rank sends".to_owned();
        shared.failed(from, &RankFailure { rank: from, reason });
    }
}

fn prefix(bytes: &[u8]) -> Option<(u64, FrameHeader)> {
    let (session, rest) = bytes.split_first_chunk()?;
    let header = FrameHeader::read(rest.first_chunk()?)?;
    Some((u64::from_le_bytes(*session), header))
}

/// Waits a moment after having heard nothing for so many times: a little longer each time.
fn pause(quiet: u32) {
    if quiet < EAGER {
        thread::yield_now();
    } else {
        let micros = 50 << ((quiet - EAGER) / 16).min(5);
        thread::park_timeout(Duration::from_micros(micros).min(SLEEP_MAX));
    }
}
