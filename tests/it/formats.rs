//! Sources whose pages are XML or CSV, from the server to a dataset, and queries in files.

use std::fs;

use crate::support::{files, pipeline, run, serve};

/// The number behind `name=` in a target; 0 without it.
fn number(target: &str, name: &str) -> u64 {
    let behind = target.split(&format!("{name}=")).nth(1);
    let text = behind.and_then(|rest| rest.split('&').next());
    text.map_or(0, |text| text.parse().unwrap())
}

/// Serves 250 homes by `after`, 60 a page, as a feed of XML. The first response to each page is
/// truncated.
fn feed() -> String {
    let mut is_cut = true;
    serve(move |target| {
        let after = number(target, "after");
        let last = (after + 60).min(250);
        let entry = |id: u64| {
            let area = 20 + id * 7 % 90;
            format!(
                "<entry id=\"{id}\"><area>{area}</area><price>{}.5</price><place>A &amp; B</place></entry>",
                area * 3 + id % 11
            )
        };
        let entries: String = (after + 1..=last).map(entry).collect();
        let next = match last {
            250 => String::new(),
            _ => format!("<link rel=\"next\" href=\"/homes?after={last}\"/>"),
        };
        let mut body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\"><link rel=\"self\" href=\"/homes\"/>{next}{entries}</feed>"
        );
        if is_cut {
            body.truncate(body.len() / 2);
        }
        is_cut = !is_cut;
        let head = "Content-Type: application/atom+xml; charset=utf-8\r\n".to_owned();
        ("200 OK", head, body)
    })
}

fn of_feed(origin: &str, response: &str) -> String {
    format!(
        "[pipeline]\nname = \"homes\"\nroot = \"out\"\n[[source]]\nname = \"homes\"\ntype = \"rest\"\nurl = \"{origin}/homes\"\nrecords = \"feed.entry\"\n{response}\
         pagination = {{ type = \"next_url\", next_path = \"feed.link\" }}\nretry = {{ base_ms = 1, cap_ms = 2 }}\nbatch = {{ pages = 1 }}\narchive_raw = true\n\
         [dataset]\ntarget = \"price\"\ndrop = [\"@id\", \"place\"]\nsplit = {{ train = 0.8, validation = 0.1, test = 0.1 }}\n"
    )
}

#[test]
fn a_feed_of_xml_becomes_a_dataset_and_is_replayed_without_its_server() {
    let origin = feed();
    let folder = tempfile::tempdir().unwrap();
    let text = of_feed(&origin, "response.format = \"xml\"\n");
    let file = pipeline(folder.path(), &text);
    let report = run(folder.path(), &["run", file, "--json"])
        .expect(0)
        .json();
    let source = &report["ingest"]["sources"][0];
    assert_eq!(source["rows"], 250, "{report}");
    // Each page came truncated first.
    assert_eq!(source["requests"], 10, "{report}");
    assert_eq!(source["retries"], 5, "{report}");
    assert!(report["dataset"].is_object(), "{report}");

    let again = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(again["sources"][0]["new_rows"], 0, "{again}");
    let replay = [
        "ingest",
        "replay",
        file,
        "--from",
        "out",
        "--set",
        "pipeline.root=again",
        "--json",
    ];
    let replayed = run(folder.path(), &replay).expect(0).json();
    assert_eq!(replayed["sources"][0]["requests"], 0, "{replayed}");
    let landed =
        |root: &str, kind: &str| files(&folder.path().join(root).join("landing/homes").join(kind));
    for kind in ["data", "raw"] {
        assert!(!landed("out", kind).is_empty(), "{kind}");
        assert!(landed("out", kind) == landed("again", kind), "{kind}");
    }
}

#[test]
fn a_format_that_the_content_type_names_is_reported_until_it_is_set() {
    let origin = feed();
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), &of_feed(&origin, ""));
    for arguments in [&["ingest", file][..], &["ingest", "status", file]] {
        let ended = run(folder.path(), arguments).expect(0);
        assert!(ended.stdout.contains("response is xml"), "{}", ended.stdout);
        assert!(
            ended.stdout.contains("see `response.format`"),
            "{}",
            ended.stdout
        );
    }
    let file = pipeline(
        folder.path(),
        &of_feed(&origin, "response.format = \"xml\"\n"),
    );
    let ended = run(folder.path(), &["ingest", file]).expect(0);
    assert!(
        !ended.stdout.contains("response is xml"),
        "{}",
        ended.stdout
    );
}

#[test]
fn tables_of_an_api_land_by_page_with_their_types_and_a_total() {
    let origin = serve(|target| {
        let (offset, limit) = (number(target, "offset"), number(target, "limit"));
        let ids = offset..(offset + limit).min(130);
        let rows: String = ids
            .map(|id| format!("{id};{id},25;\"a;{id}\"\r\n"))
            .collect();
        let head = "Content-Type: text/csv\r\nX-Total: 130\r\n".to_owned();
        ("200 OK", head, format!("id;price;note\r\n{rows}"))
    });
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"rows\"\ntype = \"rest\"\nurl = \"{origin}/rows\"\n\
             response.format = \"csv\"\ncsv = {{ delimiter = \";\", decimal_separator = \",\" }}\n\
             pagination = {{ type = \"offset\", page_size = 50, size_param = \"limit\", total_header = \"X-Total\", strict_total = true }}\n"
        ),
    );
    let report = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(report["rows"], 130, "{report}");
    assert_eq!(report["sources"][0]["rejected"], 0, "{report}");
    let preview = run(folder.path(), &["preview", file]).expect(0);
    for part in ["price", "note"] {
        assert!(preview.stdout.contains(part), "{}", preview.stdout);
    }
}

#[test]
fn an_error_page_in_the_place_of_xml_or_csv_is_one_clear_error() {
    let origin = serve(|_| {
        let body = "<!DOCTYPE html><html><body>Bad gateway</body></html>".to_owned();
        ("200 OK", "Content-Type: text/html\r\n".to_owned(), body)
    });
    for (format, records, part) in [
        (
            "xml",
            "records = \"a.b\"\n",
            "it is an HTML page, where an XML document should be",
        ),
        ("csv", "", "it is HTML, where CSV should be"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = pipeline(
            folder.path(),
            &format!(
                "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{origin}/\"\n{records}response.format = \"{format}\"\nretry = {{ base_ms = 1, cap_ms = 2, max_tries = 2 }}\n"
            ),
        );
        let ended = run(folder.path(), &["ingest", file]).expect(1);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn a_query_in_a_file_is_read_beside_the_pipeline_file() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("pipelines");
    fs::create_dir_all(own.join("queries")).unwrap();
    let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"https://h.invalid/\"\nrecords = \"data.items\"\n\
                [source.graphql]\nquery = { file = \"queries/items.graphql\" }\n";
    pipeline(&own, text);
    let check = ["check", "pipelines/pipeline.toml", "--offline"];
    let absent = run(folder.path(), &check).expect(2);
    for part in [
        "pipelines/pipeline.toml:9",
        "the query file `pipelines/queries/items.graphql` cannot be read",
    ] {
        assert!(absent.stderr.contains(part), "{}", absent.stderr);
    }
    let query = own.join("queries/items.graphql");
    fs::write(&query, "mutation { a }").unwrap();
    let refused = run(folder.path(), &check).expect(2);
    let shown = refused.stdout + &refused.stderr;
    assert!(shown.contains("has a `mutation`"), "{shown}");
    fs::write(&query, "{ items { id } }").unwrap();
    run(folder.path(), &check).expect(0);
}
