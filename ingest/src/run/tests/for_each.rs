//! A source that is requested for each value of a list.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use feedline_schemas::config::{Bounded, ForEachConfig, MissingValue, PaginationKind, load};

use super::{
    slices::{Api, check_kills, ingest_once, landed_numbers, param},
    *,
};
use crate::testing::{self, Scripted, answer, ok};

pub(super) fn each(param: &str, values: &[&str]) -> ForEachConfig {
    ForEachConfig {
        param: param.into(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        source: None,
        column: None,
        r#as: None,
        missing: MissingValue::Stop,
    }
}

/// Strings of a column of all landed rows, in order.
pub(super) async fn texts(root: &Store, name: &str, column: &str) -> Vec<String> {
    let name = Name::new(name).unwrap();
    let Some(landed) = landed(root, &name).await.unwrap() else {
        return Vec::new();
    };
    let landing = landing(root, &name);
    let mut all = Vec::new();
    for file in landed.entries.iter().flat_map(|entry| &entry.files) {
        for rows in crate::landed_file::read(&landing, file, &[column], None)
            .await
            .unwrap()
        {
            let column = rows.column(0);
            let text = arrow::util::display::array_value_to_string;
            all.extend((0..column.len()).map(|row| text(column, row).unwrap()));
        }
    }
    all
}

#[tokio::test]
async fn each_value_is_asked_for_once_and_stands_in_its_records() {
    let server = Scripted::answering(|_, head| {
        let of = param(head, "symbol").unwrap();
        let more = if of == "C" {
            r#", "symbol": "own""#
        } else {
            ""
        };
        ok(&format!(
            r#"{{"items": [{{"n": 1{more}}}, {{"n": 2{more}}}]}}"#
        ))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.for_each = Some(each("symbol", &["A", "B"]));
    let root = Store::memory();
    let first = ingest_once(&root, &config).await.unwrap();
    assert_eq!((first.rows, first.batches, first.requests), (4, 1, 2));
    assert_eq!(texts(&root, "s", "symbol").await, ["A", "A", "B", "B"]);
    // A list grows at its end; finished values are not read again.
    config.for_each = Some(each("symbol", &["A", "B", "C"]));
    let second = ingest_once(&root, &config).await.unwrap();
    assert_eq!((second.rows, second.requests), (6, 1));
    assert_eq!(texts(&root, "s", "symbol").await[4..], ["own", "own"]);
    let slices = second.slices.unwrap();
    assert_eq!((slices.values_done, slices.values_open), (3, 0));
    assert_eq!(ingest_once(&root, &config).await.unwrap().requests, 0);
    // Without the saved lists, no other change is possible.
    let landing = root.child("landing/s");
    for file in landing.list("values").await.unwrap() {
        landing.delete(&file.path).await.unwrap();
    }
    for values in [&["B", "A", "C"][..], &["A", "B"]] {
        config.for_each = Some(each("symbol", values));
        let error = ingest_once(&root, &config).await.unwrap_err().to_string();
        assert!(
            error.contains("`for_each.values`: does not begin with the 3")
                && error.contains("run `feedline ingest reset PIPELINE.toml s`"),
            "{error}"
        );
    }
    // The command that the error names makes the list usable again.
    let mut pipeline = load("p", "[pipeline]\nname = \"p\"\n", &[]).unwrap().config;
    pipeline.source = vec![config.clone()];
    crate::reset(&pipeline, &config.name, &context(&root), false)
        .await
        .unwrap();
    config.for_each = Some(each("symbol", &["D", "B"]));
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.requests), (4, 2));
    assert_eq!(texts(&root, "s", "symbol").await, ["D", "D", "B", "B"]);
}

/// The message of the report's warning with this code.
pub(super) fn warned<'a>(report: &'a SourceReport, code: &str) -> Option<&'a str> {
    let mut warnings = report.warnings.iter();
    let found = warnings.find(|warning| warning.code == code);
    found.map(|warning| warning.message.as_str())
}

/// Values that the server was asked for, from the request `first` on.
pub(super) fn asked(server: &Scripted, first: usize) -> Vec<String> {
    let heads = server.heads();
    heads[first..]
        .iter()
        .map(|head| param(head, "symbol").unwrap())
        .collect()
}

#[tokio::test]
async fn a_list_may_change_and_values_that_leave_it_are_named_once() {
    let server = Scripted::answering(|_, _| ok(r#"{"items": [{"n": 1}, {"n": 2}]}"#)).await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    let root = Store::memory();
    let mut run = async |values: &[&str]| {
        config.for_each = Some(each("symbol", values));
        let first = server.heads().len();
        let report = ingest_once(&root, &config).await.unwrap();
        (asked(&server, first), report)
    };
    assert_eq!(run(&["A", "B", "C"]).await.0, ["A", "B", "C"]);
    let (requests, report) = run(&["C", "B", "A"]).await;
    assert!(requests.is_empty() && warned(&report, "values_removed").is_none());
    let (requests, report) = run(&["D", "A", "C"]).await;
    assert_eq!(requests, ["D"]);
    let message = warned(&report, "values_removed").unwrap();
    assert!(
        message.starts_with("1 value is no longer in the list (`B`): "),
        "{message}"
    );
    assert_eq!(report.rows, 8);
    let (requests, report) = run(&["D", "A", "C"]).await;
    assert!(requests.is_empty() && warned(&report, "values_removed").is_none());
    // One that returns is read from its beginning. Its rows had landed.
    let (requests, report) = run(&["A", "B", "C", "D", "E"]).await;
    assert_eq!(requests, ["B", "E"]);
    assert_eq!((report.rows, report.duplicates), (10, 2));
    let (requests, report) = run(&["E"]).await;
    assert!(requests.is_empty());
    let message = warned(&report, "values_removed").unwrap();
    assert!(
        message.starts_with("4 values are no longer in the list (`A`, `C`, `D`, `B`): "),
        "{message}"
    );
    assert_eq!(run(&["E"]).await.0, Vec::<String>::new());
}

#[tokio::test]
async fn a_list_may_change_while_a_pass_is_interrupted() {
    let fails = AtomicBool::new(true);
    let server = Scripted::answering(move |_, head| {
        let is_b = param(head, "symbol").as_deref() == Some("B");
        match is_b && fails.swap(false, Ordering::Relaxed) {
            true => answer("403 No", ""),
            false => ok(r#"{"items": [{"n": 1}]}"#),
        }
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.retry.max_tries = Bounded::literal::<1>();
    config.limits.concurrency = Some(Bounded::literal::<1>());
    config.batch.pages = Bounded::literal::<1>();
    config.for_each = Some(each("symbol", &["A", "B", "C"]));
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    config.for_each = Some(each("symbol", &["D", "C", "A"]));
    let first = server.heads().len();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(asked(&server, first), ["C", "D"]);
    assert!(warned(&report, "values_removed").is_some());
    assert_eq!(texts(&root, "s", "symbol").await, ["A", "C", "D"]);
    // It had not been read before it left.
    config.for_each = Some(each("symbol", &["B", "A", "C", "D"]));
    ingest_once(&root, &config).await.unwrap();
    assert_eq!(texts(&root, "s", "symbol").await, ["A", "C", "D", "B"]);
}

#[tokio::test(start_paused = true)]
async fn slices_of_each_value_killed_at_any_batch_land_the_same_bytes() {
    let times = || (0..60).map(|i| i * 37 % 300);
    let api = Api::start(times(), 15, false).await;
    let mut config = api.config(0, 300);
    config.pagination.common.max_records = Some(Bounded::literal::<15>());
    config.for_each = Some(ForEachConfig {
        r#as: Some("of".into()),
        ..each("symbol", &["A", "B", "C"])
    });
    Box::pin(check_kills(&config)).await;
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    let thrice = (0..60).flat_map(|n| [n; 3]);
    assert_eq!(landed_numbers(&root).await, thrice.collect::<Vec<i64>>());
    let slices = report.slices.unwrap();
    assert_eq!((slices.done, slices.values_done), (9, 3));
    // A new value has all slices open, and with a wider range the others have the missing ones
    // open.
    let asked = api.server.heads().len();
    config.for_each.as_mut().unwrap().values.push("D".into());
    config.slices.as_mut().unwrap().end = Some("400".into());
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(report.rows, 240);
    let heads = api.server.heads();
    let new = heads[asked..]
        .iter()
        .filter(|head| param(head, "symbol").unwrap() != "D");
    let new: Vec<String> = new.map(|head| param(head, "from").unwrap()).collect();
    assert_eq!(new, ["300"; 3]);
}

/// A pipeline whose first source needs the ids of the second one, and a folder with these ids.
fn two(folder: &std::path::Path, url: &str, more: &str) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{url}items/{{id}}\"\n{more}\nfor_each = {{ param = \"id\", source = \"ids\", column = \"id\" }}\n[[source]]\nname = \"ids\"\ntype = \"files\"\nurl = \"{}/*.csv\"\n",
        folder.display()
    );
    load("p.toml", &text, &[]).unwrap().config
}

#[tokio::test]
async fn one_source_feeds_ids_to_another() {
    let server = Scripted::answering(|_, head| {
        let id = head.split([' ', '/']).nth(3).unwrap().to_owned();
        ok(&format!(r#"[{{"item": "{id}"}}]"#))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("1.csv", "id,x\n7,1\n3,1\n7,2\n,3\n");
    let config = two(folder.path(), server.url.as_str(), "");
    let root = Store::memory();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(server.targets(), ["/items/7", "/items/3"]);
    assert_eq!(texts(&root, "s", "id").await, ["7", "3"]);
    assert_eq!(report.sources[0].name, "s");
    write("2.csv", "id,x\n3,9\n11,1\n");
    ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(server.targets()[2..], ["/items/11"]);
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.rows, report.requests), (9, 0));
    // Another column is refused. A source with other landed values is another list.
    let mut other = config.clone();
    other.source[0].for_each.as_mut().unwrap().column = Some("y".into());
    let error = ingest(&other, None, &context(&Store::memory()))
        .await
        .unwrap_err();
    let part = "`source.0.for_each.column`: `ids` has no column `y`; it has: `id`, `x`";
    assert!(error.to_string().contains(part), "{error}");
    let landing = root.child("landing/ids");
    for folder in ["log", "data"] {
        for file in landing.list(folder).await.unwrap() {
            landing.delete(&file.path).await.unwrap();
        }
    }
    write("1.csv", "id,x\n5,1\n");
    let first = server.targets().len();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(server.targets()[first..], ["/items/5"]);
    let message = warned(&report.sources[0], "values_removed").unwrap();
    assert!(
        message.starts_with("1 value is no longer in the list (`7`): "),
        "{message}"
    );
    let name = Name::new("s").unwrap();
    crate::reset(&config, &name, &context(&root), false)
        .await
        .unwrap();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(report.sources[0].status, "complete");
}

#[tokio::test]
async fn no_value_leaves_a_list_whose_source_is_not_read_to_its_end() {
    let server = Scripted::answering(|_, head| {
        let id = head.split([' ', '/']).nth(3).unwrap().to_owned();
        ok(&format!(r#"[{{"item": "{id}"}}]"#))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.csv"), "id\n7\n3\n").unwrap();
    let mut config = two(folder.path(), server.url.as_str(), "");
    config.source[0].batch.dedup_window = Some(0);
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    let ids = Name::new("ids").unwrap();
    crate::reset(&config, &ids, &context(&root), false)
        .await
        .unwrap();
    // As in `serve`, where the source of the list has not run yet.
    let alone = Name::new("s").unwrap();
    let report = ingest(&config, Some(&alone), &context(&root))
        .await
        .unwrap();
    let message = warned(&report.sources[0], "list_incomplete").unwrap();
    assert!(
        message.contains("2 values") && message.contains("`ids`"),
        "{message}"
    );
    assert!(warned(&report.sources[0], "values_removed").is_none());
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(texts(&root, "s", "id").await, ["7", "3"]);
    for code in ["list_incomplete", "values_returned"] {
        assert!(warned(&report.sources[0], code).is_none());
    }
    // Once it is complete, values leave.
    fs::write(folder.path().join("1.csv"), "id\n7\n").unwrap();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert!(warned(&report.sources[0], "values_removed").is_some());
}

#[tokio::test]
async fn values_keep_their_slashes_where_the_url_asks_for_it_and_none_changes_the_path() {
    let server = Scripted::answering(|_, head| {
        let target = head.split(' ').nth(1).unwrap().to_owned();
        ok(&format!(r#"[{{"item": "{target}"}}]"#))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let ids = "id\nacme/shop\n../acme\nacme//shop\nacme/a b\n";
    fs::write(folder.path().join("1.csv"), ids).unwrap();
    for (place, targets, unusable) in [
        ("{+id}", ["/items/acme/shop", "/items/acme/a%20b"], 2),
        ("{id}", ["/items/acme%2Fshop", "/items/..%2Facme"], 0),
    ] {
        let mut config = two(folder.path(), server.url.as_str(), "");
        let source = &mut config.source[0];
        source.url = source.url.replace("{id}", place);
        let first = server.targets().len();
        let root = Store::memory();
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        assert_eq!(server.targets()[first..first + 2], targets);
        let warning = warned(&report.sources[0], "values_unusable");
        assert_eq!(warning.is_some(), unusable > 0);
        if let Some(message) = warning {
            assert!(message.starts_with("2 landed values"), "{message}");
            assert!(message.ends_with("`../acme`, `acme//shop`"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_value_that_the_api_does_not_know_ends_the_run_or_is_left_out() {
    let server = Scripted::answering(|_, head| match param(head, "id").as_deref() {
        Some("2") => answer("404 Not Found", "no such id"),
        _ => ok(r#"{"items": [{"n": 1}]}"#),
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.for_each = Some(each("id", &["1", "2", "3"]));
    let error = ingest_once(&Store::memory(), &config).await.unwrap_err();
    assert!(error.to_string().contains("404 Not Found"), "{error}");
    config.for_each.as_mut().unwrap().missing = MissingValue::Skip;
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.pages), (2, 3));
    assert_eq!(report.skipped, BTreeMap::from([("not_found".into(), 1)]));
    assert_eq!(texts(&root, "s", "id").await, ["1", "3"]);
}

#[tokio::test]
async fn a_value_without_success_is_left_out_and_a_word_that_repeats_a_parameter_is_no_failure() {
    let server = Scripted::answering(|_, head| match param(head, "id").as_deref() {
        Some("2") => ok(r#"{"success": false, "items": []}"#),
        _ => ok(r#"{"items": [{"n": 1}]}"#),
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.retry.max_tries = Bounded::literal::<1>();
    config.for_each = Some(each("id", &["1", "2", "3"]));
    let error = ingest_once(&Store::memory(), &config).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`for_each.missing = \"skip\"`"), "{error}");
    config.for_each.as_mut().unwrap().missing = MissingValue::Skip;
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    assert_eq!((report.rows, report.requests), (2, 3));
    assert_eq!(report.skipped, BTreeMap::from([("not_found".into(), 1)]));
    let mut warnings = report.warnings.iter();
    let absent = warnings.find(|warning| warning.code == "values_absent");
    let message = absent.map_or("", |warning| warning.message.as_str());
    let part = "of 1 value (status 404, or a failure beside an empty list) at the last request";
    assert!(message.contains(part), "{message}");
    // An empty list of the orders that have failed.
    let server = Scripted::answering(|_, head| {
        let status = param(head, "status").unwrap();
        ok(&format!(r#"{{"status": "{status}", "items": []}}"#))
    })
    .await;
    config.url = server.url.to_string();
    config.for_each = Some(each("status", &["open", "failed"]));
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    assert_eq!((report.rows, report.requests), (0, 2));
    assert_eq!(report.skipped, BTreeMap::new());
}

#[tokio::test]
async fn a_value_that_is_absent_once_is_asked_again_by_a_later_run() {
    let knows = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&knows);
    let server = Scripted::answering(move |_, head| match param(head, "id").as_deref() {
        Some("2") if !known.load(Ordering::Relaxed) => answer("404 Not Found", "no such id"),
        _ => ok(r#"{"items": [{"n": 1}]}"#),
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.for_each = Some(ForEachConfig {
        missing: MissingValue::Skip,
        ..each("id", &["1", "2", "3"])
    });
    let root = Store::memory();
    for requests in [3, 1] {
        let report = ingest_once(&root, &config).await.unwrap();
        let codes: Vec<&str> = report.warnings.iter().map(|w| w.code.as_str()).collect();
        assert_eq!((report.rows, report.requests), (2, requests));
        assert_eq!(codes, ["values_absent"]);
    }
    knows.store(true, Ordering::Relaxed);
    for requests in [1, 0] {
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.requests), (3, requests));
        assert_eq!(report.warnings, []);
    }
    assert_eq!(texts(&root, "s", "id").await, ["1", "3", "2"]);
}

#[tokio::test]
async fn without_values_there_is_nothing_to_ask_for() {
    let server = Scripted::start([ok("[]")]).await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("1.csv"), "id\n").unwrap();
    let config = two(folder.path(), server.url.as_str(), "");
    let root = Store::memory();
    let report = ingest(&config, Some(&Name::new("s").unwrap()), &context(&root))
        .await
        .unwrap();
    assert_eq!(
        (report.requests, report.sources[0].status.as_str()),
        (0, "empty")
    );
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(report.requests, 0);
}

#[test]
fn settings_that_cannot_work_name_their_key() {
    let folder = std::path::Path::new("x");
    let check = |change: &dyn Fn(&mut PipelineConfig), key: &str, part: &str| {
        let mut config = two(folder, "http://h/", "");
        change(&mut config);
        let error = choose(&config, None).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`source.{key}`: ")) && error.contains(part),
            "{error}"
        );
    };
    let name = |name: &str| Some(Name::new(name).unwrap());
    let from = |source: Option<Name>| ForEachConfig {
        source,
        column: Some("id".into()),
        ..each("id", &[])
    };
    assert!(choose(&two(folder, "http://h/", ""), None).is_ok());
    check(
        &|c| c.source[0].r#type = SourceKind::Files,
        "0.for_each",
        "type `rest`",
    );
    check(
        &|c| c.source[0].for_each = Some(from(name("s"))),
        "0.for_each.source",
        "itself",
    );
    check(
        &|c| c.source[0].for_each = Some(from(name("t"))),
        "0.for_each.source",
        "the pipeline has: s, ids",
    );
    let circle = |c: &mut PipelineConfig| {
        c.source[1].r#type = SourceKind::Rest;
        c.source[1].for_each = Some(from(name("s")));
    };
    check(&circle, "0.for_each.source", "gets its values");
    let incremental = |c: &mut PipelineConfig| {
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\nincremental = { cursor = \"t\", param = \"since\" }\n";
        let other = load("p", text, &[]).unwrap().config.source.remove(0);
        c.source[0].incremental = other.incremental;
    };
    let mut with_cursors = two(folder, "http://h/", "");
    incremental(&mut with_cursors);
    assert!(choose(&with_cursors, None).is_ok());
    let sliced = |c: &mut PipelineConfig| {
        incremental(c);
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\nslices = { from_param = \"from\", start = \"2026-01-01\", step = \"1d\" }\n";
        let other = load("p", text, &[]).unwrap().config.source.remove(0);
        c.source[0].slices = other.slices;
    };
    check(&sliced, "0.slices", "cannot be combined with `incremental`");
}

#[tokio::test]
async fn settings_that_cannot_work_are_told_before_any_request() {
    let server = Scripted::start([ok("[]")]).await;
    let api = Api::start([], 1, false).await;
    let check = async |change: &dyn Fn(&mut SourceConfig), key: &str| {
        let mut config = api.config(0, 10);
        config.url = server.url.to_string();
        config.for_each = Some(each("symbol", &["A"]));
        change(&mut config);
        match Box::pin(ingest_once(&Store::memory(), &config)).await {
            Err(Error::Config { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{key}: {other:?}"),
        }
    };
    check(&|c| c.for_each = Some(each("", &["A"])), "for_each.param").await;
    check(
        &|c| c.for_each = Some(each("from", &["A"])),
        "for_each.param",
    )
    .await;
    check(
        &|c| c.for_each = Some(each("symbol", &[])),
        "for_each.values",
    )
    .await;
    check(
        &|c| c.for_each = Some(each("symbol", &["A", "A"])),
        "for_each.values",
    )
    .await;
    check(
        &|c| c.for_each = Some(each("symbol", &[""])),
        "for_each.values",
    )
    .await;
    let in_url = |c: &mut SourceConfig| {
        c.url += "{symbol}";
        c.for_each = Some(each("symbol", &["A", ".."]));
    };
    check(&in_url, "for_each.values").await;
    for value in ["a/../b", "/a", "a/"] {
        let in_path = |c: &mut SourceConfig| {
            c.url += "{+symbol}";
            c.for_each = Some(each("symbol", &["A", value]));
        };
        check(&in_path, "for_each.values").await;
    }
    let both = |c: &mut SourceConfig| {
        c.for_each.as_mut().unwrap().column = Some("id".into());
    };
    check(&both, "for_each.values").await;
    let no_column = |c: &mut SourceConfig| {
        c.for_each = Some(each("symbol", &[]));
        c.for_each.as_mut().unwrap().source = Some(Name::new("t").unwrap());
    };
    check(&no_column, "for_each.column").await;
    let bound = |c: &mut SourceConfig| {
        c.slices = None;
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\nincremental = { cursor = \"t\", param = \"symbol\" }\n";
        let other = load("p", text, &[]).unwrap().config.source.remove(0);
        c.incremental = other.incremental;
    };
    check(&bound, "for_each.param").await;
    check(&|c| c.url += "{+symbols}", "url").await;
    let twice = |c: &mut SourceConfig| {
        c.params.insert("to".into(), "1".into());
    };
    check(&twice, "params").await;
    check(&|c| c.url = "http://{symbol}.h/".into(), "url").await;
    let keeps = |c: &mut SourceConfig| {
        c.batch.dedup_window = Some(0);
        c.pagination.common.max_records = Some(Bounded::literal::<5>());
    };
    check(&keeps, "batch.dedup_window").await;
    assert_eq!(server.heads().len(), 0);
}
