//! A source that is requested for each value of a list, each from its own newest cursor on.

use std::sync::Mutex;

use feedline_schemas::config::{
    Bounded, ForEachConfig, IncrementalConfig, MissingValue, PaginationKind,
};

use super::{
    slices::{ingest_once, landed_numbers, param},
    *,
};
use crate::{
    backfill::ValueCursors,
    testing::{self, Scripted, Step, answer, ok},
};

/// Number and time of the issues of each repository; without a list it is refused.
type Issues = Arc<Mutex<BTreeMap<String, Vec<(i64, i64)>>>>;

/// An API of two issues a page, by `repo`, `since` (inclusive) and `offset`.
struct Forge {
    server: Scripted,
    issues: Issues,
    /// Status of a response about a repository without a list: by default one about all of them.
    refusal: Arc<Mutex<&'static str>>,
}

impl Forge {
    async fn start(repos: &[(&str, &[(i64, i64)])]) -> Self {
        let issues = repos
            .iter()
            .map(|(repo, issues)| ((*repo).to_owned(), issues.to_vec()));
        let issues: Issues = Arc::new(Mutex::new(issues.collect()));
        let served = Arc::clone(&issues);
        let refusal = Arc::new(Mutex::new("403 No"));
        let refused = Arc::clone(&refusal);
        let server = Scripted::answering(move |_, head| {
            let status = *refused.lock().unwrap();
            respond(&served, status, head)
        })
        .await;
        Self {
            server,
            issues,
            refusal,
        }
    }

    fn add(&self, repo: &str, number: i64, time: i64) {
        let mut issues = self.issues.lock().unwrap();
        issues
            .entry(repo.to_owned())
            .or_default()
            .push((number, time));
    }

    fn remove(&self, repo: &str) -> Vec<(i64, i64)> {
        self.issues.lock().unwrap().remove(repo).unwrap_or_default()
    }

    fn put(&self, repo: &str, of_repo: Vec<(i64, i64)>) {
        self.issues.lock().unwrap().insert(repo.to_owned(), of_repo);
    }

    /// A source of these repositories, with a window of one record.
    fn config(&self, repos: &[&str]) -> SourceConfig {
        let mut config = testing::config(self.server.url.as_str(), PaginationKind::Offset);
        config.name = Name::new("s").unwrap();
        config.batch.dedup_window = Some(1);
        config.retry.max_tries = Bounded::literal::<1>();
        config.limits.concurrency = Some(Bounded::literal::<1>());
        config.incremental = Some(IncrementalConfig {
            cursor: "t".into(),
            param: "since".into(),
            start: None,
            lookback: "0".into(),
            max_ahead: "5m".into(),
        });
        config.for_each = Some(ForEachConfig {
            param: "repo".into(),
            values: repos.iter().map(|name| (*name).to_owned()).collect(),
            source: None,
            column: None,
            r#as: None,
            missing: MissingValue::Stop,
        });
        config
    }

    /// Repository and bound of the first page of each, since the request number `first`.
    fn asked(&self, first: usize) -> Vec<(String, Option<String>)> {
        let heads = self.server.heads().split_off(first);
        let firsts = heads
            .iter()
            .filter(|head| param(head, "offset").is_none_or(|offset| offset == "0"));
        firsts
            .map(|head| (param(head, "repo").unwrap(), param(head, "since")))
            .collect()
    }

    fn requests(&self) -> usize {
        self.server.heads().len()
    }
}

fn respond(issues: &Issues, refusal: &str, head: &str) -> Step {
    let issues = issues.lock().unwrap();
    let Some(of_repo) = issues.get(&param(head, "repo").unwrap()) else {
        return answer(refusal, "");
    };
    let since: i64 = param(head, "since").map_or(0, |since| since.parse().unwrap());
    let offset: usize = param(head, "offset").map_or(0, |offset| offset.parse().unwrap());
    let due = of_repo.iter().filter(|(_, time)| *time >= since);
    let items = due
        .skip(offset)
        .take(2)
        .map(|(number, time)| format!(r#"{{"n":{number},"t":{time}}}"#));
    let items: Vec<String> = items.collect();
    ok(&format!(r#"{{"items":[{}]}}"#, items.join(",")))
}

fn pairs(expected: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    expected
        .iter()
        .map(|(repo, since)| ((*repo).to_owned(), since.map(ToOwned::to_owned)))
        .collect()
}

#[tokio::test]
async fn each_value_is_requested_from_its_own_newest_cursor_on() {
    let forge = Forge::start(&[("a", &[(1, 10), (2, 20), (3, 30)]), ("b", &[(4, 5)])]).await;
    let mut config = forge.config(&["a", "b"]);
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(report.rows, 4);
    assert_eq!(forge.asked(0), pairs(&[("a", None), ("b", None)]));
    // Nothing is new: the log stays as it is.
    let (before, batches) = (forge.requests(), report.batches);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.batches), (4, batches));
    let bounds = [("a", Some("30")), ("b", Some("5"))];
    assert_eq!(forge.asked(before), pairs(&bounds));
    // A new record of one value, a new value, and a value that was in no run yet.
    forge.add("b", 5, 50);
    forge.add("c", 6, 1);
    let before = forge.requests();
    let each = config.for_each.as_mut().unwrap();
    each.values.insert(0, "c".into());
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.new_rows), (6, Some(2)));
    let mut asked = forge.asked(before);
    asked.sort();
    let bounds = [("a", Some("30")), ("b", Some("5")), ("c", None)];
    assert_eq!(asked, pairs(&bounds));
    assert_eq!(landed_numbers(&root).await, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_value_that_returns_to_the_list_continues_at_its_cursor() {
    let forge = Forge::start(&[("a", &[(1, 10)]), ("b", &[(2, 20)])]).await;
    let root = Store::memory();
    ingest_once(&root, &forge.config(&["a", "b"]))
        .await
        .unwrap();
    ingest_once(&root, &forge.config(&["a"])).await.unwrap();
    forge.add("b", 3, 25);
    let before = forge.requests();
    ingest_once(&root, &forge.config(&["a", "b"]))
        .await
        .unwrap();
    let bounds = [("a", Some("10")), ("b", Some("20"))];
    assert_eq!(forge.asked(before), pairs(&bounds));
    assert_eq!(landed_numbers(&root).await, [1, 2, 3]);
}

#[tokio::test]
async fn an_interrupted_pass_keeps_the_bounds_that_it_began_with() {
    let long: Vec<(i64, i64)> = (0..7).map(|number| (number, number * 10)).collect();
    let forge = Forge::start(&[("a", &long), ("b", &[(7, 5)])]).await;
    let mut config = forge.config(&["a", "b", "c"]);
    config.batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    // The third value fails: what the others have landed stays, with their cursors.
    ingest_once(&root, &config).await.unwrap_err();
    assert_eq!(landed_numbers(&root).await, [0, 1, 2, 3, 4, 5, 6, 7]);
    forge.put("c", vec![(8, 1)]);
    let before = forge.requests();
    ingest_once(&root, &config).await.unwrap();
    assert_eq!(forge.asked(before), pairs(&[("c", None)]));
    // The second value fails in a pass that reads all again.
    let of_b = forge.remove("b");
    forge.add("a", 9, 60);
    ingest_once(&root, &config).await.unwrap_err();
    forge.put("b", of_b);
    forge.add("b", 10, 6);
    let before = forge.requests();
    ingest_once(&root, &config).await.unwrap();
    let bounds = [("b", Some("5")), ("c", Some("1"))];
    assert_eq!(forge.asked(before), pairs(&bounds));
    assert_eq!(landed_numbers(&root).await, (0..11).collect::<Vec<i64>>());
}

#[tokio::test]
async fn an_issue_that_changes_while_the_pages_of_its_value_are_interrupted_lands_with_the_next_pass()
 {
    let long = [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)];
    let forge = Forge::start(&[("a", &long), ("b", &[(7, 5)])]).await;
    let mut config = forge.config(&["a", "b"]);
    config.batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    let dies = rule(Operation::Create, "log/", Effect::FailBefore, 2, 99);
    let dying = root.with_faults(Faults::new(vec![dies]));
    ingest_once(&dying, &config).await.unwrap_err();
    assert_eq!(landed_numbers(&root).await, [0, 1, 2, 3]);
    let mut of_a = forge.remove("a");
    of_a[0] = (0, 50);
    of_a.push((5, 60));
    forge.put("a", of_a);
    ingest_once(&root, &config).await.unwrap();
    assert_eq!(landed_numbers(&root).await, [0, 1, 2, 3, 4, 5, 7]);
    // The pages of the other value were not interrupted.
    for bound in ["30", "60"] {
        let before = forge.requests();
        ingest_once(&root, &config).await.unwrap();
        let bounds = [("a", Some(bound)), ("b", Some("5"))];
        assert_eq!(forge.asked(before), pairs(&bounds));
        assert_eq!(landed_numbers(&root).await, [0, 0, 1, 2, 3, 4, 5, 7]);
    }
}

#[tokio::test]
async fn a_value_that_fails_keeps_its_cursor_and_those_of_the_others_move() {
    let forge = Forge::start(&[("a", &[(1, 10)]), ("b", &[(2, 20)])]).await;
    *forge.refusal.lock().unwrap() = "500 Oh";
    let config = forge.config(&["a", "b"]);
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    let of_a = forge.remove("a");
    forge.add("b", 3, 25);
    let error = ingest_once(&root, &config).await.unwrap_err();
    assert!(matches!(error, Error::FailedValues { .. }), "{error}");
    assert_eq!(landed_numbers(&root).await, [1, 2, 3]);
    forge.put("a", of_a);
    forge.add("a", 4, 11);
    forge.add("b", 5, 26);
    let before = forge.requests();
    ingest_once(&root, &config).await.unwrap();
    let bounds = [("a", Some("10")), ("b", Some("25"))];
    assert_eq!(forge.asked(before), pairs(&bounds));
    assert_eq!(landed_numbers(&root).await, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn no_kill_loses_or_doubles_a_record_of_a_value() {
    let long: Vec<(i64, i64)> = (0..5).map(|number| (number, number)).collect();
    for (operation, effect) in [
        (Operation::Put, Effect::FailBefore),
        (Operation::Put, Effect::FailAfter),
        (Operation::Create, Effect::FailBefore),
    ] {
        for skip in 0..16 {
            let forge = Forge::start(&[("a", &long), ("b", &[(10, 1), (11, 2)])]).await;
            let mut config = forge.config(&["a", "b"]);
            config.batch.pages = Bounded::literal::<1>();
            let root = Store::memory();
            ingest_once(&root, &config).await.unwrap();
            for (number, time) in [(20, 4), (21, 5)] {
                forge.add("a", number, time);
                forge.add("b", number + 10, time);
                // The process dies at a call that writes, and all calls after it fail.
                let dies = rule(operation, "landing/", effect, skip, 99);
                let dying = root.with_faults(Faults::new(vec![dies]));
                let ended = ingest_once(&dying, &config).await;
                if ended.is_err() {
                    ingest_once(&root, &config).await.unwrap();
                }
            }
            let expected: Vec<i64> = (0..5).chain([10, 11, 20, 21, 30, 31]).collect();
            assert_eq!(
                landed_numbers(&root).await,
                expected,
                "{operation:?} {effect:?} {skip}"
            );
        }
    }
}

#[tokio::test]
async fn cursors_are_kept_after_a_pass_without_a_new_record() {
    let forge = Forge::start(&[("a", &[(1, 10), (2, 20)]), ("b", &[(3, 5)])]).await;
    let mut config = forge.config(&["a", "b"]);
    let root = Store::memory();
    // The values have landed before they had cursors.
    let incremental = config.incremental.take();
    ingest_once(&root, &config).await.unwrap();
    config.incremental = incremental;
    for bounds in [[None, None], [Some("20"), Some("5")]] {
        let before = forge.requests();
        let report = ingest_once(&root, &config).await.unwrap();
        let bounds = [("a", bounds[0]), ("b", bounds[1])];
        assert_eq!(forge.asked(before), pairs(&bounds));
        assert_eq!(report.rows, 3);
    }
    // Their file is written again where it is lost, and the log names it once.
    let files = root.list("landing/s/cursors").await.unwrap();
    root.delete(&files[0].path).await.unwrap();
    for bounds in [[None, None], [Some("20"), Some("5")]] {
        let before = forge.requests();
        ingest_once(&root, &config).await.unwrap();
        let bounds = [("a", bounds[0]), ("b", bounds[1])];
        assert_eq!(forge.asked(before), pairs(&bounds));
    }
    let count = entries(&root).await.len();
    ingest_once(&root, &config).await.unwrap();
    assert_eq!(entries(&root).await.len(), count);
    assert_eq!(landed_numbers(&root).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_value_without_any_cursor_lands() {
    let server = Scripted::answering(|_, head| match param(head, "repo").as_deref() {
        Some("draft") => ok(r#"{"items":[{"n":1,"t":null}]}"#),
        _ => ok(r#"{"items":[{"n":2,"t":5}]}"#),
    })
    .await;
    let forge = Forge::start(&[]).await;
    let mut config = forge.config(&["draft", "z"]);
    config.url = server.url.to_string();
    config.pagination = testing::config(server.url.as_str(), PaginationKind::None).pagination;
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(landed_numbers(&root).await, [1, 2]);
    let codes: Vec<&str> = report.warnings.iter().map(|w| w.code.as_str()).collect();
    assert!(codes.contains(&"records_without_cursor"), "{codes:?}");
}

#[tokio::test]
async fn without_the_file_of_cursors_all_is_read_again_and_nothing_lands_twice() {
    let forge = Forge::start(&[("a", &[(1, 10), (2, 20)]), ("b", &[(3, 5)])]).await;
    let config = forge.config(&["a", "b"]);
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    let files = root.list("landing/s/cursors").await.unwrap();
    assert_eq!(files.len(), 1);
    root.delete(&files[0].path).await.unwrap();
    forge.add("b", 4, 6);
    let before = forge.requests();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(forge.asked(before), pairs(&[("a", None), ("b", None)]));
    let codes: Vec<&str> = report.warnings.iter().map(|w| w.code.as_str()).collect();
    assert!(codes.contains(&"cursors_missing"), "{codes:?}");
    assert_eq!(landed_numbers(&root).await, [1, 2, 3, 4]);
    // It is there again.
    let before = forge.requests();
    let report = ingest_once(&root, &config).await.unwrap();
    let bounds = [("a", Some("20")), ("b", Some("6"))];
    assert_eq!(forge.asked(before), pairs(&bounds));
    let codes: Vec<&str> = report.warnings.iter().map(|w| w.code.as_str()).collect();
    assert!(!codes.contains(&"cursors_missing"), "{codes:?}");
    let hash = entries(&root).await.last().unwrap().state.position.clone();
    let hash = hash.ledger().unwrap().cursors.unwrap();
    let landing = landing(&root, &config.name);
    let cursors = ValueCursors::read(&landing, hash).await.unwrap().unwrap();
    assert_eq!(cursors.newest("a"), Some("20"));
}
