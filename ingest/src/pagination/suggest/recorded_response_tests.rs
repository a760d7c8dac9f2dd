//! First responses of real APIs. Skipped where `../shared/data` is absent.

use std::{fs::File, io::Read as _, path::Path};

use flate2::read::GzDecoder;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value as Json;

use super::*;

/// Suggestion for exchange number `at` of a recording; `None` where the data is absent.
fn recorded(name: &str, at: usize) -> Option<Found> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/json/recordings");
    if !folder.is_dir() {
        println!("skipped: there is no `{}`", folder.display());
        return None;
    }
    let mut text = String::new();
    let file = File::open(folder.join(format!("{name}.jsonl.gz"))).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let exchange: Json = serde_json::from_str(text.lines().nth(at).unwrap()).unwrap();
    let (request, response) = (&exchange["request"], &exchange["response"]);
    let uri = request["uri"].as_str().unwrap().replace(['<', '>'], "");
    let mut headers = HeaderMap::new();
    for (name, values) in response["headers"].as_object().unwrap() {
        for value in values.as_array().unwrap() {
            let name = HeaderName::try_from(name.as_str()).unwrap();
            headers.append(
                name,
                HeaderValue::try_from(value.as_str().unwrap()).unwrap(),
            );
        }
    }
    let body = Value::parse(response["body"].as_str().unwrap().as_bytes()).unwrap();
    let found = suggest(&headers, &body, &Url::parse(&uri).unwrap(), "");
    tests::source(&found);
    Some(found)
}

#[test]
fn recorded_first_answers_speak_for_the_pagination_that_reads_them() {
    let link = "pagination = { type = \"link\" }";
    let link_of_three = "pagination = { type = \"link\", total_path = \"total_count\" }";
    let slack = "pagination = { type = \"cursor\", cursor_param = \"cursor\", cursor_path = \"response_metadata.next_cursor\" }";
    let reddit = "pagination = { type = \"cursor\", cursor_param = \"after\", cursor_path = \"data.after\" }";
    for (name, at, records, line) in [
        ("github3py_github_iter_all_repos", 0, "", link),
        ("github3py_repository_forks", 1, "", link),
        ("github3py_repository_issues_state_all", 2, "", link),
        ("github3py_repository_stargazers", 2, "", link),
        ("github3py_user_events", 1, "", link),
        (
            "octokitrb_all_repositories_returns_all_repositories_on_github",
            0,
            "",
            link,
        ),
        (
            "octokitrb_workflow_runs_auto_paginates_the_results",
            0,
            "workflow_runs",
            link_of_three,
        ),
        ("slack_paginated_users_list", 0, "members", slack),
        (
            "praw_testsubredditlistings_test_new",
            1,
            "data.children",
            reddit,
        ),
        // The last pages of two of them.
        ("github3py_repository_forks", 3, "", ""),
        ("slack_paginated_users_list", 6, "members", slack),
        // Complete lists.
        ("github3py_github_search_issues", 0, "items", ""),
        ("fx_fred", 0, "observations", ""),
        ("fx_tcmb", 0, "items", ""),
        ("fx_bcb", 0, "value", ""),
        ("fx_nbg", 0, "", ""),
        ("fx_cbn", 0, "", ""),
        ("fx_cnb", 0, "rates", ""),
        ("fx_boc", 0, "observations", ""),
        ("fx_bam", 1, "", ""),
    ] {
        let Some(found) = recorded(name, at) else {
            return;
        };
        let records = match records {
            "" => None,
            path => Some(format!("records = \"{path}\"")),
        };
        assert_eq!(found.records, records, "{name} {at}: {found:?}");
        assert_eq!(
            found.pagination.as_deref().unwrap_or_default(),
            line,
            "{name} {at}: {found:?}"
        );
    }
}
