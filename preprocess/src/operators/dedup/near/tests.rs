//! The audit of what will be written.

use arrow::{
    array::{ArrayRef, FixedSizeBinaryArray, RecordBatch, StringArray, UInt8Array, UInt64Array},
    datatypes::DataType,
};
use feedline_schemas::{
    config::{DatasetConfig, DatasetKind, NearDupConfig},
    progress::Silent,
    record::ColumnType,
};
use feedline_storage::Store;

use super::*;
use crate::{
    engine::session,
    schema::{column_roles, landed_columns::MergedColumn},
    staging::stage,
    testing::context,
};

/// Audits documents in splits of the test's choice.
async fn audited(documents: &[(&str, Split)]) -> Result<(), Error> {
    let config = DatasetConfig {
        kind: DatasetKind::Characters,
        near_dup: Some(NearDupConfig::default()),
        ..DatasetConfig::default()
    };
    let landed = MergedColumn {
        name: "text".into(),
        r#type: ColumnType::Utf8,
    };
    let spec = column_roles::resolve(&config, &[landed]).unwrap();
    let (context, folder) = context(&Store::memory(), 2);
    let scratch = Scratch::claim(folder.path()).unwrap();
    let session = session::session(&context, &scratch.path("spill"), 1, None, 0).unwrap();
    let count = documents.len() as u64;
    let hashes = (0..count).map(|i| u128::from(i).to_be_bytes());
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            system_columns::ORIGIN,
            Arc::new((0..count).collect::<UInt64Array>()),
        ),
        (
            system_columns::HASH,
            Arc::new(FixedSizeBinaryArray::try_from_iter(hashes).unwrap()),
        ),
        (
            system_columns::SPLIT,
            Arc::new(documents.iter().map(|d| d.1 as u8).collect::<UInt8Array>()),
        ),
        (
            system_columns::REJECT,
            arrow::array::new_null_array(&DataType::Utf8, documents.len()),
        ),
        (
            "text",
            Arc::new(documents.iter().map(|d| Some(d.0)).collect::<StringArray>()),
        ),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true)));
    let rows = session.read_batch(batch.unwrap()).unwrap();
    let progress: Arc<dyn feedline_schemas::progress::Progress> = Arc::new(Silent);
    let meter = Arc::new(PassProgress::new(&progress, "test", count));
    let (staged, _) = stage(&session, rows, &spec, &scratch, meter).await.unwrap();
    let pass = Pass {
        near: spec.near_dup.as_ref().unwrap(),
        names: &[TableName::new("texts").unwrap()],
        frozen: &[],
        scratch: &scratch,
        meter: Arc::new(PassProgress::new(&progress, "test", count)),
    };
    pass.audit(&session, &staged).await
}

#[tokio::test]
async fn the_audit_finds_a_near_duplicate_in_another_split() {
    const A: &str = "one two three four five six seven eight nine ten eleven twelve";
    let other = "nothing of the above appears in this document at all, not one run of five words";
    let near = A.to_uppercase();
    audited(&[
        (A, Split::Train),
        (&near, Split::Train),
        (other, Split::Test),
    ])
    .await
    .unwrap();
    let error = audited(&[
        (other, Split::Train),
        (A, Split::Train),
        (&near, Split::Test),
    ])
    .await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Leak { keys: 1, .. }), "{error}");
    let expected = "row 2 of batch 0 of source `texts` in test is nearly row 1 of batch 0 of source `texts` in train";
    assert!(error.to_string().contains(expected), "{error}");
}
