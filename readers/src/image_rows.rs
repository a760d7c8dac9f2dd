//! An image file as one record: its unchanged bytes, its path, and its folder.
//!
//! A record is `image`, the complete file; `path`, its path below the source's folder; and
//! `folder`, the name of its direct folder (null where that is the source's own). Many image
//! datasets use the folder name as the class.

use crate::{record::Record, rows::Rows, value::Value};

/// Reads the one record of an image file. An empty file is a record too: images are validated
/// later. A file that cannot be decompressed, or is too large, is a bad record, and the source
/// continues.
pub(crate) struct ImageRows {
    record: Option<Record>,
}

impl ImageRows {
    /// The record of the file at `path` below the source's folder.
    pub(crate) fn new(bytes: Result<Vec<u8>, String>, path: &str) -> Self {
        Self {
            record: Some(match bytes {
                Ok(bytes) => record(bytes, path.to_owned(), path.rsplit('/').nth(1)),
                Err(detail) => Record::Bad {
                    raw: path.to_owned(),
                    reason: "unreadable_image",
                    detail: format!("{path}: {detail}"),
                },
            }),
        }
    }
}

/// The record of one image.
pub(crate) fn record(bytes: Vec<u8>, path: String, folder: Option<&str>) -> Record {
    let mut columns = vec![("image".to_owned(), Value::Bytes(bytes))];
    columns.extend(path_columns(path, folder));
    Record::Value(Value::Object(columns))
}

/// The columns of a file that is a record: its path, and the name of its direct folder.
pub(crate) fn path_columns(path: String, folder: Option<&str>) -> [(String, Value); 2] {
    let folder = folder.map(str::to_owned);
    [
        ("path".to_owned(), Value::Text(path)),
        ("folder".to_owned(), folder.map_or(Value::Null, Value::Text)),
    ]
}

impl Rows for ImageRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        Ok(self.record.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        let mut rows = ImageRows::new(Ok(b"xyz".to_vec()), path);
        let Some(Record::Value(value)) = rows.next().unwrap() else {
            panic!("no record")
        };
        assert!(rows.next().unwrap().is_none());
        value.canonical()
    }

    #[test]
    fn the_folder_is_the_one_right_above_the_file() {
        assert!(read("a/cat/1.jpg").contains(r#""folder":"cat""#));
        assert!(read("a/cat/1.jpg").contains(r#""path":"a/cat/1.jpg""#));
        assert!(read("1.jpg").contains(r#""folder":null"#));
    }
}
