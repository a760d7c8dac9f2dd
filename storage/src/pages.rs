//! Serves a few small pages over http to every client that reaches a port, such as the status and
//! metrics of a process.
//!
//! A connection costs a file descriptor, which the process needs for its own work, and a client may
//! never send anything. So the count of connections is limited. Each has one request, little time
//! to send it and some time to take the response. Further clients wait in the system's queue.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Delay before accepting is retried after a system error, such as no free file descriptor.
const AGAIN: Duration = Duration::from_millis(100);

/// Limits of client connections.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Concurrent connections.
    pub connections: usize,
    /// Time for a client to send its request.
    pub request: Duration,
    /// Total time of a connection.
    pub connection: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: 32,
            request: Duration::from_secs(5),
            connection: Duration::from_secs(30),
        }
    }
}

/// Serves the pages of `router` until the future is dropped, which also drops its connections.
///
/// # Panics
/// Never: the semaphore is not closed.
pub async fn serve(listener: TcpListener, router: Router, limits: ClientLimits) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut open = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        while open.try_join_next().is_some() {}
        let stream = accept(&listener).await;
        let router = router.clone();
        open.spawn(async move {
            let ended = timeout(limits.connection, answer(stream, router, limits.request)).await;
            // A slow, broken or disconnected client does not concern this process.
            drop((ended, place));
        });
    }
}

/// Accepts the next connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(AGAIN).await;
            }
        }
    }
}

/// Returns true if a connection ended before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn answer(stream: TcpStream, router: Router, patience: Duration) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn start(limits: ClientLimits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", routing::get(|| async { "well" }));
        tokio::spawn(serve(listener, router, limits));
        address
    }

    /// Opens a connection and sends `text`.
    async fn connected(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Reads until the other side closes.
    async fn heard(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        // Closing with unread bytes is a reset.
        stream.read_to_end(&mut bytes).await.ok();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn clients_that_never_end_their_request_are_sent_away_and_others_answered() {
        let limits = ClientLimits {
            connections: 2,
            request: Duration::from_millis(50),
            ..ClientLimits::default()
        };
        let address = start(limits).await;
        let mut slow = Vec::new();
        for text in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n", "", ""] {
            slow.push(connected(address, text).await);
        }
        let good = connected(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let answer = heard(good).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("well"), "{answer}");
        for stream in slow {
            assert!(!heard(stream).await.contains("well"));
        }
    }

    #[tokio::test]
    async fn a_connection_has_one_request() {
        let address = start(ClientLimits::default()).await;
        let twice = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2);
        let answers = heard(connected(address, &twice).await).await;
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 1, "{answers}");
        assert!(answers.contains("connection: close"), "{answers}");
    }

    #[tokio::test]
    async fn a_connection_ends_in_time_whatever_is_done_on_it() {
        let limits = ClientLimits {
            connections: 1,
            request: Duration::from_secs(3600),
            connection: Duration::from_millis(50),
        };
        let address = start(limits).await;
        let slow = connected(address, "GET / HT").await;
        assert_eq!(heard(slow).await, "");
    }
}
