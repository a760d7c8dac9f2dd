//! Decompression of gzip files, with errors that say which part of the file is wrong.

use std::io::{self, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

/// Error of a file that does not begin like a gzip file.
const NO_GZIP: &str = "it is no gzip file, although its name ends like one: it is not compressed, or truncated before its data begin; rename it without that ending, compress it, or download it again";

/// Error of a file that continues behind its compressed data.
const CONTINUED: &str = "it is a gzip file with other bytes behind its end: remove these bytes, or decompress the file and compress it again";

/// Error of a file that ends within its compressed data.
const TRUNCATED: &str =
    "it is a truncated gzip file; download it again, or wait until it is written completely";

/// Decompresses the members of a gzip file.
pub(super) struct GzipReader<R> {
    members: MultiGzDecoder<R>,
    /// True once the header of a member was read.
    has_member: bool,
}

impl<R: Read> GzipReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            members: MultiGzDecoder::new(reader),
            has_member: false,
        }
    }

    /// Names the fault that `error` is of; errors of the bytes below stay as they are.
    fn describe(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        let is_within = self.members.header().is_some();
        match (kind, is_within) {
            (ErrorKind::UnexpectedEof, true) => io::Error::new(kind, TRUNCATED),
            (ErrorKind::InvalidInput, true) => io::Error::new(
                kind,
                format!("it is a damaged gzip file ({error}); download or compress it again"),
            ),
            (ErrorKind::UnexpectedEof | ErrorKind::InvalidInput, false) => {
                let text = if self.has_member { CONTINUED } else { NO_GZIP };
                io::Error::new(kind, text)
            }
            _ => error,
        }
    }
}

impl<R: Read> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.members.read(buffer);
        self.has_member |= read.is_ok() && self.members.header().is_some();
        read.map_err(|error| self.describe(error))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap()
    }

    fn error(bytes: &[u8]) -> String {
        let mut text = String::new();
        let read = GzipReader::new(bytes).read_to_string(&mut text);
        read.unwrap_err().to_string()
    }

    #[test]
    fn members_are_read_one_after_another() {
        let mut text = String::new();
        let both = [gzip("a,b\n"), gzip("1,2\n")].concat();
        let mut reader = GzipReader::new(both.as_slice());
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a,b\n1,2\n");
    }

    #[test]
    fn each_fault_has_an_error_of_its_own() {
        for plain in ["a,b\n", "a,b\n1,2\n3,4\n5,6\n"] {
            assert_eq!(error(plain.as_bytes()), NO_GZIP);
        }
        let packed = gzip("a,b\n1,2\n");
        for behind in ["x", "a,b\n1,2\n3,4\n5,6\n"] {
            let bytes = [packed.as_slice(), behind.as_bytes()].concat();
            assert_eq!(error(&bytes), CONTINUED);
        }
        for end in [12, packed.len() - 9, packed.len() - 1] {
            assert_eq!(error(&packed[..end]), TRUNCATED, "{end}");
        }
        let mut damaged = packed;
        let last = damaged.len() - 5;
        damaged[last] ^= 1;
        let found = error(&damaged);
        assert!(found.starts_with("it is a damaged gzip file"), "{found}");
    }
}
