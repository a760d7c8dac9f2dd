//! Dialect of a CSV file: its encoding, the lines before its header, its delimiter and its names.
//!
//! The first 64 KiB decide settings that the configuration leaves open. A byte order mark selects
//! UTF-16. Another delimiter is selected if it splits all of the first lines into the same number
//! of fields and the usual one splits none. A first line such as `sep=;` names it. A warning reports
//! each such decision with the key that changes it.

mod delimiter_line;
mod header_row;
mod skipped_lines;

use std::io::{self, Cursor, Read};

use encoding_rs::{DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use feedline_schemas::{
    config::CsvConfig, csv_cell::DELIMITERS, file_signature::format_by_signature,
};

use self::{delimiter_line::DelimiterLine, skipped_lines::SkippedLines};
use crate::{
    invalid_key::InvalidKey, likely_encoding::check_encoding, notices::Notices, remedy::Remedy,
};

/// Size of the sample that is inspected before a file is read, in bytes.
pub const SAMPLE: usize = 64 << 10;
/// Rows of it that a delimiter is judged by.
const ROWS: usize = 200;

/// Bytes of a file, decoded to UTF-8 if it has another encoding.
pub type Text = Box<dyn Read + Send>;

/// Syntax of the rows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Character between fields.
    pub delimiter: u8,
    /// Quote character around fields; `None` if quotes are text.
    pub quote: Option<u8>,
    /// Character in quoted fields that takes the next one as it is, besides a doubled quote.
    pub escape: Option<u8>,
    /// First character of lines that are comments.
    pub comment: Option<u8>,
    /// True if the first row holds names.
    pub has_header: bool,
    /// Configured names.
    pub columns: Vec<String>,
    /// Bytes of the file before the parsed part; `None` for another encoding.
    pub base_byte: Option<u64>,
    /// Lines before the parsed part.
    pub base_line: u64,
    /// Line feeds in them.
    pub base_feeds: u64,
}

/// Checks the settings.
///
/// # Errors
/// [`InvalidKey`].
pub fn check(config: &CsvConfig) -> Result<(), InvalidKey> {
    encoding(config)?;
    for (key, sign) in [
        ("csv.quote", &config.quote),
        ("csv.escape", &config.escape),
        ("csv.comment", &config.comment),
    ] {
        let is_off = key == "csv.quote" && sign.as_deref() == Some("");
        if sign.is_some() && !is_off && one(sign.as_deref()).is_none() {
            let reason = "use one ASCII character that is no line end";
            return Err(InvalidKey::new(key, reason));
        }
    }
    let signs = [
        &config.delimiter,
        &config.quote,
        &config.escape,
        &config.comment,
    ];
    let signs: Vec<u8> = signs
        .iter()
        .filter_map(|sign| one(sign.as_deref()))
        .collect();
    if (1..signs.len()).any(|i| signs[..i].contains(&signs[i])) {
        let reason = "`csv.delimiter`, `csv.quote`, `csv.escape` and `csv.comment` must be different characters";
        return Err(InvalidKey::new("csv", reason));
    }
    if config.skip_rows > 1_000_000 {
        let reason = format!("{} is out of range: use 0 to 1000000", config.skip_rows);
        return Err(InvalidKey::new("csv.skip_rows", reason));
    }
    for (i, name) in config.columns.iter().enumerate() {
        if name.trim().is_empty() || config.columns[..i].contains(name) {
            let reason = format!(
                "`{name}` (number {i}, from 0) is empty or occurs twice; give every column a name of its own"
            );
            return Err(InvalidKey::new("csv.columns", reason));
        }
    }
    Ok(())
}

fn one(sign: Option<&str>) -> Option<u8> {
    match sign.map(str::as_bytes) {
        Some(&[byte]) if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(byte),
        _ => None,
    }
}

/// The configured encoding.
fn encoding(config: &CsvConfig) -> Result<Option<&'static Encoding>, InvalidKey> {
    let Some(label) = &config.encoding else {
        return Ok(None);
    };
    let lower = label.trim().to_ascii_lowercase().replace('_', "-");
    let name = match lower.as_str() {
        "latin-1" | "latin 1" => "latin1",
        "utf-16-le" => "utf-16le",
        "utf-16-be" => "utf-16be",
        other => other,
    };
    // Some labels have underscores in the standard.
    let found = Encoding::for_label(name.as_bytes())
        .or_else(|| Encoding::for_label(label.as_bytes()))
        .filter(|encoding| *encoding != encoding_rs::REPLACEMENT);
    found.map(Some).ok_or_else(|| {
        let reason = format!(
            "`{label}` is no encoding; use `utf-8`, `utf-16`, `latin-1`, `windows-1252` or another label of the WHATWG Encoding Standard"
        );
        InvalidKey::new("csv.encoding", reason)
    })
}

/// Returns true if a line end is the same byte in the configured encoding and in ASCII. Then
/// reading can resume in the middle of a file. `start` is the beginning of the file.
pub fn can_be_continued(config: &CsvConfig, start: &[u8]) -> bool {
    let is_wide = |encoding: &'static Encoding| encoding == UTF_16LE || encoding == UTF_16BE;
    let configured = encoding(config).ok().flatten();
    !configured.is_some_and(|encoding| is_wide(encoding) || !encoding.is_ascii_compatible())
        && !Encoding::for_bom(start).is_some_and(|(encoding, _)| is_wide(encoding))
}

/// Delimiters that a file may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delimiters<'a> {
    /// The configured one.
    pub(crate) configured: Option<u8>,
    /// The one by the name of the file.
    pub(crate) usual: u8,
    /// Names that the header is expected to have.
    pub(crate) known_columns: &'a [String],
}

/// Opens the file `name` from its beginning with `reader`, and detects its dialect from its first
/// 64 KiB, or from `sample_bytes` of a pipe that has paused after them.
///
/// # Errors
/// A message that names the reason why the file is unreadable, and a remedy.
pub(crate) fn open(
    reader: Text,
    config: &CsvConfig,
    delimiters: Delimiters<'_>,
    sample_bytes: Option<usize>,
    name: &str,
    notices: &Notices,
) -> Result<(Text, Dialect), String> {
    let (sample, reader) = peek(reader, sample_bytes.unwrap_or(SAMPLE))?;
    let is_whole = sample_bytes.is_none() && sample.len() < SAMPLE;
    if let Some(format) = format_by_signature(&sample) {
        return Err(format!(
            "it is {format} by its first bytes, and no CSV file: give it the ending of its format, decompress it, or save it as CSV"
        ));
    }
    let before_pause = sample_bytes.map(|_| sample.clone());
    let (text, base_byte) = decode((sample, is_whole), reader, config, name, notices)?;
    let (text, mut base_byte, skipped_lines) =
        SkippedLines::pass_over(text, config.skip_rows, base_byte)?;
    let mut named = skipped_lines.named;
    let (mut sample, is_whole, mut text) = match before_pause {
        Some(bytes) => (decode_sample(bytes, config)?, false, text),
        None => {
            let (sample, rest) = peek(text, SAMPLE)?;
            let is_whole = sample.len() < SAMPLE;
            let all: Text = Box::new(Cursor::new(sample.clone()).chain(rest));
            (sample, is_whole, all)
        }
    };
    let (mut base_line, mut base_feeds) = (config.skip_rows, config.skip_rows);
    if let (0, Some(line)) = (config.skip_rows, DelimiterLine::of(&sample)) {
        line.check(delimiters.configured)?;
        let mut skipped = vec![0; line.bytes];
        text.read_exact(&mut skipped).map_err(|e| e.to_string())?;
        base_feeds = u64::from(skipped.ends_with(b"\n"));
        sample.drain(..line.bytes);
        base_byte = base_byte.map(|byte| byte + line.bytes as u64);
        (base_line, named) = (1, Some(line.delimiter));
    }
    let mut dialect = Dialect {
        delimiter: delimiters.configured.unwrap_or(delimiters.usual),
        quote: match config.quote.as_deref() {
            None => Some(b'"'),
            quote => one(quote),
        },
        escape: one(config.escape.as_deref()),
        comment: one(config.comment.as_deref()),
        has_header: config.header,
        columns: config.columns.clone(),
        base_byte,
        base_line,
        base_feeds,
    };
    // Lines that `skip_rows` passes over may name the delimiter of another program.
    let named = named.filter(|named| config.skip_rows == 0 || has_in_first_line(&sample, *named));
    if let (Some(named), None) = (named, delimiters.configured) {
        dialect.delimiter = named;
        delimiter_line::note(named, config.skip_rows, name, notices);
    } else if delimiters.configured.is_none() {
        let known = by_known_columns(&sample, &dialect, delimiters.known_columns);
        dialect.delimiter = match known {
            Some(delimiter) => delimiter,
            None => sniff(&sample, is_whole, &dialect, name, notices)?,
        };
        if known.is_some_and(|known| known != delimiters.usual) {
            let message = format!(
                "`{name}` is read with the delimiter `{}`, which splits its header into known columns; `{}` does not",
                shown(dialect.delimiter),
                shown(delimiters.usual)
            );
            notices.push("csv_delimiter", "csv.delimiter", message);
        }
    } else {
        note_unsplit(&sample, is_whole, &dialect, name, notices);
    }
    skipped_lines.note(&sample, &dialect, name, notices);
    header_row::note(&sample, &dialect, name, notices);
    Ok((text, dialect))
}

/// The text of the bytes before a pause, behind the lines that are passed over.
fn decode_sample(bytes: Vec<u8>, config: &CsvConfig) -> Result<Vec<u8>, String> {
    let notices = Notices::default();
    let (text, _) = decode((bytes, false), Box::new(io::empty()), config, "", &notices)?;
    let (mut text, ..) = SkippedLines::pass_over(text, config.skip_rows, None)?;
    let mut sample = Vec::new();
    // A pause may be inside of a character, which ends the sample.
    let _cut: io::Result<usize> = text.read_to_end(&mut sample);
    Ok(sample)
}

/// The text of a file that begins with `sample`, behind its byte order mark, and the offset of its
/// first byte in the file; `None` for another encoding than UTF-8.
fn decode(
    (sample, is_whole): (Vec<u8>, bool),
    rest: Text,
    config: &CsvConfig,
    name: &str,
    notices: &Notices,
) -> Result<(Text, Option<u64>), String> {
    let mark = Encoding::for_bom(&sample).map(|(marked, _)| marked);
    let wanted = encoding(config).map_err(|e| e.to_string())?;
    if let Some(marked) = mark {
        note_mark(marked, wanted, name, notices);
    } else {
        check_encoding(&sample, is_whole, wanted, name, notices)?;
    }
    let encoding = mark.or(wanted).unwrap_or(UTF_8);
    if encoding != UTF_8 {
        let all = Cursor::new(sample).chain(rest);
        return Ok((Box::new(decoded(all, encoding, notices)), None));
    }
    let skipped = if mark.is_some() { 3 } else { 0 };
    let text = Cursor::new(sample[skipped..].to_vec()).chain(rest);
    Ok((Box::new(text), Some(skipped as u64)))
}

/// Reports that the byte order mark decides, unless it is of the `wanted` encoding or of UTF-8.
fn note_mark(
    marked: &'static Encoding,
    wanted: Option<&'static Encoding>,
    name: &str,
    notices: &Notices,
) {
    let wide = [UTF_16LE, UTF_16BE];
    let is_wanted = wanted
        .is_some_and(|wanted| wanted == marked || wide.contains(&wanted) && wide.contains(&marked));
    if !is_wanted && (marked != UTF_8 || wanted.is_some()) {
        let message = format!(
            "`{name}` begins with a byte order mark of {} and is decoded from it",
            marked.name()
        );
        notices.push("csv_encoding", "csv.encoding", message);
    }
}

/// `reader` from the middle of a file on, as text.
///
/// # Errors
/// An encoding that is none.
pub fn go_on(reader: Text, config: &CsvConfig) -> Result<Text, String> {
    match encoding(config).map_err(|e| e.to_string())? {
        Some(encoding) if encoding != UTF_8 => {
            Ok(Box::new(decoded(reader, encoding, &Notices::default())))
        }
        _ => Ok(reader),
    }
}

/// Returns the first bytes of `reader`, at most `most`, and the reader of the others.
fn peek(mut reader: Text, most: usize) -> Result<(Vec<u8>, Text), String> {
    let mut sample = Vec::new();
    let read = (&mut reader).take(most as u64).read_to_end(&mut sample);
    read.map_err(|e| e.to_string())?;
    Ok((sample, reader))
}

/// The usual delimiter if it splits the header of `sample` into some of the `known` columns, else
/// the one that splits it into the most; `None` if none does.
fn by_known_columns(sample: &[u8], dialect: &Dialect, known: &[String]) -> Option<u8> {
    if known.is_empty() || !dialect.has_header || !dialect.columns.is_empty() {
        return None;
    }
    let found = |delimiter: u8| {
        let dialect = Dialect {
            delimiter,
            ..dialect.clone()
        };
        let mut row = csv::ByteRecord::new();
        let mut reader = builder(&dialect).from_reader(sample);
        if !reader.read_byte_record(&mut row).unwrap_or_default() {
            return 0;
        }
        let is_known = |cell: &&[u8]| known.iter().any(|name| name.as_bytes() == *cell);
        row.iter().filter(is_known).count()
    };
    let others = DELIMITERS.into_iter().rev();
    let most = others.max_by_key(|delimiter| found(*delimiter))?;
    match found(dialect.delimiter) {
        0 => (found(most) > 0).then_some(most),
        _ => Some(dialect.delimiter),
    }
}

/// The delimiter of the rows in `sample`.
fn sniff(
    sample: &[u8],
    is_whole: bool,
    dialect: &Dialect,
    name: &str,
    notices: &Notices,
) -> Result<u8, String> {
    let usual = dialect.delimiter;
    let widths = |delimiter: u8| widths(sample, is_whole, delimiter, dialect);
    let own = widths(usual);
    let Some(first) = own.first() else {
        return Ok(usual);
    };
    let fitting = own.iter().filter(|width| *width == first).count();
    let is_usual = *first > 1 && fitting * 2 >= own.len();
    let splits = |delimiter: &u8| {
        let found = widths(*delimiter);
        let first = found.first().copied().unwrap_or_default();
        first > 1 && found.iter().all(|width| *width == first)
    };
    let others = DELIMITERS
        .into_iter()
        .filter(|delimiter| *delimiter != usual);
    let found: Vec<u8> = others.clone().filter(splits).collect();
    if is_usual {
        if let Some(other) = found.first() {
            let message = format!(
                "`{name}` is read with the delimiter `{}`, although `{}` splits its lines alike too",
                shown(usual),
                shown(*other)
            );
            notices.push("csv_delimiter", "csv.delimiter", message);
        }
        return Ok(usual);
    }
    match found[..] {
        [one] => {
            let message = format!(
                "`{name}` is read with the delimiter `{}`, which splits its lines alike; `{}` does not",
                shown(one),
                shown(usual)
            );
            notices.push("csv_delimiter", "csv.delimiter", message);
            Ok(one)
        }
        [] => {
            let header = sample
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default();
            let inside = others.clone().find(|delimiter| header.contains(delimiter));
            if let (1, Some(inside)) = (*first, inside) {
                let message = format!(
                    "the first line of `{name}` is one column by the delimiter `{}` although it has `{}` in it, which splits the lines into different numbers of fields",
                    shown(usual),
                    shown(inside)
                );
                notices.push("csv_delimiter", "csv.delimiter", message);
            }
            Ok(usual)
        }
        _ => {
            let all: Vec<String> = found.iter().map(|byte| shown(*byte)).collect();
            notices.push_remedy(Remedy::Delimiter);
            Err(format!(
                "its delimiter is ambiguous: `{}` each split its lines alike; set `csv.delimiter`",
                all.join("` and `")
            ))
        }
    }
}

/// Notes that the configured delimiter splits no line of `sample`, and another one splits them alike.
fn note_unsplit(sample: &[u8], is_whole: bool, dialect: &Dialect, name: &str, notices: &Notices) {
    let widths = |delimiter: u8| widths(sample, is_whole, delimiter, dialect);
    let own = widths(dialect.delimiter);
    if own.len() < 2 || own.iter().any(|width| *width > 1) {
        return;
    }
    let splits = |delimiter: &u8| {
        let found = widths(*delimiter);
        let first = found.first().copied().unwrap_or_default();
        first > 1 && found.iter().all(|width| *width == first)
    };
    if let Some(other) = DELIMITERS.into_iter().find(splits) {
        let (own, other) = (shown(dialect.delimiter), shown(other));
        let message = format!(
            "`{name}` is read as one column with the delimiter `{own}` of `csv.delimiter`, although `{other}` splits its lines alike; set `csv.delimiter = \"{other}\"` if its lines have columns"
        );
        notices.push("csv_delimiter", "csv.delimiter", message);
    }
}

fn shown(delimiter: u8) -> String {
    match delimiter {
        b'\t' => "\\t".into(),
        byte => char::from(byte).to_string(),
    }
}

fn has_in_first_line(sample: &[u8], delimiter: u8) -> bool {
    let mut lines = sample.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.next().is_some_and(|line| line.contains(&delimiter))
}

/// The delimiter that the first line of `text` names for spreadsheets, such as `sep=;`.
pub fn named_delimiter(text: &[u8]) -> Option<u8> {
    DelimiterLine::of(text).map(|line| line.delimiter)
}

/// Numbers of fields of the rows in `sample` by `delimiter`; of none if it has none.
fn widths(sample: &[u8], is_whole: bool, delimiter: u8, dialect: &Dialect) -> Vec<usize> {
    let mut reader = builder(&Dialect {
        delimiter,
        ..dialect.clone()
    })
    .from_reader(sample);
    let rows = reader.byte_records().map_while(Result::ok).take(ROWS + 1);
    let mut widths: Vec<usize> = rows.map(|row| row.len()).collect();
    // The last one may be cut.
    if widths.len() > ROWS || (!is_whole && widths.len() > 1) {
        widths.pop();
    }
    widths
}

/// A reader of rows, the header one of them.
pub fn builder(dialect: &Dialect) -> csv::ReaderBuilder {
    let mut builder = csv::ReaderBuilder::new();
    builder
        .delimiter(dialect.delimiter)
        .comment(dialect.comment)
        .escape(dialect.escape)
        .has_headers(false)
        .flexible(true);
    match dialect.quote {
        Some(quote) => builder.quote(quote),
        None => builder.quoting(false),
    };
    builder
}

/// Text of another encoding as UTF-8.
struct Decoded<R> {
    inner: R,
    encoding: &'static Encoding,
    decoder: encoding_rs::Decoder,
    input: Vec<u8>,
    /// Count of input bytes that are already decoded.
    done: usize,
    /// Bytes of the file before `input`.
    before: u64,
    is_end: bool,
    is_over: bool,
    output: Vec<u8>,
    given: usize,
    notices: Notices,
}

fn decoded<R: Read>(inner: R, encoding: &'static Encoding, notices: &Notices) -> Decoded<R> {
    Decoded {
        inner,
        encoding,
        decoder: encoding.new_decoder_with_bom_removal(),
        input: Vec::new(),
        done: 0,
        before: 0,
        is_end: false,
        is_over: false,
        output: Vec::new(),
        given: 0,
        notices: notices.clone(),
    }
}

impl<R: Read> Decoded<R> {
    /// Decodes the next part; nothing at the end.
    fn fill(&mut self) -> io::Result<()> {
        const CHUNK: usize = 16 << 10;
        if self.done == self.input.len() && !self.is_end {
            self.before += self.input.len() as u64;
            self.done = 0;
            // One read: a pipe has no more for now.
            self.input.resize(CHUNK, 0);
            let read = read_once(&mut self.inner, &mut self.input);
            self.input.truncate(*read.as_ref().unwrap_or(&0));
            self.is_end = read? == 0;
        }
        let rest = &self.input[self.done..];
        let most = self
            .decoder
            .max_utf8_buffer_length_without_replacement(rest.len());
        let most = most.ok_or_else(|| io::Error::other("it is too large to decode"))?;
        self.output.resize(most.max(16), 0);
        let decoder = &mut self.decoder;
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(rest, &mut self.output, self.is_end);
        self.done += read;
        self.output.truncate(written);
        self.given = 0;
        match result {
            DecoderResult::InputEmpty => self.is_over = self.is_end,
            DecoderResult::OutputFull => {}
            DecoderResult::Malformed(..) => {
                self.notices.push_remedy(Remedy::Encoding(None));
                return Err(io::Error::other(format!(
                    "it is not {} at byte {}: set `csv.encoding` to the encoding that it is written in",
                    self.encoding.name(),
                    self.before + self.done as u64
                )));
            }
        }
        Ok(())
    }
}

/// Reads once into `out`, again where a signal interrupted it.
fn read_once(inner: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match inner.read(out) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.given == self.output.len() {
            if self.is_over {
                return Ok(0);
            }
            self.fill()?;
        }
        let count = (self.output.len() - self.given).min(out.len());
        out[..count].copy_from_slice(&self.output[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}
