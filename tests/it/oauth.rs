//! Grants of OAuth2 at a real token endpoint.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::support::{Finished, feedline, finish, pipeline, python};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/token_server.py");

/// A token endpoint and an API of four records on `port`; ends with the value.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .unwrap();
    }
}

impl Server {
    /// Starts it in `folder`; `None` (with a message) without Authlib.
    fn start(folder: &Path) -> Option<Self> {
        let mut command = python("authlib, flask")?;
        command.current_dir(folder).arg(SERVER);
        let process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = process.unwrap();
        let mut port = String::new();
        let mut printed = BufReader::new(process.stdout.take().unwrap());
        printed.read_line(&mut port).unwrap();
        let port = port.trim().parse().unwrap();
        Some(Self { process, port })
    }

    /// Ingests all pages with the `keys` of `[source.auth]`.
    fn ingest(&self, folder: &Path, keys: &str) -> Finished {
        let origin = format!("http://127.0.0.1:{}", self.port);
        let text = format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\n\
             url = \"{origin}/items\"\npagination = {{ type = \"page\", page_size = 1 }}\nlimits.concurrency = 1\n\
             [source.auth]\ntype = \"oauth2\"\ntoken_url = \"{origin}/token\"\nscope = \"read\"\n{keys}\n"
        );
        fs::remove_dir_all(folder.join("out")).ok();
        let file = pipeline(folder, &text);
        let mut command = feedline(folder);
        command.args(["ingest", file, "--json"]);
        command.env("ROBOT", "robot").env("SECRET", "canary-secret");
        command.env("PASSWORD", "canary-pass");
        let finished = finish(command.env("TOKEN", "canary-refresh").output().unwrap());
        assert!(!finished.stderr.contains("canary"), "{finished:#?}");
        assert!(!finished.stdout.contains("canary"), "{finished:#?}");
        finished
    }
}

/// Requests for a token so far.
fn grants(folder: &Path) -> Vec<String> {
    let log = fs::read_to_string(folder.join("grants.log")).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

const CLIENT: &str = "client_id = { env = \"ROBOT\" }\nclient_secret = { env = \"SECRET\" }";

/// An access token is accepted for two requests, so five pages need at least three.
fn check_landed(finished: Finished, folder: &Path, grant: &str, before: usize) {
    let landed = finished.expect(0).json();
    assert_eq!(landed["rows"], 4, "{landed}");
    assert_eq!(landed["retries"], 0, "{landed}");
    let asked = grants(folder).split_off(before);
    assert!(
        asked.len() >= 3 && asked.iter().all(|g| g == grant),
        "{asked:?}"
    );
}

#[test]
fn client_credentials_and_passwords_get_tokens_that_are_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path()) else {
        return;
    };
    let landed = server.ingest(folder.path(), CLIENT);
    check_landed(landed, folder.path(), "client_credentials", 0);
    let user = "grant = \"password\"\nuser = \"alice\"\npassword = { env = \"PASSWORD\" }";
    for place in ["header", "body"] {
        let before = grants(folder.path()).len();
        let keys = format!("{user}\n{CLIENT}\ncredentials = \"{place}\"");
        let landed = server.ingest(folder.path(), &keys);
        check_landed(landed, folder.path(), "password", before);
    }
    let before = grants(folder.path()).len();
    let keys = format!("{user}\n{CLIENT}").replace("\"PASSWORD\"", "\"SECRET\"");
    let refused = server.ingest(folder.path(), &keys).expect(1).stderr;
    assert!(refused.contains("check `auth."), "{refused}");
    assert_eq!(grants(folder.path()).len(), before + 1);
}

#[test]
fn a_refresh_token_that_is_replaced_with_each_use_survives_the_process_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path()) else {
        return;
    };
    let file = folder.path().join("token");
    fs::write(&file, "canary-refresh\n").unwrap();
    let keys = format!("grant = \"refresh_token\"\n{CLIENT}\nrefresh_token_file = \"token\"");
    for _ in 0..3 {
        let before = grants(folder.path()).len();
        let landed = server.ingest(folder.path(), &keys);
        check_landed(landed, folder.path(), "refresh_token", before);
    }
    let before = grants(folder.path()).len();
    // A token that was replaced is refused, once.
    let given =
        format!("grant = \"refresh_token\"\n{CLIENT}\nrefresh_token = {{ env = \"TOKEN\" }}");
    let refused = server.ingest(folder.path(), &given).expect(1).stderr;
    let part = "invalid_grant";
    assert!(refused.contains(part), "{refused}");
    assert!(
        refused.contains("obtain a new one and set `auth.refresh_token`"),
        "{refused}"
    );
    assert_eq!(grants(folder.path()).len(), before + 1);
}

#[test]
fn a_refresh_token_that_is_replaced_in_memory_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path()) else {
        return;
    };
    let keys =
        format!("grant = \"refresh_token\"\n{CLIENT}\nrefresh_token = {{ env = \"TOKEN\" }}");
    let landed = server.ingest(folder.path(), &keys).expect(0).json();
    assert_eq!(landed["rows"], 4, "{landed}");
    let warnings = landed["sources"][0]["warnings"].to_string();
    assert!(warnings.contains("rotated_refresh_token"), "{landed}");
}

#[test]
fn statements_of_both_algorithms_are_verified_by_the_server() {
    for (algorithm, options) in [
        ("EC", "-pkeyopt ec_paramgen_curve:P-256"),
        ("RSA", "-pkeyopt rsa_keygen_bits:2048"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for arguments in [
            format!("genpkey -algorithm {algorithm} {options} -out key.pem"),
            "pkey -in key.pem -pubout -out public.pem".to_owned(),
        ] {
            let mut command = Command::new("openssl");
            command
                .current_dir(folder.path())
                .args(arguments.split(' '));
            let made = command.output();
            let made = made.expect("this test needs `openssl`: apt-get install openssl");
            assert!(made.status.success(), "{made:?}");
        }
        if algorithm == "RSA" {
            fs::write(folder.path().join("rsa"), "").unwrap();
        }
        let Some(server) = Server::start(folder.path()) else {
            return;
        };
        let keys =
            "grant = \"jwt_bearer\"\nissuer = \"robot\"\nprivate_key = { file = \"key.pem\" }";
        let landed = server.ingest(folder.path(), keys);
        let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
        check_landed(landed, folder.path(), grant, 0);
        let before = grants(folder.path()).len();
        let other = format!("{keys}\naudience = \"https://elsewhere.example\"");
        let refused = server.ingest(folder.path(), &other).expect(1).stderr;
        assert!(refused.contains("`auth.audience`"), "{refused}");
        assert_eq!(grants(folder.path()).len(), before + 1);
    }
}
