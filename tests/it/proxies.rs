//! A proxy from the environment: it resolves names itself, so data must not choose the hosts of its
//! requests.

use std::{
    fs::{self, File, Permissions},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use feedline_testkit::free_port::free_port;

use crate::{
    nginx::program,
    support::{Finished, feedline, finish, pipeline, serve, wait},
};

/// Requests that a proxy received.
type Asked = Arc<Mutex<Vec<String>>>;

/// Starts a proxy that responds with `body`; returns its origin and the requests it received.
fn proxy(body: &'static str) -> (String, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let origin = serve(move |target| {
        seen.lock().unwrap().push(target.to_owned());
        ("200 OK", String::new(), body.to_owned())
    });
    (origin, asked)
}

/// Starts a server that redirects every request to `place`.
fn redirecting(place: &'static str) -> String {
    serve(move |_| ("302 Found", format!("Location: {place}\r\n"), String::new()))
}

/// Ingests `source` with `proxy` in the environment.
fn ingest(folder: &Path, proxy: &str, source: &str) -> Finished {
    let retry = "retry = { max_tries = 1, total_timeout_ms = 20000 }";
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\n{source}\n{retry}\n"
    );
    fs::remove_dir_all(folder.join("out")).ok();
    let file = pipeline(folder, &text);
    let mut command = feedline(folder);
    command.args(["ingest", file, "--json"]);
    command.env("http_proxy", proxy).env("https_proxy", proxy);
    finish(command.output().unwrap())
}

#[test]
fn a_redirect_to_a_name_is_not_followed_through_the_proxy_unless_it_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let place = "http://intranet.corp.invalid/secret";
    let home = redirecting(place);
    let (proxy, asked) = proxy(r#"[{"id":1}]"#);
    let rest =
        format!("type = \"rest\"\nurl = \"{home}/items\"\npagination = {{ type = \"none\" }}");
    let refused = ingest(folder.path(), &proxy, &rest);
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert_eq!(*asked.lock().unwrap(), [""; 0], "{refused:#?}");
    assert!(
        refused.stderr.contains("`trust_proxy = true`"),
        "{refused:#?}"
    );
    let trusting = format!("{rest}\ntrust_proxy = true");
    let landed = ingest(folder.path(), &proxy, &trusting).expect(0).json();
    assert_eq!(landed["rows"], 1, "{landed}");
    assert_eq!(*asked.lock().unwrap(), [place]);
}

#[test]
fn a_file_is_not_redirected_through_the_proxy_unless_it_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let home = redirecting("http://intranet.corp.invalid/secret.csv");
    let (proxy, asked) = proxy("id\n1\n");
    let files = format!("type = \"files\"\nurl = \"{home}/a.csv\"");
    let refused = ingest(folder.path(), &proxy, &files);
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert_eq!(*asked.lock().unwrap(), [""; 0], "{refused:#?}");
    ingest(
        folder.path(),
        &proxy,
        &format!("{files}\ntrust_proxy = true"),
    );
    let asked = asked.lock().unwrap();
    assert!(!asked.is_empty(), "the proxy is asked once it is trusted");
}

#[test]
fn the_urls_of_rows_are_not_asked_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let (proxy, asked) = proxy("not an image");
    fs::write(
        folder.path().join("a.csv"),
        "url\nhttp://metadata.google.invalid/computeMetadata\nhttp://localhost:9/ok\n",
    )
    .unwrap();
    let rows = "type = \"files\"\nurl = \"a.csv\"\nfetch = { column = \"url\" }";
    let landed = ingest(folder.path(), &proxy, rows);
    assert_eq!(*asked.lock().unwrap(), [""; 0], "{landed:#?}");
}

#[test]
fn hosts_that_the_configuration_names_are_asked_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let (proxy, asked) = proxy(r#"[{"id":1}]"#);
    let rest = "type = \"rest\"\nurl = \"http://api.corp.invalid/items\"\npagination = { type = \"none\" }";
    let landed = ingest(folder.path(), &proxy, rest).expect(0).json();
    assert_eq!(landed["rows"], 1, "{landed}");
    assert_eq!(*asked.lock().unwrap(), ["http://api.corp.invalid/items"]);
}

/// A squid that serves the user `fox` and refuses the host `closed.corp.test`; ends with the value.
struct Squid {
    process: Child,
    port: u16,
}

impl Drop for Squid {
    fn drop(&mut self) {
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .unwrap();
    }
}

/// Reads user and password and decides about them.
const HELPER: &str = "while read -r pair; do\n\
    if [ \"$pair\" = \"fox canary-pass\" ]; then echo OK; else echo ERR; fi\ndone\n";

impl Squid {
    /// Starts squid with `api.corp.test` as a name of this machine; `None` (with a message) without
    /// it. In CI it must be there.
    fn start(folder: &Path) -> Option<Self> {
        let program = program("squid")?;
        // As root, it changes to a user of its own.
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        fs::write(folder.join("hosts"), "127.0.0.1 api.corp.test\n").unwrap();
        fs::write(folder.join("helper.sh"), HELPER).unwrap();
        let port = free_port();
        let text = format!(
            "http_port 127.0.0.1:{port}\npid_filename none\ncache_log {0}/squid.log\n\
             access_log none\ncache deny all\ncache_mem 1 MB\ncoredump_dir {0}\n\
             hosts_file {0}/hosts\npinger_enable off\nnetdb_filename none\n\
             max_filedescriptors 1024\nauth_param basic program /bin/sh {0}/helper.sh\n\
             auth_param basic realm squid\nacl known proxy_auth REQUIRED\n\
             acl closed dstdomain closed.corp.test\nhttp_access deny closed\n\
             http_access allow known\nhttp_access deny all\n",
            folder.display()
        );
        fs::write(folder.join("squid.conf"), text).unwrap();
        let output = File::create(folder.join("squid.out")).unwrap();
        let mut command = Command::new(program);
        command.arg("-N").arg("-f").arg(folder.join("squid.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.stderr(output).spawn().unwrap();
        let squid = Self { process, port };
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(squid);
            }
            wait(Duration::from_millis(50));
        }
        let output = fs::read_to_string(folder.join("squid.out"));
        panic!("squid does not start: {output:?}");
    }

    /// Its URL with credentials.
    fn url(&self, password: &str) -> String {
        format!("http://fox:{password}@127.0.0.1:{}", self.port)
    }
}

#[test]
fn squid_is_used_with_its_credentials_and_its_refusals_are_one_clear_error_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(squid) = Squid::start(folder.path()) else {
        return;
    };
    let home = serve(|_| ("200 OK", String::new(), r#"[{"id":1}]"#.to_owned()));
    let port = home.rsplit(':').next().unwrap();
    let rest = |scheme: &str, host: &str| {
        format!(
            "type = \"rest\"\nurl = \"{scheme}://{host}.corp.test:{port}/items\"\npagination = {{ type = \"none\" }}"
        )
    };
    let good = squid.url("canary-pass");
    let landed = ingest(folder.path(), &good, &rest("http", "api"));
    assert_eq!(landed.expect(0).json()["rows"], 1);
    let check = |proxy: &str, source: String, parts: [&str; 2]| {
        let refused = ingest(folder.path(), proxy, &source);
        assert_eq!(refused.code, 1, "{refused:#?}");
        let is_named = parts.iter().all(|part| refused.stderr.contains(part));
        assert!(is_named, "{refused:#?}");
        assert!(!refused.stderr.contains("canary"), "{refused:#?}");
        assert!(!refused.stdout.contains("canary"), "{refused:#?}");
    };
    let bad = squid.url("canary-guess");
    let user = "check the user and the password in the URL of the proxy";
    check(&bad, rest("http", "api"), ["answered 407", user]);
    check(&bad, rest("https", "api"), ["status 407", user]);
    let access = "check that it allows this host";
    check(&good, rest("http", "closed"), ["answered 403", access]);
    let refused = "the proxy of the environment did not connect to the host";
    check(&good, rest("https", "closed"), [refused, access]);
    let absent = format!("http://fox:canary-pass@127.0.0.1:{}", free_port());
    let refused = "cannot connect to the proxy of the environment";
    check(&absent, rest("https", "api"), [refused, "`HTTPS_PROXY`"]);
}
