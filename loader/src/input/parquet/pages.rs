//! The checksums of Parquet's pages, which their writer may have left out.
//!
//! A column chunk is a run of pages, each a header and a body. The header is a struct in Thrift's compact protocol; of
//! its fields `compressed_page_size` (3) is the length of the body and `crc` (4) the body's CRC-32, of the polynomial
//! that gzip uses. See parquet-format, `parquet.thrift`, struct `PageHeader`.

/// Structs inside structs, and elements of a list, that a page header cannot have more of.
const MOST_DEPTH: u32 = 8;
const MOST_ELEMENTS: u64 = 1 << 16;

/// Checks every page of a column chunk that has a checksum.
///
/// # Errors
/// A message that names the damaged page, or that the pages do not fill the chunk.
pub(super) fn check(chunk: &[u8]) -> Result<(), String> {
    let mut rest = chunk;
    let mut page = 0u32;
    while !rest.is_empty() {
        let mut reader = ThriftReader(rest);
        let header = reader.page_header();
        let header = header.ok_or_else(|| format!("the header of page `{page}` cannot be read"))?;
        let body = reader.0.get(..header.bytes);
        let body = body.ok_or_else(|| format!("page `{page}` ends after its column"))?;
        if let Some(expected) = header.crc {
            let found = crc32(body);
            if found != expected {
                return Err(format!(
                    "page `{page}` has the checksum `{found:08x}` and its header says `{expected:08x}`"
                ));
            }
        }
        rest = &reader.0[header.bytes..];
        page += 1;
    }
    Ok(())
}

struct PageHeader {
    bytes: usize,
    crc: Option<u32>,
}

/// Compact Thrift, as far as it takes to pass over what is not wanted.
struct ThriftReader<'a>(&'a [u8]);

impl ThriftReader<'_> {
    fn page_header(&mut self) -> Option<PageHeader> {
        let (mut bytes, mut crc) = (None, None);
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (3, 5) => bytes = Some(usize::try_from(self.zigzag()?).ok()?),
                (4, 5) => crc = Some(i32::try_from(self.zigzag()?).ok()?.cast_unsigned()),
                _ => self.skip(kind, 0)?,
            }
        }
        Some(PageHeader { bytes: bytes?, crc })
    }

    /// Type of the next field of a struct, whose id goes to `field`; `None` inside at the struct's end.
    fn field(&mut self, field: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *field = match head >> 4 {
            0 => self.zigzag()?,
            delta => *field + i64::from(delta),
        };
        Some(Some(head & 15))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > MOST_DEPTH {
            return None;
        }
        match kind {
            1 | 2 => Some(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.take(8),
            8 => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?)
            }
            9 | 10 => self.skip_list(depth),
            12 => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn skip_list(&mut self, depth: u32) -> Option<()> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        if length > MOST_ELEMENTS {
            return None;
        }
        for _ in 0..length {
            match head & 15 {
                // Unlike as a field, a boolean in a list has a byte of its own.
                1 | 2 => self.take(1)?,
                kind => self.skip(kind, depth + 1)?,
            }
        }
        Some(())
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

/// Tables for eight bytes at a time: `TABLES[k][b]` is the remainder of byte `b` with `k` zero bytes after it.
static TABLES: [[u32; 256]; 8] = tables();

#[expect(clippy::cast_possible_truncation, reason = "a constant loop to 256")]
const fn tables() -> [[u32; 256]; 8] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ (POLYNOMIAL * (remainder & 1));
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// CRC-32 as in gzip and PNG: reflected polynomial 0x04C11DB7, all ones before and after.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let low = crc ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let [a, b, c, d] = low.to_le_bytes();
        crc = TABLES[7][a as usize]
            ^ TABLES[6][b as usize]
            ^ TABLES[5][c as usize]
            ^ TABLES[4][d as usize]
            ^ TABLES[3][eight[4] as usize]
            ^ TABLES[2][eight[5] as usize]
            ^ TABLES[1][eight[6] as usize]
            ^ TABLES[0][eight[7] as usize];
    }
    for byte in eights.remainder() {
        let low = crc.to_le_bytes()[0] ^ byte;
        crc = (crc >> 8) ^ TABLES[0][low as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_that_of_gzip() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(&[0; 32]), 0x190a_55ad);
    }

    fn zigzag(value: i32) -> Vec<u8> {
        let mut left = (value << 1 ^ value >> 31).cast_unsigned();
        let mut bytes = Vec::new();
        while left >= 128 {
            bytes.push(left.to_le_bytes()[0] | 128);
            left >>= 7;
        }
        bytes.push(left.to_le_bytes()[0]);
        bytes
    }

    /// Page type, both sizes, perhaps a checksum, a data page header of three fields with a struct inside, the end.
    fn page(body: &[u8], crc: Option<u32>) -> Vec<u8> {
        let length = i32::try_from(body.len()).unwrap();
        let mut page = vec![0x15, 0];
        for size in [length, length] {
            page.push(0x15);
            page.extend(zigzag(size));
        }
        if let Some(crc) = crc {
            page.push(0x15);
            page.extend(zigzag(crc.cast_signed()));
            page.push(0x1c);
        } else {
            page.push(0x2c);
        }
        page.extend([0x15, 2, 0x11, 0x18, 2, b'a', b'b', 0x1c, 0x15, 4, 0, 0, 0]);
        page.extend_from_slice(body);
        page
    }

    #[test]
    fn every_flipped_bit_of_a_page_with_a_checksum_is_noticed_in_its_body() {
        let body = b"some twenty-one bytes";
        let mut chunk = page(body, Some(crc32(body)));
        chunk.extend(page(b"", None));
        chunk.extend(page(body, None));
        check(&chunk).unwrap();
        let start = page(body, Some(crc32(body))).len() - body.len();
        for bit in start * 8..(start + body.len()) * 8 {
            let mut flipped = chunk.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = check(&flipped).unwrap_err();
            assert!(error.starts_with("page `0` has the checksum"), "{error}");
        }
        for length in 1..chunk.len() {
            // A cut between two pages is for the row count to find.
            let whole = [start + body.len(), chunk.len() - page(body, None).len()];
            assert_eq!(
                check(&chunk[..length]).is_ok(),
                whole.contains(&length),
                "{length}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            check(&bytes).ok();
        }
    }
}
