//! Tables and texts inside archives.

use super::*;
use feedline_schemas::config::Bounded;

/// Tables as statistical offices package them: with a leaflet, several formats, and leftover system
/// files.
fn members() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("README.txt", b"free".to_vec()),
        ("rates.csv", b"day,usd\n1,1.5\n2,N/A\n3,1.7\n".to_vec()),
        ("__MACOSX/._rates.csv", b"\xff\xfe".to_vec()),
        (
            "2020/more.ndjson",
            b"{\"day\":4}\n{\n{\"day\":5}\n".to_vec(),
        ),
        ("empty.csv", Vec::new()),
        ("2021/list.json", b"[{\"day\":6},{\"day\":7}]".to_vec()),
        ("2021/packed.csv.gz", gzip(b"day,usd\n8,1.8\n")),
        ("2021/last.tsv", b"day\tusd\n9\t1.9\n".to_vec()),
    ]
}

fn borrowed<'a>(members: &'a [(&'a str, Vec<u8>)]) -> Vec<(&'a str, &'a [u8])> {
    let borrow = |(name, bytes): &'a (&str, Vec<u8>)| (*name, bytes.as_slice());
    members.iter().map(borrow).collect()
}

/// Archives of members, by name.
fn packed(members: &[(&str, &[u8])]) -> Vec<(&'static str, Vec<u8>)> {
    let plain = tar(members);
    vec![
        ("a.zip", zip(members, CompressionMethod::Deflated)),
        ("as.zip", zip(members, CompressionMethod::Stored)),
        ("a.tar.gz", gzip(&plain)),
        ("a.tar.zst", zstd::encode_all(plain.as_slice(), 1).unwrap()),
        ("a.tar", plain),
    ]
}

fn of(folder: &Folder, name: &str, member: Option<&str>) -> SourceConfig {
    let mut config = folder.source(name);
    config.csv.null_values = vec!["N/A".into()];
    config.archive.member = member.map(Into::into);
    config
}

#[tokio::test]
async fn members_give_the_records_that_files_of_their_names_give() {
    let members = members();
    let mut expected = Vec::new();
    for (name, content) in members
        .iter()
        .filter(|(name, _)| !name.starts_with("README") && !name.starts_with("__MACOSX"))
    {
        let file = name.replace('/', "-");
        let folder = Folder::new(&[(file.as_str(), content)]);
        expected.extend(records(&of(&folder, &file, None)).await);
    }
    assert_eq!(expected.len(), 10);
    for (name, archive) in packed(&borrowed(&members)) {
        let folder = Folder::new(&[(name, &archive)]);
        let mut found = records(&of(&folder, name, None)).await;
        let bad = found
            .iter_mut()
            .find(|record| record.starts_with("malformed_line"));
        let bad = bad.unwrap();
        assert!(
            bad.contains("2020/more.ndjson`: line 2 (byte 10 of the file)"),
            "{bad}"
        );
        let start = bad.find("member `").unwrap();
        let end = bad.find("line 2").unwrap();
        bad.replace_range(start..end, "");
        assert_eq!(found, expected, "{name}");
    }
}

#[tokio::test]
async fn reading_goes_on_inside_a_member() {
    for (name, archive) in packed(&borrowed(&members())) {
        let folder = Folder::new(&[(name, &archive), ("z.csv", b"day\n10\n")]);
        let mut config = of(&folder, "*", None);
        config.batch.rows = Bounded::literal::<2>();
        let whole = pages(&config, Position::Start).await.unwrap();
        assert_eq!(whole.len(), 6, "{name}");
        for (i, (_, position)) in whole.iter().enumerate().take(whole.len() - 1) {
            let rest = pages(&config, position.clone()).await.unwrap();
            assert_eq!(rest, whole[i + 1..], "{name} after page {i}");
        }
    }
}

#[tokio::test]
async fn a_pattern_chooses_among_members() {
    let all = members();
    for (name, archive) in packed(&borrowed(&all)) {
        let folder = Folder::new(&[(name, &archive)]);
        let days = async |pattern: &str| {
            let found = records(&of(&folder, name, Some(pattern))).await;
            found
                .iter()
                .filter(|record| record.contains("\"day\""))
                .count()
        };
        assert_eq!(days("*.csv").await, 3, "{name}");
        assert_eq!(days("**/*.csv").await, 3);
        assert_eq!(days("2021/*").await, 4);
        assert_eq!(days("2020/**").await, 2);
        // With a format of its own a member needs no ending.
        let mut config = of(&folder, name, Some("README*"));
        config.format = FileFormat::Text;
        config.csv = folder.source(name).csv;
        let found = records(&config).await;
        let path = format!(r#""path":"{name}!/"#);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&path), "{found:?}");
        assert!(
            found[0].ends_with(r#"README.txt","text":"free"}"#),
            "{found:?}"
        );
        let error = refused(&of(&folder, name, Some("README*"))).await;
        assert!(
            error.contains("README.txt`: its name has no known extension"),
            "{error}"
        );
        let error = refused(&of(&folder, name, Some("rate.csv"))).await;
        assert!(
            error.contains("no member matches `archive.member` = `rate.csv`; it has `")
                && error.contains("rates.csv"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn images_are_chosen_by_a_pattern_too() {
    let folder = Folder::new(&[("a.tar", &tar(MEMBERS))]);
    let mut config = source(&folder, "a.tar");
    config.archive.member = Some("dog/*".into());
    let found = records(&config).await;
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("dog/2.PNG"), "{}", found[0]);
}

#[tokio::test]
async fn an_archive_without_any_table_is_an_error_that_tells_what_it_has() {
    let none: [(&str, &[u8]); 2] = [("a.txt", b"x"), ("inner.zip", b"PK")];
    for (name, archive) in packed(&none) {
        let folder = Folder::new(&[(name, &archive)]);
        let error = refused(&of(&folder, name, None)).await;
        assert!(
            error.contains("no member has a known extension") && error.contains("a.txt"),
            "{error}"
        );
        let error = refused(&of(&folder, name, Some("inner.zip"))).await;
        assert!(
            error.contains("an archive in an archive is not read"),
            "{error}"
        );
    }
    let folder = Folder::new(&[("a.tar", &tar(&[]))]);
    let error = refused(&of(&folder, "a.tar", None)).await;
    assert!(error.contains("it is empty"), "{error}");
}

#[tokio::test]
async fn a_table_that_is_damaged_or_too_large_ends_the_run_by_its_name() {
    let table: (&str, &[u8]) = ("b.csv", b"day\n1\n");
    let mut damaged = zip(&[table], CompressionMethod::Stored);
    let data = damaged
        .windows(4)
        .position(|four| four == b"day\n")
        .unwrap();
    damaged[data + 4] ^= 1;
    let folder = Folder::new(&[("a.zip", &damaged)]);
    let error = refused(&of(&folder, "a.zip", None)).await;
    assert!(
        error.contains("b.csv`: its bytes do not match its checksum"),
        "{error}"
    );
    let long = format!("day\n{}", "1\n".repeat(4_000));
    let twice = gzip(long.as_bytes());
    let both: [(&str, &[u8]); 1] = [("b.csv", long.as_bytes())];
    let inner: [(&str, &[u8]); 1] = [("b.csv.gz", &twice)];
    for members in [&both, &inner] {
        for (name, archive) in packed(members) {
            let folder = Folder::new(&[(name, &archive)]);
            let mut config = of(&folder, name, None);
            config.archive.max_member_bytes = Bounded::literal::<4_000>();
            let error = refused(&config).await;
            assert!(
                error.contains("b.csv") && error.contains("`archive.max_member_bytes`"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn an_archive_of_tables_that_is_cut_short_lands_nothing() {
    for (name, archive) in packed(&borrowed(&members())) {
        let end = archive.len() - if name == "a.tar" { 1024 } else { 1 };
        for end in (0..end).step_by(41).chain([end]) {
            let folder = Folder::new(&[(name, &archive[..end])]);
            let error = refused(&of(&folder, name, None)).await;
            assert!(error.contains(name), "{name} cut to {end}: {error}");
        }
    }
}

#[tokio::test]
async fn archives_in_a_folder_of_tables_are_read_where_they_are_asked_for() {
    let archive = zip(&[("b.csv", b"day\n2\n")], CompressionMethod::Stored);
    let folder = Folder::new(&[("d/a.csv", b"day\n1\n"), ("d/b.zip", &archive)]);
    let day = |number: u32| format!(r#"{{"day":"{number}"}}"#);
    assert_eq!(records(&of(&folder, "d", None)).await, [day(1)]);
    assert_eq!(records(&of(&folder, "d/*", None)).await, [day(1), day(2)]);
    assert_eq!(
        records(&of(&folder, "d", Some("**/*.csv"))).await,
        [day(1), day(2)]
    );
}

#[tokio::test]
async fn a_pattern_that_means_nothing_is_refused() {
    let folder = Folder::new(&[("a.csv", b"day\n1\n"), ("a.zip", b"")]);
    let error = refused(&of(&folder, "a.csv", Some("*.csv"))).await;
    assert!(
        error.starts_with("`archive.member`: `url` names no archive"),
        "{error}"
    );
    let error = refused(&of(&folder, "a.zip", Some(""))).await;
    assert!(
        error.starts_with("`archive.member`: no member has such a name"),
        "{error}"
    );
    let mut config = of(&folder, "a.zip", Some("*"));
    config.format = FileFormat::Idx;
    let error = refused(&config).await;
    assert!(error.starts_with("`archive.member`: idx files"), "{error}");
}

#[tokio::test]
async fn skipped_members_and_tables_of_other_columns_are_warnings() {
    let others: &[(&str, &[u8])] = &[
        ("orders.csv", b"id,v\n1,2\n"),
        ("orders_2.txt", b"id,v\n3,4\n"),
        ("more.zip", b"PK"),
        (".hidden.txt", b"x"),
        ("customers.csv", b"name,city\nA,B\n"),
        ("orders_3.csv", b"id,v\n5,6\n"),
    ];
    for (name, archive) in packed(others) {
        let folder = Folder::new(&[(name, &archive)]);
        let expected = [
            ("files_left_out", "archive.member"),
            ("no_common_column", "contract.column"),
        ];
        let expected = expected.map(|(code, key)| (code.to_owned(), key.to_owned()));
        let config = of(&folder, name, None);
        assert_eq!(told(&config).await, expected, "{name}");
        let config = of(&folder, name, Some("**/orders*.csv"));
        assert_eq!(told(&config).await, [] as [(String, String); 0], "{name}");
    }
}

#[tokio::test]
async fn the_header_of_a_member_without_a_row_is_not_compared() {
    let orders = ("orders.csv", b"id,v\n1,2\n" as &[u8]);
    let empty = ("empty.csv", b"name,city\n" as &[u8]);
    for members in [[orders, empty], [empty, orders]] {
        for (name, archive) in packed(&members) {
            let folder = Folder::new(&[(name, &archive)]);
            let found = told(&of(&folder, name, None)).await;
            assert_eq!(found, [] as [(String, String); 0], "{name}");
        }
    }
}
