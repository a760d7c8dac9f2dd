//! Servers whose certificates are signed by an own CA, and that ask for one of the client.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use feedline_testkit::free_port::free_port;

use crate::{
    nginx::Nginx,
    support::{Finished, feedline, finish, pipeline, python},
};

/// Serves one record over TLS and prints its port.
const SERVER: &str = r#"
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'[{"id":1}]'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("leaf.pem", "leaf.key")
if len(sys.argv) > 1:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations("ca.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// A process that ends with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

impl Server {
    /// Starts [`SERVER`] and returns its port.
    fn start(python: &mut Command, arguments: &[&str]) -> (Self, u16) {
        let server = python
            .args(["-c", SERVER])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn();
        let mut server = Self(server.unwrap());
        let mut port = String::new();
        let mut printed = BufReader::new(server.0.stdout.take().unwrap());
        printed.read_line(&mut port).unwrap();
        (server, port.trim().parse().unwrap())
    }
}

/// Makes a CA (`ca.pem`) and a certificate for 127.0.0.1 that it signed (`leaf.pem`) in `folder`.
pub(crate) fn make_certificates(folder: &Path) {
    fs::write(folder.join("leaf.ext"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    let key = "-newkey rsa:2048 -nodes";
    for arguments in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=own"),
        format!("req {key} -keyout leaf.key -out leaf.csr -subj /CN=leaf"),
        "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out leaf.pem -days 2 -extfile leaf.ext"
            .to_owned(),
    ] {
        let made = Command::new("openssl")
            .current_dir(folder)
            .args(arguments.split(' '))
            .output();
        let made = made.expect("this test needs `openssl`: apt-get install openssl");
        assert!(made.status.success(), "{made:?}");
    }
}

#[test]
fn an_own_ca_is_trusted_where_ssl_cert_file_names_it() {
    let Some(mut python) = python("ssl") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    let (_server, port) = Server::start(python.current_dir(folder.path()), &[]);
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\n\
         url = \"https://127.0.0.1:{port}/items\"\npagination = {{ type = \"none\" }}\nretry = {{ max_tries = 1 }}\n"
    );
    let file = pipeline(folder.path(), &text);
    let ingest = || {
        let mut command = feedline(folder.path());
        command.args(["ingest", file, "--json"]);
        command
    };
    let refused = finish(ingest().output().unwrap()).expect(1);
    assert!(refused.stderr.contains("certificate"), "{refused:?}");
    let trusted = ingest().env("SSL_CERT_FILE", "ca.pem").output().unwrap();
    assert_eq!(finish(trusted).expect(0).json()["rows"], 1);
}

/// Ingests `source` with the keys `tls` of `[source.tls]`.
fn ingest(folder: &Path, source: &str, tls: &str) -> Finished {
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\n{source}\n\
         retry = {{ max_tries = 2, base_ms = 1 }}\ntls = {{ {tls} }}\n"
    );
    fs::remove_dir_all(folder.join("out")).ok();
    let file = pipeline(folder, &text);
    let mut command = feedline(folder);
    finish(command.args(["ingest", file, "--json"]).output().unwrap())
}

fn api(port: u16) -> String {
    format!(
        "type = \"rest\"\nurl = \"https://127.0.0.1:{port}/items\"\npagination = {{ type = \"none\" }}"
    )
}

const CA: &str = "ca = { file = \"ca.pem\" }";
const CLIENT: &str = "client_cert = { file = \"leaf.pem\" }, client_key = { file = \"leaf.key\" }";

#[test]
fn a_client_shows_its_certificate_to_a_server_that_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    fs::write(folder.path().join("a.csv"), "id\n1\n2\n").unwrap();
    let port = free_port();
    let http = format!(
        "server {{ listen 127.0.0.1:{port} ssl http2; root {0};\n\
         ssl_certificate {0}/leaf.pem; ssl_certificate_key {0}/leaf.key;\n\
         ssl_client_certificate {0}/ca.pem; ssl_verify_client on;\n\
         location /items {{ default_type application/json; return 200 '[{{\"id\":1}}]'; }} }}",
        folder.path().display()
    );
    let Some(_nginx) = Nginx::start(folder.path(), port, &http) else {
        return;
    };
    let both = format!("{CA}, {CLIENT}");
    let landed = ingest(folder.path(), &api(port), &both).expect(0).json();
    assert_eq!(landed["rows"], 1, "{landed}");
    let file = format!("type = \"files\"\nurl = \"https://127.0.0.1:{port}/a.csv\"");
    let landed = ingest(folder.path(), &file, &both).expect(0).json();
    assert_eq!(landed["rows"], 2, "{landed}");
    let refused = ingest(folder.path(), &api(port), CA).expect(1);
    let reason = "400 Bad Request: `<html> <head><title>400 No required SSL certificate was sent";
    assert!(refused.stderr.contains(reason), "{refused:#?}");
    let unknown = ingest(folder.path(), &api(port), CLIENT).expect(1);
    assert!(unknown.stderr.contains("`tls.ca`"), "{unknown:#?}");
}

#[test]
fn a_refused_certificate_is_one_clear_error_and_not_retried() {
    let Some(mut python) = python("ssl") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    make_certificates(folder.path());
    let python = python.current_dir(folder.path());
    let (_server, port) = Server::start(python, &["client"]);
    let refused = ingest(folder.path(), &api(port), CA).expect(1).stderr;
    assert!(refused.contains("`tls.client_cert`"), "{refused}");
    assert!(!refused.contains("tries"), "{refused}");
    let keys = CLIENT.replace("leaf.key", "ca.key");
    let wrong = ingest(folder.path(), &api(port), &format!("{CA}, {keys}")).expect(2);
    let reason = "`source.0.tls.client_key`: does not belong to the first certificate";
    assert!(wrong.stderr.contains(reason), "{wrong:#?}");
}
