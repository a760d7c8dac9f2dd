//! Rendezvous of ranks that are processes.
//!
//! Rank 0 listens on the address that all know. Every other rank opens a listener of its own,
//! connects and sends a [`Hello`]; when all have come, rank 0 sends each the addresses of all. Then
//! each connects to the ranks between rank 0 and itself, with the same hello, and is connected to
//! by those above it. A process that does not belong is refused with a reason. If it is a rank of
//! this training that was started otherwise, or that another process is already, rank 0 ends, and
//! so do the ranks that it hears of.
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
    collections::BTreeSet,
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
    guests::{Guests, PROVE, REFUSED, RETRY, WELCOME},
    hello::Hello,
    identity::JobIdentity,
    recv_queue::Patience,
    resume_code::resume_code,
    secret::JobSecret,
    status::Status,
    tcp,
};
use crate::{error::Error, resume::Resume};

/// Longest accepted text of a response.
const TEXT_MAX: u32 = 1 << 20;

/// Ports that ranks under an agent may meet at.
const CANDIDATES: u64 = 16;

/// Those ports are below the ones that systems give to outgoing connections.
const CANDIDATE_PORTS: std::ops::Range<u64> = 20_000..32_000;

/// Time between two tries of a port that something else listens on.
const RETRY_OTHER: Duration = Duration::from_secs(1);

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
        let job = self.agent_job.as_deref().unwrap_or_default();
        let hello = Hello {
            place: self.place,
            port: 0,
            has_secret: self.secret.is_some(),
            resume: resume_code(self.resume),
            identity: JobIdentity::new(identity, job),
        };
        let mut guests = Guests::new(self.place.world);
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
            let rank = self.place.rank;
            let missing = guests.missing(rank);
            // Rank 0 listens only until all have come.
            let double = match rank > 0 && guests.streams[0].is_none() {
                true => format!(
                    "; where rank 0 is running, another process may be rank {rank} already: give each process a `RANK` of its own"
                ),
                false => String::new(),
            };
            Err(format!("after {} s {missing}{double}", limit.as_secs_f64()))
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

    /// Addresses that rank 0 may listen on, each once: a rank that tried one twice would be taken for two processes.
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
        let mut seen = BTreeSet::new();
        let addresses = (0..CANDIDATES).map(candidate);
        addresses
            .filter(|address| seen.insert(address.clone()))
            .collect()
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

/// Connects, however long it takes.
async fn reach(address: &str) -> TcpStream {
    loop {
        let stream = TcpStream::connect(address).await.ok();
        if let Some(stream) = stream.filter(|stream| !is_to_itself(stream)) {
            return stream;
        }
        sleep(RETRY).await;
    }
}

/// Returns true for a connection from a socket to itself: while nothing listens on a port, the system
/// may choose that port for the connection to it.
fn is_to_itself(stream: &TcpStream) -> bool {
    let ends = stream.local_addr().ok().zip(stream.peer_addr().ok());
    ends.is_some_and(|(own, peer)| own == peer)
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;
    use crate::checkpoint::run_folder::runtime;

    #[test]
    fn a_socket_that_is_connected_to_itself_is_no_rank() {
        runtime().unwrap().block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(any).unwrap();
            let own = socket.local_addr().unwrap();
            assert!(is_to_itself(&socket.connect(own).await.unwrap()));
            let listener = TcpListener::bind(any).await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
            assert!(!is_to_itself(&stream.unwrap()));
        });
    }
}
