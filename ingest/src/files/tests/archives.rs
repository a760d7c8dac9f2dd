mod tables;

use feedline_schemas::config::Bounded;
use std::{
    fs::File,
    io::{Cursor, Seek, SeekFrom, Write},
    time::{Duration, UNIX_EPOCH},
};

use feedline_schemas::{
    commit::Position,
    config::{FileFormat, FilesChanged, SourceConfig},
};
use zip::{CompressionMethod, write::SimpleFileOptions};

use super::{Folder, files, gzip, pages, records, refused, told};
use crate::source::Source;

/// Members of an image dataset: two of one name, and one that is no image.
const MEMBERS: &[(&str, &[u8])] = &[
    ("LICENSE", b"free"),
    ("cat/1.jpg", b"one"),
    ("dog/2.PNG", b"two"),
    ("__MACOSX/._1.jpg", b"hidden"),
    ("cat/1.jpg", b"another one"),
    ("../../etc/3.webp", b"three"),
    ("4.gif", b""),
];

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        // The library cannot set a name with dots.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// The writer refuses a name that it knows, so that each gets a number for a while.
fn zip(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (number, (name, content)) in members.iter().enumerate() {
        let name = format!("{number:06}{name}");
        writer.start_file(name, options).unwrap();
        writer.write_all(content).unwrap();
    }
    let mut file = writer.finish().unwrap().into_inner();
    for (number, (name, _)) in members.iter().enumerate() {
        let numbered = format!("{number:06}{name}").into_bytes();
        let name = format!("./././{name}").into_bytes();
        let places: Vec<usize> = (0..file.len() - name.len())
            .filter(|at| file[*at..].starts_with(&numbered))
            .collect();
        assert_eq!(places.len(), 2, "its header and the list");
        for at in places {
            file[at..at + name.len()].copy_from_slice(&name);
        }
    }
    file
}

fn source(folder: &Folder, name: &str) -> SourceConfig {
    let mut config = folder.source(name);
    config.format = FileFormat::Image;
    config
}

/// Expected rows of the archive at `name`; a zip's names have another prefix here.
fn expected(name: &str, prefix: &str) -> Vec<String> {
    let record = |(member, content): &(&str, &[u8])| {
        let image: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = match format!("{prefix}{member}").rsplit('/').nth(1) {
            Some(folder) => format!("\"{folder}\""),
            None => "null".into(),
        };
        format!(r#"{{"folder":{folder},"image":"{image}","path":"{name}!/{prefix}{member}"}}"#)
    };
    let is_image = |(name, _): &&(&str, &[u8])| !matches!(*name, "LICENSE" | "__MACOSX/._1.jpg");
    MEMBERS.iter().filter(is_image).map(record).collect()
}

/// Archives of the members, by name, and the prefix of a zip's names.
fn archives() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let plain = tar(MEMBERS);
    vec![
        ("a.tar.gz", gzip(&plain), ""),
        (
            "a.tar.zst",
            zstd::encode_all(plain.as_slice(), 1).unwrap(),
            "",
        ),
        ("a.tgz", gzip(&plain), ""),
        ("a.tar", plain, ""),
        ("a.zip", zip(MEMBERS, CompressionMethod::Deflated), "./././"),
        ("as.zip", zip(MEMBERS, CompressionMethod::Stored), "./././"),
    ]
}

#[tokio::test]
async fn every_archive_gives_its_images_in_its_order_and_twice_the_same_name_twice() {
    for (name, archive, prefix) in archives() {
        let folder = Folder::new(&[(name, &archive)]);
        let expected = expected(name, prefix);
        assert_eq!(records(&source(&folder, name)).await, expected, "{name}");
        // In a folder it is found by its name.
        let folder = Folder::new(&[(&format!("d/{name}"), &archive), ("d/b.txt", b"x")]);
        assert_eq!(records(&source(&folder, "d")).await, expected, "{name}");
    }
}

#[tokio::test]
async fn reading_goes_on_between_members() {
    for (name, archive, _) in archives() {
        let folder = Folder::new(&[(name, &archive), ("b.jpg", b"last")]);
        let mut config = source(&folder, "*");
        config.batch.rows = Bounded::literal::<2>();
        let whole = pages(&config, Position::Start).await.unwrap();
        assert!(whole.len() >= 3, "{name}");
        for (i, (_, position)) in whole.iter().enumerate() {
            if matches!(position, Position::Done { .. }) {
                continue;
            }
            let rest = pages(&config, position.clone()).await.unwrap();
            assert_eq!(rest, whole[i + 1..], "{name} after page {i}");
        }
        let middle = whole[0].1.clone();
        config.files.changed = FilesChanged::Refuse;
        folder.write(name, &archives()[0].1[1..]);
        let error = pages(&config, middle).await.unwrap_err();
        assert!(error.to_string().contains("it has changed"), "{error}");
    }
}

/// Writes a zip archive of `members` to a new file that is too large to be held in memory: a gap is
/// before its central directory.
fn write_large_zip(path: &str, members: &[(&str, &[u8])]) -> File {
    const GAP: u32 = 65 << 20;
    let mut archive = zip(members, CompressionMethod::Stored);
    let (list, end) = (entries(&archive)[0], archive.len() - 22);
    let start = u32::try_from(list).unwrap() + GAP;
    archive[end + 16..end + 20].copy_from_slice(&start.to_le_bytes());
    let mut file = File::create(path).unwrap();
    file.write_all(&archive[..list]).unwrap();
    file.seek(SeekFrom::Current(GAP.into())).unwrap();
    file.write_all(&archive[list..]).unwrap();
    file
}

#[tokio::test]
async fn a_large_archive_that_is_written_between_two_pages_is_refused_at_its_end() {
    let folder = Folder::new(&[]);
    let members: &[(&str, &[u8])] = &[("1.jpg", b"one"), ("2.jpg", b"two"), ("3.jpg", b"three")];
    let archive = write_large_zip(&folder.path("a.zip"), members);
    let write_at = |s| archive.set_modified(UNIX_EPOCH + Duration::from_secs(s));
    write_at(1000).unwrap();
    let mut config = source(&folder, "a.zip");
    config.batch.rows = Bounded::literal::<2>();
    for is_written in [false, true] {
        let mut files = files(&config);
        let first = files.next_page(&Position::Start).await.unwrap();
        assert_eq!(first.records.len(), 2);
        if is_written {
            write_at(2000).unwrap();
        }
        let last = files.next_page(&first.next).await;
        if is_written {
            let error = last.unwrap_err().to_string();
            assert!(error.contains("it changed while it was read"), "{error}");
        } else {
            assert_eq!(last.unwrap().records.len(), 1);
        }
    }
}

#[tokio::test]
async fn an_archive_that_is_cut_short_lands_nothing() {
    for (name, archive, _) in archives() {
        // The last block of zeros of a tar archive, and the padding after it, may be missing.
        let is_tar = name == "a.tar";
        let end = archive.len() - if is_tar { 1024 } else { 1 };
        for end in (0..end).step_by(7).chain([end]) {
            let folder = Folder::new(&[(name, &archive[..end])]);
            let result = pages(&source(&folder, name), Position::Start).await;
            let error = result.expect_err(&format!("{name} cut to {end}"));
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

#[tokio::test]
async fn an_archive_that_goes_on_after_its_end_is_refused() {
    let joined = [tar(MEMBERS), tar(MEMBERS)].concat();
    let folder = Folder::new(&[("a.tar", &joined)]);
    let error = refused(&source(&folder, "a.tar")).await;
    assert!(error.contains("it has data after its end"), "{error}");
    let joined = [zip(MEMBERS, CompressionMethod::Stored), b"x".to_vec()].concat();
    let folder = Folder::new(&[("a.zip", &joined)]);
    let error = refused(&source(&folder, "a.zip")).await;
    assert!(error.contains("no central directory at its end"), "{error}");
}

#[tokio::test]
async fn archives_that_unpack_to_too_much_are_refused_and_members_set_aside() {
    let zeros = vec![0; 40 << 20];
    let large = [
        ("1.jpg", b"1".as_slice()),
        ("2.jpg", &zeros),
        ("3.jpg", b"3"),
    ];
    let all = [
        ("a.tar.gz", gzip(&tar(&large)), ""),
        ("a.zip", zip(&large, CompressionMethod::Deflated), "./././"),
    ];
    for (name, archive, prefix) in all {
        let folder = Folder::new(&[(name, &archive)]);
        let mut config = source(&folder, name);
        config.archive.max_ratio = Bounded::literal::<50>();
        let error = refused(&config).await;
        assert!(error.contains("more than 50 times its size"), "{error}");
        config.archive.max_ratio = Bounded::literal::<2000>();
        config.archive.max_member_bytes = Bounded::literal::<{ 1 << 20 }>();
        let found = records(&config).await;
        assert_eq!(found.len(), 3);
        let expected = format!(
            "member_too_large | `{name}!/{prefix}2.jpg`: it has 41943040 bytes and `archive.max_member_bytes` is 1048576 | {name}!/{prefix}2.jpg"
        );
        assert_eq!(found[1], expected);
        assert!(found[0].contains(r#""image":"31""#) && found[2].contains(r#""image":"33""#));
        config.archive.max_members = Bounded::literal::<2>();
        let error = refused(&config).await;
        assert!(error.contains("more than 2 members"), "{error}");
    }
}

/// Offsets of the entries of the central directory.
fn entries(zip: &[u8]) -> Vec<usize> {
    (0..zip.len() - 4)
        .filter(|at| zip[*at..].starts_with(b"PK\x01\x02"))
        .collect()
}

#[tokio::test]
async fn members_that_share_their_data_are_refused() {
    let content = vec![7; 4000];
    let one = zip(&[("1.jpg", &content)], CompressionMethod::Stored);
    let list = entries(&one)[0];
    let end = one.len() - 22;
    // The same entry three times.
    let mut bomb = one[..end].to_vec();
    bomb.extend(one[list..end].repeat(2));
    let mut tail = one[end..].to_vec();
    tail[8..12].copy_from_slice(&[3, 0, 3, 0]);
    let bytes = u32::try_from(bomb.len() - list).unwrap();
    tail[12..16].copy_from_slice(&bytes.to_le_bytes());
    bomb.extend(tail);
    let folder = Folder::new(&[("a.zip", &bomb)]);
    let error = refused(&source(&folder, "a.zip")).await;
    assert!(error.contains("they overlap"), "{error}");
}

#[tokio::test]
async fn a_damaged_member_is_set_aside_and_the_others_are_read() {
    let good = zip(
        &[("1.jpg", b"one"), ("2.jpg", b"two")],
        CompressionMethod::Stored,
    );
    let check = |change: &dyn Fn(&mut Vec<u8>), expected: &'static str| {
        let mut damaged = good.clone();
        change(&mut damaged);
        async move {
            let folder = Folder::new(&[("a.zip", &damaged)]);
            let found = records(&source(&folder, "a.zip")).await;
            assert!(found[0].contains(expected), "{}", found[0]);
            assert!(found[1].contains(r#""image":"74776f""#), "{}", found[1]);
        }
    };
    let list = entries(&good)[0];
    let data = (0..good.len())
        .find(|at| good[*at..].starts_with(b"one"))
        .unwrap();
    check(
        &|z| z[data] ^= 1,
        "member_damaged | `a.zip!/./././1.jpg`: its bytes do not match",
    )
    .await;
    check(
        &|z| z[list + 8] |= 1,
        "member_unread | `a.zip!/./././1.jpg`: it is encrypted",
    )
    .await;
    check(&|z| z[list + 10] = 99, "packed by method 99").await;
    check(&|z| z[30] ^= 1, "its local header differs").await;
    check(&|z| z[list + 42] = 1, "its local header differs").await;
    check(&|z| z[list + 45] = 1, "beyond the end of the archive").await;
    check(&|z| z[28] = 255, "its data are not at the offset").await;
    let mut linked = tar(&[("1.jpg", b"")]);
    linked[156] = b'1';
    let sum: u32 = (0..512)
        .map(|at| {
            if (148..156).contains(&at) {
                32
            } else {
                u32::from(linked[at])
            }
        })
        .sum();
    linked[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let folder = Folder::new(&[("a.tar", &linked)]);
    let found = records(&source(&folder, "a.tar")).await;
    assert!(
        found[0].starts_with("member_link | `a.tar!/1.jpg`: it is a link"),
        "{}",
        found[0]
    );
}

#[tokio::test]
async fn numbers_of_64_bits_are_read() {
    let zip = zip(&[("1.jpg", b"one")], CompressionMethod::Stored);
    let (list, end) = (entries(&zip)[0], zip.len() - 22);
    let name = usize::from(zip[list + 28]);
    // The member's sizes and offset move to its extra field, those of the directory to the record
    // before the end.
    let mut wide = zip[..list + 46 + name].to_vec();
    for at in [20, 24, 42] {
        wide[list + at..list + at + 4].fill(0xff);
    }
    wide[list + 30..list + 32].copy_from_slice(&[28, 0]);
    wide.extend([1, 0, 24, 0]);
    wide.extend([3_u64, 3, 0].iter().flat_map(|number| number.to_le_bytes()));
    let record = wide.len();
    wide.extend(b"PK\x06\x06");
    wide.extend(44_u64.to_le_bytes());
    wide.extend([0; 12]);
    let numbers = [1, 1, (record - list) as u64, list as u64];
    wide.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    wide.extend(b"PK\x06\x07\0\0\0\0");
    wide.extend((record as u64).to_le_bytes());
    wide.extend([1, 0, 0, 0]);
    wide.extend(b"PK\x05\x06");
    wide.extend([0xff; 16]);
    wide.extend(&zip[end + 20..]);
    let folder = Folder::new(&[("a.zip", &wide)]);
    let found = records(&source(&folder, "a.zip")).await;
    assert!(found[0].contains(r#""image":"6f6e65""#), "{found:?}");
}
