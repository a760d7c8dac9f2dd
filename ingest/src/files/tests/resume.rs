//! Resuming inside files, and between them.

use feedline_schemas::{
    commit::{FileMark, FileProgress, PageRun, Position},
    config::{FileFormat, FilesChanged},
    ids::Hash128,
};

use super::{Folder, gzip, pages, split};

#[tokio::test]
async fn images_share_pages_and_one_that_cannot_be_unpacked_is_one_bad_record() {
    let folder = Folder::new(&[
        ("d/1.png", b"1"),
        ("d/2.png.gz", &gzip(b"2")[..12]),
        ("d/3.png", b"3"),
        ("d/4.png", b"4"),
        ("d/5.png", b"5"),
    ]);
    let mut config = folder.source("d");
    config.format = FileFormat::Image;
    config.batch.rows = feedline_schemas::config::Bounded::literal::<3>();
    let found = pages(&config, Position::Start).await.unwrap();
    let lengths: Vec<usize> = found.iter().map(|(records, _)| records.len()).collect();
    assert_eq!(lengths, [3, 2]);
    assert!(
        found[0].0[1].contains("unreadable_image"),
        "{:?}",
        found[0].0
    );
    let Position::File {
        done,
        current: None,
    } = &found[0].1
    else {
        panic!("{:?}", found[0].1)
    };
    assert_eq!(done.len(), 3);
    let rest = pages(&config, found[0].1.clone()).await.unwrap();
    assert_eq!(rest, found[1..]);
}

#[tokio::test]
async fn a_table_that_is_emptied_while_it_is_read_is_refused() {
    let folder = Folder::new(&[("a.csv", b"a\n1\n2\n3\n")]);
    let mut config = folder.source("a.csv");
    config.batch.rows = feedline_schemas::config::Bounded::literal::<2>();
    let found = pages(&config, Position::Start).await.unwrap();
    folder.write("a.csv", b"");
    let refused = pages(&config, found[0].1.clone()).await.unwrap_err();
    let error = refused.to_string();
    let part = "a.csv`: some of its records have landed";
    assert!(error.contains(part), "{error}");
}

#[tokio::test]
async fn reading_goes_on_at_every_page_as_if_it_had_never_stopped() {
    let lines = |from: u32, to: u32| {
        (from..to)
            .map(|i| format!("{{\"a\":{i}}}\n"))
            .collect::<String>()
    };
    let csv: String = std::iter::once("a\n".to_owned())
        .chain((0..7).map(|i| format!("{i}\n")))
        .collect();
    let array = format!("[{}]", lines(0, 5).trim().replace('\n', ","));
    let folder = Folder::new(&[
        ("1.ndjson", lines(0, 10).as_bytes()),
        ("2.csv", csv.as_bytes()),
        ("3.csv", b""),
        ("4.json", array.as_bytes()),
        ("5.parquet", &feedline_readers::testing::numbers(11)),
    ]);
    let mut config = folder.source("*");
    config.batch.rows = feedline_schemas::config::Bounded::literal::<3>();
    let whole = pages(&config, Position::Start).await.unwrap();
    assert_eq!(whole.len(), 4 + 3 + 1 + 2 + 4);
    for (i, (_, position)) in whole.iter().enumerate().take(whole.len() - 1) {
        assert_eq!(
            pages(&config, position.clone()).await.unwrap(),
            whole[i + 1..],
            "after page {i}"
        );
    }
}

#[tokio::test]
async fn a_later_run_reads_only_new_files() {
    let folder = Folder::new(&[("b.ndjson", b"{\"a\":1}\n")]);
    let config = folder.source("*.ndjson");
    let (_, done) = pages(&config, Position::Start)
        .await
        .unwrap()
        .pop()
        .unwrap();
    assert_eq!(
        pages(&config, done.clone()).await.unwrap(),
        [(vec![], done.clone())]
    );
    folder.write("a.ndjson", b"{\"a\":2}\n");
    let (records, later) = pages(&config, done.clone()).await.unwrap().pop().unwrap();
    assert_eq!(records, [r#"{"a":2}"#]);
    let Position::Done { files, .. } = later else {
        panic!("{later:?}")
    };
    assert_eq!(files.len(), 2);
    std::fs::remove_file(folder.0.path().join("a.ndjson")).unwrap();
    std::fs::remove_file(folder.0.path().join("b.ndjson")).unwrap();
    assert_eq!(
        pages(&config, done.clone()).await.unwrap(),
        [(vec![], done)]
    );
}

#[tokio::test]
async fn a_file_that_has_grown_is_read_on_from_every_page() {
    for (name, header, end) in [
        ("a.ndjson", "", "\n"),
        ("a.csv", "a\n", "\n"),
        ("a.csv", "sep=;\na\n", "\n"),
        ("a.csv", "sep=;\r\na\r\n", "\r\n"),
        ("a.csv", "sep=;\ra\r", "\r"),
    ] {
        let row = |i: u32| match header {
            "" => format!("{{\"a\":{i}}}{end}"),
            _ => format!("{i}{end}"),
        };
        let content = |to: u32| header.to_owned() + &(1..=to).map(row).collect::<String>();
        let folder = Folder::new(&[(name, content(2).as_bytes())]);
        let mut config = folder.source(name);
        config.batch.rows = feedline_schemas::config::Bounded::literal::<1>();
        let whole = pages(&config, Position::Start).await.unwrap();
        let values = |found: Vec<(Vec<String>, Position)>| -> String {
            let records = found.into_iter().flat_map(|(records, _)| records);
            records
                .collect::<String>()
                .replace(['{', '}', '"', ':', 'a'], "")
        };
        for to in [4, 5] {
            folder.write(name, content(to).as_bytes());
            let all: String = (1..=to).map(|i| i.to_string()).collect();
            for (place, (_, position)) in whole.iter().enumerate() {
                let found = pages(&config, position.clone()).await.unwrap();
                assert_eq!(values(found), all[place + 1..], "{header:?} from {place}");
            }
        }
        // And from every page of the appended part.
        let grown = pages(&config, whole[1].1.clone()).await.unwrap();
        folder.write(name, content(7).as_bytes());
        for (place, (_, position)) in grown.iter().enumerate() {
            let found = pages(&config, position.clone()).await.unwrap();
            assert_eq!(
                values(found),
                "34567"[place + 1..],
                "{header:?} from {place}"
            );
        }
        config.files.changed = FilesChanged::Refuse;
        for (_, position) in whole {
            let error = pages(&config, position).await.unwrap_err().to_string();
            assert!(
                error.contains("it has changed since its records landed"),
                "{error}"
            );
        }
    }
}

/// The parser removes it from the beginning of what it reads, which is not that of the file.
#[tokio::test]
async fn a_mark_at_the_beginning_of_appended_rows_is_text_as_it_is_in_a_whole_file() {
    let folder = Folder::new(&[("a.csv", b"a\n1\n")]);
    let config = folder.source("a.csv");
    let (_, before) = pages(&config, Position::Start).await.unwrap().remove(0);
    folder.write("a.csv", "a\n1\n\u{feff}2\n".as_bytes());
    let whole = pages(&config, Position::Start).await.unwrap().remove(0);
    let appended = pages(&config, before).await.unwrap().remove(0);
    assert_eq!(appended.0, ["{\"a\":\"\u{feff}2\"}"]);
    assert_eq!(appended.0, whole.0[1..]);
}

#[test]
fn a_file_that_was_read_with_a_user_in_its_url_counts_as_read() {
    let url = |user: &str| format!("http://{user}h/a.csv");
    let mark = |user: &str| FileMark {
        url: url(user),
        bytes: 1,
        hash: Hash128::of(b"1"),
        modified_unix_ms: None,
        etag: None,
    };
    let current = |user: &str| FileProgress {
        url: url(user),
        records: 1,
        hash: Hash128::of(b"1"),
        bytes: None,
        from: 0,
    };
    let file = |user: &str| Position::File {
        done: vec![mark(user)],
        current: Some(current(user)),
    };
    let expected = (vec![mark("")], Some(current("")), 0);
    assert_eq!(split(&file("u:pw@")).unwrap(), expected);
    assert_eq!(split(&file("")).unwrap(), expected);
    let done = Position::Done {
        pages: 2,
        files: vec![mark("u@")],
        run: PageRun::default(),
    };
    assert_eq!(split(&done).unwrap(), (vec![mark("")], None, 2));
}
