//! Connections of other ranks that a rank has accepted during the rendezvous, and the processes that it refuses.
//!
//! A rank that lost its connection may connect again: only a process whose rank another process holds with an open
//! connection is refused.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    hello::{HELLO_BYTES, Hello, MAGIC, RankRefusal},
    secret::{JobSecret, NONCE_BYTES},
    tcp::narrow,
};

/// Time between two tries, as to reach a rank that does not listen yet.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// Time limit of a connection for its hello, and for the proof that it knows the secret.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Time within which the other ranks are refused too, once one does not belong.
const OTHERS_WITHIN: Duration = Duration::from_secs(10);

/// Time within which the end of a lost connection arrives, once its rank has connected again.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Connections whose hellos are read concurrently; more wait in the system's queue.
const GREETED: usize = 1024;

/// Kinds of responses: refused, welcome, must prove that it knows the secret.
pub(super) const REFUSED: u8 = 0;
pub(super) const WELCOME: u8 = 1;
pub(super) const PROVE: u8 = 2;

/// The connections there are so far.
#[derive(Debug)]
pub(super) struct Guests {
    /// By rank.
    pub(super) streams: Vec<Option<TcpStream>>,
    /// Address that each rank listens on.
    listening: Vec<Option<SocketAddr>>,
    /// Reason that a process was refused.
    refused: Option<String>,
    /// Ranks that rank 0 has refused, as they were started otherwise.
    gone: Vec<bool>,
    /// Reason that ends the rendezvous: that of the first of these, or that two processes are one rank.
    differs: Option<String>,
}

/// Hello of a connection, or the refusal of its process; `None` where it sent nothing that could be one.
type HeardHello = Option<(TcpStream, SocketAddr, Result<Hello, RankRefusal>)>;

/// Reads the hello of a connection, and whether it knows the secret. Returns `None` when it sends
/// nothing that could be one.
async fn hear(
    stream: &mut TcpStream,
    hello: Hello,
    secret: Option<&JobSecret>,
) -> Option<Result<Hello, RankRefusal>> {
    let mut bytes = [0; HELLO_BYTES];
    let (magic, rest) = bytes.split_at_mut(MAGIC.len());
    stream.read_exact(magic).await.ok()?;
    // A hello of another version may be shorter.
    if *magic == MAGIC {
        stream.read_exact(rest).await.ok()?;
    }
    let other = hello.read(&bytes);
    let rank = match &other {
        Ok(other) => Some(other.place.rank),
        Err(refusal) => refusal.rank,
    };
    // A refused rank ends the others' wait: it, too, has to know the secret.
    let (Some(secret), Some(rank)) = (secret, rank) else {
        return Some(other);
    };
    let nonce = match secret.nonce() {
        Ok(nonce) => nonce,
        Err(reason) => return Some(Err(RankRefusal::of_stranger(reason))),
    };
    send_answer(stream, PROVE, &nonce).await.ok()?;
    let mut proof = [0; NONCE_BYTES];
    stream.read_exact(&mut proof).await.ok()?;
    Some(if secret.is_proof(&nonce, &bytes, &proof) {
        other
    } else {
        Err(RankRefusal::of_stranger(format!(
            "rank {rank} does not know the secret; give all ranks the same `FEEDLINE_JOB_SECRET`"
        )))
    })
}

impl Guests {
    /// No connection yet, of `world` ranks.
    pub(super) fn new(world: usize) -> Self {
        Self {
            streams: (0..world).map(|_| None).collect(),
            listening: vec![None; world],
            refused: None,
            gone: vec![false; world],
            differs: None,
        }
    }

    /// Waits until all ranks from `first` on are connected.
    ///
    /// # Errors
    /// Reason that a rank does not belong; rank 0 sends it to all that come.
    pub(super) async fn receive(
        &mut self,
        listener: &TcpListener,
        hello: Hello,
        first: usize,
        secret: Option<&JobSecret>,
    ) -> Result<(), String> {
        let mut greeted = JoinSet::new();
        let from = (listener, hello, first, secret);
        self.receive_while(|guests| guests.differs.is_none(), from, &mut greeted)
            .await;
        let Some(reason) = self.differs.clone() else {
            return Ok(());
        };
        let rest = self.receive_while(|_| true, from, &mut greeted);
        timeout(OTHERS_WITHIN, rest).await.ok();
        for stream in self.streams.iter_mut().flatten() {
            // The peer may have disconnected already.
            send_answer(stream, REFUSED, reason.as_bytes()).await.ok();
        }
        Err(reason)
    }

    /// Accepts connections while a rank from `first` on is missing and `is_due` returns true.
    async fn receive_while(
        &mut self,
        is_due: impl Fn(&Self) -> bool,
        (listener, hello, first, secret): (&TcpListener, Hello, usize, Option<&JobSecret>),
        greeted: &mut JoinSet<HeardHello>,
    ) {
        while is_due(self) && self.misses_any(first) {
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
    }

    /// Returns true if a rank from `first` on has neither joined nor been refused.
    fn misses_any(&self, first: usize) -> bool {
        let mut ranks = self.streams.iter().zip(&self.gone).skip(first);
        ranks.any(|(stream, gone)| stream.is_none() && !gone)
    }

    /// Accepts a rank that has sent its hello, or refuses it.
    async fn take(
        &mut self,
        mut stream: TcpStream,
        address: SocketAddr,
        heard: Result<Hello, RankRefusal>,
        first: usize,
    ) {
        let checked = match heard {
            Ok(other) => self.check((&stream, address), other, first).await,
            Err(refusal) => Err(refusal),
        };
        match checked {
            Ok(other) => {
                let rank = other.place.rank;
                self.listening[rank] = Some(SocketAddr::new(address.ip(), other.port));
                self.streams[rank] = Some(stream);
            }
            Err(RankRefusal { reason, rank }) => {
                tracing::warn!(%address, reason, "a process was not taken as a rank");
                // The peer may have disconnected already.
                send_answer(&mut stream, REFUSED, reason.as_bytes())
                    .await
                    .ok();
                // Rank 0 alone decides: the others meet ranks that it has accepted, and strangers.
                let missing = rank.filter(|rank| {
                    let is_missing = self.streams.get(*rank).is_some_and(Option::is_none);
                    first == 1 && *rank >= first && is_missing
                });
                if let Some(rank) = missing {
                    self.gone[rank] = true;
                    self.differs.get_or_insert_with(|| reason.clone());
                }
                self.refused = Some(reason);
            }
        }
    }

    /// Checks that no other process is the rank that a connection says to be. Rank 0 ends the rendezvous where one is: of
    /// the ranks that were meant, one will not come.
    async fn check(
        &mut self,
        (stream, address): (&TcpStream, SocketAddr),
        other: Hello,
        first: usize,
    ) -> Result<Hello, RankRefusal> {
        let rank = other.place.rank;
        if rank < first {
            return Err(RankRefusal::of_stranger(format!(
                "there is a rank {rank} already; give each process a `RANK` of its own"
            )));
        }
        if let (Some(reason), Some(_)) = (&self.differs, &self.streams[rank]) {
            return Err(RankRefusal::of_stranger(reason.clone()));
        }
        let (Some(known), Some(listening)) = (&self.streams[rank], self.listening[rank]) else {
            return Ok(other);
        };
        if !is_open(known).await {
            tracing::warn!(rank, %address, "a rank lost its connection and has connected again");
            return Ok(other);
        }
        if !is_open(stream).await {
            return Err(RankRefusal::of_stranger(format!(
                "rank {rank} has ended this connection, and has another one"
            )));
        }
        let reason = format!(
            "two processes are rank {rank}, one at `{listening}`, the other at `{}`; give each process a `RANK` of its own",
            SocketAddr::new(address.ip(), other.port)
        );
        if first == 1 {
            self.differs.get_or_insert_with(|| reason.clone());
        }
        Err(RankRefusal::of_stranger(reason))
    }

    /// Sends all ranks the addresses of the others.
    pub(super) async fn welcome(&mut self) -> io::Result<()> {
        let listening = self.listening.iter();
        let lines: Vec<String> = listening
            .map(|address| address.map(|a| a.to_string()).unwrap_or_default())
            .collect();
        for stream in self.streams.iter_mut().flatten() {
            send_answer(stream, WELCOME, lines.join("\n").as_bytes()).await?;
        }
        Ok(())
    }

    pub(super) fn missing(&self, own: usize) -> String {
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

async fn send_answer(stream: &mut TcpStream, kind: u8, text: &[u8]) -> io::Result<()> {
    let mut bytes = vec![kind];
    bytes.extend(narrow(text.len()).to_le_bytes());
    bytes.extend(text);
    stream.write_all(&bytes).await
}

/// Returns true if the peer has not ended the connection. Until its welcome a rank sends nothing after its hello, so the end
/// of the connection is the next thing to read.
async fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0];
    match timeout(END_WITHIN, stream.peek(&mut byte)).await {
        Ok(Ok(bytes)) => bytes > 0,
        Ok(Err(_)) => false,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checkpoint::run_folder::runtime,
        parallel::{RankPlace, identity::JobIdentity},
    };

    /// The hello of rank 1 of 3, which listens on `port`.
    fn hello(port: u16) -> Hello {
        Hello {
            place: RankPlace { rank: 1, world: 3 },
            port,
            has_secret: false,
            resume: 0,
            identity: JobIdentity::new("a", ""),
        }
    }

    /// A connection of rank 1, and the end of it at that rank.
    async fn connect(listener: &TcpListener) -> (TcpStream, SocketAddr, TcpStream) {
        let own = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (accepted, address) = listener.accept().await.unwrap();
        (accepted, address, own.unwrap())
    }

    #[test]
    fn a_rank_that_lost_its_connection_is_accepted_and_a_second_process_of_it_ends_all() {
        runtime().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut guests = Guests::new(3);
            let (accepted, address, lost) = connect(&listener).await;
            guests.take(accepted, address, Ok(hello(7)), 1).await;
            drop(lost);

            let (accepted, address, _own) = connect(&listener).await;
            guests.take(accepted, address, Ok(hello(8)), 1).await;
            assert_eq!(guests.listening[1].map(|own| own.port()), Some(8));
            assert_eq!((&guests.refused, &guests.differs), (&None, &None));

            // The first process of a rank may end while the hello of the second is read.
            let (accepted, address, lost) = connect(&listener).await;
            drop(lost);
            guests.take(accepted, address, Ok(hello(7)), 1).await;
            assert_eq!(guests.listening[1].map(|own| own.port()), Some(8));
            assert_eq!(guests.differs, None);

            let (accepted, address, mut second) = connect(&listener).await;
            guests.take(accepted, address, Ok(hello(9)), 1).await;
            let expected = "two processes are rank 1, one at `127.0.0.1:8`, the other at `127.0.0.1:9`; give each process a \
                            `RANK` of its own";
            assert_eq!(guests.differs.as_deref(), Some(expected));
            let mut response = Vec::new();
            second.read_to_end(&mut response).await.unwrap();
            assert_eq!(response[0], REFUSED);
            assert!(response.ends_with(expected.as_bytes()), "{response:?}");
        });
    }

    #[test]
    fn a_rank_above_0_refuses_a_second_process_and_waits_for_the_others() {
        runtime().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut guests = Guests::new(3);
            let other = |port| Hello {
                place: RankPlace { rank: 2, world: 3 },
                ..hello(port)
            };
            let (accepted, address, _own) = connect(&listener).await;
            guests.take(accepted, address, Ok(other(7)), 2).await;
            let (accepted, address, _second) = connect(&listener).await;
            guests.take(accepted, address, Ok(other(8)), 2).await;
            let refused = guests.refused.unwrap();
            assert!(refused.contains("two processes are rank 2"), "{refused}");
            assert_eq!(guests.differs, None);
        });
    }
}
