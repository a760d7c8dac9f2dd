//! Text in binary columns of Parquet.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BinaryArray},
    util::display::array_value_to_string,
};
use feedline_schemas::{config::DeclaredType, record::ColumnType};

use super::*;
use crate::{landed_file, preview::preview};
use feedline_readers::testing::parquet_file;

/// A pipeline of a file with a binary column `shop` of text, a binary column `code` of other bytes, and
/// these declared types.
fn shops(folder: &std::path::Path, declared: &[(&str, DeclaredType)]) -> PipelineConfig {
    let column = |cells: [&[u8]; 4]| -> ArrayRef { Arc::new(BinaryArray::from_iter_values(cells)) };
    let columns = vec![
        ("shop", column([b"north", "süd".as_bytes(), b"", b"12"])),
        ("code", column([b"\x01", b"\xff", b"a", b"\0"])),
    ];
    std::fs::write(folder.join("a.parquet"), parquet_file(columns)).unwrap();
    let mut config = pipeline(&format!("{}/a.parquet", folder.display()));
    for (name, r#type) in declared {
        let column = config.source[0].contract.column.entry((*name).to_owned());
        column.or_default().r#type = Some(*r#type);
    }
    config.source[0].contract.max_reject_fraction = Real::literal(1.0);
    config
}

/// Report of a run, and the landed values of the column `shop`.
async fn land(config: &PipelineConfig, root: &Store) -> (SourceReport, Vec<String>) {
    let mut report = ingest(config, None, &context(root)).await.unwrap();
    let name = &config.source[0].name;
    let landed = landed(root, name).await.unwrap().unwrap();
    let folder = landing(root, name);
    let mut cells = Vec::new();
    for file in landed.entries.iter().flat_map(|entry| &entry.files) {
        let batches = landed_file::read(&folder, file, &["shop"], None);
        for batch in batches.await.unwrap() {
            let column = batch.column(0);
            cells.extend((0..column.len()).map(|row| array_value_to_string(column, row).unwrap()));
        }
    }
    (report.sources.remove(0), cells)
}

#[tokio::test]
async fn text_in_a_binary_column_lands_as_hexadecimal_digits_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let config = shops(folder.path(), &[]);
    let root = Store::memory();
    let previews = preview(&config, None, 0, &context(&root)).await.unwrap();
    let (report, cells) = land(&config, &root).await;
    assert_eq!(cells, ["6e6f727468", "73c3bc64", "", "3132"]);
    for warnings in [&previews[0].warnings, &report.warnings] {
        let codes: Vec<&str> = warnings.iter().map(|w| w.code.as_str()).collect();
        assert_eq!(codes, ["text_as_hex"]);
        let message = &warnings[0].message;
        let begin = "`shop` (3 values of a batch, such as `north`): text in a binary column lands";
        assert!(message.starts_with(begin), "{message}");
        let key = warnings[0].key.as_deref();
        assert_eq!(key, Some("contract.column.<name>.type"));
    }
    // A cell of text among other bytes is no reason to name the column.
    assert_eq!(report.decisions["bytes_as_hex"]["code"].count, 4);
    let named: Vec<&String> = report.decisions["text_as_hex"].keys().collect();
    assert_eq!(named, ["shop"]);
    // Rows have landed as digits, so the warning holds.
    let (report, _) = land(&config, &root).await;
    assert_eq!(report.warnings[0].code, "text_as_hex");
}

#[tokio::test]
async fn a_declared_text_reads_the_text_of_bytes_and_rejects_what_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let text = DeclaredType::Text;
    let config = shops(folder.path(), &[("shop", text), ("code", text)]);
    let root = Store::memory();
    let previews = preview(&config, None, 0, &context(&root)).await.unwrap();
    assert_eq!(previews[0].columns[0].samples, ["", "12", "north"]);
    assert_eq!(previews[0].rejected, 1);
    assert_eq!(previews[0].warnings, []);
    let (report, cells) = land(&config, &root).await;
    assert_eq!(cells, ["north", "", "12"]);
    assert_eq!((report.rows, report.rejected), (3, 1));
    assert_eq!(report.warnings, []);
    let sample = report.reject_sample.unwrap();
    let part = "column `code` is text, which takes no bytes other than UTF-8 (`bytes` takes all)";
    assert!(sample.contains(part), "{sample}");
    // A retry lands the text, and not digits.
    assert!(sample.contains(r#""shop":"süd""#), "{sample}");
}

#[tokio::test]
async fn a_declared_bytes_keeps_text_as_bytes_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let config = shops(folder.path(), &[("shop", DeclaredType::Bytes)]);
    let root = Store::memory();
    let (report, _) = land(&config, &root).await;
    assert_eq!((report.rows, &report.warnings[..]), (4, &[][..]));
    let landed = landed(&root, &config.source[0].name).await.unwrap();
    let landed = landed.unwrap();
    let columns = &landed.entries[0].schema.columns;
    assert_eq!(columns[0].r#type, ColumnType::Binary);
}

#[tokio::test]
async fn bytes_never_land_as_the_number_that_their_digits_spell() {
    let folder = tempfile::tempdir().unwrap();
    let int = DeclaredType::Int;
    let config = shops(folder.path(), &[("shop", int)]);
    let (report, cells) = land(&config, &Store::memory()).await;
    assert_eq!(cells, ["12"]);
    assert_eq!((report.rows, report.rejected), (1, 3));
}
