//! Records without a value in a required column, which land by default.

use feedline_schemas::config::{ColumnContract, NullContract};

use super::*;
use crate::files::tests::Folder;

/// Message of the warning about required columns.
fn warning(report: &IngestReport) -> Option<&str> {
    let mut warnings = report.sources[0].warnings.iter();
    let found = warnings.find(|warning| warning.code == "required_missing");
    found.map(|warning| warning.message.as_str())
}

#[tokio::test]
async fn each_run_that_lands_such_records_warns_of_them_with_its_own_counts() {
    let folder = Folder::new(&[("a.csv", b"id,price\n1,2.5\n2,3.5\n")]);
    let mut config = pipeline(&folder.path("*.csv"));
    let contract = &mut config.source[0].contract;
    contract.required = vec!["price".to_owned()];
    let root = Store::memory();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(warning(&report), None);
    let nulls = "id,price\n4,\n5,\n";
    for (name, content, part) in [
        (
            "b.csv",
            "id,price\n3,\n",
            "`price` in 1 (first batch: 1 record, 1 with null and 0 without it",
        ),
        (
            "c.csv",
            nulls,
            "`price` in 2 (first batch: 2 records, 2 with null",
        ),
        (
            "d.csv",
            "id\n6\n",
            "`price` in 1 (first batch: 1 record, 0 with null and 1 without it",
        ),
    ] {
        folder.write(name, content.as_bytes());
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        let message = warning(&report).unwrap_or_default();
        assert!(message.contains(part), "{name}: {message}");
    }
    // A run that lands none of them does not warn.
    folder.write("e.csv", b"id,price\n7,1.5\n");
    for _ in 0..2 {
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        assert_eq!((report.rows, warning(&report)), (7, None));
    }
    let may_be_null = ColumnContract {
        nulls: Some(NullContract::Warn),
        ..ColumnContract::default()
    };
    let columns = &mut config.source[0].contract.column;
    columns.insert("price".to_owned(), may_be_null);
    folder.write("f.csv", b"id,price\n8,\n");
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.rows, warning(&report)), (8, None));
}

#[tokio::test]
async fn status_warns_of_all_landed_records_until_the_column_may_be_null_or_a_reset() {
    let folder = Folder::new(&[("a.csv", b"id,price\n1,\n2,3.5\n")]);
    let mut config = pipeline(&folder.path("*.csv"));
    config.source[0].contract.required = vec!["price".to_owned()];
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    folder.write("b.csv", b"id,price\n3,\n4,\n5,\n");
    ingest(&config, None, &context(&root)).await.unwrap();
    // The last run lands none of them.
    folder.write("c.csv", b"id,price\n6,1.5\n");
    let read = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((read.rows, warning(&read)), (6, None));
    let shown = async |config: &PipelineConfig| {
        let report = status(config, &root).await.unwrap();
        warning(&report).map(str::to_owned)
    };
    let message = shown(&config).await.unwrap_or_default();
    let part = "`price` in 4 (first batch: 2 records, 1 with null and 0 without it)";
    assert!(message.contains(part), "{message}");
    let mut nullable = config.clone();
    let may_be_null = ColumnContract {
        nulls: Some(NullContract::Warn),
        ..ColumnContract::default()
    };
    let columns = &mut nullable.source[0].contract.column;
    columns.insert("price".to_owned(), may_be_null);
    assert_eq!(shown(&nullable).await, None);
    let name = &config.source[0].name;
    let reset = crate::amend::reset(&config, name, &context(&root), false).await;
    reset.unwrap();
    assert_eq!(shown(&config).await, None);
}
