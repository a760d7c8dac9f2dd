//! Columns of Parquet that hold image files.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BinaryArray, Int64Array, StringArray, StructArray},
    datatypes::{DataType, Field},
};
use feedline_schemas::record::ColumnType;

use super::*;
use feedline_readers::testing::parquet_file as file;

fn jpeg(i: u8) -> Vec<u8> {
    vec![0xff, 0xd8, 0xff, 0xe0, i]
}

fn binary(cells: &[Vec<u8>]) -> ArrayRef {
    Arc::new(BinaryArray::from_iter_values(cells))
}

fn write(folder: &std::path::Path, name: &str, columns: Vec<(&str, ArrayRef)>) {
    std::fs::write(folder.join(name), file(columns)).unwrap();
}

async fn land(config: &PipelineConfig, root: &Store) -> (Vec<(String, ColumnType)>, SourceReport) {
    let mut report = ingest(config, None, &context(root)).await.unwrap();
    let landed = landed(root, &config.source[0].name).await;
    let landed = landed.unwrap().unwrap();
    let columns = &landed.entries.last().unwrap().schema.columns;
    let columns = columns.iter().map(|c| (c.name.clone(), c.r#type));
    (columns.collect(), report.sources.remove(0))
}

fn warning<'a>(report: &'a SourceReport, code: &str) -> &'a str {
    let found = report.warnings.iter().find(|warning| warning.code == code);
    let found = found.unwrap_or_else(|| panic!("no `{code}` among {:?}", report.warnings));
    assert_eq!(found.key.as_deref(), Some("contract.column.<name>.type"));
    &found.message
}

#[tokio::test]
async fn images_land_as_bytes_and_other_bytes_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let images: Vec<Vec<u8>> = (0..20).map(jpeg).collect();
    let field = |name, r#type| Arc::new(Field::new(name, r#type, true));
    let paths: ArrayRef = Arc::new(StringArray::from(vec!["a.jpg"; 20]));
    let inside = StructArray::from(vec![
        (field("bytes", DataType::Binary), binary(&images)),
        (field("path", DataType::Utf8), paths),
    ]);
    // One image is damaged: the build finds the fault.
    let mut damaged = images.clone();
    damaged[3] = Vec::new();
    let others: Vec<Vec<u8>> = (0..20).map(|i| vec![i, 0xff]).collect();
    write(
        folder.path(),
        "a.parquet",
        vec![
            ("image", binary(&damaged)),
            ("photo", Arc::new(inside)),
            ("code", binary(&others)),
        ],
    );
    let config = pipeline(&format!("{}/*.parquet", folder.path().display()));
    let root = Store::memory();
    let (columns, report) = land(&config, &root).await;
    let expected = [
        ("image", ColumnType::Binary),
        ("photo.bytes", ColumnType::Binary),
        ("photo.path", ColumnType::Utf8),
        ("code", ColumnType::Utf8),
    ];
    assert_eq!(columns, expected.map(|(name, of)| (name.to_owned(), of)));
    assert_eq!((report.rows, report.rejected), (20, 0));
    let message = warning(&report, "image_as_bytes");
    assert!(
        message
            .starts_with("`image`, `photo.bytes`: cells that begin like image files land as bytes"),
        "{message}"
    );
    assert!(message.contains("`kind = \"images\"`"), "{message}");
    let mut warnings = report.warnings.iter();
    let is_of_both = |w: &Warning| w.is_about("image") && w.is_about("photo.bytes");
    assert!(warnings.any(|w| w.code == "image_as_bytes" && is_of_both(w)));
    assert_eq!(report.decisions["image_as_bytes"]["image"].count, 19);
    // A file of no images at all adds to the same column.
    let columns = vec![("image", binary(&[vec![1], vec![2]]))];
    write(folder.path(), "b.parquet", columns);
    let (columns, report) = land(&config, &root).await;
    assert_eq!(columns[0].1, ColumnType::Binary);
    assert_eq!((report.rows, report.rejected), (22, 0));
    warning(&report, "image_as_bytes");
}

#[tokio::test]
async fn a_column_that_landed_as_text_stays_text_and_the_report_says_how_to_change_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = pipeline(&format!("{}/*.parquet", folder.path().display()));
    let root = Store::memory();
    let columns = vec![("image", binary(&[vec![1], vec![2]]))];
    write(folder.path(), "a.parquet", columns);
    land(&config, &root).await;
    write(
        folder.path(),
        "b.parquet",
        vec![("image", binary(&[jpeg(1)]))],
    );
    let (columns, report) = land(&config, &root).await;
    assert_eq!(columns, [("image".to_owned(), ColumnType::Utf8)]);
    assert_eq!((report.rows, report.rejected), (3, 0));
    let message = warning(&report, "image_as_text");
    assert!(message.contains("`feedline ingest reset "), "{message}");
    // The declared type applies after a reset only.
    let column = config.source[0].contract.column.entry("image".into());
    column.or_default().r#type = Some(feedline_schemas::config::DeclaredType::Bytes);
    write(
        folder.path(),
        "c.parquet",
        vec![("image", binary(&[jpeg(2)]))],
    );
    let refused = ingest(&config, None, &context(&root)).await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("has landed as text already"), "{refused}");
    let (columns, report) = land(&config, &Store::memory()).await;
    assert_eq!(columns, [("image".to_owned(), ColumnType::Binary)]);
    assert_eq!((report.rows, &report.warnings[..]), (4, &[][..]));
}

#[tokio::test]
async fn images_do_not_fit_a_declared_text_and_a_later_column_has_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = pipeline(&format!("{}/*.parquet", folder.path().display()));
    config.source[0].contract.max_reject_fraction = Real::literal(1.0);
    let column = config.source[0].contract.column.entry("image".into());
    column.or_default().r#type = Some(feedline_schemas::config::DeclaredType::Text);
    let root = Store::memory();
    let number = |n| -> ArrayRef { Arc::new(Int64Array::from(vec![n])) };
    let cells = [b"caption".to_vec(), jpeg(1)];
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![0, 1]));
    let columns = vec![("id", ids), ("image", binary(&cells))];
    write(folder.path(), "a.parquet", columns);
    let (columns, report) = land(&config, &root).await;
    assert_eq!(columns[1], ("image".to_owned(), ColumnType::Utf8));
    assert_eq!((report.rows, report.rejected), (1, 1));
    assert_eq!(report.warnings, []);
    let columns = vec![
        ("id", number(2)),
        ("image", binary(&[b"other".to_vec()])),
        ("mask", binary(&[jpeg(2)])),
    ];
    write(folder.path(), "b.parquet", columns);
    let (columns, report) = land(&config, &root).await;
    assert_eq!(columns[2], ("mask".to_owned(), ColumnType::Binary));
    assert!(warning(&report, "image_as_bytes").starts_with("`mask`:"));
}

#[tokio::test]
async fn files_that_are_no_images_by_their_ending_are_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let album = folder.path().join("album");
    std::fs::create_dir(&album).unwrap();
    for name in ["1.jpg", "2.pbm", "3.fli", ".hidden"] {
        std::fs::write(album.join(name), name).unwrap();
    }
    let mut tar = tar::Builder::new(Vec::new());
    for name in ["d/5.png", "d/6.pbm"] {
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        tar.append_data(&mut header, name, &b"x"[..]).unwrap();
    }
    std::fs::write(album.join("4.tar"), tar.into_inner().unwrap()).unwrap();
    let land = async |url: String, member: Option<&str>| {
        let mut config = pipeline(&url);
        config.source[0].format = feedline_schemas::config::FileFormat::Image;
        config.source[0].archive.member = member.map(str::to_owned);
        let report = ingest(&config, None, &context(&Store::memory())).await;
        let source = report.unwrap().sources.remove(0);
        let warnings = source.warnings.into_iter();
        let warnings = warnings.filter(|warning| warning.code == "files_left_out");
        (source.rows, warnings.collect::<Vec<_>>())
    };
    let place = album.display().to_string();
    let (rows, warnings) = land(place.clone(), None).await;
    assert_eq!((rows, warnings.len()), (2, 1));
    assert_eq!(warnings[0].key.as_deref(), Some("url"));
    let message = &warnings[0].message;
    assert!(message.starts_with("2 files of"), "{message}");
    assert!(message.contains("`2.pbm`, `3.fli`;"), "{message}");
    // A pattern chooses them.
    let (rows, warnings) = land(format!("{place}/*.pbm"), None).await;
    assert_eq!((rows, warnings.len()), (1, 0));
    // So does one of members.
    let (rows, warnings) = land(format!("{place}/4.tar"), None).await;
    assert_eq!((rows, warnings.len()), (1, 1));
    assert_eq!(warnings[0].key.as_deref(), Some("archive.member"));
    assert!(warnings[0].message.contains("`d/6.pbm`"), "{warnings:?}");
    let (rows, warnings) = land(format!("{place}/4.tar"), Some("**/*.pbm")).await;
    assert_eq!((rows, warnings.len()), (1, 0));
}
