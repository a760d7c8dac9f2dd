//! Files that are to be read again, and cannot be read to their ends.

use std::fs;

use feedline_schemas::{config::load, ids::Name};
use feedline_storage::Store;

use super::{Reread, reread};
use crate::{context::Context, files::tests::gzip, run::ingest, status, testing};

#[tokio::test]
async fn a_file_that_is_damaged_in_the_middle_is_not_read_again_and_keeps_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl.gz");
    let content: String = (0..5000).map(|i| format!("{{\"a\":{i}}}\n")).collect();
    let packed = gzip(content.as_bytes());
    fs::write(&path, &packed).unwrap();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}\"\n",
        path.display()
    );
    let config = load("p.toml", &text, &[]).unwrap().config;
    let context = Context {
        root: Store::memory(),
        ..testing::context()
    };
    ingest(&config, None, &context).await.unwrap();
    let name = Name::new("s").unwrap();
    let what = Reread {
        files: Some("a.jsonl.gz".into()),
        ..Reread::default()
    };
    // Its first records can be read.
    fs::write(&path, &packed[..packed.len() - 9]).unwrap();
    for dry_run in [true, false] {
        let refused = reread(&config, &name, &what, &context, dry_run).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("a.jsonl.gz"), "{error}");
        let landed = status(&config, &context.root).await.unwrap();
        assert_eq!(landed.rows, 5000);
    }
    fs::write(&path, &packed).unwrap();
    let done = reread(&config, &name, &what, &context, false).await;
    assert_eq!(done.unwrap().rows, 5000);
}
