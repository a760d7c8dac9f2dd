//! Ranks that are processes, each with a connection to each.
//!
//! For each connection one thread reads frames, so that a rank that sends never waits for one that computes, and another
//! sends a sign of life each second. Both end with the connection.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex, PoisonError, TryLockError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use tokio::net::TcpStream as AsyncStream;

use super::{
    RankPlace,
    collectives::{RankTransport, Ranks},
    frame::{FrameHeader, FrameKind, PIECE, SIGN_OF_LIFE_EVERY},
    recv_queue::{Message, Patience, RankFailure, RecvQueue},
    status::Status,
};

/// Ranks that are connected: `streams` by rank, none to this one, which says in `own` where it is.
///
/// # Errors
/// When the system gives no thread, or the connections cannot be set up.
pub(super) fn ranks(
    place: RankPlace,
    own: &Arc<Status>,
    streams: Vec<Option<AsyncStream>>,
    (patience, largest): (Patience, u64),
) -> io::Result<Ranks> {
    let mut status: Vec<Arc<Status>> = (0..place.world).map(|_| Arc::default()).collect();
    status[place.rank] = Arc::clone(own);
    let recv_queue = Arc::new(RecvQueue::new(status));
    let mut transports: Vec<Option<Box<dyn RankTransport>>> = Vec::new();
    for (rank, stream) in streams.into_iter().enumerate() {
        let transport =
            stream.map(|stream| connect((place, rank), stream, &recv_queue, (patience, largest)));
        transports.push(
            transport
                .transpose()?
                .map(|transport| Box::new(transport) as Box<dyn RankTransport>),
        );
    }
    Ok(Ranks::new(place, recv_queue, transports, patience))
}

/// Starts the threads of the connection to `rank`.
fn connect(
    (place, rank): (RankPlace, usize),
    stream: AsyncStream,
    recv_queue: &Arc<RecvQueue>,
    (patience, largest): (Patience, u64),
) -> io::Result<TcpTransport> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(patience.silence.or(Some(patience.message)))?;
    let reading = stream.try_clone()?;
    let reading_queue = Arc::clone(recv_queue);
    let backlog = Backlog {
        largest,
        within: patience.message,
    };
    thread::Builder::new()
        .name(format!("from-rank-{rank}"))
        .spawn(move || read(reading, rank, &reading_queue, backlog))?;
    let stream = Arc::new(Mutex::new(stream));
    let (alive, left) = mpsc::channel();
    let (living, own) = (
        Arc::clone(&stream),
        Arc::clone(&recv_queue.status[place.rank]),
    );
    thread::Builder::new()
        .name(format!("to-rank-{rank}"))
        .spawn(move || show_life(&living, &own, &left))?;
    Ok(TcpTransport {
        stream,
        _alive: alive,
    })
}

/// Leads to another process.
#[derive(Debug)]
struct TcpTransport {
    stream: Arc<Mutex<TcpStream>>,
    /// Ends the thread that shows life.
    _alive: mpsc::Sender<()>,
}

impl RankTransport for TcpTransport {
    fn send(&self, message: Message) -> Result<(), String> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        write(
            &mut stream,
            FrameKind::Message,
            message.number,
            &message.bytes,
        )
        .map_err(|error| format!("it takes no message: {error}"))
    }

    fn leave(&self, failure: Option<&RankFailure>) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let said = match failure {
            None => write(&mut stream, FrameKind::Finished, 0, &[]),
            Some(failure) => write(
                &mut stream,
                FrameKind::Failed,
                failure.rank as u64,
                failure.reason.as_bytes(),
            ),
        };
        // Who does not hear it any more sees the end of the connection.
        said.and_then(|()| stream.shutdown(Shutdown::Write)).ok();
    }
}

/// Shows until the transport is dropped that this rank is there, and where. A message on its way shows as much.
fn show_life(stream: &Mutex<TcpStream>, own: &Status, left: &mpsc::Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = left.recv_timeout(SIGN_OF_LIFE_EVERY) {
        match stream.try_lock() {
            Ok(mut stream) => {
                if write(&mut stream, FrameKind::Alive, 0, &own.to_bytes()).is_err() {
                    return;
                }
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Poisoned(_)) => return,
        }
    }
}

fn write(stream: &mut TcpStream, kind: FrameKind, number: u64, bytes: &[u8]) -> io::Result<()> {
    let len = bytes.len();
    let header = FrameHeader { kind, number, len };
    stream.write_all(&header.to_bytes())?;
    stream.write_all(bytes)
}

/// Bound of what a rank may have sent and this one not used.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// Bytes of the longest message. Where twice as many wait, no more are read.
    largest: u64,
    /// Time that the other rank has to wait at most.
    within: Duration,
}

/// Reads frames until there are no more.
fn read(mut stream: TcpStream, from: usize, recv_queue: &RecvQueue, backlog: Backlog) {
    let largest = backlog.largest;
    loop {
        if !recv_queue.await_room(from, largest.saturating_mul(2), backlog.within) {
            let reason = "it sends messages that this one does not ask for".to_owned();
            return recv_queue.failed(from, RankFailure { rank: from, reason });
        }
        match frame(&mut stream, largest, || recv_queue.sign_of_life(from)) {
            Ok((header, bytes)) => {
                if !recv_queue.take(from, header, bytes) {
                    return;
                }
            }
            Err(error) => {
                let reason = format!("its connection ended, as when it is killed: {error}");
                return recv_queue.failed(from, RankFailure { rank: from, reason });
            }
        }
    }
}

fn frame(
    stream: &mut TcpStream,
    largest: u64,
    alive: impl Fn(),
) -> io::Result<(FrameHeader, Vec<u8>)> {
    let mut header = [0; 24];
    stream.read_exact(&mut header)?;
    let header = FrameHeader::read(&header);
    let header = header.ok_or_else(|| io::Error::other("it sent what no rank sends"))?;
    if header.len as u64 > largest {
        return Err(io::Error::other(format!(
            "it sent a message of {} bytes, and none of this training has more than {largest}",
            header.len
        )));
    }
    // It grows with what arrives: a length alone takes no memory.
    let mut bytes = Vec::new();
    while bytes.len() < header.len {
        let at = bytes.len();
        bytes.resize(header.len.min(at + PIECE), 0);
        stream.read_exact(&mut bytes[at..])?;
        alive();
    }
    Ok((header, bytes))
}

/// Ranks and lengths of texts are far below 2^32.
pub(crate) fn narrow(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
