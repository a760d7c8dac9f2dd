//! Recorded exchanges of real APIs, replayed on loopback. Skipped where `../shared/data` is absent.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use feedline_schemas::config::{
    AuthConfig, ClientCredentials, CredentialsIn, OauthConfig, OauthGrant, PaginationKind,
    SecretRef, TokenEndpoint,
};
use flate2::read::GzDecoder;
use serde_json::Value as Json;

use super::*;
use crate::testing::{Scripted, Step, answer, config, read_all, set_key};

struct Exchange {
    method: String,
    uri: Url,
    form: String,
    status: u64,
    headers: Json,
    body: String,
}

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/json/recordings");
    let is_there = folder.is_dir();
    if !is_there {
        println!("skipped: there is no `{}`", folder.display());
    }
    is_there.then_some(folder)
}

/// The exchanges of a recording; `None` where the data is absent.
fn recording(name: &str) -> Option<Vec<Exchange>> {
    let file = std::fs::File::open(folder()?.join(format!("{name}.jsonl.gz"))).unwrap();
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let exchange = |line: &str| {
        let line: Json = serde_json::from_str(line).unwrap();
        let (request, response) = (&line["request"], &line["response"]);
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        Exchange {
            method: text(&request["method"]),
            // Placeholders such as <TOKEN> are no characters of a URL.
            uri: Url::parse(&text(&request["uri"]).replace(['<', '>'], "")).unwrap(),
            form: text(&request["body"]),
            status: response["status"].as_u64().unwrap(),
            headers: response["headers"].clone(),
            body: text(&response["body"]),
        }
    };
    Some(text.lines().map(exchange).collect())
}

impl Exchange {
    /// Its query, or its form if it was sent as one, in a fixed order.
    fn query(&self) -> Vec<(String, String)> {
        let form = url::form_urlencoded::parse(self.form.as_bytes());
        let pairs = self.uri.query_pairs().chain(form);
        sorted(pairs.map(|(k, v)| (k.into_owned(), v.into_owned())))
    }

    /// The response, with `origin` in place of the recorded one.
    fn answer(&self, origin: &str) -> Step {
        let own = self.uri.origin().ascii_serialization();
        let mut head = format!("{} Recorded", self.status);
        for (name, values) in self.headers.as_object().unwrap() {
            if ["link", "location"].contains(&name.to_ascii_lowercase().as_str()) {
                for value in values.as_array().unwrap() {
                    let value = value.as_str().unwrap().replace(&own, origin);
                    head += &format!("\r\n{name}: {value}");
                }
            }
        }
        answer(&head, &self.body)
    }
}

fn sorted(pairs: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    pairs
}

/// Starts a server that replays the recorded responses. Other requests get status 404.
async fn replay(exchanges: Vec<Exchange>) -> Scripted {
    Scripted::answering(move |_, head| {
        let host = head.lines().find_map(|line| line.strip_prefix("host: "));
        let origin = format!("http://{}", host.unwrap());
        let url = Url::parse(&origin).unwrap();
        let url = url.join(head.split(' ').nth(1).unwrap()).unwrap();
        let asked = sorted(
            url.query_pairs()
                .map(|(k, v)| (k.into_owned(), v.into_owned())),
        );
        let is_it = |exchange: &&Exchange| {
            let is_form = head.starts_with("POST") && exchange.method == "POST";
            exchange.uri.path() == url.path() && (is_form || exchange.query() == asked)
        };
        match exchanges.iter().find(is_it) {
            Some(exchange) => exchange.answer(&origin),
            None => answer("404 Not Found", "this was not recorded"),
        }
    })
    .await
}

/// Reads the recording from the URL of its exchange number `first`, reopened after each page, and
/// counts.
async fn check(
    name: &str,
    first: usize,
    kind: PaginationKind,
    set: impl FnOnce(&mut SourceConfig),
    (pages, records): (u64, usize),
) {
    let Some(exchanges) = recording(name) else {
        return;
    };
    let start = exchanges[first].uri.clone();
    let server = replay(exchanges).await;
    let mut url = server.url.join(start.path()).unwrap();
    url.set_query(start.query());
    let mut config = config(url.as_str(), kind);
    config.records = String::new();
    set(&mut config);
    let (read, _) = read_all(&config, 1).await.unwrap();
    assert_eq!(read.len(), records, "{name}");
    let gets = server.heads();
    let gets = gets.iter().filter(|head| head.starts_with("GET")).count();
    assert_eq!(gets as u64, pages, "{name}");
}

#[tokio::test]
async fn recorded_github_lists_are_read_by_their_links() {
    let link = PaginationKind::Link;
    check(
        "github3py_repository_issues_state_all",
        2,
        link,
        |_| {},
        (2, 150),
    )
    .await;
    check("github3py_repository_stargazers", 2, link, |_| {}, (5, 484)).await;
    check("github3py_user_events", 1, link, |_| {}, (3, 288)).await;
    check("github3py_repository_forks", 1, link, |_| {}, (3, 276)).await;
    let runs = |config: &mut SourceConfig| {
        config.records = "workflow_runs".into();
        config.pagination.common.total_path = Some("total_count".into());
        config.pagination.common.strict_total = true;
    };
    let name = "octokitrb_workflow_runs_auto_paginates_the_results";
    check(name, 0, link, runs, (3, 3)).await;
}

#[tokio::test]
async fn recorded_slack_members_are_read_by_their_cursor() {
    let set = |config: &mut SourceConfig| {
        config.records = "members".into();
        config.params = [("limit", "5"), ("presence", "true")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        set_key(config, "cursor_path", "response_metadata.next_cursor");
        config.error_path = Some("error".into());
    };
    check(
        "slack_paginated_users_list",
        0,
        PaginationKind::Cursor,
        set,
        (7, 35),
    )
    .await;
}

#[tokio::test]
async fn recorded_reddit_posts_are_read_with_a_token_of_client_credentials() {
    let name = "praw_testsubredditlistings_test_new";
    let Some(mut exchanges) = recording(name) else {
        return;
    };
    // The recording ends with the first page; here the next one is empty.
    let first: Json = serde_json::from_str(&exchanges[1].body).unwrap();
    let after = first["data"]["after"].as_str().unwrap().to_owned();
    let mut uri = exchanges[1].uri.clone();
    uri.query_pairs_mut().append_pair("after", &after);
    exchanges.push(Exchange {
        uri,
        method: "GET".into(),
        form: String::new(),
        status: 200,
        headers: Json::Object(serde_json::Map::new()),
        body: r#"{"data": {"children": [], "after": null}}"#.into(),
    });
    let server = replay(exchanges).await;
    let url = server
        .url
        .join("r/askreddit/new?raw_json=1&limit=100")
        .unwrap();
    let mut config = config(url.as_str(), PaginationKind::Cursor);
    config.records = "data.children".into();
    set_key(&mut config, "cursor_path", "data.after");
    set_key(&mut config, "cursor_param", "after");
    let secret = |name: &str| SecretRef {
        env: Some(name.into()),
        file: None,
        prefix: String::new(),
    };
    config.auth = Some(AuthConfig::Oauth2(OauthConfig {
        endpoint: TokenEndpoint {
            token_url: server.url.join("api/v1/access_token").unwrap().into(),
            scope: None,
            credentials: CredentialsIn::Header,
        },
        grant: OauthGrant::ClientCredentials(ClientCredentials {
            client_id: secret("ID"),
            client_secret: secret("SECRET"),
        }),
    }));
    let (read, _) = read_all(&config, usize::MAX).await.unwrap();
    assert_eq!(read.len(), 100);
    let heads = server.heads();
    assert!(heads[0].starts_with("POST"), "{heads:?}");
    assert!(
        heads[1].contains("authorization: Bearer <ACCESS_TOKEN>\r\n"),
        "{heads:?}"
    );
    assert_eq!(heads.len(), 3);
}

#[tokio::test]
async fn recorded_central_bank_series_have_as_many_observations_as_they_say() {
    let Some(exchanges) = recording("fx_fred") else {
        return;
    };
    let mut observations = 0;
    for (number, exchange) in exchanges.iter().enumerate() {
        let body: Json = serde_json::from_str(&exchange.body).unwrap();
        let count = usize::try_from(body["count"].as_u64().unwrap()).unwrap();
        let set = |config: &mut SourceConfig| {
            config.records = "observations".into();
            config.pagination.common.total_path = Some("count".into());
            config.pagination.common.strict_total = true;
        };
        check("fx_fred", number, PaginationKind::None, set, (1, count)).await;
        observations += count;
    }
    assert_eq!(
        (exchanges.len(), observations > 200),
        (22, true),
        "{observations}"
    );
    // One day a request, each a page without a next one.
    let mut rates = 0;
    for (day, count) in [30, 58, 30].into_iter().enumerate() {
        check("fx_bam", day, PaginationKind::None, |_| {}, (1, count)).await;
        rates += count;
    }
    assert_eq!(rates, 118);
}
