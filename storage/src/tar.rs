//! Headers of tar archives: POSIX ustar, pax and GNU long names.
//!
//! An archive is a sequence of 512-byte headers, each followed by its member's data padded to 512
//! bytes, and ends with two blocks of zeros. A reader that underestimates a member's size continues
//! to read headers in the middle of the data. It can then be shown members that no other reader
//! sees. That happens if a pax header and the header after it state two sizes, and readers differ
//! in which one they use (CVE-2025-62518). Here pax wins, as POSIX requires, and two different
//! sizes are refused unless the header has no room for the size. Also refused are global pax sizes
//! and names, links with a size, and sparse files.

/// Unit of an archive, and length of a header, in bytes.
pub const BLOCK: u64 = 512;
/// Longest pax header or long name.
const MOST_EXTENSION: u64 = 1 << 20;
/// Largest size in twelve bytes of octal digits.
const MOST_OCTAL: u64 = 0o777_7777_7777;

/// Meaning of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A regular file of this size.
    File {
        /// Name as stored in the archive.
        name: String,
        /// Size.
        bytes: u64,
    },
    /// Another name of a file.
    Link {
        /// Name as stored in the archive.
        name: String,
    },
    /// Another entry without data: a folder, a device.
    Other,
    /// Data for [`Headers::extend`], of this size; the header of its member follows.
    Extension {
        /// Size.
        bytes: u64,
    },
    /// A block of zeros.
    Zeros,
}

/// Reads the headers of an archive in order.
///
/// ```
/// use feedline_storage::tar::{Entry, Headers, padded};
///
/// let mut header = [0_u8; 512];
/// header[..5].copy_from_slice(b"a.jpg");
/// header[124..136].copy_from_slice(b"00000000017\0"); // 15 bytes, in octal
/// # header[148..156].fill(b' ');
/// # let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
/// # header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
/// // Its checksum is set, too.
/// let mut headers = Headers::default();
/// let name = "a.jpg".to_owned();
/// assert_eq!(headers.header(&header)?, Entry::File { name, bytes: 15 });
/// // The next header comes after the data, which is padded to a block.
/// assert_eq!(padded(15), 512);
/// assert_eq!(headers.header(&[0; 512])?, Entry::Zeros);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Default)]
pub struct Headers {
    extension: Option<Extension>,
    name: Option<String>,
    bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Extension {
    Pax,
    GlobalPax,
    LongName,
    LongLink,
}

/// Rounds `bytes` up to the next block boundary; the largest number beyond the last one.
#[must_use]
pub fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

impl Headers {
    /// Returns true if an extension header waits for its member.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.name.is_some() || self.bytes.is_some()
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn header(&mut self, header: &[u8; 512]) -> Result<Entry, String> {
        if header.iter().all(|byte| *byte == 0) {
            return if self.is_pending() {
                Err("a pax header or long name is not followed by its member".into())
            } else {
                Ok(Entry::Zeros)
            };
        }
        check_sum(header)?;
        let stated = number(&header[124..136]).ok_or("the size in its header is not a number")?;
        match header[156] {
            b'x' => self.begin(Extension::Pax, stated),
            b'g' => self.begin(Extension::GlobalPax, stated),
            b'L' => self.begin(Extension::LongName, stated),
            b'K' => self.begin(Extension::LongLink, stated),
            0 | b'0' | b'7' => {
                let name = match self.name.take() {
                    Some(name) => name,
                    None => ustar_name(header)?,
                };
                let bytes = agreed(stated, self.bytes.take())?;
                // Before there were type flags, a name with a slash at its end was a folder.
                if name.ends_with('/') && bytes == 0 {
                    return Ok(Entry::Other);
                }
                Ok(Entry::File { name, bytes })
            }
            kind @ b'1'..=b'6' => {
                let name = self.name.take();
                match agreed(stated, self.bytes.take())? {
                    0 if matches!(kind, b'1' | b'2') => Ok(Entry::Link {
                        name: name.map_or_else(|| ustar_name(header), Ok)?,
                    }),
                    0 => Ok(Entry::Other),
                    bytes => Err(format!(
                        "a link, folder or device (type `{}`) has `{bytes}` bytes of data",
                        char::from(kind)
                    )),
                }
            }
            b'S' => Err("it has a sparse file; recreate it without `--sparse`".into()),
            kind => Err(format!(
                "it has a member of unknown type `{}`",
                kind.escape_ascii()
            )),
        }
    }

    fn begin(&mut self, extension: Extension, bytes: u64) -> Result<Entry, String> {
        if bytes > MOST_EXTENSION {
            return Err(format!("a pax header or long name has `{bytes}` bytes"));
        }
        self.extension = Some(extension);
        Ok(Entry::Extension { bytes })
    }

    /// Processes the data of an [`Entry::Extension`].
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn extend(&mut self, data: &[u8]) -> Result<(), String> {
        match self.extension.take() {
            Some(Extension::Pax) => self.pax(data, false),
            Some(Extension::GlobalPax) => self.pax(data, true),
            Some(Extension::LongName) => {
                let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
                self.name = Some(text(name)?);
                Ok(())
            }
            Some(Extension::LongLink) | None => Ok(()),
        }
    }

    /// Records `LENGTH KEY=VALUE\n`, where the length counts the whole record.
    fn pax(&mut self, mut data: &[u8], is_global: bool) -> Result<(), String> {
        const BROKEN: &str = "a pax header is not a list of records";
        while !data.is_empty() {
            let space = data.iter().position(|byte| *byte == b' ').ok_or(BROKEN)?;
            let length = digits(&data[..space], 10).ok_or(BROKEN)?;
            let length = usize::try_from(length).map_err(|_| BROKEN)?;
            let record = data.get(space + 1..length).ok_or(BROKEN)?;
            let record = record.strip_suffix(b"\n").ok_or(BROKEN)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BROKEN)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" | b"size" if is_global => {
                    return Err("a global pax header gives all members one name or size".into());
                }
                b"path" => self.name = Some(text(value)?),
                b"size" => {
                    self.bytes = Some(digits(value, 10).ok_or("a pax size is not a number")?);
                }
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err("it has a sparse file; recreate it without `--sparse`".into());
                }
                _ => {}
            }
            data = &data[length..];
        }
        Ok(())
    }
}

fn agreed(stated: u64, pax: Option<u64>) -> Result<u64, String> {
    match pax {
        None => Ok(stated),
        Some(pax) if pax == stated || pax > MOST_OCTAL => Ok(pax),
        Some(pax) => Err(format!(
            "a member has two sizes, `{stated}` in its header and `{pax}` in its pax header"
        )),
    }
}

/// Checks the sum of the header's bytes, with spaces for the sum itself. Some old writers added
/// signed bytes.
fn check_sum(header: &[u8; 512]) -> Result<(), String> {
    let stated = number(&header[148..156]).ok_or("the checksum of a header is not a number")?;
    let (mut sum, mut signed) = (8 * 32u64, 8 * 32i64);
    for byte in header[..148].iter().chain(&header[156..]) {
        sum += u64::from(*byte);
        signed += i64::from(byte.cast_signed());
    }
    if stated == sum || i64::try_from(stated) == Ok(signed) {
        Ok(())
    } else {
        Err(format!(
            "the checksum of a header is `{sum}`, but it states `{stated}`"
        ))
    }
}

/// Octal digits, or with the first bit set a number in base 256.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        if field[0] != 0x80 {
            return None;
        }
        return field[1..].iter().try_fold(0u64, |number, byte| {
            Some(number.checked_mul(256)? | u64::from(*byte))
        });
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field
        .iter()
        .position(|byte| *byte != b' ')
        .unwrap_or(field.len());
    let field = &field[start..];
    let end = field.iter().position(is_blank).unwrap_or(field.len());
    field[end..].iter().all(is_blank).then_some(())?;
    if end == 0 {
        Some(0)
    } else {
        digits(&field[..end], 8)
    }
}

fn digits(text: &[u8], base: u64) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        (digit < base).then(|| number.checked_mul(base)?.checked_add(digit))?
    })
}

fn ustar_name(header: &[u8; 512]) -> Result<String, String> {
    let until_zero = |field: &[u8]| -> Vec<u8> {
        field
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .collect()
    };
    let mut name = Vec::new();
    // GNU's own format, `ustar` and spaces, has other fields in the place of the prefix.
    if &header[257..263] == b"ustar\0" && header[345] != 0 {
        name = until_zero(&header[345..500]);
        name.push(b'/');
    }
    name.extend(until_zero(&header[..100]));
    text(&name)
}

fn text(name: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(name) {
        Ok("") => Err("a member has no name".into()),
        Ok(name) if name.contains('\0') => Err("a member's name has a zero byte".into()),
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(format!(
            "a member's name, `{}`, is not UTF-8",
            name.escape_ascii()
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header with its checksum.
    fn header(name: &[u8], size: &[u8], kind: u8, magic: &[u8]) -> [u8; 512] {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name);
        header[124..124 + size.len()].copy_from_slice(size);
        header[156] = kind;
        header[257..257 + magic.len()].copy_from_slice(magic);
        sealed(header)
    }

    fn sealed(mut header: [u8; 512]) -> [u8; 512] {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    }

    const USTAR: &[u8] = b"ustar\x0000";
    const GNU: &[u8] = b"ustar  \0";

    fn file(name: &str, bytes: u64) -> Result<Entry, String> {
        let name = name.to_owned();
        Ok(Entry::File { name, bytes })
    }

    fn one(header: &[u8; 512]) -> Result<Entry, String> {
        Headers::default().header(header)
    }

    /// A sum that wraps around would be 0, and the data of the member would be read as headers.
    #[test]
    fn a_size_near_2_to_the_64_is_not_padded_to_nothing() {
        let mut size = [0xff; 12];
        size[..4].copy_from_slice(&[0x80, 0, 0, 0]);
        let entry = one(&header(b"a", &size, b'0', USTAR));
        assert_eq!(entry, file("a", u64::MAX));
        assert_eq!(padded(u64::MAX), u64::MAX);
        assert_eq!(padded(u64::MAX - 510), u64::MAX);
        assert_eq!(padded(u64::MAX - 511), u64::MAX - 511);
        assert_eq!((padded(0), padded(513)), (0, 1024));
    }

    #[test]
    fn names_and_sizes_are_read_in_every_dialect() {
        assert_eq!(
            one(&header(b"a.jpg", b"00000000017\0", b'0', USTAR)),
            file("a.jpg", 15)
        );
        assert_eq!(
            one(&header(b"a.jpg", b"        17 \0", 0, b"")),
            file("a.jpg", 15)
        );
        let mut base256 = [0; 12];
        (base256[0], base256[7]) = (0x80, 3);
        assert_eq!(one(&header(b"a", &base256, b'0', GNU)), file("a", 3 << 32));
        let mut long = header(b"b.jpg", b"1\0", b'0', USTAR);
        long[345..350].copy_from_slice(b"x/y/z");
        assert_eq!(one(&sealed(long)), file("x/y/z/b.jpg", 1));
        let mut gnu = header(b"b.jpg", b"1\0", b'0', GNU);
        gnu[345..350].copy_from_slice(b"x/y/z");
        assert_eq!(one(&sealed(gnu)), file("b.jpg", 1));
        for other in [
            header(b"d/", b"0\0", b'5', USTAR),
            header(b"d/", b"0\0", b'0', b""),
        ] {
            assert_eq!(one(&other), Ok(Entry::Other));
        }
        for kind in [b'1', b'2'] {
            let name = "l".to_owned();
            let link = one(&header(b"l", b"0\0", kind, USTAR));
            assert_eq!(link, Ok(Entry::Link { name }));
        }
        assert_eq!(one(&[0; 512]), Ok(Entry::Zeros));
    }

    fn extended(kind: u8, data: &[u8], then: &[u8; 512]) -> Result<Entry, String> {
        let mut headers = Headers::default();
        let size = format!("{:o}\0", data.len());
        let bytes = data.len() as u64;
        assert_eq!(
            headers.header(&header(b"x", size.as_bytes(), kind, USTAR))?,
            Entry::Extension { bytes }
        );
        headers.extend(data)?;
        headers.header(then)
    }

    #[test]
    fn long_names_replace_the_short_one() {
        let short = header(b"short", b"5\0", b'0', USTAR);
        assert_eq!(
            extended(b'L', b"long/name.jpg\0", &short),
            file("long/name.jpg", 5)
        );
        assert_eq!(
            extended(b'x', b"17 path=p/q.jpg1\n", &short),
            file("p/q.jpg1", 5)
        );
        assert_eq!(extended(b'K', b"target\0", &short), file("short", 5));
        assert_eq!(extended(b'g', b"9 a=b\nc=\n", &short), file("short", 5));
    }

    #[test]
    fn a_size_that_two_readers_could_read_differently_is_refused() {
        let two = |size: &[u8]| extended(b'x', b"10 size=5\n", &header(b"a", size, b'0', USTAR));
        assert_eq!(two(b"5\0"), file("a", 5));
        for size in [b"0\0", b"6\0", b"4\0"] {
            assert!(two(size).unwrap_err().starts_with("a member has two sizes"));
        }
        let large = header(b"a", b"0\0", b'0', USTAR);
        assert_eq!(
            extended(b'x', b"21 size=100000000000\n", &large),
            file("a", 100_000_000_000)
        );
        let global = extended(b'g', b"10 size=5\n", &large).unwrap_err();
        assert!(global.contains("global pax header"), "{global}");
        let link = one(&header(b"a", b"1000\0", b'1', USTAR)).unwrap_err();
        assert!(link.contains("has `512` bytes of data"), "{link}");
        let sparse = extended(b'x', b"22 GNU.sparse.major=1\n", &large).unwrap_err();
        assert!(sparse.contains("sparse"), "{sparse}");
        let lost = extended(b'x', b"10 size=5\n", &[0; 512]).unwrap_err();
        assert!(lost.contains("not followed"), "{lost}");
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let good = header(b"a.jpg", b"00000000017\0", b'0', USTAR);
        for bit in 0..512 * 8 {
            let mut flipped = good;
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The padding of the sum may change without an effect.
            let read = one(&flipped);
            assert!(read.is_err() || read == file("a.jpg", 15), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn no_header_and_no_extension_is_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 512),
            kind in prop::sample::select(b"xgLK05".to_vec()),
            size in prop::collection::vec(prop::sample::select(b"01 7\0\x80\xff".to_vec()), 12),
            data in prop::collection::vec(prop::sample::select(b"0123456789 =sizepath\n\0\xff".to_vec()), 0..60),
        ) {
            let mut header: [u8; 512] = bytes.try_into().unwrap();
            one(&header).ok();
            header[156] = kind;
            header[124..136].copy_from_slice(&size);
            let mut headers = Headers::default();
            headers.header(&sealed(header)).ok();
            headers.extend(&data).ok();
            headers.header(&sealed(header)).ok();
        }
    }
}
