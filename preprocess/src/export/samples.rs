//! WebDataset: tar files of samples. A sample is `KEY.json` with the columns, a file for each binary cell, and `KEY.txt` for a
//! column of documents. Keys are the numbers of the rows in their part. The first member of a file of a dataset has the roles of
//! the columns. Headers have no times and no owners.

use std::collections::BTreeSet;

use arrow::array::{Array as _, RecordBatch};
use feedline_image::Format;
use feedline_schemas::{export::ROLES_MEMBER, manifest::Split};
use tar::{Builder, EntryType, Header};

use super::{
    cells::{bytes_of, write_as_text, write_json},
    files::{FileLimits, PartFiles, PartWriter},
    out::{OutFile, OutFolder, StoredFile, WriteFailure},
    table::{ExportColumn, ExportTable},
};
use crate::Error;

/// Files of a part.
pub(super) struct SampleParts {
    out: OutFolder,
    limits: FileLimits,
    split: Option<Split>,
    columns: Vec<SampleColumn>,
    /// Roles of the columns, as JSON.
    roles: Option<String>,
    open: Option<OpenTar>,
    files: Vec<StoredFile>,
    /// Rows so far.
    rows: u64,
    not_finite: u64,
}

/// Place of a column in samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SampleColumn {
    /// A member of the JSON object, with its name and the colon as JSON.
    Member(Vec<u8>),
    /// A file of its own, whose extension begins with this text.
    File(String),
    /// The file `KEY.txt`.
    Text,
}

/// Places of the columns of a table.
pub(super) fn columns(table: &ExportTable) -> Vec<SampleColumn> {
    places(&table.columns, table.text.as_deref())
}

fn places(columns: &[ExportColumn], text: Option<&str>) -> Vec<SampleColumn> {
    let is_alone = columns.iter().filter(|column| column.is_binary()).count() == 1;
    let mut taken = BTreeSet::new();
    let columns = columns.iter().map(|column| {
        if column.is_binary() && is_alone {
            return SampleColumn::File(String::new());
        }
        if column.is_binary() {
            let mut part = extension(&column.name);
            // Two files of a sample with one name would be one file to readers, or refused.
            while !taken.insert(part.clone()) {
                part.push('_');
            }
            return SampleColumn::File(format!("{part}."));
        }
        if text == Some(column.name.as_str()) {
            return SampleColumn::Text;
        }
        let name = serde_json::Value::from(column.name.as_str());
        SampleColumn::Member(format!("{name}:").into_bytes())
    });
    columns.collect()
}

/// Part of an extension: readers lowercase them, and a slash would be a folder.
fn extension(column: &str) -> String {
    let safe = |c: char| match c {
        c if c.is_alphanumeric() || "-_.".contains(c) => c,
        _ => '_',
    };
    column.to_lowercase().chars().map(safe).collect()
}

struct OpenTar {
    tar: Builder<OutFile>,
    failure: WriteFailure,
    rows: u64,
}

impl SampleParts {
    pub(super) fn new(
        out: OutFolder,
        table: &ExportTable,
        split: Option<Split>,
        limits: FileLimits,
    ) -> Result<Self, Error> {
        Ok(Self {
            out,
            limits,
            split,
            columns: columns(table),
            roles: table.roles_text()?,
            open: None,
            files: Vec::new(),
            rows: 0,
            not_finite: 0,
        })
    }

    fn begin(&self) -> Result<OpenTar, Error> {
        let file = self.out.create("")?;
        let mut open = OpenTar {
            failure: file.failure(),
            tar: Builder::new(file),
            rows: 0,
        };
        if let Some(roles) = &self.roles {
            open.put(ROLES_MEMBER, roles.as_bytes())?;
        }
        Ok(open)
    }

    fn end(&mut self, open: OpenTar) -> Result<(), Error> {
        let OpenTar { tar, failure, rows } = open;
        let file = tar.into_inner().map_err(|e| failure.error(e))?;
        let name = self.split.map_or("part", Split::as_str);
        let path = format!("{name}-{:06}.tar", self.files.len());
        self.files.push(file.store_as(path, (self.split, rows))?);
        Ok(())
    }

    fn put_sample(
        &mut self,
        open: &mut OpenTar,
        rows: &RecordBatch,
        row: usize,
    ) -> Result<(), Error> {
        let key = format!("{:09}", self.rows);
        let mut object = vec![b'{'];
        for (place, column) in self.columns.iter().zip(rows.columns()) {
            match place {
                SampleColumn::Member(name) => {
                    if object.len() > 1 {
                        object.push(b',');
                    }
                    object.extend_from_slice(name);
                    write_json(column, row, &mut object, &mut self.not_finite)?;
                }
                SampleColumn::Text if column.is_null(row) => {}
                SampleColumn::Text => {
                    let mut text = Vec::new();
                    write_as_text(column, row, &mut text)?;
                    open.put(&format!("{key}.txt"), &text)?;
                }
                SampleColumn::File(prefix) => {
                    if let Some(cell) = bytes_of(column, row) {
                        let path = format!("{key}.{prefix}{}", file_extension(cell));
                        open.put(&path, cell)?;
                    }
                }
            }
        }
        object.push(b'}');
        open.put(&format!("{key}.json"), &object)?;
        self.rows += 1;
        open.rows += 1;
        Ok(())
    }
}

impl PartWriter for SampleParts {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        for row in 0..rows.num_rows() {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.begin()?,
            };
            self.put_sample(&mut open, rows, row)?;
            let bytes = open.tar.get_ref().bytes();
            if open.rows >= self.limits.rows || bytes >= self.limits.bytes {
                self.end(open)?;
            } else {
                self.open = Some(open);
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<PartFiles, Error> {
        if let Some(open) = self.open.take() {
            self.end(open)?;
        }
        Ok(PartFiles {
            files: self.files,
            closing: Vec::new(),
            not_finite: self.not_finite,
        })
    }
}

impl OpenTar {
    fn put(&mut self, path: &str, content: &[u8]) -> Result<(), Error> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        let put = self.tar.append_data(&mut header, path, content);
        put.map_err(|e| self.failure.error(e))
    }
}

/// Extension of a file by its first bytes; `bin` for one that is no image.
fn file_extension(file: &[u8]) -> &'static str {
    match Format::of(file) {
        Ok(Format::Jpeg) => "jpg",
        Ok(Format::Png) => "png",
        Ok(Format::WebP) => "webp",
        Ok(Format::Gif) => "gif",
        Ok(Format::Bmp) => "bmp",
        Ok(Format::Tiff) => "tiff",
        Ok(Format::Raw) if file.starts_with(b"P5") => "pgm",
        Ok(Format::Raw) => "ppm",
        Err(_) => "bin",
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn columns_whose_names_differ_only_for_feedline_have_files_of_their_own() {
        let binary = |name| ExportColumn::plain(name, DataType::Binary, true);
        let prefix = |text: &str| SampleColumn::File(text.to_owned());
        let columns = [
            binary("Photo"),
            binary("photo"),
            binary("a b"),
            binary("a/b"),
        ];
        let expected = ["photo.", "photo_.", "a_b.", "a_b_."].map(prefix);
        assert_eq!(places(&columns, None), expected);
        assert_eq!(places(&columns[..1], None), [prefix("")]);
        let text = [ExportColumn::plain("text", DataType::Utf8, true)];
        assert_eq!(places(&text, Some("text")), [SampleColumn::Text]);
        let member = SampleColumn::Member(b"\"text\":".to_vec());
        assert_eq!(places(&text, None), [member]);
    }

    #[test]
    fn names_of_columns_become_parts_of_extensions() {
        for (column, expected) in [
            ("photo", "photo"),
            ("Front/Back", "front_back"),
            ("user.face", "user.face"),
            ("a b", "a_b"),
        ] {
            assert_eq!(extension(column), expected);
        }
    }

    #[test]
    fn extensions_follow_the_content() {
        for (file, expected) in [
            (&b"\xff\xd8\xff\xe0"[..], "jpg"),
            (b"\x89PNG\r\n\x1a\n....", "png"),
            (b"P6 1 1 255\n...", "ppm"),
            (b"%PDF-1.7", "bin"),
        ] {
            assert_eq!(file_extension(file), expected);
        }
    }
}
