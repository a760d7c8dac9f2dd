//! The `files` source: files by path, URL or pattern, in the order of their names.
//!
//! A page is up to a few thousand records of one file, so it can be continued inside a file: the position names the file
//! with its hash and the number of records committed from it. A file that was read to its end is listed with size and
//! hash, and never read again; one that has changed since is an error, because landed rows cannot be taken back.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use feedline_schemas::{
    commit::{FileMark, FileProgress, PageRun, Position},
    config::{FileFormat, SourceConfig},
    ids::Hash128,
};
use feedline_storage::{StoreOptions, web::WebOptions};

use crate::{
    blocking::blocking,
    context::Context,
    error::Error,
    file_bytes::FileBytes,
    file_format,
    file_list::{FileList, Found},
    rows::{self, Rows},
    source::{Page, Record, Requests, Source},
};

/// Most records of a page.
const PAGE: u64 = 4096;
/// A page ends with the record that brings it to this many bytes.
const PAGE_BYTES: u64 = 32 << 20;

/// Opens the files that `config` names. They are looked for when the first page is asked for.
///
/// # Errors
/// [`Error::Config`] for a setting that cannot work.
pub(crate) fn open(config: &SourceConfig, context: &Context) -> Result<Box<dyn Source>, Error> {
    file_format::of("", config)?;
    let limits = &config.retry;
    let web = WebOptions {
        private_hosts: config.private_hosts.clone(),
        connect_timeout: Duration::from_millis(limits.connect_timeout_ms),
        read_timeout: Duration::from_millis(limits.read_timeout_ms),
        total_timeout: Duration::from_millis(limits.total_timeout_ms),
        ..WebOptions::default()
    };
    let requests = Arc::clone(&web.requests);
    let list = FileList {
        config: config.clone(),
        options: StoreOptions {
            web,
            ..context.store_options.clone()
        },
    };
    Ok(Box::new(Files {
        list,
        requests,
        found: None,
        open: None,
    }))
}

struct Files {
    list: FileList,
    /// Those over http and https.
    requests: Arc<AtomicU64>,
    /// Files in reading order, once looked for.
    found: Option<Vec<Found>>,
    open: Option<OpenFile>,
}

#[async_trait]
impl Source for Files {
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error> {
        let (done, begun, pages) = split(at)?;
        let found = match self.found.take() {
            Some(found) => found,
            None => self.list.look(at).await?,
        };
        let found = &*self.found.insert(found);
        let mut unread = Unread::new(found, done);
        let mut file = unread.first(begun.as_ref())?;
        let mut begun = begun.as_ref();
        let mut gathered = Gathered {
            records: Vec::new(),
            room: PAGE.min(self.list.config.batch.rows),
            bytes: 0,
        };
        while let Some(now) = file {
            let skip = begun.map_or(0, |begun| begun.records);
            let open = match self.open.take() {
                Some(open) if open.mark().url == now.url && open.read == skip => open,
                _ => OpenFile::open(now, skip, begun.take()).await?,
            };
            let (open, back) = blocking(move || open.page(gathered)).await?;
            gathered = back;
            if open.ahead.is_some() {
                let FileMark { url, hash, .. } = open.mark().clone();
                let current = Some(FileProgress {
                    url,
                    records: open.read,
                    hash,
                });
                self.open = Some(open);
                return Ok(gathered.page(Position::File {
                    done: unread.done,
                    current,
                }));
            }
            unread.push(open.mark().clone());
            file = unread.next()?;
            // A picture is a file of one record: as many as a page holds go into one.
            let is_over = gathered.is_full() || self.list.config.format != FileFormat::Picture;
            if is_over && file.is_some() {
                return Ok(gathered.page(Position::File {
                    done: unread.done,
                    current: None,
                }));
            }
            begun = None;
        }
        Ok(gathered.page(Position::Done {
            pages,
            files: unread.done,
            run: PageRun::default(),
        }))
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.requests.load(Ordering::Relaxed),
            retries: 0,
        }
    }
}

/// Records of a page.
struct Gathered {
    records: Vec<Record>,
    /// How many more there may be.
    room: u64,
    bytes: u64,
}

impl Gathered {
    const fn is_full(&self) -> bool {
        self.room == 0 || self.bytes >= PAGE_BYTES
    }

    fn page(self, next: Position) -> Page {
        Page {
            records: self.records,
            next,
            crawled: None,
        }
    }
}

type State = (Vec<FileMark>, Option<FileProgress>, u64);

fn split(at: &Position) -> Result<State, Error> {
    match at.clone() {
        Position::Start => Ok((Vec::new(), None, 0)),
        Position::File { done, current } => Ok((done, current, 0)),
        Position::Done { files, pages, .. } => Ok((files, None, pages)),
        Position::Page { .. } => Err(Error::config(
            "type",
            "this source has been read as `rest` before; put that back or give the source another name",
        )),
    }
}

/// The files that have not been read, one after another.
struct Unread<'f> {
    found: &'f [Found],
    rest: std::slice::Iter<'f, Found>,
    /// Those that have, with their sizes.
    sizes: HashMap<String, u64>,
    done: Vec<FileMark>,
}

impl<'f> Unread<'f> {
    fn new(found: &'f [Found], done: Vec<FileMark>) -> Self {
        let sizes = done.iter().map(|mark| (mark.url.clone(), mark.bytes));
        Self {
            found,
            rest: found.iter(),
            sizes: sizes.collect(),
            done,
        }
    }

    /// The file to go on with: the one begun, or the first that has not been read.
    fn first(&mut self, begun: Option<&FileProgress>) -> Result<Option<&'f Found>, Error> {
        let Some(begun) = begun else {
            return self.next();
        };
        let file = self.found.iter().find(|file| file.url == begun.url);
        file.map(Some).ok_or_else(|| Error::File {
            url: begun.url.clone(),
            reason: format!(
                "{} of its records have landed, and now it is gone; put it back",
                begun.records
            ),
        })
    }

    fn next(&mut self) -> Result<Option<&'f Found>, Error> {
        for file in self.rest.by_ref() {
            match self.sizes.get(&file.url) {
                None => return Ok(Some(file)),
                Some(bytes) if *bytes != file.bytes => return Err(changed(&file.url)),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// A file has been read.
    fn push(&mut self, mark: FileMark) {
        self.sizes.insert(mark.url.clone(), mark.bytes);
        self.done.push(mark);
    }
}

fn changed(url: &str) -> Error {
    let reason = "it has changed since its records landed; put the old content back and give new data a new file name, or use another source name to read everything again";
    Error::File {
        url: url.to_owned(),
        reason: reason.into(),
    }
}

/// A file that is being read.
struct OpenFile {
    /// URL, size and hash, those of its labels in them.
    mark: FileMark,
    rows: Box<dyn Rows>,
    /// Records handed out, from the beginning of the file.
    read: u64,
    /// The record after them: without one, the file is over.
    ahead: Option<Record>,
}

impl OpenFile {
    async fn open(file: &Found, skip: u64, begun: Option<&FileProgress>) -> Result<Self, Error> {
        let bytes = FileBytes::open(&file.store, &file.path, &file.url).await?;
        let mut mark = bytes.mark.clone();
        let mut labels = None;
        if let Some(found) = &file.labels {
            let file = FileBytes::open(&found.store, &found.path, &found.url).await?;
            mark.bytes += file.mark.bytes;
            let both = [mark.hash, file.mark.hash].map(|hash| hash.get().to_be_bytes());
            mark.hash = Hash128::of(both.as_flattened());
            labels = Some((file, found.packing));
        }
        if begun.is_some_and(|begun| begun.hash != mark.hash) {
            return Err(changed(&file.url));
        }
        let layout = file.layout.clone();
        blocking(move || {
            let unreadable = |reason| Error::File {
                url: mark.url.clone(),
                reason,
            };
            let mut rows =
                rows::open(&bytes, labels.as_ref(), &layout, skip).map_err(unreadable)?;
            let ahead = rows.next().map_err(unreadable)?;
            Ok(Self {
                mark,
                rows,
                read: skip,
                ahead,
            })
        })
        .await
    }

    fn mark(&self) -> &FileMark {
        &self.mark
    }

    /// Adds records, at least one if there are any.
    fn page(mut self, mut to: Gathered) -> Result<(Self, Gathered), Error> {
        while !to.is_full()
            && let Some(record) = self.ahead.take()
        {
            to.bytes += record.size();
            to.records.push(record);
            to.room -= 1;
            self.read += 1;
            let next = self.rows.next();
            self.ahead = next.map_err(|reason| Error::File {
                url: self.mark.url.clone(),
                reason,
            })?;
        }
        Ok((self, to))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use feedline_schemas::config::load;

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
        };
        Files {
            list,
            requests: Arc::default(),
            found: None,
            open: None,
        }
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
            "ragged_row | line 3 (byte 8 of the file): 1 fields, the header has 2 | 3",
            "ragged_row | line 4 (byte 10 of the file): 3 fields, the header has 2 | 4,5,\"6,7\"",
            "invalid_utf8 | line 5 (byte 20 of the file): column `b` is not UTF-8 | 8,\u{fffd}",
            r#"{"a":"9","b":"10"}"#,
        ];
        assert_eq!(records(&folder.source("a.csv")).await, expected);
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
    async fn a_header_with_a_name_twice_is_refused() {
        let folder = Folder::new(&[("a.csv", b"a,b,a\n")]);
        assert!(
            refused(&folder.source("a.csv"))
                .await
                .ends_with("its header line has `a` twice; give every column a name of its own")
        );
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
                .ends_with("there is no `z` where `records` = `z` points, only `x`, `n`")
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
    async fn pictures_share_pages_and_one_that_cannot_be_unpacked_is_one_bad_record() {
        let folder = Folder::new(&[
            ("d/1.png", b"1"),
            ("d/2.png.gz", &gzip(b"2")[..12]),
            ("d/3.png", b"3"),
            ("d/4.png", b"4"),
            ("d/5.png", b"5"),
        ]);
        let mut config = folder.source("d");
        config.format = FileFormat::Picture;
        config.batch.rows = 3;
        let found = pages(&config, Position::Start).await.unwrap();
        let lengths: Vec<usize> = found.iter().map(|(records, _)| records.len()).collect();
        assert_eq!(lengths, [3, 2]);
        assert!(
            found[0].0[1].contains("unreadable_picture"),
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
            ("5.parquet", &crate::parquet_rows::tests::numbers(11)),
        ]);
        let mut config = folder.source("*");
        config.batch.rows = 3;
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
    async fn a_file_that_changed_after_it_was_read_is_refused() {
        let folder = Folder::new(&[("a.ndjson", b"{\"a\":1}\n{\"a\":2}\n")]);
        let mut config = folder.source("a.ndjson");
        config.batch.rows = 1;
        let whole = pages(&config, Position::Start).await.unwrap();
        folder.write("a.ndjson", b"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
        for (_, position) in whole {
            let error = pages(&config, position).await.unwrap_err().to_string();
            assert!(
                error.contains("it has changed since its records landed"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn a_missing_file_is_one_clear_error() {
        let folder = Folder::new(&[("x.txt", b"")]);
        let place = folder.0.path().display().to_string();
        assert_eq!(
            refused(&folder.source("no.csv")).await,
            format!(
                "`url`: there is no file or folder `{place}/no.csv` (looked for `{place}/no.csv`); check the path, a relative one begins at the folder the command is run in"
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
                .contains("does not tell its format")
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
}
