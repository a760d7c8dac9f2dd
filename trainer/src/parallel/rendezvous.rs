//! Rendezvous of ranks that are processes.
//!
//! Rank 0 listens on the address that all know. Every other rank opens a listener of its own,
//! connects and sends a [`Hello`]; when all have come, rank 0 sends each the addresses of all. Then
//! each connects to the ranks between rank 0 and itself, with the same hello, and is connected to
//! by those above it. A process that does not belong is refused with a reason.
//!
//! When an agent listens on that address itself, as torchrun's does, rank 0 listens on the first
//! free one of [`CANDIDATES`] ports that follow from the address's port and the id of the job. The
//! others try them all: a listener that is no rank of the job sends no welcome.
//!
//! A response is a byte, 1 for welcome, the length of a text (4 bytes, little-endian), and the
//! text.
//!
//! With a secret, a hello says so and the response is 32 random bytes (kind 2), new each time. The
//! connecting rank sends back a code (HMAC-SHA256) of these bytes and the hello. Only a rank that
//! knows the secret can compute it. Any process may connect, so hellos are read concurrently: a
//! missing one delays no rank.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinSet,
    time::{sleep, timeout},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    RankPlace,
    collectives::Ranks,
    recv_queue::Patience,
    resume_code::{resume_code, started_otherwise},
    secret::{JobSecret, NONCE_BYTES},
    status::Status,
    tcp::{self, narrow},
};
use crate::{error::Error, resume::Resume};

/// First bytes of a hello; the last two are the version of all that follows.
pub(super) const MAGIC: [u8; 8] = *b"FLRANK01";

/// Longest accepted text of a response.
const TEXT_MAX: u32 = 1 << 20;

/// Time between two tries to reach a rank that does not listen yet.
const RETRY: Duration = Duration::from_millis(100);

/// Time limit of a connection for its hello, and for the proof that it knows the secret.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Connections whose hellos are read concurrently; more wait in the system's queue.
const GREETED: usize = 1024;

/// Ports that ranks under an agent may meet at.
const CANDIDATES: u64 = 16;

/// Those ports are below the ones that systems give to outgoing connections.
const CANDIDATE_PORTS: std::ops::Range<u64> = 20_000..32_000;

/// Time between two tries of a port that something else listens on.
const RETRY_OTHER: Duration = Duration::from_secs(1);

/// Kinds of responses: refused, welcome, must prove that it knows the secret.
const REFUSED: u8 = 0;
const WELCOME: u8 = 1;
const PROVE: u8 = 2;

/// Rendezvous of the ranks.
#[derive(Clone, Debug)]
pub(super) struct Rendezvous {
    pub(super) place: RankPlace,
    /// Host and port of rank 0, or of the agent.
    pub(super) address: String,
    /// Id of the job, where an agent listens on `address`.
    pub(super) agent_job: Option<String>,
    /// Status of this rank.
    pub(super) status: Arc<Status>,
    /// Secret that only the ranks share.
    pub(super) secret: Option<JobSecret>,
    /// Bytes of the longest message that a rank may send.
    pub(super) largest: u64,
    /// Flag that ends the wait for the others.
    pub(super) stop: Arc<AtomicBool>,
    /// Handling of a run folder with checkpoints, which must be the same on all ranks.
    pub(super) resume: Resume,
}

/// First 32 bytes of a connection, little-endian: magic, world size, rank, listener port, 1 with a
/// secret (1 byte), handling of checkpoints (1 byte, [`resume_code`]), zeros (4 bytes), and a hash of
/// what all ranks must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    place: RankPlace,
    port: u16,
    has_secret: bool,
    resume: u8,
    identity: u64,
}

impl Hello {
    fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&narrow(self.place.world).to_le_bytes());
        bytes[12..16].copy_from_slice(&narrow(self.place.rank).to_le_bytes());
        bytes[16..18].copy_from_slice(&self.port.to_le_bytes());
        bytes[18] = self.has_secret.into();
        bytes[19] = self.resume;
        bytes[24..].copy_from_slice(&self.identity.to_le_bytes());
        bytes
    }

    /// Parses another rank's hello; the error says why it is no rank of ours.
    fn read(self, bytes: &[u8; 32]) -> Result<Self, String> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let other = Self {
            place: RankPlace {
                rank: word(3) as usize,
                world: word(2) as usize,
            },
            port: u16::from_le_bytes([bytes[16], bytes[17]]),
            has_secret: bytes[18] == 1,
            resume: bytes[19],
            identity: u64::from(word(7)) << 32 | u64::from(word(6)),
        };
        let (found, world) = (other.place.world, self.place.world);
        let rank = other.place.rank;
        if bytes[..8] != MAGIC {
            return Err("it is no rank of this version of feedline".into());
        }
        if found != world {
            return Err(format!(
                "it is one of {found} ranks, rank 0 of {world}; start all with one `WORLD_SIZE`"
            ));
        }
        if rank >= world {
            return Err(format!("it says to be rank {rank} of {world}"));
        }
        if other.has_secret != self.has_secret {
            return Err(format!(
                "rank {rank} and this one do not both have a secret; give all ranks the same `FEEDLINE_JOB_SECRET`, or none"
            ));
        }
        if other.identity != self.identity {
            return Err(another(rank));
        }
        if other.resume != self.resume {
            return Err(started_otherwise(rank, other.resume, self.resume));
        }
        Ok(other)
    }
}

/// Reason that a rank does not belong to rank 0.
pub(super) fn another(rank: usize) -> String {
    format!(
        "rank {rank} has another configuration, dataset or version of feedline than rank 0; start all with the same"
    )
}

/// The connections there are so far.
#[derive(Debug)]
struct Guests {
    /// By rank.
    streams: Vec<Option<TcpStream>>,
    /// Address that each rank listens on.
    listening: Vec<Option<SocketAddr>>,
    /// Reason that a process was refused.
    refused: Option<String>,
}

impl Rendezvous {
    /// Meets the other ranks, which must have the same `identity`, within `limit`.
    ///
    /// # Errors
    /// [`Error::Rendezvous`]: who is missing, or why this rank was sent away. [`Error::InterruptedRendezvous`] when the stop
    /// flag was set before all came.
    pub(super) fn join(
        &self,
        identity: &str,
        patience: Patience,
        limit: Duration,
        runtime: &Handle,
    ) -> Result<Ranks, Error> {
        let world = self.place.world;
        let job = self.agent_job.as_deref().unwrap_or_default();
        let hello = Hello {
            place: self.place,
            port: 0,
            has_secret: self.secret.is_some(),
            resume: resume_code(self.resume),
            identity: xxh3_64(format!("{identity}{job}").as_bytes()),
        };
        let mut guests = Guests {
            streams: (0..world).map(|_| None).collect(),
            listening: vec![None; world],
            refused: None,
        };
        let met = runtime.block_on(async {
            tokio::select! {
                met = timeout(limit, self.meet(hello, &mut guests)) => Some(met),
                () = self.wait_for_stop() => None,
            }
        });
        let Some(met) = met else {
            return Err(Error::InterruptedRendezvous {
                rank: self.place.rank,
                address: self.address.clone(),
                reason: guests.missing(self.place.rank),
            });
        };
        let met = met.unwrap_or_else(|_| {
            let missing = guests.missing(self.place.rank);
            Err(format!("after {} s {missing}", limit.as_secs_f64()))
        });
        let joined = met.and_then(|()| {
            tcp::ranks(
                self.place,
                &self.status,
                guests.streams,
                (patience, self.largest),
            )
            .map_err(|e| e.to_string())
        });
        joined.map_err(|reason| Error::Rendezvous {
            rank: self.place.rank,
            address: self.address.clone(),
            reason,
        })
    }

    /// Waits until this rank is asked to stop.
    async fn wait_for_stop(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(RETRY).await;
        }
    }

    async fn meet(&self, hello: Hello, guests: &mut Guests) -> Result<(), String> {
        let rank = self.place.rank;
        if rank == 0 {
            let listener = self.listen().await?;
            guests
                .receive(&listener, hello, 1, self.secret.as_ref())
                .await?;
            return guests.welcome().await.map_err(text);
        }
        let Entered {
            first,
            listener,
            hello,
            addresses,
        } = self.enter_any(hello).await?;
        let addresses = String::from_utf8_lossy(&addresses);
        guests.streams[0] = Some(first);
        for (other, address) in addresses.lines().enumerate().take(rank).skip(1) {
            let mut stream = reach(address).await;
            let greeted = self.greet(&mut stream, hello).await;
            greeted.map_err(Denial::reason)?;
            guests.streams[other] = Some(stream);
        }
        guests
            .receive(&listener, hello, rank + 1, self.secret.as_ref())
            .await
    }

    /// Addresses that rank 0 may listen on.
    pub(super) fn addresses(&self) -> Vec<String> {
        let Some(job) = &self.agent_job else {
            return vec![self.address.clone()];
        };
        let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, ""));
        let width = CANDIDATE_PORTS.end - CANDIDATE_PORTS.start;
        let candidate = |i: u64| {
            let hash = xxh3_64(format!("{port} {i} {job}").as_bytes());
            format!("{host}:{}", CANDIDATE_PORTS.start + hash % width)
        };
        (0..CANDIDATES).map(candidate).collect()
    }

    /// Listens on the first address that is free.
    async fn listen(&self) -> Result<TcpListener, String> {
        let mut failed = None;
        for address in self.addresses() {
            match TcpListener::bind(&address).await {
                Ok(listener) => {
                    if self.agent_job.is_some() {
                        let agent = &self.address;
                        tracing::info!(
                            agent,
                            address,
                            "the agent of torchrun holds MASTER_PORT; the ranks meet at another port"
                        );
                    }
                    return Ok(listener);
                }
                Err(error) => failed = Some(format!("cannot listen there: {error}")),
            }
        }
        Err(failed.unwrap_or_default())
    }

    /// Enters at whichever address rank 0 listens on.
    async fn enter_any(&self, hello: Hello) -> Result<Entered, String> {
        let addresses = self.addresses();
        if let [address] = addresses.as_slice() {
            return self.enter(address, hello).await.map_err(Denial::reason);
        }
        let mut tries = JoinSet::new();
        for address in addresses {
            let rendezvous = self.clone();
            tries.spawn(async move {
                loop {
                    match rendezvous.enter(&address, hello).await {
                        Ok(entered) => return Ok(entered),
                        Err(Denial::Refused(reason)) => return Err(reason),
                        Err(Denial::Foreign(_)) => sleep(RETRY_OTHER).await,
                    }
                }
            });
        }
        match tries.join_next().await {
            Some(Ok(entered)) => entered,
            _ => Err("no address of rank 0 could be tried".into()),
        }
    }

    /// Enters at this address: rank 0 has met all ranks and says where they are.
    async fn enter(&self, address: &str, hello: Hello) -> Result<Entered, Denial> {
        let foreign = |error: io::Error| Denial::Foreign(error.to_string());
        let mut first = reach(address).await;
        let own = SocketAddr::new(first.local_addr().map_err(foreign)?.ip(), 0);
        let listener = TcpListener::bind(own).await.map_err(foreign)?;
        let port = listener.local_addr().map_err(foreign)?.port();
        let hello = Hello { port, ..hello };
        self.greet(&mut first, hello).await?;
        let (kind, addresses) = answer(&mut first).await?;
        if kind != WELCOME {
            return Err(Denial::Foreign(NO_FEEDLINE.into()));
        }
        Ok(Entered {
            first,
            listener,
            hello,
            addresses,
        })
    }

    /// Sends the hello, and proves that this rank knows the secret, if one exists.
    async fn greet(&self, stream: &mut TcpStream, hello: Hello) -> Result<(), Denial> {
        let foreign = |error: io::Error| Denial::Foreign(error.to_string());
        let hello = hello.to_bytes();
        stream.write_all(&hello).await.map_err(foreign)?;
        let Some(secret) = &self.secret else {
            return Ok(());
        };
        match answer(stream).await? {
            (PROVE, nonce) => {
                let proof = secret.prove(&nonce, &hello);
                stream.write_all(&proof).await.map_err(foreign)
            }
            _ => Err(Denial::Refused(
                "it asks for no secret; give all ranks the same `FEEDLINE_JOB_SECRET`".into(),
            )),
        }
    }
}

/// A rank that rank 0 has welcomed.
#[derive(Debug)]
struct Entered {
    /// The connection to rank 0.
    first: TcpStream,
    listener: TcpListener,
    hello: Hello,
    /// Addresses that the others listen on.
    addresses: Vec<u8>,
}

/// Reason that a rank did not enter.
#[derive(Debug)]
enum Denial {
    /// A rank of feedline says that it does not belong.
    Refused(String),
    /// Something else listens there, or the connection failed.
    Foreign(String),
}

impl Denial {
    fn reason(self) -> String {
        match self {
            Self::Refused(reason) | Self::Foreign(reason) => reason,
        }
    }
}

/// Reads the hello of a connection, and whether it knows the secret. Returns `None` when it sends
/// nothing that could be one.
async fn hear(
    stream: &mut TcpStream,
    hello: Hello,
    secret: Option<&JobSecret>,
) -> Option<Result<Hello, String>> {
    let mut bytes = [0; 32];
    stream.read_exact(&mut bytes).await.ok()?;
    let other = match hello.read(&bytes) {
        Ok(other) => other,
        Err(reason) => return Some(Err(reason)),
    };
    let Some(secret) = secret else {
        return Some(Ok(other));
    };
    let nonce = match secret.nonce() {
        Ok(nonce) => nonce,
        Err(reason) => return Some(Err(reason)),
    };
    send_answer(stream, PROVE, &nonce).await.ok()?;
    let mut proof = [0; NONCE_BYTES];
    stream.read_exact(&mut proof).await.ok()?;
    Some(if secret.is_proof(&nonce, &bytes, &proof) {
        Ok(other)
    } else {
        Err(format!(
            "rank {} does not know the secret; give all ranks the same `FEEDLINE_JOB_SECRET`",
            other.place.rank
        ))
    })
}

impl Guests {
    /// Waits until all ranks from `first` on are connected.
    async fn receive(
        &mut self,
        listener: &TcpListener,
        hello: Hello,
        first: usize,
        secret: Option<&JobSecret>,
    ) -> Result<(), String> {
        let mut greeted = JoinSet::new();
        while self.streams[first..].iter().any(Option::is_none) {
            let accepted = tokio::select! {
                accepted = listener.accept(), if greeted.len() < GREETED => accepted,
                Some(heard) = greeted.join_next() => {
                    if let Ok(Some((stream, address, heard))) = heard {
                        self.take(stream, address, heard, first).await;
                    }
                    continue;
                }
            };
            match accepted {
                Ok((mut stream, address)) => {
                    let secret = secret.cloned();
                    greeted.spawn(async move {
                        let heard = hear(&mut stream, hello, secret.as_ref());
                        let heard = timeout(HELLO_WITHIN, heard).await.ok()??;
                        Some((stream, address, heard))
                    });
                }
                // The connection ended before it was accepted, or the system has too many: the next
                // may be a rank.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    sleep(RETRY).await;
                }
            }
        }
        Ok(())
    }

    /// Accepts a rank that has sent its hello, or refuses it.
    async fn take(
        &mut self,
        mut stream: TcpStream,
        address: SocketAddr,
        heard: Result<Hello, String>,
        first: usize,
    ) {
        match heard.and_then(|other| self.check(other, first)) {
            Ok(other) => {
                let rank = other.place.rank;
                self.listening[rank] = Some(SocketAddr::new(address.ip(), other.port));
                self.streams[rank] = Some(stream);
            }
            Err(reason) => {
                tracing::warn!(%address, reason, "a process was not taken as a rank");
                // The peer may have disconnected already.
                send_answer(&mut stream, REFUSED, reason.as_bytes())
                    .await
                    .ok();
                self.refused = Some(reason);
            }
        }
    }

    fn check(&self, other: Hello, first: usize) -> Result<Hello, String> {
        let rank = other.place.rank;
        if rank < first || self.streams[rank].is_some() {
            return Err(format!(
                "there is a rank {rank} already; give each process a `RANK` of its own"
            ));
        }
        Ok(other)
    }

    /// Sends all ranks the addresses of the others.
    async fn welcome(&mut self) -> io::Result<()> {
        let listening = self.listening.iter();
        let lines: Vec<String> = listening
            .map(|address| address.map(|a| a.to_string()).unwrap_or_default())
            .collect();
        for stream in self.streams.iter_mut().flatten() {
            send_answer(stream, WELCOME, lines.join("\n").as_bytes()).await?;
        }
        Ok(())
    }

    fn missing(&self, own: usize) -> String {
        let ranks = self.streams.iter().enumerate();
        let missing: Vec<String> = ranks
            .filter(|(rank, stream)| *rank != own && stream.is_none())
            .map(|(rank, _)| rank.to_string())
            .collect();
        let refused = self.refused.as_ref();
        let refused = refused.map_or(String::new(), |r| format!("; a process was sent away: {r}"));
        format!("these ranks have not come: {}{refused}", missing.join(", "))
    }
}

/// Connects, however long it takes.
async fn reach(address: &str) -> TcpStream {
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return stream,
            Err(_) => sleep(RETRY).await,
        }
    }
}

async fn send_answer(stream: &mut TcpStream, kind: u8, text: &[u8]) -> io::Result<()> {
    let mut bytes = vec![kind];
    bytes.extend(narrow(text.len()).to_le_bytes());
    bytes.extend(text);
    stream.write_all(&bytes).await
}

const NO_FEEDLINE: &str = "whoever listens there is no feedline";

/// Waits for a response, its kind and its text; the text of a refusal is the error.
async fn answer(stream: &mut TcpStream) -> Result<(u8, Vec<u8>), Denial> {
    let ended =
        |error: io::Error| Denial::Foreign(format!("rank 0 has ended the connection: {error}"));
    let kind = stream.read_u8().await.map_err(ended)?;
    let len = stream.read_u32_le().await.map_err(ended)?;
    if len > TEXT_MAX {
        return Err(Denial::Foreign(NO_FEEDLINE.into()));
    }
    let mut bytes = vec![0; len as usize];
    stream.read_exact(&mut bytes).await.map_err(ended)?;
    match kind {
        WELCOME | PROVE => Ok((kind, bytes)),
        REFUSED => Err(Denial::Refused(
            String::from_utf8_lossy(&bytes).into_owned(),
        )),
        _ => Err(Denial::Foreign(NO_FEEDLINE.into())),
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}
