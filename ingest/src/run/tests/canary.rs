//! A secret must appear only in requests to its own host.

use std::fmt::Debug;

use feedline_schemas::config::{AuthConfig, Bounded, PaginationKind};

use super::*;
use crate::{
    raw::Tape,
    testing::{self, Scripted, Step, answer, ok, traced},
};

const LAST: &str = r#"{"items": [{"i": 1}]}"#;
/// `secret-CANARY:secret-CANARY`.
const BASIC: &str = "c2VjcmV0LUNBTkFSWTpzZWNyZXQtQ0FOQVJZ";

/// Faulty responses of a server that echoes secrets.
fn failures(echo: &str, other: &str) -> Vec<Vec<Step>> {
    let echo = echo.replace(['\r', '\n', '"', '\\'], " ");
    let long = format!("{}{echo}", " ".repeat(300));
    let status = |status: &str| answer(status, &echo);
    let to = |place: String| answer(&format!("302 Found\r\nLocation: {place}"), &echo);
    let secret = "leak=secret-CANARY&t=token-CANARY";
    vec![
        vec![status("401 Unauthorized")],
        vec![status("403 Forbidden")],
        vec![status("400 Bad Request")],
        vec![status("500 Oops"), answer("503 Busy", &long), ok(LAST)],
        vec![status("500 Oops")],
        vec![answer("429 X\r\nRetry-After: 100000", &echo)],
        vec![to(format!("{other}?{secret}"))],
        vec![to(format!("/?{secret}"))],
        vec![to(format!("ftp://elsewhere/?{secret}"))],
        vec![ok(&format!("{{\"items\": [{echo}"))],
        vec![ok(&format!("<html>{echo}"))],
        vec![ok(&format!(r#"{{"error": "{echo}"}}"#))],
        vec![ok(&format!(r#"{{"items": "{echo}"}}"#))],
        vec![ok(&format!(
            r#"{{"items": [{{"i": 1}}], "next": "{other}?{secret}"}}"#
        ))],
        vec![
            ok(r#"{"items": [{"i": 1}], "next": "?p=2&key=secret-CANARY"}"#),
            ok(LAST),
        ],
        vec![
            ok(&format!(
                r#"{{"items": [{{"i": 1}}], "next": "?p=2&{secret}"}}"#
            )),
            ok(LAST),
        ],
        // A good page, which is archived, echoes the request beside its records.
        vec![answer(
            &format!("200 OK\r\nETag: \"{}\"\r\nX-Echo: {echo}", echo.len()),
            &format!(r#"{{"items": [{{"i": 1}}], "request": "{echo}"}}"#),
        )],
        vec![answer("200 OK\r\nContent-Encoding: br", &echo)],
        vec![testing::raw(
            "200 OK\r\nContent-Length: 4000",
            echo.as_bytes(),
        )],
        vec![Step::Send(Vec::new())],
    ]
}

fn proofs(token_url: &str) -> Vec<AuthConfig> {
    let login_url = token_url.replace("/token", "/login");
    let secret = "{ env = 'CANARY' }";
    let texts = [
        format!("type = 'bearer'\nsecret = {secret}"),
        format!("type = 'api_key'\nheader = 'X-Key'\nsecret = {secret}"),
        format!("type = 'api_key'\nparam = 'key'\nsecret = {secret}"),
        format!("type = 'cookies'\ncookies = {{ session = {secret} }}"),
        format!(
            "type = 'session'\nlogin_url = '{login_url}'\nfields = {{ user = {secret}, password = {secret} }}"
        ),
        format!("type = 'basic'\nuser = {secret}\npassword = {secret}"),
        format!(
            "type = 'oauth2'\ntoken_url = '{token_url}'\nclient_id = {secret}\nclient_secret = {secret}"
        ),
        format!(
            "type = 'oauth2'\ntoken_url = '{token_url}'\ncredentials = 'body'\nclient_id = {secret}\nclient_secret = {secret}"
        ),
        format!(
            "type = 'oauth2'\ngrant = 'refresh_token'\ntoken_url = '{token_url}'\nclient_id = {secret}\nrefresh_token = {secret}"
        ),
        format!(
            "type = 'aws'\nregion = 'r'\nservice = 's'\naccess_key_id = {secret}\nsecret_access_key = {secret}\nsession_token = {secret}"
        ),
        format!(
            "type = 'oauth2'\ngrant = 'password'\ntoken_url = '{token_url}'\nuser = {secret}\npassword = {secret}"
        ),
    ];
    texts
        .map(|text| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\n[source.auth]\n{text}\n"
            );
            let loaded = feedline_schemas::config::load("p", &text, &[]).unwrap();
            loaded.config.source[0].auth.clone().unwrap()
        })
        .into()
}

/// Refuses `text` if the secret or a token is in it, however it is encoded.
fn check(what: &str, text: &str) {
    for secret in ["CANARY", BASIC] {
        assert!(!text.contains(secret), "{what}: {text}");
    }
}

fn check_debug(what: &str, value: &impl Debug) {
    check(what, &format!("{value:?}"));
}

#[tokio::test(start_paused = true)]
async fn a_canary_is_found_in_no_log_line_error_report_or_landed_file() {
    let other = Scripted::start([ok(LAST)]).await;
    let (mut seen, mut kept) = (0, 0);
    for number in 0..failures("", "").len() {
        let place = other.url.to_string();
        let server = Scripted::answering(move |at, head| {
            if head.starts_with("POST /login") {
                let cookie = "200 OK\r\nSet-Cookie: sid=token-CANARY-session; Path=/";
                return answer(cookie, "");
            }
            if head.starts_with("POST") {
                return ok(
                    r#"{"access_token":"token-CANARY","token_type":"bearer","refresh_token":"next-CANARY"}"#,
                );
            }
            let steps = failures(head, &place).swap_remove(number);
            steps[at.min(steps.len() - 1)].clone()
        })
        .await;
        for auth in proofs(server.url.join("token").unwrap().as_str()) {
            let root = Store::memory();
            let mut config = testing::config(server.url.as_str(), PaginationKind::NextUrl);
            config.name = Name::new("s").unwrap();
            config.pagination.common.max_pages = Bounded::literal::<5>();
            // Each page is committed, with the position after it.
            config.batch.pages = Bounded::literal::<1>();
            config.error_path = Some("error".into());
            config.archive_raw = true;
            config.auth = Some(auth);
            let context = Context {
                root: root.clone(),
                ..testing::context()
            };
            let (lines, run) = traced(Box::pin(run_source(&config, &context))).await;
            check("log", &lines);
            match run {
                Ok(report) => check_debug("report", &report),
                Err(error) => {
                    check("error", &error.to_string());
                    check_debug("error", &error);
                }
            }
            for file in root.list("").await.unwrap() {
                let bytes = root.get(&file.path).await.unwrap();
                check(&file.path, &String::from_utf8_lossy(&bytes));
            }
            // Bodies are compressed in their files.
            let log = landed(&root, &config.name).await.unwrap();
            for entry in log.map(|log| log.entries).unwrap_or_default() {
                let tape = Tape::default();
                tape.load(&root.child("landing/s"), &entry).await.unwrap();
                kept += tape.left();
                check_debug("archive", &tape);
            }
        }
        let heads = server.heads().join("\n");
        assert!(heads.contains("CANARY") && heads.contains(BASIC));
        seen += server.heads().len();
    }
    assert!(seen > 100 && kept > 10, "{seen} {kept}");
    for head in other.heads() {
        let head = head.replace("leak=secret-CANARY&t=token-CANARY", "");
        check("another host", &head);
    }
}

#[tokio::test(start_paused = true)]
async fn a_canary_in_a_record_is_masked_in_warnings_about_its_values() {
    let numbers: String = (0..50).map(|id| format!("{{\"id\": {id}}}, ")).collect();
    let body = format!("{{\"items\": [{numbers}{{\"id\": \"secret-CANARY\"}}]}}");
    let server = Scripted::start([ok(&body)]).await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    let auth = proofs("http://h/token").swap_remove(0);
    config.auth = Some(auth);
    let context = testing::context();
    let (lines, report) = traced(Box::pin(run_source(&config, &context))).await;
    check("log", &lines);
    let report = report.unwrap();
    check_debug("report", &report);
    let mut warnings = report.warnings.iter();
    let warning = warnings.find(|held| held.code == "mixed_types").unwrap();
    assert!(warning.message.contains("***"), "{}", warning.message);
    let log = landed(&context.root, &config.name).await.unwrap().unwrap();
    check_debug("entries", &log.entries);
}

#[tokio::test(start_paused = true)]
async fn a_canary_in_a_rejected_record_is_masked_in_the_status() {
    let server = Scripted::start([ok(r#"{"items": [{"id": 1}, {"id": "secret-CANARY"}]}"#)]).await;
    let text = format!(
        "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = '{}'\nrecords = 'items'\n\
         pagination.type = 'none'\nauth = {{ type = 'bearer', secret = {{ env = 'CANARY' }} }}\n\
         contract = {{ max_reject_fraction = 1, column = {{ id = {{ type = 'int' }} }} }}\n",
        server.url
    );
    let config = feedline_schemas::config::load("p", &text, &[])
        .unwrap()
        .config;
    let context = testing::context();
    let run = Box::pin(ingest(&config, None, &context)).await.unwrap();
    check_debug("report", &run);
    let mut report = status(&config, &context.root).await.unwrap();
    let shown = report.sources[0].reject_sample.clone().unwrap();
    assert!(shown.contains("CANARY"), "{shown}");
    crate::mask_secrets(&config, &*context.secrets, &mut report);
    check_debug("status", &report);
    let shown = report.sources[0].reject_sample.clone().unwrap();
    assert!(shown.contains("***"), "{shown}");
}

#[tokio::test]
async fn secrets_of_files_are_masked_as_those_of_an_api() {
    for fetch in ["", "fetch = { column = 'u', into = 'v' }\n"] {
        let text = format!(
            "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'files'\nurl = 'http://127.0.0.1:9/a.csv'\n{fetch}\
             auth = {{ type = 'basic', user = 'reader', password = {{ env = 'CANARY' }} }}\n"
        );
        let loaded = feedline_schemas::config::load("p", &text, &[]).unwrap();
        let context = testing::context();
        let source = open(&loaded.config.source[0], &context).await.unwrap();
        let masks = source.secret_masks();
        assert_eq!(masks.mask("a secret-CANARY b"), "a *** b");
    }
}
