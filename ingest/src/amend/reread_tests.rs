//! Files that are to be read again, and cannot be read to their ends.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use feedline_schemas::{config::load, ids::Name};
use feedline_storage::Store;

use super::{Reread, reread, reset};
use crate::{
    context::Context,
    files::tests::gzip,
    run::ingest,
    status,
    testing::{self, Scripted, Step, answer, raw},
};

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

/// Response of a server with WebDAV that lists all levels below `d`. Once `is_closed`, it refuses to list the folder
/// `private`, and the file in it has this status.
fn serve_folders(request: &str, is_closed: bool, status: &str) -> Step {
    let entry = |path: &str, properties: &str| {
        format!(
            "<response><href>/d/{path}</href><propstat><prop>{properties}</prop>\
             <status>HTTP/1.1 200 OK</status></propstat></response>"
        )
    };
    let file = |path: &str| {
        let size = "<getcontentlength>4</getcontentlength><resourcetype/>";
        entry(path, size)
    };
    let folder = |path: &str| entry(path, "<resourcetype><collection/></resourcetype>");
    let hidden = match is_closed {
        true => String::new(),
        false => file("private/b.csv"),
    };
    let entries = folder("open/") + &file("open/a.csv") + &folder("private/") + &hidden;
    let mut words = request.split(' ');
    match (words.next(), words.next()) {
        (Some("PROPFIND"), Some("/d" | "/d/")) => answer(
            "207 Multi-Status",
            &format!("<multistatus>{entries}</multistatus>"),
        ),
        (Some("PROPFIND"), _) => answer("403 Forbidden", ""),
        (_, Some("/d/private/b.csv")) if is_closed => {
            raw(&format!("{status}\r\nContent-Length: 4"), b"")
        }
        (Some("HEAD"), _) => raw("200 OK\r\nContent-Length: 4", b""),
        (_, Some("/d/private/b.csv")) => answer("200 OK", "n\n2\n"),
        _ => answer("200 OK", "n\n1\n"),
    }
}

#[tokio::test]
async fn a_file_that_a_listing_lacks_is_missing_only_if_its_own_status_says_so() {
    for (status, part) in [
        ("403 Forbidden", "access was refused: "),
        ("400 Bad Request", "the server answered 400 Bad Request"),
        ("200 OK", "the server has it: permit the listing"),
        ("404 Not Found", ""),
        ("410 Gone", ""),
    ] {
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let server = Scripted::answering(move |_, request| {
            serve_folders(request, closed.load(Ordering::Relaxed), status)
        })
        .await;
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}d/**/*.csv\"\n",
            server.url
        );
        let config = load("p.toml", &text, &[]).unwrap().config;
        let context = Context {
            root: Store::memory(),
            ..testing::context()
        };
        let count_rows = async || crate::status(&config, &context.root).await.unwrap().rows;
        ingest(&config, None, &context).await.unwrap();
        assert_eq!(count_rows().await, 2);
        is_closed.store(true, Ordering::Relaxed);
        let name = Name::new("s").unwrap();
        let planned = reset(&config, &name, &context, true).await.unwrap();
        let start = "at most 2 pages or files are read again: those that can still be read";
        assert!(planned.notes[0].starts_with(start), "{planned:?}");
        for missing_files in [false, true] {
            let what = Reread {
                files: Some("private/b.csv".into()),
                missing_files,
                ..Reread::default()
            };
            let done = reread(&config, &name, &what, &context, false).await;
            if !part.is_empty() {
                let error = done.unwrap_err().to_string();
                assert!(error.contains("/d/private/b.csv"), "{error}");
                assert!(error.contains(part), "{error}");
                assert_eq!(count_rows().await, 2);
            } else if missing_files {
                // The batch has the rows of both files.
                let done = done.unwrap();
                assert_eq!((done.rows, done.ranges.len()), (2, 1), "{done:?}");
            } else {
                let error = done.unwrap_err().to_string();
                let start = "1 of 2 files to be read again are not at `url`";
                assert!(error.contains(start), "{error}");
            }
        }
    }
}
