//! A proxy from the environment: it resolves names itself, so data must not choose the hosts of its
//! requests.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::support::{Finished, feedline, finish, pipeline, serve};

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
    finish(command.env("http_proxy", proxy).output().unwrap())
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
