//! Cells of later files, whose columns have their types already.

use feedline_schemas::{config::ColumnsContract, report::Warning};

use super::*;
use crate::{
    files::tests::Folder,
    preview::preview,
    testing::{Scripted, ok},
};

#[tokio::test]
async fn codes_and_long_numbers_of_a_later_file_are_not_changed_in_silence() {
    let one: &[u8] = b"id,code,x\n1,1000,0.5\n2,50,1.5\n";
    let folder = Folder::new(&[("a.csv", one)]);
    let mut config = pipeline(&folder.path("*.csv"));
    config.source[0].contract.max_reject_fraction = Real::literal(1.0);
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    let long = "4,7,0.12345678901234567891\n5,8,0.12345678901234568\n";
    let two = format!("id,code,x\n3,1E3,0.5\n{long}");
    folder.write("b.csv", two.as_bytes());
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    let source = &report.sources[0];
    assert_eq!((source.rows, source.rejected), (4, 1));
    let sample = source.reject_sample.as_deref().unwrap();
    let part = "line 2: column `code` is integer, which takes no cell with an exponent";
    assert!(sample.contains(part), "{sample}");
    let rounded = &source.decisions["digits_rounded"]["x"];
    let expected = "`0.12345678901234567891`";
    assert_eq!((rounded.count, rounded.sample.as_str()), (1, expected));
}

#[tokio::test]
async fn a_warning_about_a_column_of_a_later_file_keeps_the_columns_of_earlier_files() {
    let folder = Folder::new(&[("a.csv", b"id,c\n1,NA\n2,DE\n")]);
    let config = pipeline(&folder.path("*.csv"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    folder.write("b.csv", b"id,c,k\n3,FR,None\n4,IT,Wood\n");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    let [warning] = &report.sources[0].warnings[..] else {
        panic!("{:?}", report.sources[0].warnings);
    };
    assert_eq!(warning.code, "missing_words");
    let named = "`c` (1 `NA` of 2 values), `k` (1 `None` of 2 values): ";
    assert!(warning.message.starts_with(named), "{warning:?}");
}

#[tokio::test]
async fn a_later_file_without_a_landed_column_is_refused_and_the_landed_rows_stay() {
    let folder = Folder::new(&[("a.csv", b"id,city,v\n1,Oslo,10\n2,Rome,20\n")]);
    let config = pipeline(&folder.path("*.csv"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    folder.write("b.csv", b"3,Bern,30\n4,Kiel,40\n");
    folder.write("c.csv", b"id,city,v\n5,Lyon,50\n");
    let part = "b.csv`: its header has no column of this source, `3`, `Bern`, `30`";
    let refused = ingest(&config, None, &context(&root)).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
    assert!(
        error.contains("files after it in the order of names wait"),
        "{error}"
    );
    let landed = status(&config, &root).await.unwrap();
    assert_eq!(landed.sources[0].rows, 2);
    let seen = preview(&config, None, 0, &context(&root)).await.unwrap();
    let stop = seen[0].stop.as_deref().unwrap_or_default();
    assert!(stop.contains(part), "{seen:?}");

    folder.write("b.csv", b"id,city,v\n3,Bern,30\n4,Kiel,40\n");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.rows, report.sources[0].schema_version), (5, 1));
}

#[tokio::test]
async fn files_without_a_common_column_land_in_a_first_run_with_a_warning_of_its_preview() {
    let orders: &[u8] = b"order,amount\n7,1.5\n8,2.5\n";
    let folder = Folder::new(&[("a.csv", b"id,v\n1,10\n2,20\n"), ("b.csv", orders)]);
    let config = pipeline(&folder.path("*.csv"));
    let root = Store::memory();
    let is_named = |warnings: &[Warning]| {
        let mut found = warnings.iter().filter(|w| w.code == "no_common_column");
        found.any(|warning| warning.message.contains("a.csv`: `order`, `amount`; "))
    };
    let seen = preview(&config, None, 0, &context(&root)).await.unwrap();
    assert!(seen[0].stop.is_none(), "{seen:?}");
    assert!(is_named(&seen[0].warnings), "{seen:?}");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(report.rows, 4);
    assert!(is_named(&report.sources[0].warnings), "{report:?}");
    let again = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(again.rows, 4);
}

#[tokio::test]
async fn columns_that_the_contract_rejects_are_no_error_of_a_header() {
    let rows: Vec<String> = (1..9).map(|id| format!("{id},1\n")).collect();
    let folder = Folder::new(&[("a.csv", format!("id,v\n{}", rows.concat()).as_bytes())]);
    let mut config = pipeline(&folder.path("*.csv"));
    config.source[0].contract.columns = ColumnsContract::QuarantineRow;
    config.source[0].contract.max_reject_fraction = Real::literal(1.0);
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    folder.write("b.csv", b"x,y\n1,2\n");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.rows, report.rejected), (8, 1));
}

#[tokio::test]
async fn a_line_without_rows_in_place_of_a_new_file_stops_no_other_file() {
    let folder = Folder::new(&[("b.csv", b"id,v\n1,2\n")]);
    let config = pipeline(&folder.path("*.csv"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    folder.write("a.csv", b"No data for this period\n");
    folder.write("c.csv", b"id,v\n3,4\n");
    // Also where the line is the first that is read.
    for root in [&root, &Store::memory()] {
        let report = ingest(&config, None, &context(root)).await.unwrap();
        let source = &report.sources[0];
        let mut warnings = source.warnings.iter();
        let is_noted = warnings.any(|warning| warning.code == "empty_file");
        assert_eq!((source.rows, is_noted), (2, true));
    }
}

#[tokio::test]
async fn a_table_that_is_emptied_keeps_its_rows_unless_its_header_is_left() {
    let table: &[u8] = b"currency,rate\nUSD,1.0812\nGBP,0.8561\n";
    let folder = Folder::new(&[("rates.csv", table)]);
    let config = pipeline(&folder.path("rates.csv"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    for (content, rows, stay) in [
        (&b""[..], 2, true),
        (b"", 2, true),
        (table, 2, false),
        (b"currency,rate\n", 0, false),
    ] {
        folder.write("rates.csv", content);
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        let source = &report.sources[0];
        let mut warnings = source.warnings.iter();
        let is_noted = warnings.any(|warning| warning.message.contains("landed from it stay"));
        assert_eq!((source.rows, is_noted), (rows, stay), "{content:?}");
    }
}

#[tokio::test]
async fn a_message_in_place_of_a_file_supersedes_no_row() {
    let table: &[u8] = b"currency,rate\nUSD,1.0812\nGBP,0.8561\n";
    let folder = Folder::new(&[("rates.csv", table)]);
    let config = pipeline(&folder.path("rates.csv"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    let part = "its header has no column of this source";
    for message in [
        "Service temporarily unavailable\nplease retry\n",
        "{\"error\":\"try later\"}",
    ] {
        folder.write("rates.csv", message.as_bytes());
        let refused = ingest(&config, None, &context(&root)).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        let seen = preview(&config, None, 0, &context(&root)).await.unwrap();
        let stop = seen[0].stop.as_deref().unwrap_or_default();
        assert!(stop.contains(part), "{seen:?}");
    }
    let status = status(&config, &root).await.unwrap();
    assert_eq!(status.sources[0].rows, 2);
    // A declared column makes it right.
    let mut declared = config.clone();
    declared.source[0].contract.required = vec!["note".to_owned()];
    folder.write("rates.csv", b"note\nnew\n");
    let report = ingest(&declared, None, &context(&root)).await.unwrap();
    assert_eq!(report.rows, 1);
}

#[tokio::test]
async fn a_message_in_place_of_a_file_of_lines_supersedes_no_row() {
    let lines: &[u8] = b"{\"id\":1,\"at\":{\"x\":2}}\n{\"id\":2,\"at\":{\"x\":3}}\n";
    let folder = Folder::new(&[("a.ndjson", lines)]);
    let config = pipeline(&folder.path("*.ndjson"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    let keys = "its first records have no column of this source, `error`: it may be a message";
    let none = "its first records have no column: it may be a message";
    for (message, part) in [
        ("{\"error\":\"try later\"}\n", keys),
        ("Service unavailable\n", none),
    ] {
        folder.write("a.ndjson", message.as_bytes());
        let refused = ingest(&config, None, &context(&root)).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    // A key of a nested column and a declared one make it right.
    folder.write("a.ndjson", lines);
    folder.write("b.ndjson", b"{\"at\":{\"y\":4}}\n");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(report.rows, 3);
    let mut declared = config.clone();
    declared.source[0].contract.required = vec!["note".to_owned()];
    folder.write("b.ndjson", b"{\"note\":\"new\"}\n");
    let report = ingest(&declared, None, &context(&root)).await.unwrap();
    assert_eq!(report.rows, 3);
}

#[tokio::test]
async fn a_new_file_of_lines_with_other_keys_lands_with_a_warning() {
    let folder = Folder::new(&[("a.ndjson", b"{\"id\":1}\n{\"id\":2}\n")]);
    let config = pipeline(&folder.path("*.ndjson"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    folder.write("c.ndjson", b"{\"y\":1}\n");
    folder.write("d.ndjson", b"{\"id\":3}\n");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    let source = &report.sources[0];
    let mut warnings = source.warnings.iter();
    let found = warnings.find(|warning| warning.code == "no_common_column");
    let message = found.map_or("", |warning| warning.message.as_str());
    let part = "c.ndjson` have no column of this source: `y`; its rows land";
    assert!(message.contains(part), "{message}");
    assert_eq!(source.rows, 4);
    // A message in place of the landed records does not replace them.
    folder.write("c.ndjson", b"{\"error\":\"try later\"}\n");
    let refused = ingest(&config, None, &context(&root)).await;
    let error = refused.unwrap_err().to_string();
    let part = "c.ndjson`: its first records have no column of this source, `error`";
    assert!(error.contains(part), "{error}");
}

#[tokio::test]
async fn a_message_in_place_of_a_web_file_of_lines_is_refused_in_the_preview_too() {
    let message = "{\"error\":\"try later\"}\n";
    let server = Scripted::answering(move |number, _| match number {
        0 => ok("{\"id\":1}\n{\"id\":2}\n"),
        _ => ok(message),
    })
    .await;
    let config = pipeline(&format!("{}lines.ndjson?day=1", server.url));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    let part = "its first records have no column of this source, `error`";
    let seen = preview(&config, None, 0, &context(&root)).await.unwrap();
    let error = seen[0].error.as_deref().unwrap_or_default();
    assert!(error.contains(part), "{seen:?}");
    let refused = ingest(&config, None, &context(&root)).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[tokio::test]
async fn a_file_of_lines_that_is_emptied_keeps_its_rows() {
    let folder = Folder::new(&[("a.ndjson", b"{\"id\":1}\n{\"id\":2}\n")]);
    let config = pipeline(&folder.path("a.ndjson"));
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    for content in [&b""[..], b"\n"] {
        folder.write("a.ndjson", content);
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        let source = &report.sources[0];
        let part = "landed from it stay; to drop them, remove it and run";
        let mut warnings = source.warnings.iter();
        let is_noted = warnings.any(|warning| warning.message.contains(part));
        assert_eq!((source.rows, is_noted), (2, true), "{content:?}");
    }
}
