//! Proofs at scripted servers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use feedline_schemas::config::{
    ApiKey, BasicAuth, BearerToken, ClientCredentials, CredentialsIn, LoginBody, LoginSession,
    OauthConfig, OauthGrant, RetryConfig, TextOrSecret, TokenEndpoint,
};

use super::*;
use crate::{
    client::Http,
    clock::Clock,
    retry::failed_try::Again,
    testing::{Scripted, Step, answer, context, ok, raw},
    without_param,
};
use url::Url;

pub(super) fn env(name: &str) -> SecretRef {
    SecretRef {
        env: Some(name.into()),
        file: None,
        prefix: String::new(),
    }
}

fn bearer(secret: SecretRef) -> AuthConfig {
    AuthConfig::Bearer(BearerToken { secret })
}

fn key_in(header: Option<&str>, param: Option<&str>) -> AuthConfig {
    AuthConfig::ApiKey(ApiKey {
        secret: env("KEY"),
        header: header.map(Into::into),
        param: param.map(Into::into),
    })
}

fn api_key() -> AuthConfig {
    key_in(None, Some("api_key"))
}

fn endpoint(token_url: &str) -> TokenEndpoint {
    TokenEndpoint {
        token_url: token_url.into(),
        scope: None,
        credentials: CredentialsIn::Header,
    }
}

fn oauth_by(endpoint: TokenEndpoint) -> AuthConfig {
    let grant = OauthGrant::ClientCredentials(ClientCredentials {
        client_id: env("ID"),
        client_secret: env("a b"),
    });
    AuthConfig::Oauth2(OauthConfig { endpoint, grant })
}

fn oauth(token_url: &str) -> AuthConfig {
    oauth_by(endpoint(token_url))
}

pub(super) fn client_in(
    context: &RequestContext,
    base: &Url,
    config: &AuthConfig,
) -> Result<Http, Error> {
    let mut http = Http::new(base, &BTreeMap::new(), &RetryConfig::default(), context)?
        .with_auth(Some(config), context)?;
    // Servers of a test are other ports of one host.
    http.transport.guard.let_in(&["127.0.0.1".into()]);
    Ok(http)
}

fn client(base: &Url, config: &AuthConfig) -> Http {
    client_in(&context(), base, config).unwrap()
}

async fn check_sent(config: &AuthConfig, part: &str) {
    let server = Scripted::start([ok("[]")]).await;
    let http = client(&server.url, config);
    let got = http
        .fetch(&server.url.join("v1?q=1").unwrap())
        .await
        .unwrap();
    assert_eq!(got.url.path(), "/v1");
    assert!(!got.url.as_str().contains("secret"), "{}", got.url);
    assert!(!format!("{http:?}").contains("secret-"), "{http:?}");
    let head = &server.heads()[0];
    assert!(head.contains(part), "{head}");
}

#[tokio::test]
async fn each_kind_of_proof_is_sent_its_way() {
    let bearer = bearer(env("T"));
    check_sent(&bearer, "authorization: Bearer secret-T\r\n").await;
    let header = key_in(Some("X-Key"), None);
    check_sent(&header, "x-key: secret-KEY\r\n").await;
    check_sent(&api_key(), "GET /v1?q=1&api_key=secret-KEY ").await;
    let basic = |user| {
        AuthConfig::Basic(BasicAuth {
            user,
            password: env("P"),
        })
    };
    let secret = basic(TextOrSecret::Secret(env("U")));
    // secret-U:secret-P
    check_sent(&secret, "authorization: Basic c2VjcmV0LVU6c2VjcmV0LVA=\r\n").await;
    let plain = basic(text("alice"));
    // alice:secret-P
    check_sent(&plain, "authorization: Basic YWxpY2U6c2VjcmV0LVA=\r\n").await;
}

fn text(value: &str) -> TextOrSecret {
    TextOrSecret::Text(value.into())
}

fn cookies(names: &[&str]) -> AuthConfig {
    let cookies = names.iter().map(|&name| (name.to_owned(), env(name)));
    AuthConfig::Cookies(GivenCookies {
        cookies: cookies.collect(),
    })
}

/// A login at `login` with a user in plain text and a secret password.
fn session_of(login: &Url) -> LoginSession {
    let password = TextOrSecret::Secret(env("a b"));
    LoginSession {
        login_url: login.to_string(),
        fields: BTreeMap::from([
            ("user".to_owned(), text("me & you")),
            ("password".to_owned(), password),
        ]),
        login_body: LoginBody::Form,
    }
}

fn session(login: &Url) -> AuthConfig {
    AuthConfig::Session(session_of(login))
}

#[tokio::test]
async fn cookies_of_the_configuration_are_sent_together() {
    check_sent(&cookies(&["session"]), "cookie: session=secret-session\r\n").await;
    let signed = cookies(&[
        "CloudFront-Policy",
        "CloudFront-Signature",
        "CloudFront-Key-Pair-Id",
    ]);
    let sent = "cookie: CloudFront-Key-Pair-Id=secret-CloudFront-Key-Pair-Id; CloudFront-Policy=secret-CloudFront-Policy; CloudFront-Signature=secret-CloudFront-Signature\r\n";
    check_sent(&signed, sent).await;
}

fn to(place: &str) -> Step {
    answer(&format!("302 Found\r\nLocation: {place}"), "")
}

#[tokio::test]
async fn no_proof_goes_to_another_origin_and_none_is_kept_in_a_url() {
    let bearer = bearer(env("T"));
    for config in [bearer, api_key(), cookies(&["session"])] {
        let other = Scripted::start([ok("[]")]).await;
        let there = other.url.join("there").unwrap();
        let home = Scripted::start([to("/b?api_key=secret-KEY&p=2"), to(there.as_str())]).await;
        let got = client(&home.url, &config).fetch(&home.url).await.unwrap();
        assert_eq!(got.url, there);
        assert!(!other.heads()[0].contains("secret-"), "{:?}", other.heads());
        assert_eq!(home.heads().len(), 2);
        assert!(home.heads()[1].contains("secret-"));
        let asked = &home.targets()[1];
        assert_eq!(asked.matches("api_key").count(), 1, "{asked}");
    }
}

/// A server with a new session for each login, and pages for any session of `good`. A login also
/// sets the cookies `others`.
async fn walled(good: &'static [&'static str], others: &'static str) -> Scripted {
    let logins = AtomicU64::new(0);
    Scripted::answering(move |_, head| {
        if head.starts_with("POST") {
            let number = logins.fetch_add(1, Ordering::Relaxed);
            let head = format!(
                "302 Found\r\nLocation: /home\r\nSet-Cookie: sid=secret-session-{number}; Path=/; HttpOnly{others}"
            );
            return answer(&head, "");
        }
        if good.iter().any(|sid| head.contains(&format!("sid={sid}"))) {
            ok("[1]")
        } else {
            let echo = head.split("cookie: ").nth(1).unwrap_or_default();
            answer("403 Forbidden", echo)
        }
    })
    .await
}

#[tokio::test]
async fn a_login_is_made_once_and_its_cookies_are_sent() {
    let others = "\r\nSet-Cookie: far=1; Path=/far\r\nSet-Cookie: safe=1; Secure\r\nSet-Cookie: not=1; Domain=elsewhere.example\r\nSet-Cookie: old=1; Max-Age=0";
    for (body, sent) in [
        (LoginBody::Form, "password=secret-a+b&user=me+%26+you"),
        (
            LoginBody::Json,
            r#"{"password":"secret-a b","user":"me & you"}"#,
        ),
    ] {
        let server = walled(&["secret-session-0"], others).await;
        let config = AuthConfig::Session(LoginSession {
            login_body: body,
            ..session_of(&server.url.join("login").unwrap())
        });
        let http = client(&server.url, &config);
        for page in ["a", "b", "far/c"] {
            let page = server.url.join(page).unwrap();
            assert_eq!(http.get(&page).await.unwrap(), "[1]");
        }
        assert_eq!((count(&server, "POST"), count(&server, "GET")), (1, 3));
        assert_eq!(http.requests(), 4);
        let heads = server.heads();
        assert!(
            heads[0].starts_with("POST /login ") && heads[0].ends_with(sent),
            "{}",
            heads[0]
        );
        assert!(
            heads[1].contains("cookie: sid=secret-session-0\r\n"),
            "{}",
            heads[1]
        );
        assert!(
            heads[3].contains("cookie: far=1; sid=secret-session-0\r\n"),
            "{}",
            heads[3]
        );
        assert!(!format!("{http:?}").contains("secret-"), "{http:?}");
    }
}

#[tokio::test]
async fn fault_20_a_session_that_is_over_is_begun_anew_once_for_all() {
    let server = walled(&["secret-session-1"], "").await;
    let http = client(&server.url, &session(&server.url));
    let gets = (0..4).map(|_| http.get(&server.url));
    for body in futures::future::join_all(gets).await {
        assert_eq!(body.unwrap(), "[1]");
    }
    assert_eq!((count(&server, "POST"), count(&server, "GET")), (2, 8));
}

#[tokio::test]
async fn fault_20_a_second_refusal_of_a_session_is_final_and_shows_no_secret() {
    let server = walled(&[], "").await;
    let http = client(&server.url, &session(&server.url));
    let failure = http.get(&server.url).await.unwrap_err();
    assert_eq!((count(&server, "POST"), count(&server, "GET")), (2, 2));
    assert_eq!(failure.again, Again::Never);
    let message = failure.error.to_string();
    assert!(message.contains("403 Forbidden: `sid=***"), "{message}");
    assert!(!message.contains("secret-"), "{message}");
    // A used-up quota does not end a session.
    let busy = "403 Forbidden\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 9";
    let login = answer("200 OK\r\nSet-Cookie: sid=secret-session", "");
    let server = Scripted::start([login, answer(busy, "")]).await;
    let http = client(&server.url, &session(&server.url));
    let failure = http.get(&server.url).await.unwrap_err();
    assert!(matches!(failure.again, Again::After(_)), "{failure:?}");
    assert_eq!(count(&server, "POST"), 1);
}

#[tokio::test]
async fn a_session_goes_to_no_other_origin() {
    let other = Scripted::start([ok("[]")]).await;
    let there = other.url.join("there").unwrap();
    let login = answer("200 OK\r\nSet-Cookie: sid=secret-session", "");
    let home = Scripted::start([login, to(there.as_str())]).await;
    let http = client(&home.url, &session(&home.url));
    assert_eq!(http.fetch(&home.url).await.unwrap().url, there);
    assert!(!other.heads()[0].contains("cookie"), "{:?}", other.heads());
}

#[tokio::test]
async fn a_login_that_fails_is_tried_again_or_not_and_shows_no_secret() {
    let check = async |step: Step, again: Again, part: &str| {
        let server = Scripted::start([step]).await;
        let http = client(&server.url, &session(&server.url));
        let failure = http.get(&server.url).await.unwrap_err();
        let message = failure.error.to_string();
        assert_eq!(failure.again, again, "{message}");
        let is_told = message.contains(part) && !message.contains("secret-");
        assert!(is_told, "{message}");
        assert_eq!(server.heads().len(), 1);
    };
    let echo = "wrong: secret-a b, secret-a+b";
    check(answer("401 No", echo), Again::Never, "`wrong: ***, ***`").await;
    check(answer("400 No", echo), Again::Never, "400").await;
    check(answer("503 Busy", ""), Again::Backoff, "503").await;
    check(ok("<form>secret-a b"), Again::Never, "set no cookie").await;
    let secure = answer("200 OK\r\nSet-Cookie: s=secret-session; Secure", "");
    check(secure, Again::Never, "no cookie that may be sent").await;
}

const TOKEN: &str = r#"{"access_token":"secret-token-N","token_type":"Bearer","expires_in":3600}"#;

/// A server with a new token for each request, and pages for any token of `good`.
async fn guarded(good: &'static [&'static str]) -> Scripted {
    let tokens = AtomicU64::new(0);
    Scripted::answering(move |_, head| {
        if head.starts_with("POST") {
            let number = tokens.fetch_add(1, Ordering::Relaxed).to_string();
            return ok(&TOKEN.replace('N', &number));
        }
        let is_good = good
            .iter()
            .any(|token| head.contains(&format!("Bearer {token}\r\n")));
        if is_good {
            ok("[1]")
        } else {
            let echo = head.split("authorization: ").nth(1).unwrap_or_default();
            answer("401 Unauthorized", echo)
        }
    })
    .await
}

pub(super) fn count(server: &Scripted, method: &str) -> usize {
    let heads = server.heads();
    heads.iter().filter(|head| head.starts_with(method)).count()
}

#[tokio::test]
async fn a_token_is_asked_for_once_with_the_clients_credentials() {
    for place in [CredentialsIn::Header, CredentialsIn::Body] {
        let server = guarded(&["secret-token-0"]).await;
        let config = oauth_by(TokenEndpoint {
            credentials: place,
            scope: Some("read all".into()),
            ..endpoint(server.url.join("token").unwrap().as_str())
        });
        let http = client(&server.url, &config);
        for _ in 0..3 {
            assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
        }
        assert_eq!((count(&server, "POST"), count(&server, "GET")), (1, 3));
        assert_eq!(http.requests(), 4);
        let asked = &server.heads()[0];
        assert!(
            asked.contains("grant_type=client_credentials&scope=read+all"),
            "{asked}"
        );
        assert!(
            asked.contains("content-type: application/x-www-form-urlencoded\r\n"),
            "{asked}"
        );
        // secret-ID:secret-a+b, each encoded as in a form.
        let basic = "authorization: Basic c2VjcmV0LUlEOnNlY3JldC1hK2I=\r\n";
        let form = "&client_id=secret-ID&client_secret=secret-a+b";
        let is_header = place == CredentialsIn::Header;
        assert_eq!(
            (asked.contains(basic), asked.contains(form)),
            (is_header, !is_header)
        );
    }
}

#[tokio::test]
async fn fault_20_a_refused_token_is_refreshed_once_for_all_and_the_requests_sent_again() {
    let server = guarded(&["secret-token-1"]).await;
    let http = client(&server.url, &oauth(server.url.as_str()));
    let gets = (0..4).map(|_| http.get(&server.url));
    for body in futures::future::join_all(gets).await {
        assert_eq!(body.unwrap(), "[1]");
    }
    assert_eq!((count(&server, "POST"), count(&server, "GET")), (2, 8));
    assert_eq!(http.get(&server.url).await.unwrap(), "[1]");
    assert_eq!(count(&server, "POST"), 2);
}

#[tokio::test]
async fn fault_20_a_second_refusal_is_final_and_shows_no_secret() {
    let server = guarded(&[]).await;
    let http = client(&server.url, &oauth(server.url.as_str()));
    let failure = http.get(&server.url).await.unwrap_err();
    assert_eq!((count(&server, "POST"), count(&server, "GET")), (2, 2));
    assert_eq!(failure.again, Again::Never);
    let message = failure.error.to_string();
    assert!(
        message.contains("401 Unauthorized: `Bearer ***"),
        "{message}"
    );
    assert!(!message.contains("secret-"), "{message}");
}

#[tokio::test]
async fn fault_20_a_refused_key_is_final_at_once() {
    let echo = "wrong key secret-KEY, api_key=secret-KEY";
    let server = Scripted::start([answer("401 Unauthorized", echo)]).await;
    let failure = client(&server.url, &api_key())
        .get(&server.url)
        .await
        .unwrap_err();
    assert_eq!((failure.again, server.heads().len()), (Again::Never, 1));
    let message = failure.error.to_string();
    assert!(
        message.contains("`wrong key ***, api_key=***`"),
        "{message}"
    );
}

/// A clock that is set by hand.
#[derive(Debug, Default)]
struct ByHand(AtomicU64);

impl Clock for ByHand {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
    fn unix(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test]
async fn a_token_is_kept_until_shortly_before_it_expires() {
    let server = guarded(&["secret-token-0", "secret-token-1"]).await;
    let clock = Arc::new(ByHand::default());
    let context = RequestContext {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..context()
    };
    let http = client_in(&context, &server.url, &oauth(server.url.as_str())).unwrap();
    for (now, asked) in [(0, 1), (3_539, 1), (3_540, 2), (3_541, 2)] {
        clock.0.store(now, Ordering::Relaxed);
        http.get(&server.url).await.unwrap();
        assert_eq!(count(&server, "POST"), asked, "at {now} s");
    }
}

#[tokio::test]
async fn a_token_endpoint_that_fails_is_tried_again_or_not_and_shows_no_secret() {
    let check = async |step: Step, again: Again, part: &str| {
        let server = Scripted::start([step]).await;
        let http = client(&server.url, &oauth(server.url.as_str()));
        let failure = http.get(&server.url).await.unwrap_err();
        let message = failure.error.to_string();
        assert_eq!(failure.again, again, "{message}");
        assert!(
            message.contains(part) && !message.contains("secret-"),
            "{message}"
        );
        assert_eq!(server.heads().len(), 1);
    };
    let echo = r#"{"error":"invalid_client secret-ID secret-a b secret-a+b"}"#;
    check(
        answer("400 Bad Request", echo),
        Again::Never,
        "invalid_client *** *** ***",
    )
    .await;
    check(answer("503 Busy", ""), Again::Backoff, "503").await;
    let wait = Again::After(Duration::from_secs(9));
    check(answer("429 X\r\nRetry-After: 9", ""), wait, "429").await;
    check(to("https://elsewhere.example/"), Again::Never, "302").await;
    check(ok("<html>secret-ID"), Again::Backoff, "no JSON").await;
    check(
        ok(r#"{"token":"secret-x"}"#),
        Again::Backoff,
        "`access_token`",
    )
    .await;
    let mac = r#"{"access_token":"secret-x","token_type":"mac"}"#;
    check(ok(mac), Again::Backoff, "`token_type`").await;
    let cut = raw("200 OK\r\nContent-Length: 400", TOKEN.as_bytes());
    check(cut, Again::Backoff, "truncated").await;
}

#[test]
fn settings_that_cannot_work_name_their_key() {
    let base = Url::parse("https://api.example/").unwrap();
    let check = |config: AuthConfig, key: &str| {
        let context = context();
        let headers = BTreeMap::from([("X-Key".to_owned(), TextOrSecret::Text("text".to_owned()))]);
        let http = Http::new(&base, &headers, &RetryConfig::default(), &context).unwrap();
        match http.with_auth(Some(&config), &context) {
            Err(Error::Config { key: found, reason }) => {
                assert_eq!(found, format!("auth.{key}"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    };
    check(key_in(Some("a b"), None), "header");
    check(key_in(Some("x-key"), None), "type");
    check(cookies(&["a b"]), "cookies.a b");
    check(cookies(&["a", "a;b"]), "cookies.a;b");
    let odd = AuthConfig::Cookies(GivenCookies {
        cookies: BTreeMap::from([("session".to_owned(), env("a; b=c"))]),
    });
    check(odd, "cookies.session");
    check(
        session(&Url::parse("https://b.example/").unwrap()),
        "login_url",
    );
    check(
        session(&Url::parse("http://api.example/").unwrap()),
        "login_url",
    );
    check(oauth("not a url"), "token_url");
    check(oauth("http://token.example/"), "token_url");
    let prefixed = SecretRef {
        prefix: "Bearer ".into(),
        ..env("T")
    };
    check(bearer(prefixed), "secret");
    let file = SecretRef {
        env: None,
        file: Some("x".into()),
        prefix: String::new(),
    };
    check(bearer(file), "secret");
    check(bearer(env("line\nend")), "secret");
}

#[test]
fn a_parameter_is_taken_out_and_the_rest_kept_as_it_is_written() {
    let check = |url: &str, left: &str| {
        assert_eq!(
            without_param(Url::parse(url).unwrap(), "key").as_str(),
            left
        );
    };
    check("https://h/?a=%20&key=1&b&key", "https://h/?a=%20&b");
    check("https://h/?k%65y=1", "https://h/");
    check("https://h/?keys=1&b=key", "https://h/?keys=1&b=key");
    check("https://h/", "https://h/");
}
