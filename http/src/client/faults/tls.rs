//! Certificates that are not to be trusted, at a real server.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use feedline_testkit::free_port::free_port;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::retry::Retry;

/// `openssl s_server` with a self-signed certificate, ended when dropped.
struct TlsServer {
    child: Child,
    address: SocketAddr,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Creates a certificate for `127.0.0.1` in `folder`, valid from now or, if expired, in 2020. False
/// without `openssl`.
fn certificate(folder: &Path, is_expired: bool) -> bool {
    let run = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(folder);
        let output = command.stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    std::fs::write(folder.join("index"), "").unwrap();
    std::fs::write(folder.join("serial"), "01").unwrap();
    let settings = "[ca]\ndefault_ca=c\n[c]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1\n[req]\ndistinguished_name=d\n[d]\n";
    std::fs::write(folder.join("ca.cnf"), settings).unwrap();
    let (start, end) = match is_expired {
        true => ("20200101000000Z", "20200201000000Z"),
        false => ("20200101000000Z", "20491231000000Z"),
    };
    run(&[
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "new.csr",
        "-subj",
        "/CN=127.0.0.1",
        "-config",
        "ca.cnf",
    ]) && run(&[
        "ca",
        "-batch",
        "-selfsign",
        "-config",
        "ca.cnf",
        "-in",
        "new.csr",
        "-keyfile",
        "key.pem",
        "-out",
        "cert.pem",
        "-startdate",
        start,
        "-enddate",
        end,
        "-notext",
    ])
}

impl TlsServer {
    async fn start(folder: &Path, is_expired: bool) -> Option<Self> {
        if !certificate(folder, is_expired) {
            return None;
        }
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new("openssl");
        command.args([
            "s_server", "-quiet", "-www", "-cert", "cert.pem", "-key", "key.pem",
        ]);
        command.args(["-accept", &address.to_string()]);
        command.current_dir(folder).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let server = Self { child, address };
        for _ in 0..3_000 {
            if TcpStream::connect(address).await.is_ok() {
                return Some(server);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }
}

/// A way to `server` that counts the connections.
async fn counted(server: SocketAddr) -> (Url, Arc<Mutex<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(Mutex::new(0));
    let connections = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            *connections.lock().unwrap() += 1;
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut socket, &mut server).await);
            });
        }
    });
    (url(&format!("https://{address}/")), count)
}

#[tokio::test]
async fn fault_24_an_expired_or_unknown_certificate_is_named_and_not_tried_again() {
    for (is_expired, part) in [(true, "expired"), (false, "UnknownIssuer")] {
        let folder = tempfile::tempdir().unwrap();
        let Some(server) = TlsServer::start(folder.path(), is_expired).await else {
            eprintln!("skipped: there is no `openssl` that makes a certificate and serves it");
            return;
        };
        let (url, connections) = counted(server.address).await;
        let (http, context) = (client(&url, &RetryConfig::default()), context());
        let mut retry = Retry::new("quotes", &RetryConfig::default(), &context);
        let error = retry.run(|| http.get(&url)).await.unwrap_err();
        let message = error.to_string().to_lowercase();
        assert!(
            message.contains("invalid peer certificate")
                && message.contains(&part.to_lowercase())
                && message.contains("check the server's certificate and this machine's clock"),
            "{message}"
        );
        assert!(!message.contains("tries"), "{message}");
        assert_eq!(*connections.lock().unwrap(), 1);
    }
}
