use feedline_schemas::{config::SecretRef, units::ByteSize};
use feedline_testkit::free_port::free_port;

use super::*;
use crate::testing::{ENCODINGS, Scripted, Step, answer, context, encode, gzip, ok, raw};

fn client(base: &Url, limits: &RetryConfig) -> Http {
    let key = SecretRef {
        env: Some("KEY".into()),
        file: None,
        prefix: "Bearer ".into(),
    };
    let headers = BTreeMap::from([("X-Api-Key".to_owned(), TextOrSecret::Secret(key))]);
    let mut http = Http::new(base, &headers, limits, &context()).unwrap();
    // Servers of a test are other ports of one host.
    http.transport.guard.let_in(&["127.0.0.1".into()]);
    http
}

/// One try against a server that responds with `step`.
async fn try_of(step: Step) -> Result<Bytes, Failure> {
    let server = Scripted::start([step]).await;
    client(&server.url, &RetryConfig::default())
        .get(&server.url)
        .await
}

async fn check_failure(step: Step, again: Again, part: &str) {
    let what = format!("{step:?}");
    let failure = try_of(step).await.expect_err(&what);
    let message = failure.error.to_string();
    assert_eq!(failure.again, again, "{message}");
    assert!(message.contains(part), "{message}");
}

#[tokio::test]
async fn a_body_arrives_with_our_name_and_headers_in_the_request() {
    let server = Scripted::start([ok("[1]")]).await;
    let http = client(&server.url, &RetryConfig::default());
    assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
    let head = &server.heads()[0];
    for part in [
        "user-agent: feedline/",
        "+https://",
        "accept-encoding: gzip, br, zstd\r\n",
        "x-api-key: Bearer secret-KEY",
    ] {
        assert!(head.contains(part), "{head}");
    }
    assert!(!head.contains("referer"));
    assert_eq!(http.requests(), 1);
}

#[tokio::test]
async fn statuses_are_transient_or_final() {
    for status in [408, 429, 500, 502, 503, 504, 599] {
        let text = format!("answered {status}");
        // 429 says that the request was not processed.
        let again = match status {
            429 => Again::Unprocessed,
            _ => Again::Backoff,
        };
        check_failure(answer(&format!("{status} Oops"), "{}"), again, &text).await;
    }
    for status in [400, 410] {
        let text = format!("answered {status}");
        check_failure(answer(&format!("{status} Oops"), ""), Again::Gone, &text).await;
    }
    for status in [304, 401, 403, 418, 451, 501] {
        let text = format!("answered {status}");
        check_failure(answer(&format!("{status} Oops"), ""), Again::Never, &text).await;
    }
}

#[tokio::test]
async fn a_failure_has_the_status_of_its_response_or_the_open_circuit_as_cause() {
    for status in [404, 429, 503] {
        let step = answer(&format!("{status} Oops"), "");
        let failure = try_of(step).await.unwrap_err();
        assert_eq!(failure.error.status(), Some(status));
    }
    let url = Url::parse("http://api.example/").unwrap();
    let http = client(&url, &RetryConfig::default());
    let failure = http.not_now(&url, &Refused::Down(3, Duration::ZERO));
    let message = failure.error.to_string();
    assert!(message.contains("its host failed 3 times"), "{message}");
    let Error::Http { cause, .. } = *failure.error else {
        panic!("{message}");
    };
    assert_eq!(cause, HttpCause::CircuitOpen);
}

#[tokio::test]
async fn fault_14_retry_after_is_taken_in_both_forms_and_garbage_is_not() {
    let asked = |status: &str, header: &str| answer(&format!("{status} X\r\n{header}"), "{}");
    let after = |seconds| Again::After(Duration::from_secs(seconds));
    check_failure(asked("429", "Retry-After: 7"), after(7), "429").await;
    check_failure(
        asked("503", "Retry-After: 1000000000000"),
        after(1_000_000_000_000),
        "503",
    )
    .await;
    let date = "Retry-After: Sun, 06 Nov 1994 08:49:57 GMT";
    check_failure(asked("429", date), after(20), "429").await;
    let both = format!("{date}\r\nDate: Sun, 06 Nov 1994 08:48:57 GMT");
    check_failure(asked("503", &both), after(60), "503").await;
    for own in ["-1", "soon", "Sun, 06 Nov 1994 08:00:00 GMT", "0"] {
        check_failure(
            asked("429", &format!("Retry-After: {own}")),
            Again::Unprocessed,
            "429",
        )
        .await;
    }
    check_failure(asked("404", "Retry-After: 7"), Again::Absent, "404").await;
}

#[tokio::test]
async fn fault_18_a_body_that_is_cut_short_is_transient() {
    let cut = "body was truncated";
    check_failure(
        raw("200 OK\r\nContent-Length: 100", b"[1, 2"),
        Again::Backoff,
        cut,
    )
    .await;
    let chunked = "200 OK\r\nTransfer-Encoding: chunked";
    check_failure(raw(chunked, b"5\r\n[1, 2\r\n"), Again::Backoff, cut).await;
    check_failure(raw(chunked, b"50\r\n[1"), Again::Backoff, cut).await;
    for encoding in ENCODINGS {
        let head = format!("200 OK\r\nContent-Encoding: {encoding}");
        let body = encode(encoding, b"[1, 2]");
        let got = try_of(raw(&head, &body)).await;
        assert_eq!(got.unwrap(), "[1, 2]", "{encoding}");
        let cut = raw(&head, &body[..body.len() - 1]);
        check_failure(cut, Again::Backoff, "cannot be decompressed").await;
    }
    check_failure(Step::Send(vec![]), Again::Backoff, "connection failed").await;
    check_failure(
        Step::Send(b"SSH-2.0-OpenSSH\r\n".to_vec()),
        Again::Backoff,
        "connection failed",
    )
    .await;
}

#[tokio::test]
async fn fault_23_nobody_listening_is_transient_and_named() {
    let url = Url::parse(&format!("http://127.0.0.1:{}/", free_port())).unwrap();
    let failure = client(&url, &RetryConfig::default())
        .get(&url)
        .await
        .unwrap_err();
    assert_eq!(failure.again, Again::Unprocessed);
    assert!(
        failure.error.to_string().contains("refused"),
        "{}",
        failure.error
    );
}

#[tokio::test]
async fn fault_22_compressed_bodies_are_read_and_bombs_are_not() {
    let zipped = |body: &[u8]| raw("200 OK\r\nContent-Encoding: gzip", &gzip(body));
    assert_eq!(try_of(zipped(b"[1]")).await.unwrap(), "[1]");
    check_failure(
        zipped(&vec![b' '; 70 << 20]),
        Again::Never,
        "inflates to more than",
    )
    .await;
    for named in ["compress", "gzip, br", "gzip\r\nContent-Encoding: br"] {
        let head = format!("200 OK\r\nContent-Encoding: {named}");
        let shown = named.replace("\r\nContent-Encoding:", ",");
        let part = format!("encoded as `{shown}`; only one of gzip, br, zstd and deflate");
        check_failure(raw(&head, b"x"), Again::Never, &part).await;
    }
}

#[tokio::test]
async fn fault_22_a_body_over_the_limit_is_refused_announced_or_not() {
    let limits = RetryConfig {
        max_body_bytes: ByteSize::new(10),
        ..RetryConfig::default()
    };
    for step in [
        ok("[1, 2, 3, 4]"),
        raw("200 OK", b"[1, 2, 3, 4]"),
        raw("200 OK\r\nContent-Length: 999999999", b""),
    ] {
        let server = Scripted::start([step]).await;
        let failure = client(&server.url, &limits)
            .get(&server.url)
            .await
            .unwrap_err();
        assert_eq!(failure.again, Again::Never);
        assert!(
            failure
                .error
                .to_string()
                .contains("`retry.max_body_bytes` = 10"),
            "{}",
            failure.error
        );
    }
}

fn to(place: &str) -> Step {
    answer(&format!("302 Found\r\nLocation: {place}"), "")
}

#[tokio::test]
async fn redirects_on_the_same_origin_keep_the_headers() {
    let server = Scripted::start([to("/b?x=1"), to("c"), ok("[]")]).await;
    let http = client(&server.url, &RetryConfig::default());
    assert_eq!(http.get(&server.url).await.unwrap(), "[]");
    assert_eq!(server.targets(), ["/", "/b?x=1", "/c"]);
    assert!(
        server
            .heads()
            .iter()
            .all(|head| head.contains("secret-KEY") && !head.contains("referer"))
    );
    assert_eq!(http.requests(), 3);
}

#[tokio::test]
async fn fault_21_a_redirect_to_another_origin_loses_the_headers() {
    let other = Scripted::start([to("/there"), ok("[]")]).await;
    let home = Scripted::start([to(other.url.as_str())]).await;
    let http = client(&home.url, &RetryConfig::default());
    assert_eq!(
        http.get(&home.url.join("/?key=hidden").unwrap())
            .await
            .unwrap(),
        "[]"
    );
    assert!(home.heads()[0].contains("secret-KEY"));
    assert_eq!(other.targets(), ["/", "/there"]);
    for head in other.heads() {
        assert!(
            !head.contains("secret-KEY") && !head.contains("hidden"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn fault_21_a_redirect_loop_ends_after_five_hops() {
    let server = Scripted::start([to("/?token=hidden")]).await;
    let failure = client(&server.url, &RetryConfig::default())
        .get(&server.url)
        .await
        .unwrap_err();
    assert_eq!((failure.again, server.heads().len()), (Again::Never, 6));
    let message = failure.error.to_string();
    assert!(
        message.contains("more than 5 times") && message.contains("token=***"),
        "{message}"
    );
}

// In paused time, every wait for the network advances to the next timeout, as wanted here.
#[tokio::test(start_paused = true)]
async fn fault_23_a_silent_server_runs_into_the_read_timeout() {
    check_failure(
        Step::Hang,
        Again::Backoff,
        "`retry.read_timeout_ms` = 30000",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn fault_23_an_exchange_runs_into_the_total_timeout_whatever_it_is_at() {
    let limits = RetryConfig {
        read_timeout_ms: 900_000,
        connect_timeout_ms: 900_000,
        ..RetryConfig::default()
    };
    let server = Scripted::start([Step::Hang]).await;
    let failure = client(&server.url, &limits)
        .get(&server.url)
        .await
        .unwrap_err();
    assert_eq!(failure.again, Again::Backoff);
    assert!(
        failure
            .error
            .to_string()
            .contains("`retry.total_timeout_ms` = 300000"),
        "{}",
        failure.error
    );
}

#[tokio::test]
async fn errors_show_no_secret_even_when_the_server_echoes_it() {
    let echo = "no access for secret-KEY\nwith hunter22, see page 12345";
    let server = Scripted::start([answer("403 Forbidden", echo)]).await;
    let base = server.url.join("/v1?api_key=hunter22&page=12345").unwrap();
    let message = client(&base, &RetryConfig::default())
        .get(&base)
        .await
        .unwrap_err()
        .error
        .to_string();
    let shown = redacted(&base);
    assert_eq!(
        message,
        format!(
            "cannot fetch `{shown}`: the server answered 403 Forbidden: `no access for *** with ***, see page 12345`; check the credentials in the source's `auth` or `headers` and their permissions"
        )
    );
    assert!(shown.ends_with("/v1?api_key=***&page=12345"));
}
