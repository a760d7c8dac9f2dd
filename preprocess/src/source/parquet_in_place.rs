//! Parquet files read in place as the rows of a dataset, without a landing zone.
//!
//! The position of a row is that of its file, in the order of the names, and its number in it:
//! `sequence` and `row` of an origin. A file of more than 2^24 rows takes several sequences. All
//! files have the same columns. Types that do not land are converted as a source would convert
//! them: integers and floats of any width become 64-bit, timestamps with a zone become
//! microseconds; dates, times, nanoseconds and timestamps without a zone become text. The position
//! in the manifest is the last sequence and a hash of all files.

mod file_columns;

use std::{
    collections::{BTreeSet, VecDeque},
    fs::File,
    io::{ErrorKind, Read},
    num::NonZero,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use arrow::{
    array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array},
    datatypes::SchemaRef,
};
use datafusion::{
    catalog::streaming::StreamingTable,
    error::DataFusionError,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{stream::RecordBatchStreamAdapter, streaming::PartitionStream},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    commit::DataFile,
    ids::Hash128,
    record::{RecordSchema, system},
};
use futures::stream;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use xxhash_rust::xxh3::Xxh3;

use self::file_columns::{columns, read, reserved, same, short_floats};
use crate::{Error, schema::landed_columns::landed_schema};

/// Name of such files where a source name is expected.
pub(crate) const SOURCE: &str = "files";

/// The key that names them.
pub(crate) const KEY: &str = "dataset.files";

/// Bits of an origin for the row.
const ROW_BITS: u32 = 24;

/// Files at most: as many as a folder is sensibly listed for.
const MOST_FILES: usize = 100_000;

/// Bytes read at a time where a file is hashed.
const READ: usize = 1 << 20;

/// The files of a dataset.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) schema: RecordSchema,
    /// Name, rows, size and hash of each.
    pub(crate) listed: Vec<DataFile>,
    /// Columns of floats that 32 bits hold.
    pub(crate) short: BTreeSet<String>,
    files: Vec<ParquetFile>,
    /// Columns as the plan reads them.
    landed: SchemaRef,
}

#[derive(Clone, Debug)]
struct ParquetFile {
    path: PathBuf,
    /// State of the file before it was hashed.
    state: State,
    metadata: ArrowReaderMetadata,
    /// Place of the first row: sequence and row.
    first: u64,
}

/// Identity of a version of a file: device, number, size, and second and nanosecond of the last
/// change.
type State = (u64, u64, u64, i64, i64);

fn state_of(path: &Path) -> std::io::Result<State> {
    let found = std::fs::metadata(path)?;
    Ok((
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
    ))
}

impl Files {
    /// Lists, hashes and opens the files that `pattern` names, reading each once.
    ///
    /// # Errors
    /// [`Error::Config`] for a pattern that names nothing, [`Error::Input`] for a file that cannot be read, is no Parquet file
    /// or whose columns are not those of the first.
    pub(crate) fn open(pattern: &str) -> Result<Self, Error> {
        let (mut files, mut listed) = (Vec::new(), Vec::new());
        let mut schema: Option<RecordSchema> = None;
        let mut short: Option<BTreeSet<String>> = None;
        let mut place = 0_u64;
        let paths = matching(pattern)?;
        let hashes = all_hashed(&paths);
        for (path, hashed) in paths.into_iter().zip(hashes) {
            let unfit = |reason: String, advice: &str| unfit(&path, reason, advice);
            let (state, bytes, hash) = hashed.map_err(|e| unreadable(&path, &e))?;
            let file = File::open(&path).map_err(|e| unreadable(&path, &e))?;
            let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
                .map_err(|e| unfit(format!("it is not a whole Parquet file: {e}"), NOT_PARQUET))?;
            if let Some(name) = reserved(metadata.schema()) {
                let reason = format!(
                    "column `{name}` has a name that begins with `{}`, as feedline's own do",
                    system::PREFIX
                );
                return Err(unfit(reason, RESERVED));
            }
            let columns = columns(metadata.schema()).map_err(|reason| unfit(reason, NOT_READ))?;
            let first = schema.get_or_insert_with(|| columns.clone());
            same(first, &columns).map_err(|reason| unfit(reason, NOT_SAME))?;
            let here = short_floats(metadata.schema());
            short = Some(match short {
                Some(short) => &short & &here,
                None => here,
            });
            let rows = metadata.metadata().file_metadata().num_rows();
            let rows = u64::try_from(rows).map_err(|e| unfit(e.to_string(), NOT_PARQUET))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            listed.push(DataFile {
                path: name.into_owned(),
                rows,
                bytes,
                hash,
            });
            files.push(ParquetFile {
                metadata,
                first: place,
                path,
                state,
            });
            place += rows.div_ceil(1 << ROW_BITS).max(1) << ROW_BITS;
        }
        if listed.iter().all(|file| file.rows == 0) {
            let reason = format!("the files that `{pattern}` names have no rows");
            return Err(Error::config(KEY, reason));
        }
        let schema = schema.expect("there is a file");
        Ok(Self {
            landed: Arc::new(landed_schema(&schema, false)),
            schema,
            listed,
            short: short.unwrap_or_default(),
            files,
        })
    }

    /// Checks that the files have not changed since they were hashed, as far as the file system
    /// reports. Otherwise the manifest would hold a wrong hash.
    ///
    /// # Errors
    /// [`Error::Input`] for the first file that was written, replaced or removed since.
    pub(crate) fn check_unchanged(&self) -> Result<(), Error> {
        match self.files.iter().find(|file| file.has_changed()) {
            None => Ok(()),
            Some(file) => Err(Error::input(
                format!("`{}`", file.path.display()),
                "it changed while the dataset was built from it",
                "rebuild when nothing writes to it; put new rows into a file of their own",
            )),
        }
    }

    /// The last sequence of a row.
    pub(crate) fn last(&self) -> u64 {
        let last = self.files.iter().zip(&self.listed).next_back();
        last.map_or(0, |(file, listed)| {
            (file.first + listed.rows.saturating_sub(1)) >> ROW_BITS
        })
    }

    /// Hash of what all files hold, in their order.
    pub(crate) fn hash(&self) -> Hash128 {
        let bytes = serde_json::to_vec(&self.listed).expect("names and integers are JSON");
        Hash128::of(&bytes)
    }

    /// The files behind the first few, where those are all that there were when their hash was `hash`.
    pub(crate) fn behind(&self, hash: Hash128) -> Option<Self> {
        // A list in JSON, as `hash` sees it.
        let mut so_far = Xxh3::new();
        for (at, file) in self.listed.iter().enumerate() {
            so_far.update(if at == 0 { b"[" } else { b"," });
            so_far.update(&serde_json::to_vec(file).expect("names and integers are JSON"));
            let mut all = so_far.clone();
            all.update(b"]");
            if Hash128::new(all.digest128()) == hash {
                return Some(Self {
                    schema: self.schema.clone(),
                    listed: self.listed[at + 1..].to_vec(),
                    short: self.short.clone(),
                    files: self.files[at + 1..].to_vec(),
                    landed: Arc::clone(&self.landed),
                });
            }
        }
        None
    }

    /// All rows, with the columns of a landed file.
    pub(crate) fn frame(self: &Arc<Self>, session: &SessionContext) -> Result<DataFrame, Error> {
        let parts = session.state().config().target_partitions().max(1);
        let mut shares = vec![VecDeque::new(); parts];
        for (at, group) in self.groups().enumerate() {
            shares[at % parts].push_back(group);
        }
        let share = |groups| -> Arc<dyn PartitionStream> {
            Arc::new(Share {
                files: Arc::clone(self),
                groups,
            })
        };
        let shares = shares.into_iter().map(share).collect();
        let table = StreamingTable::try_new(Arc::clone(&self.landed), shares)?;
        Ok(session.read_table(Arc::new(table))?)
    }

    /// File, row group and place of the first row of each row group.
    fn groups(&self) -> impl Iterator<Item = Group> {
        self.files.iter().enumerate().flat_map(|(index, file)| {
            let mut place = file.first;
            let groups = file.metadata.metadata().row_groups().iter().enumerate();
            groups.map(move |(group, about)| {
                let first = place;
                place += u64::try_from(about.num_rows()).unwrap_or(0);
                Group {
                    file: index,
                    group,
                    first,
                }
            })
        })
    }

    fn open_group(&self, group: Group, rows: usize) -> Result<ParquetRecordBatchReader, String> {
        let file = &self.files[group.file];
        let metadata = file.metadata.clone();
        let bytes = File::open(&file.path).map_err(|e| e.to_string())?;
        ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata)
            .with_row_groups(vec![group.group])
            .with_batch_size(rows)
            .build()
            .map_err(|e| e.to_string())
    }

    /// Rows of a file as if they had landed at `place`.
    fn as_landed(&self, rows: &RecordBatch, place: u64) -> Result<RecordBatch, DataFusionError> {
        let places = place..place + rows.num_rows() as u64;
        let sequences: UInt64Array = places.clone().map(|place| place >> ROW_BITS).collect();
        #[expect(clippy::cast_possible_truncation, reason = "the lower bits")]
        let numbers = places.map(|place| place as u32 & ((1 << ROW_BITS) - 1));
        let numbers: UInt32Array = numbers.collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(sequences), Arc::new(numbers)];
        for column in &self.schema.columns {
            let found = rows.column_by_name(&column.name);
            let found = found.expect("files have been compared with the schema");
            columns.push(read(found, column.r#type)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.landed), columns)?)
    }
}

/// A row group.
#[derive(Clone, Copy, Debug)]
struct Group {
    file: usize,
    group: usize,
    first: u64,
}

impl ParquetFile {
    fn has_changed(&self) -> bool {
        state_of(&self.path).ok() != Some(self.state)
    }
}

/// One of several shares of the rows.
#[derive(Debug)]
struct Share {
    files: Arc<Files>,
    groups: VecDeque<Group>,
}

impl PartitionStream for Share {
    fn schema(&self) -> &SchemaRef {
        &self.files.landed
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = Rows {
            files: Arc::clone(&self.files),
            groups: self.groups.clone(),
            batch: context.session_config().batch_size(),
            open: None,
        };
        let schema = Arc::clone(&self.files.landed);
        Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(rows)))
    }
}

/// The rows of some row groups.
struct Rows {
    files: Arc<Files>,
    groups: VecDeque<Group>,
    /// Rows of a batch.
    batch: usize,
    /// File being read, and the position of its next row.
    open: Option<(usize, ParquetRecordBatchReader, u64)>,
}

impl Rows {
    fn failed(&self, file: usize, reason: &str) -> DataFusionError {
        let file = &self.files.files[file];
        let path = file.path.display();
        DataFusionError::Execution(match file.has_changed() {
            true => format!(
                "cannot read rows of `{path}`: it changed while the dataset was built from it; rebuild when nothing \
                 writes to it"
            ),
            false => format!("cannot read rows of `{path}`: {reason}"),
        })
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((file, reader, place)) = &mut self.open {
                let (file, at) = (*file, *place);
                match reader.next() {
                    Some(Ok(rows)) => {
                        *place += rows.num_rows() as u64;
                        return Some(self.files.as_landed(&rows, at));
                    }
                    Some(Err(e)) => return Some(Err(self.failed(file, &e.to_string()))),
                    None => self.open = None,
                }
            }
            let group = self.groups.pop_front()?;
            match self.files.open_group(group, self.batch) {
                Ok(reader) => self.open = Some((group.file, reader, group.first)),
                Err(reason) => return Some(Err(self.failed(group.file, &reason))),
            }
        }
    }
}

/// The files that `pattern` names, by name.
fn matching(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let config = |reason: String| Error::config(KEY, reason);
    let path = Path::new(pattern.strip_prefix("file://").unwrap_or(pattern));
    if pattern.contains("://") && !pattern.starts_with("file://") {
        return Err(config(format!(
            "`{pattern}` is not a local path; land files of an object store with a `[[source]]` of `type = \"files\"`"
        )));
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Err(config(format!(
            "`{pattern}` names no file; write a path such as `in/*.parquet`"
        )));
    };
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let is_wild = |part: &str| part.contains(['*', '?']);
    if is_wild(&folder.to_string_lossy()) {
        return Err(config(format!(
            "`{pattern}` has a `*` or `?` in a folder's name; only the last part of the path may have them"
        )));
    }
    if !is_wild(name) {
        return one(path).map_err(config);
    }
    let unlisted = |e: std::io::Error| {
        config(format!(
            "the folder `{}` cannot be listed: {e}",
            folder.display()
        ))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unlisted)? {
        let path = entry.map_err(unlisted)?.path();
        let own = path.file_name().map(|name| name.to_string_lossy());
        if !own.is_some_and(|own| matches(name, &own)) {
            continue;
        }
        if path.to_str().is_none() {
            return Err(config(format!(
                "the name of `{}`, which `{pattern}` names, is not UTF-8; rename it, or write a pattern that does not name it",
                path.display()
            )));
        }
        if !path.is_file() {
            let what = match path.is_dir() {
                true => {
                    "a folder, whose files would be left out; name them, such as by `FOLDER/*.parquet`"
                }
                false => "no file that can be read, such as a link to nothing; remove it",
            };
            return Err(config(format!(
                "`{}`, which `{pattern}` names, is {what}, or write a pattern that does not name it",
                path.display()
            )));
        }
        found.push(path);
    }
    found.sort();
    match found.len() {
        0 => Err(config(format!("no file is named as `{pattern}` says"))),
        1..=MOST_FILES => Ok(found),
        many => Err(config(format!(
            "`{pattern}` names {many} files, at most {MOST_FILES} can be read; write fewer, larger ones"
        ))),
    }
}

/// The file at `path`, which is no pattern.
fn one(path: &Path) -> Result<Vec<PathBuf>, String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(vec![path.to_owned()]),
        Ok(found) if found.is_dir() => Err(format!(
            "`{shown}` is a folder; write `{}` for the files in it",
            path.join("*.parquet").display()
        )),
        Ok(_) => Err(format!(
            "`{shown}` is no file that can be read twice, such as a pipe; write what it gives to a file"
        )),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(
            format!("there is no file `{shown}`; correct the path, or write the file first"),
        ),
        Err(e) => Err(format!(
            "the file `{shown}` cannot be looked up: {e}; {}",
            about(&e)
        )),
    }
}

/// Returns true if `name` matches `pattern`: `*` is any text, `?` one character.
fn matches(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // How much of the pattern so far can end before each character.
    let mut here = vec![false; name.len() + 1];
    here[0] = true;
    for p in pattern.chars() {
        let mut next = vec![false; here.len()];
        for at in 0..here.len() {
            next[at] = match p {
                '*' => here[at] || (at > 0 && next[at - 1]),
                _ => at > 0 && here[at - 1] && (p == '?' || p == name[at - 1]),
            };
        }
        here = next;
    }
    (name.first() != Some(&'.') || pattern.starts_with('.')) && here[name.len()]
}

/// Threads that hash files at most: a disk gives no more to others.
const HASHING: usize = 8;

/// State before hashing, size and hash of each file.
fn all_hashed(paths: &[PathBuf]) -> Vec<std::io::Result<(State, u64, Hash128)>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let own = std::iter::from_fn(|| {
            let at = next.fetch_add(1, Ordering::Relaxed);
            Some((at, hashed(paths.get(at)?)))
        });
        own.collect::<Vec<_>>()
    };
    let mut all = thread::scope(|scope| {
        let threads = 0..threads.min(HASHING).min(paths.len());
        let threads: Vec<_> = threads.map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.flatten().collect::<Vec<_>>()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, hashed)| hashed).collect()
}

/// State before hashing, size and hash of a file.
fn hashed(path: &Path) -> std::io::Result<(State, u64, Hash128)> {
    let state = state_of(path)?;
    let mut file = File::open(path)?;
    let (mut hasher, mut bytes) = (Xxh3::new(), 0);
    let mut buffer = vec![0; READ];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((state, bytes, Hash128::new(hasher.digest128())));
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Advice for a column of an unsupported type.
const NOT_READ: &str = "rewrite the file without these columns, leave it out of `dataset.files`, or land it \
    with a `[[source]]` of `type = \"files\"`, which reads more";

/// Advice for a file that is not Parquet.
const NOT_PARQUET: &str = "rewrite the file, leave it out of `dataset.files`, or land it with a `[[source]]` of \
    `type = \"files\"`, which reads other formats";

/// Advice for columns that differ from those of the first file.
const NOT_SAME: &str = "write files of the same columns, leave it out of `dataset.files`, or land the files with a `[[source]]` \
    of `type = \"files\"`, where columns may be added";

/// Advice for a column with a reserved name.
const RESERVED: &str = "files of a landing zone are read through their source, which `dataset.sources` names in place of \
    `dataset.files`; leave the column out of any other file";

fn unfit(path: &Path, reason: String, advice: &str) -> Error {
    Error::input(format!("file `{}`", path.display()), reason, advice)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    unfit(path, format!("it cannot be read: {error}"), about(error))
}

/// Advice for a file that the system refuses to open.
fn about(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "let the user who builds read it and enter its folders, or leave it out of `dataset.files`"
        }
        ErrorKind::NotFound => {
            "it was removed a moment ago: build again when nothing changes the files"
        }
        _ => "look after its disk or file system, then build again",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::testing::config_key;

    #[test]
    fn patterns_are_those_of_a_shell() {
        for (pattern, name, expected) in [
            ("*.parquet", "a.parquet", true),
            ("*.parquet", ".a.parquet", false),
            ("*.parquet", "a.parquet.tmp", false),
            ("part-?.*", "part-1.parquet", true),
            ("part-?.*", "part-12.parquet", false),
            ("*a*b", "xaxab", true),
            ("*a*b", "xaxa", false),
            ("a", "a", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn refused(pattern: &str, expected: &str) {
        let error = Files::open(pattern).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    /// As [`refused`], as an error of the configuration.
    fn misnamed(pattern: &str, expected: &str) {
        let error = Files::open(pattern).unwrap_err();
        assert_eq!(config_key(&error), Some(KEY), "{error}");
        refused(pattern, expected);
    }

    /// Writes a file with one row of these columns.
    fn write(path: &str, columns: &[(&str, ArrayRef)]) {
        let rows = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
        let file = File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn what_names_no_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        misnamed(&at("*.parquet"), "no file is named as");
        misnamed(&at("absent/*.parquet"), "cannot be listed");
        misnamed(&at("*/a.parquet"), "in a folder's name");
        misnamed("s3://bucket/*.parquet", "is not a local path");
        misnamed("/", "names no file");
        std::fs::write(at("a.parquet"), b"PAR1 and no more").unwrap();
        refused(&at("*.parquet"), "it is not a whole Parquet file");
        misnamed(&at("b.parquet"), "b.parquet`; correct the path");
        misnamed(&at("a.parquet/b.parquet"), "b.parquet`; correct the path");
        misnamed(&folder.path().display().to_string(), "is a folder; write `");
        misnamed(&at(""), "/*.parquet` for the files in it");
        misnamed("/dev/null", "`/dev/null` is no file that can be read twice");
        std::fs::remove_file(at("a.parquet")).unwrap();
        std::os::unix::fs::symlink(at("gone"), at("c.parquet")).unwrap();
        refused(&at("*.parquet"), "such as a link to nothing");
        std::fs::remove_file(at("c.parquet")).unwrap();
        std::fs::create_dir(at("d.parquet")).unwrap();
        refused(&at("*.parquet"), "d.parquet`, which");
        refused(
            &at("*.parquet"),
            "is a folder, whose files would be left out",
        );
    }

    // Other systems refuse such names.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_whose_name_is_not_utf8_is_refused_by_name() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("*.parquet").display().to_string();
        let odd = OsStr::from_bytes(b"M\xfcnchen.parquet");
        std::fs::write(folder.path().join(odd), b"").unwrap();
        misnamed(&pattern, "M\u{fffd}nchen.parquet`, which");
        misnamed(&pattern, "is not UTF-8; rename it");
    }

    #[test]
    fn a_file_that_is_not_handed_out_gets_no_advice_about_its_columns() {
        // The system fails each read of the first page of memory.
        refused("/proc/self/mem", "file `/proc/self/mem`: it cannot be read");
        refused("/proc/self/mem", "look after its disk or file system");
        let error = io::Error::from(ErrorKind::PermissionDenied);
        assert_eq!(
            unreadable(Path::new("in/a.parquet"), &error).to_string(),
            "cannot use file `in/a.parquet`: it cannot be read: permission denied; let the user who builds read it and \
             enter its folders, or leave it out of `dataset.files`"
        );
    }

    #[test]
    fn columns_that_are_called_as_feedlines_own_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet").display().to_string();
        let cells: ArrayRef = Arc::new(UInt32Array::from(vec![0]));
        for name in [system::SEQUENCE, system::ROW, system::HASH] {
            write(
                &path,
                &[("x", Arc::clone(&cells)), (name, Arc::clone(&cells))],
            );
            refused(&path, &format!("{path}`: column `{name}` has a name"));
            refused(&path, "which `dataset.sources` names");
        }
        write(&path, &[("feedline_row", cells)]);
        assert!(Files::open(&path).is_ok());
    }

    #[test]
    fn columns_that_are_not_read_or_differ_are_told_with_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let cells: ArrayRef = Arc::new(UInt64Array::from(vec![0]));
        write(&at("a.parquet"), &[("x", cells)]);
        refused(
            &at("*.parquet"),
            "column `x` is UInt64, which is not supported; rewrite the file without these columns",
        );
        let cells: ArrayRef = Arc::new(UInt32Array::from(vec![0]));
        write(&at("a.parquet"), &[("x", Arc::clone(&cells))]);
        write(&at("b.parquet"), &[("y", cells)]);
        refused(
            &at("*.parquet"),
            "b.parquet`: it lacks column `x`, which the first file has; write files of the same columns",
        );
    }
}
