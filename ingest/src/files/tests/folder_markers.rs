//! Objects that only mark a folder of a bucket, as consoles of object stores create them.

use feedline_storage::StoreOptions;

use super::{new_file_list, source};
use crate::{
    context::Context,
    testing::{Scripted, answer, context},
};

#[tokio::test]
async fn markers_of_folders_are_no_files_and_give_no_warning() {
    let object = |(key, bytes): (&str, u64)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
             <ETag>\"1\"</ETag><Size>{bytes}</Size></Contents>"
        )
    };
    let objects: String = [
        ("mark/", 0),
        ("mark/empty/", 0),
        ("mark/full/", 0),
        ("mark/full/a.csv", 4),
    ]
    .map(object)
    .concat();
    let body = format!("<ListBucketResult>{objects}</ListBucketResult>");
    let server = Scripted::answering(move |_, _| answer("200 OK", &body)).await;
    let vars = [
        (
            "AWS_ENDPOINT_URL",
            server.url.as_str().trim_end_matches('/'),
        ),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "key"),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let context = Context {
        store_options: StoreOptions {
            vars: vars.into(),
            ..StoreOptions::default()
        },
        ..context()
    };
    for pattern in ["", "**", "*/*"] {
        let config = source(&format!("s3://lake/mark/{pattern}"));
        let list = new_file_list(&config, None, &context).unwrap();
        let found = list.list_existing().await.unwrap();
        let urls: Vec<&str> = found.iter().map(|file| file.url.as_str()).collect();
        assert_eq!(urls, ["s3://lake/mark/full/a.csv"], "{pattern}");
        let warnings = list.notices.all();
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}
