//! Tests of the formats of files and of their order.

mod archives;
mod csv;
mod folder_markers;
mod idx;
mod images;
mod resume;
mod unread_entries;

use std::io::Write;

use feedline_readers::record::Record;
use feedline_schemas::config::load;
use feedline_storage::clock::SystemClock;

use super::*;

/// A `files` source called `s`.
pub(crate) fn source(url: &str) -> SourceConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n"
    );
    load("p", &text, &[]).unwrap().config.source.remove(0)
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        files
            .iter()
            .for_each(|(name, content)| folder.write(name, content));
        folder
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.0.path().display())
    }

    pub(crate) fn source(&self, name: &str) -> SourceConfig {
        source(&self.path(name))
    }
}

fn files(config: &SourceConfig) -> Files {
    let list = FileList {
        config: config.clone(),
        options: StoreOptions::default(),
        notices: Notices::default(),
        download: None,
    };
    Files::new(list, None, Arc::new(SystemClock))
}

/// All pages from `at`: records for a reader, and the position after each page.
pub(crate) async fn pages(
    config: &SourceConfig,
    at: Position,
) -> Result<Vec<(Vec<String>, Position)>, Error> {
    let mut files = files(config);
    let mut at = at;
    let mut pages = Vec::new();
    loop {
        let page = files.next_page(&at).await?;
        at = page.next.clone();
        let show = |record: &Record| match record {
            record @ (Record::Value(_) | Record::Json(_)) => record.canonical(),
            Record::Bad {
                raw,
                reason,
                detail,
            } => format!("{reason} | {detail} | {raw}"),
        };
        pages.push((page.records.iter().map(show).collect(), page.next));
        if matches!(at, Position::Done { .. }) {
            return Ok(pages);
        }
    }
}

pub(crate) async fn records(config: &SourceConfig) -> Vec<String> {
    pages(config, Position::Start)
        .await
        .unwrap()
        .into_iter()
        .flat_map(|(records, _)| records)
        .collect()
}

pub(crate) async fn refused(config: &SourceConfig) -> String {
    pages(config, Position::Start)
        .await
        .unwrap_err()
        .to_string()
}

pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

/// Returns the codes and keys of the warnings from reading the files of `config`.
async fn told(config: &SourceConfig) -> Vec<(String, String)> {
    let mut files = files(config);
    let mut at = Position::Start;
    while !matches!(at, Position::Done { .. }) {
        at = files.next_page(&at).await.unwrap().next;
    }
    let told = files.warnings().into_iter();
    told.filter(|warning| warning.code != "unfinished_file")
        .map(|warning| (warning.code, warning.key.unwrap_or_default()))
        .collect()
}

fn one(code: &str, key: &str) -> Vec<(String, String)> {
    vec![(code.to_owned(), key.to_owned())]
}

#[tokio::test]
async fn the_setting_that_an_error_names_is_a_remedy_of_the_source() {
    let folder = Folder::new(&[
        ("list.json", br#"{"n":1,"b":{"c":[2]}}"#),
        ("number.json", b"7"),
        ("latin.csv", b"id,ort\n1,K\xf6ln\n2,Z\xfcrich\n3,Bonn\n"),
        ("twice.csv", b"a,a\n1,2\n"),
        ("signs.csv", b"a;b|c\n1;2|3\n"),
    ]);
    let latin = Some("windows-1252".to_owned());
    for (name, expected) in [
        ("list.json", Remedy::Records(vec!["b.c".to_owned()])),
        ("number.json", Remedy::Records(Vec::new())),
        ("latin.csv", Remedy::Encoding(latin)),
        ("twice.csv", Remedy::Header),
        ("signs.csv", Remedy::Delimiter),
    ] {
        let mut source = files(&folder.source(name));
        assert_eq!(source.remedies(), []);
        let read = source.next_page(&Position::Start).await;
        assert!(read.is_err(), "{name}");
        assert_eq!(source.remedies(), [expected], "{name}");
    }
}

#[tokio::test]
async fn fault_42_ndjson_sets_bad_lines_aside_with_their_place() {
    let folder = Folder::new(&[(
        "a.ndjson",
        b"{\"a\":1}\r\n\n{\"a\":\n[1]\n{\"a\":1,\"a\":2}\n{\"a\":2}",
    )]);
    let expected = [
        r#"{"a":1}"#,
        "malformed_line | line 3 (byte 10 of the file): the document ends at byte 5, where a value should be | {\"a\":",
        "not_an_object | line 4 (byte 16 of the file): a list where an object should be | [1]",
        // The contract decides about it.
        r#"{"a":1,"a":2}"#,
        r#"{"a":2}"#,
    ];
    assert_eq!(records(&folder.source("a.ndjson")).await, expected);
}

#[tokio::test]
async fn json_gives_the_elements_of_its_list() {
    let folder = Folder::new(&[
        ("a.json", br#"[{"a":1},2]"#),
        ("b.json", br#"{"x":{"y":[{"a":1}]},"n":0}"#),
    ]);
    let expected = [
        r#"{"a":1}"#,
        "not_an_object | element 2: an integer where an object should be | 2",
    ];
    assert_eq!(records(&folder.source("a.json")).await, expected);
    let mut config = folder.source("b.json");
    config.records = "x.y".into();
    assert_eq!(records(&config).await, [r#"{"a":1}"#]);
    config.records = "x".into();
    assert!(
        refused(&config)
            .await
            .ends_with("set `records` to the path of the list (lists in it: `y`)")
    );
    config.records = "z".into();
    assert!(
        refused(&config)
            .await
            .ends_with("no `z` exists at `records` = `z`, only `x`, `n`")
    );
    config.records = "n.a".into();
    assert!(
        refused(&config)
            .await
            .ends_with("`a` of `records` = `n.a` is looked for in an integer")
    );
}

#[tokio::test]
async fn packed_files_read_as_plain_ones() {
    let plain = b"{\"a\":1}\n{\"a\":2}\n";
    // Two gzip members and two zstd frames are one file.
    let gz = [gzip(&plain[..8]), gzip(&plain[8..])].concat();
    let zst = [
        zstd::encode_all(&plain[..3], 1).unwrap(),
        zstd::encode_all(&plain[3..], 1).unwrap(),
    ]
    .concat();
    let folder = Folder::new(&[("a.jsonl.gz", &gz), ("a.jsonl.zst", &zst)]);
    let expected = [r#"{"a":1}"#, r#"{"a":2}"#];
    assert_eq!(records(&folder.source("a.jsonl.gz")).await, expected);
    assert_eq!(records(&folder.source("a.jsonl.zst")).await, expected);
}

#[tokio::test]
async fn a_packed_file_that_was_cut_is_an_error_and_not_an_end() {
    let content: String = (0..5000).map(|i| format!("{{\"a\":{i}}}\n")).collect();
    let gz = gzip(content.as_bytes());
    let zst = zstd::encode_all(content.as_bytes(), 1).unwrap();
    let folder = Folder::new(&[
        ("a.jsonl.gz", &gz[..gz.len() - 9]),
        ("a.jsonl.zst", &zst[..zst.len() - 2]),
    ]);
    assert!(
        refused(&folder.source("a.jsonl.gz"))
            .await
            .contains("cannot read file")
    );
    assert!(
        refused(&folder.source("a.jsonl.zst"))
            .await
            .contains("cannot read file")
    );
}

#[tokio::test]
async fn files_are_read_in_the_order_of_their_names() {
    let line = |i: u32| format!("{{\"a\":{i}}}\n").into_bytes();
    let (one, two, three) = (line(1), line(2), line(3));
    let folder = Folder::new(&[
        ("d/b.ndjson", &two),
        ("d/c/x.ndjson", &three),
        ("d/a.ndjson", &one),
        ("d/README", b""),
    ]);
    assert_eq!(
        records(&folder.source("d/*.ndjson")).await,
        [r#"{"a":1}"#, r#"{"a":2}"#]
    );
    for url in ["d", "d/", "d/**/*.ndjson", "**/*.ndjson", "*/?.ndjson"] {
        let expected = [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#];
        assert_eq!(
            records(&folder.source(url)).await[..2],
            expected[..2],
            "{url}"
        );
    }
    assert_eq!(records(&folder.source("d")).await.len(), 3);
}

#[tokio::test]
async fn a_file_without_rows_is_told_by_name() {
    for (name, content) in [
        ("a.csv", &b""[..]),
        ("b.csv", b"a,b\n"),
        ("c.ndjson", b"\n"),
    ] {
        let folder = Folder::new(&[(name, content)]);
        let mut files = files(&folder.source(name));
        files.next_page(&Position::Start).await.unwrap();
        let told = files.warnings();
        assert_eq!(told[0].code, "empty_file");
        assert!(told[0].message.contains(name), "{told:?}");
    }
}

#[tokio::test]
async fn text_files_without_a_text_are_named_each_with_its_own_size() {
    let folder = Folder::new(&[
        ("d/a.txt", b" \n"),
        ("d/b.txt", b""),
        ("d/c.txt", b"\n"),
        ("d/d.txt", b"word\n"),
    ]);
    let mut config = folder.source("d/*.txt");
    config.format = FileFormat::Text;
    assert_eq!(records(&config).await.len(), 1);
    let mut files = files(&config);
    let mut at = Position::Start;
    while !matches!(at, Position::Done { .. }) {
        at = files.next_page(&at).await.unwrap().next;
    }
    let mut warnings = files.warnings().into_iter();
    let empty = warnings.find(|warning| warning.code == "empty_file");
    let message = empty.unwrap().message;
    for part in [
        "a.txt` has no text in its 2 bytes; ",
        "b.txt` is empty (0 bytes); ",
        "c.txt` has no text in its 1 byte",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn a_separator_that_splits_no_text_is_a_warning() {
    let folder = Folder::new(&[("d/1.txt", b"a\n--\nb"), ("d/2.txt", b"c")]);
    let not_found = || one("separator_not_found", "text.separator");
    for (file, separator, expected) in [
        ("*.txt", Some("\n--\n"), Vec::new()),
        ("*.txt", Some("\n==\n"), not_found()),
        ("2.txt", Some("\n--\n"), not_found()),
        ("2.txt", None, Vec::new()),
    ] {
        let mut config = folder.source(&format!("d/{file}"));
        config.format = FileFormat::Text;
        config.text.separator = separator.map(str::to_owned);
        assert_eq!(told(&config).await, expected, "{file} {separator:?}");
        // Files that landed before may have it.
        let mut later = files(&config);
        later.texts.note_landed();
        let mut at = Position::Start;
        while !matches!(at, Position::Done { .. }) {
            at = later.next_page(&at).await.unwrap().next;
        }
        let mut warnings = later.warnings().into_iter();
        assert!(warnings.all(|warning| warning.code != "separator_not_found"));
    }
}

#[tokio::test]
async fn a_missing_file_is_one_clear_error() {
    let folder = Folder::new(&[("x.txt", b"")]);
    let place = folder.0.path().display().to_string();
    assert_eq!(
        refused(&folder.source("no.csv")).await,
        format!(
            "`url`: file or folder `{place}/no.csv` does not exist (looked for `{place}/no.csv`); check the path, a relative one begins at the current folder"
        )
    );
    assert!(
        refused(&folder.source("*.csv"))
            .await
            .starts_with(&format!("`url`: no file matches `{place}/*.csv`"))
    );
    assert!(
        refused(&folder.source("x.txt"))
            .await
            .contains("has no known extension")
    );
    assert!(
        refused(&folder.source(""))
            .await
            .contains("none that ends in .csv")
    );
    assert!(
        refused(&source("ftp://x/y.csv"))
            .await
            .contains("unknown scheme")
    );
}
