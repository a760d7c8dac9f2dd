//! Delimiters, encodings, headers and quotes of CSV files.

use feedline_readers::file_format;
use feedline_schemas::{commit::Position, config::SourceConfig};

use super::{Folder, files, one, pages, records, refused, source, told};
use crate::{error::Error, source::Source as _};

#[tokio::test]
async fn csv_gives_cells_as_written_and_nulls() {
    let folder = Folder::new(&[(
        "a.csv",
        b"\xef\xbb\xbfid,name,\n007, NA ,1.50\n,\"x, \"\"y\"\"\",\n",
    )]);
    let mut config = folder.source("a.csv");
    config.csv.null_values = vec!["NA".into()];
    let expected = [
        r#"{"column_3":"1.50","id":"007","name":null}"#,
        r#"{"column_3":null,"id":null,"name":"x, \"y\""}"#,
    ];
    assert_eq!(records(&config).await, expected);
}

#[tokio::test]
async fn fault_42_ragged_and_broken_rows_are_bad_records_with_their_place() {
    let folder = Folder::new(&[("a.csv", b"a,b\n1,2\n3\n4,5,\"6,7\"\n8,\xff\n9,10\n")]);
    let expected = [
        r#"{"a":"1","b":"2"}"#,
        "ragged_row | line 3 (byte 8 of the file): 1 field, the header has 2 | 3",
        "ragged_row | line 4 (byte 10 of the file): 3 fields, the header has 2 | 4,5,\"6,7\"",
        "invalid_utf8 | line 5 (byte 20 of the file): column `b` is not UTF-8: set `csv.encoding`, such as to `windows-1252` | 8,\u{fffd}",
        r#"{"a":"9","b":"10"}"#,
    ];
    assert_eq!(records(&folder.source("a.csv")).await, expected);
}

/// Lines of the rows `bad` of a CSV file, which have too few fields. Checks their offsets.
async fn bad_lines(content: &str, change: fn(&mut SourceConfig)) -> Vec<usize> {
    let folder = Folder::new(&[("a.csv", content.as_bytes())]);
    let mut config = folder.source("a.csv");
    change(&mut config);
    let found = records(&config).await;
    let bad = found
        .iter()
        .filter_map(|record| record.strip_prefix("ragged_row | line "));
    let line = |detail: &str| {
        let (line, rest) = detail.split_once(" (byte ").unwrap();
        let byte: usize = rest.split_once(' ').unwrap().0.parse().unwrap();
        assert!(content[byte..].starts_with("bad"), "{byte}: {content:?}");
        line.parse().unwrap()
    };
    bad.map(line).collect()
}

#[tokio::test]
async fn bad_rows_have_the_same_lines_whatever_ends_the_lines() {
    let long = |row: usize| match row % 100 {
        99 => "bad\n".to_owned(),
        _ => format!("{row},1\n"),
    };
    let long = format!("a,b\n{}", (0..3000).map(long).collect::<String>());
    let long_lines: Vec<usize> = (1..=30).map(|count| count * 100 + 1).collect();
    let plain = |_: &mut SourceConfig| {};
    type Change = fn(&mut SourceConfig);
    let cases: [(&str, &[usize], Change); 6] = [
        ("a,b\n1,2\nbad\n3,4\nbad", &[3, 5], plain),
        ("a,b\n1,\"x\ny\n\"\nbad\n3,4\nbad\n", &[5, 7], plain),
        ("\u{feff}a,b\n\n\nbad\n1,2\n\nbad\n", &[4, 7], plain),
        ("\n\na,b\nbad\n", &[4], plain),
        ("\n1,2\n\nbad\n", &[4], |config| config.csv.header = false),
        (&long, &long_lines, plain),
    ];
    for (text, lines, change) in cases {
        for end in ["\n", "\r\n", "\r"] {
            let found = bad_lines(&text.replace('\n', end), change).await;
            assert_eq!(found, lines, "{end:?}: {:?}", text.get(..40));
        }
    }
    // Passed over up to a line feed.
    for end in ["\n", "\r\n"] {
        let text = "Report\n\na,b\n# 1, 2\n\n3,4\n# 5\nbad\n".replace('\n', end);
        let found = bad_lines(&text, |config| {
            config.csv.skip_rows = 2;
            config.csv.comment = Some("#".into());
        });
        assert_eq!(found.await, [8], "{end:?}");
    }
}

#[tokio::test]
async fn tsv_and_other_delimiters_are_read() {
    let folder = Folder::new(&[("a.tsv", b"a\tb\n1,5\t2\n"), ("b.csv", b"a;b\n1;2\n")]);
    assert_eq!(
        records(&folder.source("a.tsv")).await,
        [r#"{"a":"1,5","b":"2"}"#]
    );
    let mut config = folder.source("b.csv");
    config.csv.delimiter = Some(";".into());
    assert_eq!(records(&config).await, [r#"{"a":"1","b":"2"}"#]);
}

#[tokio::test]
async fn a_first_line_that_names_the_delimiter_is_no_header_of_the_files_that_have_it() {
    let folder = Folder::new(&[
        ("a.csv", b"a,b\n1,2\n"),
        ("b.csv", b"sep=;\r\na;b\r\n3,5;4\r\n5\r\n"),
        ("c.csv", b"\xef\xbb\xbf\"sep=|\"\na|b\n6;7|8,9\n10\n"),
        ("d.csv", b"sep=;\ra;b\r11;12\r"),
    ]);
    let mut config = folder.source("*.csv");
    let expected = [
        r#"{"a":"1","b":"2"}"#,
        r#"{"a":"3,5","b":"4"}"#,
        "ragged_row | line 4 (byte 19 of the file): 1 field, the header has 2 | 5",
        r#"{"a":"6;7","b":"8,9"}"#,
        "ragged_row | line 4 (byte 23 of the file): 1 field, the header has 2 | 10",
        r#"{"a":"11","b":"12"}"#,
    ];
    assert_eq!(records(&config).await, expected);
    assert_eq!(told(&config).await, one("csv_delimiter", "csv.delimiter"));
    config.csv.delimiter = Some(",".into());
    let error = refused(&config).await;
    let part = "its first line `sep=;` names another delimiter than `csv.delimiter = \",\"`; remove the key";
    assert!(error.contains(part), "{error}");
    // Without the line, the delimiter of this file would be ambiguous.
    let folder = Folder::new(&[("a.csv", b"sep=|\na;b|c\n1;2|3\n")]);
    for (skip_rows, delimiter) in [(0, None), (0, Some("|")), (1, None), (1, Some("|"))] {
        let mut config = folder.source("a.csv");
        config.csv.skip_rows = skip_rows;
        config.csv.delimiter = delimiter.map(str::to_owned);
        assert_eq!(records(&config).await, [r#"{"a;b":"1;2","c":"3"}"#]);
        let expected = match delimiter {
            None => one("csv_delimiter", "csv.delimiter"),
            Some(_) => Vec::new(),
        };
        assert_eq!(told(&config).await, expected);
    }
}

/// Records of two files with `csv.skip_rows = 1`, the second with a `sep=` line at its beginning; or the key of an
/// error.
async fn skip_one(first: &[u8], header: bool) -> Result<Vec<String>, String> {
    let folder = Folder::new(&[("x.csv", first), ("y.csv", b"sep=;\na;b\n3;4\n")]);
    let mut config = folder.source("*.csv");
    (config.csv.skip_rows, config.csv.header) = (1, header);
    match pages(&config, Position::Start).await {
        Ok(pages) => Ok(pages.into_iter().flat_map(|(records, _)| records).collect()),
        Err(Error::Config { key, .. }) => Err(key),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn skipped_rows_count_a_line_that_names_the_delimiter_in_each_file_or_are_refused() {
    for header in [true, false] {
        let found = skip_one(b"a,b\n1,2\n", header).await;
        assert_eq!(found.unwrap_err(), "csv.skip_rows");
    }
    // The title is a line in place of the other.
    let of_other = r#"{"a":"3","b":"4"}"#;
    for title in ["Report\na,b\n1,2\n", "Report;\na;b\n1;2\n"] {
        let found = skip_one(title.as_bytes(), true).await;
        assert_eq!(found.unwrap(), [r#"{"a":"1","b":"2"}"#, of_other]);
    }
    let found = skip_one(b"Title\ncol\n1\n", true).await;
    assert_eq!(found.unwrap(), [r#"{"col":"1"}"#, of_other]);
}

#[tokio::test]
async fn skipped_rows_end_with_the_header_where_names_are_configured() {
    let folder = Folder::new(&[
        ("x.csv", b"sep=;\na;b\n1;2\n"),
        ("y.csv", b"Title\na;b\n3;4\n"),
    ]);
    let mut config = folder.source("*.csv");
    (config.csv.skip_rows, config.csv.header) = (2, false);
    config.csv.columns = vec!["a".to_owned(), "b".to_owned()];
    let expected = [r#"{"a":"1","b":"2"}"#, r#"{"a":"3","b":"4"}"#];
    assert_eq!(records(&config).await, expected);
}

#[tokio::test]
async fn a_header_with_a_name_twice_is_refused() {
    let folder = Folder::new(&[("a.csv", b"a,b,a\n")]);
    assert!(
        refused(&folder.source("a.csv"))
            .await
            .ends_with("its header line has `a` twice; give every column a name of its own, or set `csv.header = false` if it is no header")
    );
}

#[tokio::test]
async fn the_delimiter_is_that_which_splits_all_lines_alike() {
    let found = |content: &'static str| async move {
        let folder = Folder::new(&[("a.csv", content.as_bytes())]);
        let config = folder.source("a.csv");
        (records(&config).await.join(" "), told(&config).await)
    };
    let by_delimiter = one("csv_delimiter", "csv.delimiter");
    let semicolons = found("a;b\n1,5;2\n\"x;y\";3\n").await;
    assert_eq!(
        semicolons,
        (
            r#"{"a":"1,5","b":"2"} {"a":"x;y","b":"3"}"#.into(),
            by_delimiter.clone()
        )
    );
    let tabs = found("a\tb\n1\t2\n").await;
    assert_eq!(tabs, (r#"{"a":"1","b":"2"}"#.into(), by_delimiter.clone()));
    // A comma in a name does not hide it.
    let named = found("a, of b;c\n1;2\n3;4\n").await;
    assert_eq!(named.1, by_delimiter);
    assert!(
        named.0.starts_with(r#"{"a, of b":"1","c":"2"}"#),
        "{}",
        named.0
    );
    // One column of text stays one, with a warning where that may be wrong.
    assert_eq!(found("a\nx;y\nz\n").await.1, []);
    assert_eq!(found("a;b\nx;y;z\n").await.1, by_delimiter);
    assert_eq!(found("a,b\n1;1,2;2\n").await.1, []);
    let folder = Folder::new(&[("a.csv", b"a;b|c\n1;2|3\n")]);
    let error = refused(&folder.source("a.csv")).await;
    assert!(
        error.ends_with("`;` and `|` each split its lines alike; set `csv.delimiter`"),
        "{error}"
    );
    let mut config = folder.source("a.csv");
    config.csv.delimiter = Some("|".into());
    assert_eq!(records(&config).await, [r#"{"a;b":"1;2","c":"3"}"#]);
    assert_eq!(told(&config).await, []);
}

#[tokio::test]
async fn a_large_file_is_split_as_its_beginning_is() {
    let rows = (0..30_000).map(|i| format!("{i};{}\n", i % 7));
    let content: String = std::iter::once("a;b\n".to_owned()).chain(rows).collect();
    let folder = Folder::new(&[("a.csv", content.as_bytes())]);
    let all = records(&folder.source("a.csv")).await;
    assert_eq!(all.len(), 30_000);
    assert_eq!(all[29_999], r#"{"a":"29999","b":"4"}"#);
}

#[tokio::test]
async fn other_encodings_are_read_by_their_mark_or_by_the_key() {
    let wide = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    };
    let text = "a,b\nä,1\n\u{1f600},2\n";
    let expected = [r#"{"a":"ä","b":"1"}"#, "{\"a\":\"\u{1f600}\",\"b\":\"2\"}"];
    let marked = format!("\u{feff}{text}");
    for content in [
        wide(&marked, u16::to_le_bytes),
        wide(&marked, u16::to_be_bytes),
    ] {
        let folder = Folder::new(&[("a.csv", &content)]);
        let mut config = folder.source("a.csv");
        assert_eq!(records(&config).await, expected);
        assert_eq!(told(&config).await, one("csv_encoding", "csv.encoding"));
        config.csv.encoding = Some("utf-16".into());
        assert_eq!(records(&config).await, expected);
        assert_eq!(told(&config).await, []);
    }
    let folder = Folder::new(&[("a.csv", &wide(text, u16::to_le_bytes))]);
    let mut config = folder.source("a.csv");
    let error = refused(&config).await;
    assert!(
        error.contains("set `csv.encoding` to `utf-16le`"),
        "{error}"
    );
    config.csv.encoding = Some("utf-16le".into());
    assert_eq!(records(&config).await, expected);
    let folder = Folder::new(&[("a.csv", b"\xe4,b\n\xe41,\x802\n")]);
    let mut config = folder.source("a.csv");
    let error = refused(&config).await;
    assert!(error.contains("set `csv.encoding`"), "{error}");
    for label in ["latin-1", "windows-1252", "ISO_8859-1"] {
        config.csv.encoding = Some(label.into());
        assert_eq!(
            records(&config).await,
            [r#"{"b":"€2","ä":"ä1"}"#],
            "{label}"
        );
    }
    config.csv.encoding = Some("klingon".into());
    let error = refused(&config).await;
    assert!(
        error.starts_with("`csv.encoding`: `klingon` is no encoding"),
        "{error}"
    );
}

#[tokio::test]
async fn bytes_that_are_none_of_the_encoding_end_the_run_with_their_place() {
    let long: String = (0..40_000).map(|i| format!("{i}\n")).collect();
    let mut content: Vec<u8> = long.encode_utf16().flat_map(u16::to_le_bytes).collect();
    content.extend([0x00, 0xd8, 0x0a, 0x00]);
    let folder = Folder::new(&[("a.csv", &content)]);
    let mut config = folder.source("a.csv");
    config.csv.encoding = Some("utf-16le".into());
    let error = refused(&config).await;
    assert!(error.contains("it is not UTF-16LE at byte "), "{error}");
}

#[tokio::test]
async fn files_without_a_header_have_the_names_that_are_given() {
    let folder = Folder::new(&[("a.csv", b"\xef\xbb\xbf5.1,x\n4.9,y\n")]);
    let mut config = folder.source("a.csv");
    let by_header = one("header_looks_like_data", "csv.header");
    assert_eq!(told(&config).await, by_header);
    folder.write("a.csv", b"\xef\xbb\xbf5.1,3.5,x\n4.9,3,y\n");
    assert_eq!(told(&config).await, by_header);
    config.csv.header = false;
    assert_eq!(
        records(&config).await,
        [
            r#"{"column_1":"5.1","column_2":"3.5","column_3":"x"}"#,
            r#"{"column_1":"4.9","column_2":"3","column_3":"y"}"#
        ]
    );
    assert_eq!(told(&config).await, []);
    config.csv.columns = ["l", "w", "s"].map(str::to_owned).to_vec();
    config.batch.rows = feedline_schemas::config::Bounded::literal::<1>();
    let whole = pages(&config, Position::Start).await.unwrap();
    assert_eq!(whole[0].0, [r#"{"l":"5.1","s":"x","w":"3.5"}"#]);
    assert_eq!(
        pages(&config, whole[0].1.clone()).await.unwrap(),
        whole[1..]
    );
    config.csv.header = true;
    assert_eq!(records(&config).await, [r#"{"l":"4.9","s":"y","w":"3"}"#]);
    config.csv.columns.pop();
    let error = refused(&config).await;
    assert!(
        error.contains("has 3 fields, and `csv.columns` names 2"),
        "{error}"
    );
}

#[tokio::test]
async fn skipped_rows_of_a_whole_file_are_the_reason_of_its_emptiness() {
    let folder = Folder::new(&[("a.csv", b"id,v\n1,2\n3,4\n")]);
    let mut config = folder.source("a.csv");
    for (skip_rows, header, key) in [
        (5, true, Some("csv.skip_rows")),
        (3, false, Some("csv.skip_rows")),
        (2, true, Some("")),
        (2, false, None),
    ] {
        (config.csv.skip_rows, config.csv.header) = (skip_rows, header);
        let found = told(&config).await;
        let empty = found.iter().find(|(code, _)| code == "empty_file");
        let found = empty.map(|(_, key)| key.as_str());
        assert_eq!(found, key, "{skip_rows} {header}");
    }
    let folder = Folder::new(&[("a.csv", b"id,v\n")]);
    let mut config = folder.source("a.csv");
    config.csv.skip_rows = 1;
    let mut source = files(&config);
    source.next_page(&Position::Start).await.unwrap();
    let found = source.warnings();
    let part = "a.csv` has no rows in its 5 bytes behind the 1 line that `csv.skip_rows` passes";
    let is_found = found.iter().any(|warning| warning.message.contains(part));
    assert!(is_found, "{found:?}");
}

#[tokio::test]
async fn a_configured_delimiter_that_splits_no_line_is_a_warning() {
    let warned = one("csv_delimiter", "csv.delimiter");
    for (text, delimiter, expected) in [
        ("id;v\n0;0\n1;5\n", ",", warned.clone()),
        ("id;v\n0;0\n1;5\n", "\t", warned.clone()),
        ("a,b,c\n1,2,3\n", ";", warned),
        ("id;v\n0;0\n", ";", Vec::new()),
        ("text\nx, y\nz\n", ";", Vec::new()),
    ] {
        let folder = Folder::new(&[("a.csv", text.as_bytes())]);
        let mut config = folder.source("a.csv");
        config.csv.delimiter = Some(delimiter.to_owned());
        assert_eq!(told(&config).await, expected, "{text} {delimiter}");
    }
}

#[tokio::test]
async fn lines_before_the_header_comments_and_quotes_are_read_as_configured() {
    let folder = Folder::new(&[("a.csv", b"Report\n\na,b\n# made by hand\n1,\"2\n3\n")]);
    let mut config = folder.source("a.csv");
    config.csv.skip_rows = 2;
    config.csv.comment = Some("#".into());
    config.csv.quote = Some(String::new());
    assert_eq!(
        records(&config).await,
        [
            r#"{"a":"1","b":"\"2"}"#,
            "ragged_row | line 6 (byte 32 of the file): 1 field, the header has 2 | 3"
        ]
    );
    folder.write("a.csv", b"a,b\n'1,2',3\n");
    let mut config = folder.source("a.csv");
    config.csv.quote = Some("'".into());
    assert_eq!(records(&config).await, [r#"{"a":"1,2","b":"3"}"#]);
    let refuses = |change: fn(&mut SourceConfig)| {
        let mut config = source("a.csv");
        change(&mut config);
        file_format::of("a.csv", &config).unwrap_err().to_string()
    };
    assert!(refuses(|c| c.csv.quote = Some("ab".into())).starts_with("`csv.quote`: use one ASCII"));
    assert!(
        refuses(|c| c.csv.comment = Some(String::new()))
            .starts_with("`csv.comment`: use one ASCII")
    );
    assert!(
        refuses(|c| {
            c.csv.quote = Some("'".into());
            c.csv.comment = Some("'".into());
        })
        .contains("must be different")
    );
    assert!(
        refuses(|c| c.csv.columns = vec!["a".into(), "a".into()])
            .starts_with("`csv.columns`: `a` (number 1, from 0)")
    );
    assert!(refuses(|c| c.csv.skip_rows = 1_000_001).starts_with("`csv.skip_rows`"));
}

#[tokio::test]
async fn text_behind_a_closing_quote_is_a_warning_and_backslashes_can_be_escapes() {
    let text = b"id,a\n0,plain\n1,\"say \\\"hi\\\", x\"\n2,\"say \\\"ho\\\"\"\n";
    let folder = Folder::new(&[("a.csv", text)]);
    let mut config = folder.source("a.csv");
    assert_eq!(told(&config).await, one("csv_quotes", "csv.escape"));
    config.csv.escape = Some("\\".into());
    let expected = [
        r#"{"a":"plain","id":"0"}"#,
        r#"{"a":"say \"hi\", x","id":"1"}"#,
        r#"{"a":"say \"ho\"","id":"2"}"#,
    ];
    assert_eq!(records(&config).await, expected);
    assert_eq!(told(&config).await, []);
    let folder = Folder::new(&[("a.csv", b"id,a\n0,\"Keep \"in touch\" x\"\n")]);
    let mut config = folder.source("a.csv");
    assert_eq!(told(&config).await, one("csv_quotes", "csv.quote"));
    config.csv.quote = Some(String::new());
    assert_eq!(told(&config).await, []);
}
