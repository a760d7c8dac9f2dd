use std::os::unix::{fs::symlink, net::UnixListener};

use feedline_readers::record::Record;
use feedline_schemas::{commit::Position, config::SourceConfig};

use super::{Folder, files, refused};
use crate::source::Source as _;

/// Reads all files; returns the number of records, and the message about entries that are not read.
async fn read(config: &SourceConfig) -> (usize, Option<String>) {
    let mut files = files(config);
    let (mut at, mut records) = (Position::Start, 0);
    while !matches!(at, Position::Done { .. }) {
        let page = files.next_page(&at).await.unwrap();
        let is_good = |record: &&Record| record.value().is_some();
        records += page.records.iter().filter(is_good).count();
        at = page.next;
    }
    let mut warnings = files.warnings();
    warnings.retain(|warning| warning.code == "unread_entries");
    assert!(warnings.len() < 2, "{warnings:?}");
    let keys = warnings.iter().filter_map(|warning| warning.key.as_deref());
    assert!(keys.eq(warnings.iter().map(|_| "url")), "{warnings:?}");
    (records, warnings.pop().map(|warning| warning.message))
}

#[tokio::test]
async fn links_to_nothing_and_sockets_that_match_are_named_in_a_warning() {
    let folder = Folder::new(&[("in/a.csv", b"a\n1\n"), ("in/d/b.csv", b"a\n2\n")]);
    symlink(folder.path("gone.csv"), folder.path("in/c.csv")).unwrap();
    symlink(folder.path("gone"), folder.path("in/e")).unwrap();
    let _socket = UnixListener::bind(folder.path("in/s.csv")).unwrap();
    let place = folder.path("in/");
    let (records, message) = read(&folder.source("in/*.csv")).await;
    let expected = format!(
        "2 entries of `{place}` are not read: `c.csv` (a link to nothing), `s.csv` (a pipe, socket or device); remove the link or restore its target, write the data to a file, or narrow `url`"
    );
    assert_eq!((records, message), (1, Some(expected)));
    // The link `e` may be a folder of such files.
    for url in ["in/**/*.csv", "in"] {
        let (records, message) = read(&folder.source(url)).await;
        let message = message.unwrap();
        assert_eq!(records, 2, "{url}");
        assert!(message.starts_with("3 entries of"), "{message}");
        assert!(message.contains("`e` (a link to nothing)"), "{message}");
    }
    assert_eq!(read(&folder.source("in/a*.csv")).await, (1, None));
}

#[tokio::test]
async fn where_no_file_can_be_read_the_error_names_the_entries() {
    let folder = Folder::new(&[("in/README", b"")]);
    symlink(folder.path("gone.csv"), folder.path("in/c.csv")).unwrap();
    for url in ["in/*.csv", "in"] {
        let error = refused(&folder.source(url)).await;
        let end =
            "`c.csv` (a link to nothing); remove the link or restore its target, or narrow `url`";
        assert!(error.ends_with(end), "{error}");
    }
}

#[tokio::test]
async fn a_single_file_that_is_a_socket_is_refused() {
    let folder = Folder::new(&[]);
    let _socket = UnixListener::bind(folder.path("s.csv")).unwrap();
    let error = refused(&folder.source("s.csv")).await;
    assert!(error.starts_with("`url`: "), "{error}");
    assert!(
        error.contains("s.csv` is a pipe, socket or device"),
        "{error}"
    );
}

#[tokio::test]
async fn a_folder_that_contains_itself_is_read_once_and_named() {
    let folder = Folder::new(&[("in/d/a.csv", b"a\n1\n")]);
    symlink(folder.path("in"), folder.path("in/d/up")).unwrap();
    let (records, message) = read(&folder.source("in/**/*.csv")).await;
    assert_eq!(records, 1);
    let message = message.unwrap();
    assert!(
        message.contains("`d/up` (a link leads back to"),
        "{message}"
    );
    assert_eq!(read(&folder.source("in/*/a.csv")).await, (1, None));
}

// Other systems refuse such names.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_whose_names_are_not_utf8_are_named_in_a_warning() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

    let folder = Folder::new(&[("in/a.csv", b"a\n1\n")]);
    let place = folder.path("in/");
    let odd = Path::new(&place).join(OsStr::from_bytes(b"M\xfcnchen.csv"));
    std::fs::write(odd, "a\n2\n").unwrap();
    for url in ["in/*.csv", "in"] {
        let (records, message) = read(&folder.source(url)).await;
        let expected = format!(
            "1 entry of `{place}` is not read: `M\u{fffd}nchen.csv` (its path is not UTF-8); rename it in UTF-8, or narrow `url`"
        );
        assert_eq!((records, message), (1, Some(expected)), "{url}");
    }
}
