//! Pages of XML, CSV and NDJSON.

use feedline_readers::value::Value;
use feedline_schemas::{
    config::{PaginationKind, PipelineConfig, load},
    report::IngestReport,
};
use feedline_storage::Store;

use super::{tests::read, *};
use crate::{
    run::{ingest, replay::replay},
    testing::{Scripted, Step, answer, config, context, ok, raw, read_all},
};

fn pipeline(server: &Scripted, lines: &str) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = '{}items'\nretry = {{ base_ms = 1, cap_ms = 2, max_tries = 3 }}\nlimits = {{ concurrency = 1 }}\n{lines}",
        server.url
    );
    load("p.toml", &text, &[]).unwrap().config
}

fn source(server: &Scripted, lines: &str) -> SourceConfig {
    pipeline(server, lines).source.remove(0)
}

fn typed(content_type: &str, body: &str) -> Step {
    answer(&format!("200 OK\r\nContent-Type: {content_type}"), body)
}

fn xml(body: &str) -> Step {
    typed("application/xml", body)
}

fn csv(body: &str) -> Step {
    typed("text/csv; charset=utf-8", body)
}

async fn bring(server: &Scripted, lines: &str, root: &Store) -> Result<IngestReport, Error> {
    let context = Context {
        root: root.clone(),
        ..context()
    };
    ingest(&pipeline(server, lines), None, &context).await
}

fn codes(report: &IngestReport) -> Vec<&str> {
    let warnings = report.sources[0].warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

/// Messages of the warnings with this code that reading raises.
async fn raised(config: &SourceConfig, code: &str) -> Vec<String> {
    let mut source = open(config, &context()).await.unwrap();
    let mut at = Position::Start;
    while !matches!(at, Position::Done { .. }) {
        at = source.next_page(&at).await.unwrap().next;
    }
    let changes = source.take_warnings().into_iter();
    let message = |change: WarningChange| match change {
        WarningChange::Raise(warning) if warning.code == code => Some(warning.message),
        _ => None,
    };
    changes.filter_map(message).collect()
}

const FEED: &str = "records = 'feed.entry'\nresponse.format = 'xml'\n";

#[tokio::test]
async fn an_atom_feed_is_read_along_its_next_links() {
    let page = |id: u64, next: &str| {
        xml(&format!(
            "<?xml version='1.0'?><feed xmlns='http://www.w3.org/2005/Atom'><link rel='self' href='/a'/>{next}<entry><id>{id}</id><link href='/{id}'/></entry></feed>"
        ))
    };
    for reopen_every in [1, usize::MAX] {
        let server = Scripted::start([
            page(1, "<link rel='next' href='/items?after=1'/>"),
            page(2, "<link rel='next' href='/items?after=2'/>"),
            page(3, ""),
        ])
        .await;
        let lines = format!("{FEED}pagination = {{ type = 'next_url', next_path = 'feed.link' }}");
        let (records, _) = read_all(&source(&server, &lines), reopen_every)
            .await
            .unwrap();
        let record = |id: u64| format!("{{\"id\":\"{id}\",\"link\":{{\"@href\":\"/{id}\"}}}}");
        assert_eq!(records, [record(1), record(2), record(3)]);
        assert_eq!(
            server.targets(),
            ["/items", "/items?after=1", "/items?after=2"]
        );
        let accept = "accept: application/xml, text/xml;q=0.9, */*;q=0.1\r\n";
        assert!(server.heads()[0].contains(accept), "{:?}", server.heads());
    }
}

#[tokio::test]
async fn tokens_totals_and_flags_are_elements_and_attributes() {
    let page = |id: u64, token: &str| {
        xml(&format!(
            "<r total='2'><item><id>{id}</id></item><token size='2'>{token}</token><more>{}</more></r>",
            !token.is_empty()
        ))
    };
    let server = Scripted::start([page(1, "a b"), page(2, "")]).await;
    let lines = "records = 'r.item'\nresponse.format = 'xml'\n[source.pagination]\ntype = 'cursor'\ncursor_path = 'r.token'\nhas_more_path = 'r.more'\ntotal_path = 'r.@total'\nstrict_total = true\n";
    let (records, _) = read(&source(&server, lines)).await.unwrap();
    assert_eq!(records, [r#"{"id":"1"}"#, r#"{"id":"2"}"#]);
    assert_eq!(server.targets(), ["/items", "/items?cursor=a+b"]);
}

#[tokio::test]
async fn one_element_is_a_list_and_none_is_the_end_of_numbered_pages() {
    let server = Scripted::start([
        xml("<feed><entry><id>1</id></entry><entry><id>2</id></entry></feed>"),
        xml("<feed><entry><id>3</id></entry></feed>"),
        xml("<feed><errors count='0'/></feed>"),
    ])
    .await;
    let lines = format!("{FEED}pagination = {{ type = 'page', page_size = 2 }}");
    let (records, _) = read(&source(&server, &lines)).await.unwrap();
    assert_eq!(records, [r#"{"id":"1"}"#, r#"{"id":"2"}"#, r#"{"id":"3"}"#]);
}

#[tokio::test]
async fn a_next_page_in_an_attribute_is_warned_of_until_its_path_names_the_attribute() {
    let check = async |path: &str, requests: usize, is_warned: bool| {
        let server = Scripted::start([
            xml("<feed><next href='/items?page=2'/><entry><id>1</id></entry></feed>"),
            xml("<feed><entry><id>2</id></entry></feed>"),
        ])
        .await;
        let lines = format!("{FEED}pagination = {{ type = 'next_url', next_path = '{path}' }}");
        let report = bring(&server, &lines, &Store::memory()).await.unwrap();
        assert_eq!(server.heads().len(), requests, "{path}");
        assert_eq!(codes(&report).contains(&"no_next_url"), is_warned, "{path}");
    };
    check("feed.next", 1, true).await;
    check("feed.next.@href", 2, false).await;
}

#[tokio::test]
async fn a_page_with_other_elements_in_the_place_of_records_is_no_silent_end() {
    let check = async |last: &str, is_warned: bool| {
        let server = Scripted::start([
            xml("<feed><title>t</title><entry><id>1</id></entry></feed>"),
            xml(last),
        ])
        .await;
        let lines = format!("{FEED}pagination = {{ type = 'page', page_size = 1 }}");
        let messages = raised(&source(&server, &lines), "xml_end").await;
        let is_named = |message: &String| message.contains("has `message` in their place");
        assert_eq!(messages.iter().any(is_named), is_warned, "{messages:?}");
        assert_eq!(messages.is_empty(), !is_warned, "{messages:?}");
    };
    check("<feed><message>Throttled</message></feed>", true).await;
    check("<feed><title>t</title></feed>", false).await;
    check("<feed/>", false).await;
}

#[tokio::test]
async fn a_page_of_xml_from_an_api_of_json_is_tried_again() {
    let message = "<response><message>busy</message></response>";
    let good = r#"{"response": {"items": [{"a": 1}]}}"#;
    let of_items = "records = 'response.items'";
    let server = Scripted::start([xml(message), ok(good)]).await;
    let (records, requests) = read(&source(&server, of_items)).await.unwrap();
    assert_eq!((records.len(), requests.retries), (1, 1));
    let server = Scripted::start([xml(message)]).await;
    let error = read(&source(&server, of_items)).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("without an element at `records` = `response.items`"),
        "{error}"
    );
    let slow = xml("<Error><Code>SlowDown</Code></Error>");
    let server = Scripted::start([slow, ok("[{\"a\": 1}]")]).await;
    let (records, requests) = read(&source(&server, "")).await.unwrap();
    assert_eq!((records.len(), requests.retries), (1, 1));
}

#[tokio::test]
async fn broken_pages_of_xml_are_tried_again_and_nothing_is_lost() {
    let good = "<feed><entry><id>1</id></entry></feed>";
    let faults = [
        xml("<feed><entry><id>1</id></entry>"),
        xml("<feed><entry><id>1</i"),
        xml(""),
        xml("<html><body>Bad gateway</body></html>"),
        xml("<!DOCTYPE html><html></html>"),
        xml("<Error><Code>SlowDown</Code></Error>"),
        xml("<feed><error>quota</error></feed>"),
        ok(r#"{"error": "quota"}"#),
        raw("200 OK\r\nContent-Length: 99", good.as_bytes()),
    ];
    for fault in faults {
        let server = Scripted::start([fault.clone(), xml(good)]).await;
        let (records, requests) = read(&source(&server, FEED)).await.unwrap();
        assert_eq!(records, [r#"{"id":"1"}"#], "{fault:?}");
        assert_eq!(requests.retries, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_fault_of_xml_that_stays_names_its_reason() {
    let check = async |body: &str, lines: &str, part: &str, requests: usize| {
        let server = Scripted::start([xml(body)]).await;
        let error = read(&source(&server, lines)).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(server.heads().len(), requests, "{error}");
    };
    check(
        "<feed><entry>",
        FEED,
        "the element `entry` at byte 6 is not closed",
        3,
    )
    .await;
    check("<html/>", FEED, "it is an HTML page", 3).await;
    let dtd = "<!DOCTYPE feed [<!ENTITY a 'b'>]><feed/>";
    check(dtd, FEED, "it has a DTD of its own", 3).await;
    let error = "<r><fault><text>no rights</text></fault></r>";
    check(error, FEED, "no record and `r.fault`", 3).await;
    let own = format!("{FEED}error_path = 'feed.status.code'\n");
    let body = "<feed><status><code>17</code></status></feed>";
    check(body, &own, "an error at `error_path`: `17`", 3).await;
    let own = format!("{FEED}error_path = 'feed.error'\n");
    let body = "<feed><error code='17' message='quota'/></feed>";
    check(body, &own, "quota", 3).await;
    let other = "<rss><channel><item/><item/></channel></rss>";
    check(other, FEED, "it has lists at `rss.channel.item`", 3).await;
    // The response of a retry would be the same.
    check(other, "", "elements are repeated at `rss.channel.item`", 1).await;
}

/// Six entries; the last one has an element twice.
fn entries() -> String {
    let entry = |i: u64| {
        let tags = if i == 6 {
            "<tag>a</tag><tag>b</tag>"
        } else {
            "<tag>a</tag>"
        };
        format!(
            "<entry n='{i}'><price>{i}.5</price><code>0{i}</code>{tags}<at><x>{i}</x></at></entry>"
        )
    };
    let entries: String = (1..=6).map(entry).collect();
    format!("<feed>{entries}</feed>")
}

#[tokio::test]
async fn texts_of_xml_get_the_types_of_their_columns_and_decisions_are_reported() {
    let server = Scripted::start([xml(&entries())]).await;
    let root = Store::memory();
    let report = bring(&server, "records = 'feed.entry'", &root)
        .await
        .unwrap();
    assert_eq!((report.rows, report.rejected), (5, 1));
    let found = codes(&report);
    assert!(found.contains(&"response_is_xml"), "{found:?}");
    assert!(found.contains(&"xml_lists"), "{found:?}");
    let columns = columns(&root).await;
    for expected in ["@n Int64", "price Float64", "code Utf8", "at.x Int64"] {
        assert!(
            columns.iter().any(|column| column == expected),
            "{columns:?}"
        );
    }
    let lists = "records = 'feed.entry'\nresponse = { format = 'xml', lists = ['tag'] }";
    let report = bring(&server, lists, &Store::memory()).await.unwrap();
    assert_eq!((report.rows, report.rejected), (6, 0));
    let found = codes(&report);
    let own = ["response_is_xml", "xml_lists"];
    assert!(found.iter().all(|code| !own.contains(code)), "{found:?}");
}

#[tokio::test]
async fn elements_with_two_forms_are_named_over_all_pages() {
    let check = async |pages: &[&str], code: &str, names: &str| {
        let pages = pages.iter().enumerate().map(|(number, entries)| {
            let next = format!("<link rel='next' href='/items?after={number}'/>");
            xml(&format!("<feed>{next}{entries}</feed>"))
        });
        let last = xml("<feed><entry><id>9</id></entry></feed>");
        let pages: Vec<Step> = pages.chain([last]).collect();
        let server = Scripted::start(pages).await;
        let lines = format!("{FEED}pagination = {{ type = 'next_url', next_path = 'feed.link' }}");
        let messages = raised(&source(&server, &lines), code).await;
        let message = messages.last().unwrap();
        assert!(message.starts_with(names), "{message}");
    };
    let (plain, priced) = (
        "<entry><price>9.5</price></entry>",
        "<entry><price currency='EUR'>9.5</price></entry>",
    );
    let both = format!("{plain}{priced}");
    check(&[both.as_str()], "xml_texts", "`price` is text in some").await;
    check(&[priced, plain], "xml_texts", "`price` is text in some").await;
    let (a, b) = (
        "<entry><a>1</a></entry><entry><a>1</a><a>2</a></entry>",
        "<entry><b>1</b></entry><entry><b>1</b><b>2</b></entry>",
    );
    check(&[a, b], "xml_lists", "`a`, `b` is a list in some").await;
}

#[test]
fn a_warning_of_lists_ends_when_the_configuration_names_them() {
    let record = |tag: Value| Value::Object(vec![("tag".to_owned(), tag)]);
    let (one, many) = (record(Value::Null), record(Value::List(Vec::new())));
    let check = |lists: &[&str], records: &[Value], holds: bool| {
        let mut config = config("http://h/", PaginationKind::None);
        config.response.lists = lists.iter().map(|path| (*path).to_owned()).collect();
        let response = Response::new(&config, &Notices::default()).unwrap();
        let mut warnings = WarningChanges::default();
        warnings.restore(&[Warning::new("xml_lists", "")]);
        let page = NotedPage {
            records: records.len(),
            is_auto: false,
        };
        let form = response.xml_form(records, Vec::new());
        let noted = Forms::default().note(form, page, "f.e", &mut warnings);
        assert_eq!(noted, Ok(()));
        assert_eq!(warnings.has("xml_lists"), holds, "{lists:?}");
    };
    check(&[], std::slice::from_ref(&many), true);
    check(&["tag"], std::slice::from_ref(&many), false);
    check(&["other"], &[one, many], true);
}

#[tokio::test]
async fn null_values_are_those_of_records_and_not_of_cursors() {
    let page = |value: &str, token: &str| {
        xml(&format!(
            "<r><item><v>{value}</v></item><token>{token}</token></r>"
        ))
    };
    let server = Scripted::start([page("NA", "NA"), page("1", "")]).await;
    let lines = "records = 'r.item'\nresponse.format = 'xml'\ncsv.null_values = ['NA']\npagination = { type = 'cursor', cursor_path = 'r.token' }";
    let (records, _) = read(&source(&server, lines)).await.unwrap();
    assert_eq!(records, [r#"{"v":null}"#, r#"{"v":"1"}"#]);
    assert_eq!(server.targets(), ["/items", "/items?cursor=NA"]);
}

/// Names and types of the landed columns.
async fn columns(root: &Store) -> Vec<String> {
    let name = feedline_schemas::ids::Name::new("s").unwrap();
    let landed = crate::landed(root, &name).await.unwrap().unwrap();
    let columns = landed.schema.columns.iter();
    columns
        .map(|column| format!("{} {:?}", column.name, column.r#type))
        .collect()
}

#[tokio::test]
async fn a_path_without_an_element_is_warned_of_until_a_record_comes() {
    let server = Scripted::start([xml("<feed><title>t</title></feed>")]).await;
    let report = bring(&server, FEED, &Store::memory()).await.unwrap();
    let warnings = &report.sources[0].warnings;
    let warning = warnings.iter().find(|w| w.code == "no_xml_records");
    let message = &warning.unwrap().message;
    assert!(
        message.contains("`feed.entry`") && message.contains("`title`"),
        "{message}"
    );
    assert_eq!(report.rows, 0);
}

#[tokio::test]
async fn cursors_of_xml_ask_for_newer_records() {
    let entry = |id: u64, at: &str| format!("<entry><id>{id}</id><updated>{at}</updated></entry>");
    let server = Scripted::answering(move |_, head| {
        let is_later = head.starts_with("GET /items?since=1994-11-03");
        let entries = match is_later {
            true => entry(3, "1994-11-04T00:00:00Z"),
            false => entry(1, "1994-11-02T00:00:00Z") + &entry(2, "1994-11-03T00:00:00Z"),
        };
        xml(&format!("<feed>{entries}</feed>"))
    })
    .await;
    let lines = format!("{FEED}incremental = {{ cursor = 'updated', param = 'since' }}");
    let root = Store::memory();
    for rows in [2, 3] {
        let report = bring(&server, &lines, &root).await.unwrap();
        assert_eq!(report.rows, rows, "{report:?}");
    }
}

#[tokio::test]
async fn tables_are_read_by_page_with_a_header_on_each_and_a_total_in_a_header() {
    let head = "200 OK\r\nContent-Type: text/csv\r\nX-Total-Count: 3";
    let server = Scripted::start([
        answer(head, "id;price\n1;1,5\n2;2,5\n"),
        answer(head, "id;price\n3;\n"),
    ])
    .await;
    let lines = "response.format = 'csv'\ncsv = { delimiter = ';', decimal_separator = ',' }\n[source.pagination]\ntype = 'offset'\npage_size = 2\nsize_param = 'limit'\ntotal_header = 'x-total-count'\nstrict_total = true\n";
    let root = Store::memory();
    let report = bring(&server, lines, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (3, 0));
    let targets = server.targets();
    assert_eq!(targets.len(), 2, "{targets:?}");
    assert!(targets[1].contains("offset=2"), "{targets:?}");
    assert!(server.heads()[0].contains("accept: text/csv, */*;q=0.1\r\n"));
    assert_eq!(columns(&root).await, ["id Int64", "price Float64"]);
}

#[tokio::test]
async fn tables_end_with_an_empty_page_or_a_repeated_one_or_their_links() {
    let check = async |pages: &[&str], pagination: &str, requests: usize| {
        let pages = pages.iter().map(|page| csv(page)).collect::<Vec<_>>();
        let server = Scripted::start(pages).await;
        let lines = format!("response.format = 'csv'\npagination = {{ {pagination} }}");
        let (records, _) = read(&source(&server, &lines)).await.unwrap();
        assert_eq!(records, [r#"{"a":"1"}"#, r#"{"a":"2"}"#, r#"{"a":"3"}"#]);
        assert_eq!(server.heads().len(), requests);
    };
    let by_page = "type = 'page', page_size = 2";
    check(&["a\n1\n2\n", "a\n3\n", "a\n"], by_page, 3).await;
    check(&["a\n1\n2\n", "a\n3", ""], by_page, 3).await;
    check(&["a\n1\n2\n", "a\n3\n", "a\n3\n"], by_page, 3).await;

    let link = "200 OK\r\nContent-Type: text/csv\r\nLink: </items?p=2>; rel=\"next\"";
    let server = Scripted::start([answer(link, "a\n1\n"), csv("a\n2\n")]).await;
    let (records, _) = read(&source(&server, "pagination.type = 'link'"))
        .await
        .unwrap();
    assert_eq!(records, [r#"{"a":"1"}"#, r#"{"a":"2"}"#]);
}

#[tokio::test]
async fn what_is_no_table_is_tried_again_and_named() {
    let check = async |body: &str, part: &str| {
        let server = Scripted::start([csv(body), csv("a,b\n1,2\n")]).await;
        let config = source(&server, "response.format = 'csv'");
        let (records, requests) = read(&config).await.unwrap();
        assert_eq!((records.len(), requests.retries), (1, 1), "{body}");
        let server = Scripted::start([csv(body)]).await;
        let config = source(&server, "response.format = 'csv'");
        let error = read(&config).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    check(
        "<!doctype html>\n<p>Bad gateway",
        "it is HTML, where CSV should be (`Content-Type: text/csv; charset=utf-8`): `<!doctype html> <p>Bad gateway`",
    )
    .await;
    check(
        "<?xml version='1.0'?><e/>",
        "it is XML, where CSV should be",
    )
    .await;
    for body in ["{\"error\": \"quota\"}", "[{\"error\": 1}]", "[ ]"] {
        check(body, "it is JSON, where CSV should be").await;
    }
    check("a,b\n1,2\n3", "it ends in the middle of a record: line 3").await;
    check("a,b\n1,\"2\n", "a quote is not closed").await;
    check("a,a\n1,2\n", "has `a` twice").await;
}

#[tokio::test]
async fn a_message_in_the_place_of_a_table_is_no_end() {
    let pages = [csv("a\n1\n2\n"), csv("Error: too many requests\n")];
    let server = Scripted::start(pages).await;
    let lines = "response.format = 'csv'\npagination = { type = 'page', page_size = 2 }";
    let error = read(&source(&server, lines)).await.unwrap_err().to_string();
    assert!(
        error.contains("its header has no column of this table"),
        "{error}"
    );
    let server = Scripted::start([csv("rate limit exceeded\n")]).await;
    let error = read(&source(&server, lines)).await.unwrap_err().to_string();
    assert!(error.contains("`rate limit exceeded`"), "{error}");
    let server = Scripted::start([csv("<error>busy</error>\n<hint>later</hint>\n")]).await;
    let error = read(&source(&server, lines)).await.unwrap_err().to_string();
    assert!(error.contains("`<error>busy</error>`"), "{error}");
    let server = Scripted::start([csv("1,2\n3,4\n"), csv("busy\n")]).await;
    let lines = format!("csv.header = false\n{lines}");
    let error = read(&source(&server, &lines)).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("it has 1 field a row, and the pages before have 2"),
        "{error}"
    );
}

#[tokio::test]
async fn names_in_brackets_are_a_header() {
    for (header, expected) in [
        ("<TICKER>,<PER>", r#"{"<PER>":"2","<TICKER>":"1"}"#),
        ("[Date],[Value]", r#"{"[Date]":"1","[Value]":"2"}"#),
    ] {
        let server = Scripted::start([csv(&format!("{header}\n1,2\n"))]).await;
        let config = source(&server, "response.format = 'csv'");
        assert_eq!(read(&config).await.unwrap().0, [expected]);
    }
}

#[tokio::test]
async fn pages_of_bad_rows_alone_are_different_pages() {
    let pages = ["a,b\n1\n2\n", "a,b\n3\n4\n", "a,b\n"];
    let server = Scripted::start(pages.map(csv)).await;
    let lines = "response.format = 'csv'\npagination = { type = 'page', page_size = 2 }";
    let (records, _) = read(&source(&server, lines)).await.unwrap();
    assert_eq!(records.len(), 4, "{records:?}");
}

#[tokio::test]
async fn the_content_type_decides_where_no_format_is_given() {
    let check = async |step: Step, lines: &str, expected: &str, code: Option<&str>| {
        let server = Scripted::start([step]).await;
        let (records, _) = read(&source(&server, lines)).await.unwrap();
        assert_eq!(records, [expected]);
        let report = bring(&server, lines, &Store::memory()).await.unwrap();
        let found = codes(&report);
        let found = found.iter().find(|code| code.starts_with("response_is_"));
        assert_eq!(found.copied(), code);
    };
    let (number, cell) = (r#"{"a":1}"#, r#"{"a":"1"}"#);
    check(csv("a\n1\n"), "", cell, Some("response_is_csv")).await;
    let tabs = typed("text/tab-separated-values", "a\tb\n1\t\n");
    check(tabs, "", r#"{"a":"1","b":null}"#, Some("response_is_csv")).await;
    let lines = typed("application/x-ndjson", "{\"a\": 1}\n\n");
    check(lines, "", number, Some("response_is_ndjson")).await;
    let atom = typed("application/atom+xml", "<f><e><a>1</a></e></f>");
    check(atom, "records = 'f.e'", cell, Some("response_is_xml")).await;
    // JSON that is named otherwise.
    check(csv("[{\"a\": 1}]"), "", number, None).await;
    check(xml("\u{feff} [{\"a\": 1}]"), "", number, None).await;
    let one = typed("application/x-ndjson", "{\"r\": [{\"a\": 1}]}");
    check(one, "records = 'r'", number, None).await;
}

#[tokio::test]
async fn another_format_in_the_middle_ends_the_run() {
    let server = Scripted::start([ok("[{\"a\": 1}]"), csv("a\n2\n")]).await;
    let lines = "pagination = { type = 'page', page_size = 1 }";
    let error = read(&source(&server, lines)).await.unwrap_err().to_string();
    assert!(
        error.contains("it is CSV, and the pages before were JSON"),
        "{error}"
    );
    let server = Scripted::start([csv("a\n1\n")]).await;
    let error = read(&source(&server, "records = 'r'")).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("it is CSV, in which `records` = `r` names nothing"),
        "{error}"
    );
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn lines_of_json_are_records_and_truncated_ones_are_no_page() {
    let of = "response.format = 'ndjson'";
    let server = Scripted::start([ok("{\"a\": 1}\n{\"a\": 2}\n")]).await;
    let (records, _) = read(&source(&server, of)).await.unwrap();
    assert_eq!(records, [r#"{"a":1}"#, r#"{"a":2}"#]);
    let error = "{\"error\": \"quota\"}\n";
    for body in ["{\"a\": 1}\n{\"a\": ", "Bad gateway\n", "<html>\n", error] {
        let server = Scripted::start([ok(body), ok("{\"a\": 1}\n")]).await;
        let (records, requests) = read(&source(&server, of)).await.unwrap();
        assert_eq!((records.len(), requests.retries), (1, 1), "{body}");
    }
    let server = Scripted::start([ok(error)]).await;
    let of = format!("error_path = ''\n{of}");
    let (records, _) = read(&source(&server, &of)).await.unwrap();
    assert_eq!(records, [r#"{"error":"quota"}"#]);
}

#[tokio::test]
async fn archived_pages_are_replayed_in_their_format() {
    for (page, lines) in [
        (xml("<feed><entry><id>1</id></entry></feed>"), FEED),
        (
            typed(
                "text/xml; charset=iso-8859-1",
                "<feed><entry><id>1</id></entry></feed>",
            ),
            "records = 'feed.entry'\n",
        ),
        (csv("id\n1\n"), ""),
    ] {
        let server = Scripted::start([page]).await;
        let lines = format!("{lines}archive_raw = true\n");
        let (root, to) = (Store::memory(), Store::memory().child("again"));
        let report = bring(&server, &lines, &root).await.unwrap();
        assert_eq!(report.rows, 1, "{lines}");
        let config = pipeline(&server, &lines);
        drop(server);
        let context = Context {
            root: to,
            ..context()
        };
        let replayed = replay(&config, None, &root, &context).await.unwrap();
        assert_eq!(replayed.sources[0].rows, 1, "{lines}");
        assert_eq!(replayed.sources[0].requests, 0, "{lines}");
    }
}

#[tokio::test]
async fn a_body_of_xml_has_escaped_values_in_its_places() {
    let server = Scripted::start([
        xml("<r><i><a>1</a></i><next>&lt;2&gt;</next></r>"),
        xml("<r><i><a>2</a></i><next/></r>"),
    ])
    .await;
    let lines = "records = 'r.i'\nmethod = 'POST'\nresponse.format = 'xml'\nbody.xml = '<q><after at=\"{cursor}\">{cursor}</after></q>'\npagination = { type = 'cursor', cursor_path = 'r.next' }";
    let (records, _) = read(&source(&server, lines)).await.unwrap();
    assert_eq!(records, [r#"{"a":"1"}"#, r#"{"a":"2"}"#]);
    let heads = server.heads();
    assert!(
        heads[0].ends_with("<q><after at=\"\"></after></q>"),
        "{heads:?}"
    );
    let second = "<q><after at=\"&lt;2&gt;\">&lt;2&gt;</after></q>";
    assert!(heads[1].ends_with(second), "{heads:?}");
    assert!(
        heads[1].contains("content-type: application/xml\r\n"),
        "{heads:?}"
    );
}

#[tokio::test]
async fn a_placeholder_where_no_value_can_be_escaped_is_refused() {
    let server = Scripted::start([xml("<r/>")]).await;
    for body in [
        "<q><!-- {cursor} --></q>",
        "<q><![CDATA[{cursor}]]></q>",
        "<q><?p {cursor}?></q>",
        "<q><{cursor}>1</{cursor}></q>",
        "<q {cursor}=\"1\"/>",
    ] {
        let lines = format!(
            "records = 'r.i'\nmethod = 'POST'\nresponse.format = 'xml'\nbody.xml = '{body}'\npagination = {{ type = 'cursor', cursor_path = 'r.next' }}"
        );
        let error = read(&source(&server, &lines)).await.unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("`body.xml`") && error.contains("cannot be escaped"),
            "{error}"
        );
    }
    assert!(server.heads().is_empty());
}

#[tokio::test]
async fn a_table_has_the_declared_encoding_unless_its_bytes_are_utf8() {
    let page = |body: &[u8]| {
        let head = format!(
            "200 OK\r\nContent-Type: text/csv; charset=iso-8859-1\r\nContent-Length: {}",
            body.len()
        );
        raw(&head, body)
    };
    let latin = b"id,town\n1,K\xf6ln\n2,F\xfcssen\n";
    let server = Scripted::start([page(latin)]).await;
    let (records, _) = read(&source(&server, "")).await.unwrap();
    assert_eq!(
        records,
        [
            r#"{"id":"1","town":"Köln"}"#,
            r#"{"id":"2","town":"Füssen"}"#
        ]
    );
    // The key goes before the header.
    let server = Scripted::start([page(latin)]).await;
    let lines = "csv.encoding = 'windows-1251'";
    let (records, _) = read(&source(&server, lines)).await.unwrap();
    assert_eq!(records[0], r#"{"id":"1","town":"Kцln"}"#);
    let server = Scripted::start([page("id,town\n1,Köln\n".as_bytes())]).await;
    let report = bring(&server, "", &Store::memory()).await.unwrap();
    let warnings = &report.sources[0].warnings;
    let warning = warnings.iter().find(|w| w.code == "csv_encoding").unwrap();
    let message = &warning.message;
    let declared = "declares `windows-1252`, but its bytes are UTF-8";
    assert!(message.contains(declared), "{message}");
}
