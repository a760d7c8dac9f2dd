//! Zip archives (APPNOTE.TXT 6.3.10), read by their central directory.
//!
//! Only the central directory defines the members: an entry missing from it was deleted. It is read
//! as a stream, entry by entry, so that two members of one name stay two. Each member's local
//! header must agree with it in the name and its data must end before the directory. All data
//! together must not be longer than the file: members that share data would make a small archive
//! endless.

use std::io::Read;

use feedline_schemas::{config::ArchiveConfig, count::counted};
use flate2::{Crc, read::DeflateDecoder};

use super::member::{Bounds, CUT, Member, Members, fill};
use crate::file_bytes::{FileBytes, FileReader};

/// Length of the end record, without its comment.
const END: u64 = 22;
/// Longest comment.
const COMMENT: u64 = 0xffff;
/// Length of the 64-bit locator, which is before the end record.
const PLACE_64: u64 = 20;
const END_64: usize = 56;
/// Length of a directory entry, without its names and comment.
const ENTRY: usize = 46;
/// Length of a member's local header, without its name.
const LOCAL: usize = 30;

/// Reads the members of a zip archive.
pub(crate) struct ZipMembers {
    file: FileBytes,
    list: List,
}

impl ZipMembers {
    /// Walks over the central directory once to check it, then starts again at its first member.
    ///
    /// # Errors
    /// The reason why the archive cannot be read.
    pub(crate) fn open(file: &FileBytes, config: &ArchiveConfig) -> Result<Self, String> {
        let end = End::find(file)?;
        let mut all = List::new(file, &end, config);
        while all.next()?.is_some() {}
        Ok(Self {
            list: List::new(file, &end, config),
            file: file.clone(),
        })
    }
}

impl Members for ZipMembers {
    fn next(&mut self, wanted: &dyn Fn(&str) -> bool) -> Result<Option<(String, Member)>, String> {
        while let Some(entry) = self.list.next()? {
            let name = entry.name();
            if entry.is_file && wanted(&name) {
                let member = match self.list.bounds.allows(entry.bytes) {
                    Ok(()) => entry.read(&self.file, self.list.start),
                    Err(bad) => bad,
                };
                return Ok(Some((name, member)));
            }
        }
        Ok(None)
    }
}

/// Position and size of the central directory.
#[derive(Clone, Copy, Debug)]
struct End {
    entries: u64,
    start: u64,
    bytes: u64,
}

impl End {
    fn find(file: &FileBytes) -> Result<Self, String> {
        let size = file.mark.bytes;
        let from = size.saturating_sub(END + COMMENT + PLACE_64);
        let tail = read(file, from, size - from)?;
        // The comment may hold anything, so the end record is the last one whose comment ends with
        // the file.
        let at = (0..tail.len()).rev().find(|at| {
            let end = tail.get(*at..*at + 22);
            end.is_some_and(|end| {
                end.starts_with(b"PK\x05\x06") && *at + 22 + usize::from(two(end, 20)) == tail.len()
            })
        });
        let at =
            at.ok_or("it has no central directory at its end: it is truncated, download it again")?;
        let end = &tail[at..];
        let place = (at as u64 + from).checked_sub(PLACE_64);
        let place = place.filter(|place| *place >= from).map(|place| {
            let start = usize::try_from(place - from).unwrap_or(usize::MAX);
            &tail[start..at]
        });
        let found = match place {
            Some(place) if place.starts_with(b"PK\x06\x07") => Self::wide(file, eight(place, 8))?,
            _ => Self {
                entries: two(end, 10).into(),
                start: four(end, 16).into(),
                bytes: four(end, 12).into(),
            },
        };
        // The number of this disk, unless the 64-bit record has it.
        let is_one = matches!(two(end, 4), 0 | 0xffff);
        let ends = found.start.checked_add(found.bytes);
        if !is_one || ends.is_none_or(|ends| ends > at as u64 + from) {
            return Err("its central directory is not at the stated offset: it is truncated, or a part of an archive".into());
        }
        Ok(found)
    }

    /// The 64-bit record.
    fn wide(file: &FileBytes, at: u64) -> Result<Self, String> {
        let end = read(file, at, END_64 as u64)?;
        if !end.starts_with(b"PK\x06\x06") {
            return Err(
                "its 64-bit end record is not at the stated offset; it is damaged, download it again".into(),
            );
        }
        Ok(Self {
            entries: eight(&end, 32),
            start: eight(&end, 48),
            bytes: eight(&end, 40),
        })
    }
}

/// Reads the list.
struct List {
    reader: std::io::Take<FileReader>,
    /// Entries left.
    left: u64,
    bounds: Bounds,
    /// Bytes of the file that members may still have.
    packed: u64,
    /// Offset where the directory begins and all data ends.
    start: u64,
}

/// A member as the list has it.
#[derive(Debug)]
struct Entry {
    /// Name as stored.
    name: Vec<u8>,
    is_file: bool,
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    bytes: u64,
    /// Offset of its local header.
    at: u64,
}

impl List {
    fn new(file: &FileBytes, end: &End, config: &ArchiveConfig) -> Self {
        Self {
            reader: file.reader(end.start).take(end.bytes),
            left: end.entries,
            bounds: Bounds::new(config, file.mark.bytes),
            packed: file.mark.bytes,
            start: end.start,
        }
    }

    fn next(&mut self) -> Result<Option<Entry>, String> {
        let mut fixed = [0; ENTRY];
        if !fill(&mut self.reader, &mut fixed)? {
            return match self.left {
                0 => Ok(None),
                left => Err(format!(
                    "its central directory ends with {} missing",
                    counted(left, "entry")
                )),
            };
        }
        self.bounds.member()?;
        if !fixed.starts_with(b"PK\x01\x02") || self.left == 0 {
            return Err("its central directory is damaged; download it again".into());
        }
        self.left -= 1;
        let mut texts = [28, 30, 32].map(|at| vec![0; two(&fixed, at).into()]);
        for text in &mut texts {
            if !text.is_empty() && !fill(&mut self.reader, text)? {
                return Err(CUT.into());
            }
        }
        let [name, extra, _] = texts;
        let mut wide = Wide::new(&extra);
        let mut number = |at: usize| match four(&fixed, at) {
            u32::MAX => wide.next(),
            small => Ok(small.into()),
        };
        // The wide field has them in this order.
        let (bytes, packed, at) = (number(24)?, number(20)?, number(42)?);
        // Unix modes of files, and the type that writers of other systems leave open.
        let is_file = matches!(four(&fixed, 38) >> 28, 0 | 8) || fixed[5] != 3;
        let entry = Entry {
            is_file: is_file && !name.ends_with(b"/"),
            name,
            flags: two(&fixed, 8),
            method: two(&fixed, 10),
            crc: four(&fixed, 16),
            packed,
            bytes,
            at,
        };
        self.bounds.take(bytes)?;
        self.packed = self
            .packed
            .checked_sub(packed)
            .ok_or("its members have more data than it has bytes: they overlap, like those of a decompression bomb")?;
        Ok(Some(entry))
    }
}

impl Entry {
    /// Returns its name. Bytes that are no UTF-8 are replaced, since it is only a label.
    fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Reads its content, of at most the size in the directory. Data must end before `end`.
    fn read(&self, file: &FileBytes, end: u64) -> Member {
        match self.try_read(file, end) {
            Ok(content) => Member::Whole(content),
            Err((reason, told)) => Member::Bad(reason, told),
        }
    }

    fn try_read(&self, file: &FileBytes, end: u64) -> Result<Vec<u8>, (&'static str, String)> {
        let damaged = |told: String| ("member_damaged", told);
        let unread = |told: String| ("member_unread", told);
        if self.flags & 1 != 0 {
            return Err(unread("it is encrypted; decrypt the archive first".into()));
        }
        if !matches!(self.method, 0 | 8) {
            let told = format!(
                "it is packed by method {}, and only Deflate is read",
                self.method
            );
            return Err(unread(told));
        }
        // Deflate adds some bytes to incompressible data.
        if self.packed > self.bytes * 2 + 4096 {
            return Err(damaged("it is longer packed than unpacked".into()));
        }
        let header = read(file, self.at, LOCAL as u64).map_err(damaged)?;
        let named = u64::from(two(&header, 26));
        let name = read(file, self.at + LOCAL as u64, named).map_err(damaged)?;
        if !header.starts_with(b"PK\x03\x04") || name != self.name {
            return Err(damaged(
                "its local header differs from the central directory".into(),
            ));
        }
        let start = self.at + LOCAL as u64 + named + u64::from(two(&header, 28));
        if start.checked_add(self.packed).is_none_or(|ends| ends > end) {
            return Err(damaged(
                "its data are not at the offset in the central directory".into(),
            ));
        }
        let packed = read(file, start, self.packed).map_err(damaged)?;
        let packed = &packed[..];
        let mut content = Vec::new();
        // One byte more than expected shows that the member is too long.
        let most = self.bytes + 1;
        let unpacked = match self.method {
            0 => packed.take(most).read_to_end(&mut content),
            _ => DeflateDecoder::new(packed)
                .take(most)
                .read_to_end(&mut content),
        };
        unpacked.map_err(|e| damaged(e.to_string()))?;
        let mut crc = Crc::new();
        crc.update(&content);
        if content.len() as u64 != self.bytes || crc.sum() != self.crc {
            return Err(damaged("its bytes do not match its checksum".into()));
        }
        Ok(content)
    }
}

/// The numbers of an entry that need 64 bits, in their order.
struct Wide<'a>(&'a [u8]);

impl<'a> Wide<'a> {
    fn new(mut extra: &'a [u8]) -> Self {
        while let Some((head, rest)) = extra.split_at_checked(4) {
            let Some((field, rest)) = rest.split_at_checked(two(head, 2).into()) else {
                break;
            };
            if two(head, 0) == 1 {
                return Self(field);
            }
            extra = rest;
        }
        Self(&[])
    }

    fn next(&mut self) -> Result<u64, String> {
        let (number, rest) = self
            .0
            .split_at_checked(8)
            .ok_or("a 64-bit number is missing in its central directory")?;
        self.0 = rest;
        Ok(eight(number, 0))
    }
}

/// Bytes of the file from `at`.
fn read(file: &FileBytes, at: u64, bytes: u64) -> Result<bytes::Bytes, String> {
    let end = at.checked_add(bytes).filter(|end| *end <= file.mark.bytes);
    let end = end.ok_or("it is beyond the end of the archive")?;
    file.range(at, end).map_err(|e| e.to_string())
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn four(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..].first_chunk().copied();
    u32::from_le_bytes(bytes.unwrap_or_default())
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..].first_chunk().copied();
    u64::from_le_bytes(bytes.unwrap_or_default())
}
