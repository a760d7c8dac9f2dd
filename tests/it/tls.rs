//! A server whose certificate is signed by an own CA.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::support::{feedline, finish, pipeline, python};

/// Serves one record over TLS and prints its port.
const SERVER: &str = r#"
import http.server, ssl
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

/// Makes a CA (`ca.pem`) and a certificate for 127.0.0.1 that it signed (`leaf.pem`) in `folder`.
fn make_certificates(folder: &Path) {
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
    let server = python
        .current_dir(folder.path())
        .args(["-c", SERVER])
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Server(server.unwrap());
    let mut port = String::new();
    let mut printed = BufReader::new(server.0.stdout.take().unwrap());
    printed.read_line(&mut port).unwrap();
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\n\
         url = \"https://127.0.0.1:{}/items\"\npagination = {{ type = \"none\" }}\nretry = {{ max_tries = 1 }}\n",
        port.trim()
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
