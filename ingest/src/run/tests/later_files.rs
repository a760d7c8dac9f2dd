//! Cells of later files, whose columns have their types already.

use super::*;
use crate::files::tests::Folder;

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
