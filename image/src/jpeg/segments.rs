//! The segments of a JPEG before its first scan (ITU-T T.81, annex B).

use std::ops::Range;

use crate::ImageError;

pub(super) const SOI: [u8; 2] = [0xff, 0xd8];
pub(super) const EOI: [u8; 2] = [0xff, 0xd9];

/// Meaning of the components of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Grey,
    Ycc,
    Rgb,
    /// Ink, 255 for none when `inverted`, as Adobe's programs write it.
    Cmyk {
        inverted: bool,
    },
    Ycck,
}

/// Content of the segments before the first scan.
#[derive(Clone, Debug)]
pub(crate) struct JpegHeader {
    pub(crate) width: u16,
    pub(crate) height: u16,
    /// Place of the EXIF data (TIFF) in the file.
    pub(crate) exif: Option<Range<usize>>,
    /// All components are in one baseline scan, so that rows come out in order and nothing need be kept.
    pub(super) one_pass: bool,
    pub(super) colour: Colour,
    /// Component ids spell `RGB`, which decoders take for a colour space.
    pub(super) named_rgb: bool,
    /// Rows of pixels of a minimum coded unit: 8 to 32.
    pub(super) unit_rows: u32,
    /// Columns of pixels of a minimum coded unit: 8 to 32.
    #[cfg_attr(
        not(feature = "turbojpeg"),
        expect(dead_code, reason = "only libjpeg-turbo decodes some columns")
    )]
    pub(super) unit_columns: u32,
    /// Samples of all components per pixel, times 16 and rounded up to whole units.
    samples: u64,
    /// The segments that a decoder needs, in order, up to the head of the first scan.
    pub(super) kept: Vec<Segment>,
    /// From the data of the first scan to the end marker.
    pub(super) scans: Range<usize>,
}

/// A segment of the file.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) marker: u8,
    /// Place of the content, which follows two bytes of length.
    pub(super) body: Range<usize>,
}

impl Segment {
    /// The frame header.
    pub(super) const fn is_frame(&self) -> bool {
        matches!(self.marker, 0xc0..=0xc2)
    }

    /// The segment with the colour space of Adobe's programs.
    pub(super) const fn is_adobe(&self) -> bool {
        self.marker == 0xee
    }
}

/// Most segments that are kept; images have about ten.
const MOST_SEGMENTS: usize = 1000;

/// Segments found so far.
#[derive(Default)]
struct Found {
    frame: Option<Frame>,
    exif: Option<Range<usize>>,
    adobe: Option<u8>,
    jfif: bool,
    kept: Vec<Segment>,
}

struct Frame {
    progressive: bool,
    height: u16,
    width: u16,
    components: Vec<[u8; 3]>,
}

impl JpegHeader {
    /// Walks over the segments up to the first scan, and checks that the file has an end.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut found = Found::default();
        let mut at = SOI.len();
        loop {
            let (marker, start) = next_marker(bytes, at)?;
            let body = segment(bytes, start, marker)?;
            found.add(marker, &body, bytes)?;
            at = body.end;
            if marker == 0xda {
                let scan_components = *bytes.get(body.start).unwrap_or(&0);
                let end = find_end(bytes, at)?;
                return found.finish(scan_components, at..end);
            }
        }
    }

    /// Returns true if its components are inks.
    pub(crate) const fn is_ink(&self) -> bool {
        matches!(self.colour, Colour::Cmyk { .. } | Colour::Ycck)
    }

    /// A bound on what the decoder takes: 3 bytes a pixel of output, or 4 where inks are converted; and where the
    /// image comes in several scans, 2 bytes for each coefficient of all of them.
    pub(crate) fn decoder_bytes(&self) -> u64 {
        let pixels = u64::from(self.width) * u64::from(self.height);
        let output = match self.colour {
            Colour::Cmyk { .. } | Colour::Ycck => 7,
            _ => 3,
        };
        let coefficients = if self.one_pass { 0 } else { self.samples * 2 };
        // Rows of units before and after upsampling, and the tables.
        let rows = u64::from(self.width) * u64::from(self.unit_rows) * 4 * 8;
        pixels * output + coefficients + rows + (1 << 18)
    }
}

impl Found {
    fn add(&mut self, marker: u8, body: &Range<usize>, bytes: &[u8]) -> Result<(), ImageError> {
        let content = &bytes[body.clone()];
        match marker {
            0xc0..=0xc2 => {
                if self.frame.is_some() {
                    return Err(ImageError::corrupt("it has two frame headers"));
                }
                self.frame = Some(Frame::read(marker, content)?);
            }
            0xd8 => {
                return Err(ImageError::corrupt(format!(
                    "another image begins at byte `{}` of its header",
                    body.start
                )));
            }
            0xc9..=0xcf => {
                return Err(ImageError::unsupported("an arithmetic-coded JPEG"));
            }
            0xc3 | 0xc7 => return Err(ImageError::unsupported("a lossless JPEG")),
            0xc5 | 0xc6 => return Err(ImageError::unsupported("a hierarchical JPEG")),
            0xe0 if content.starts_with(b"JFIF\0") => self.jfif = true,
            0xe1 if content.starts_with(b"Exif\0\0") && self.exif.is_none() => {
                self.exif = Some(body.start + 6..body.end);
                return Ok(());
            }
            0xee if content.starts_with(b"Adobe") && content.len() >= 12 => {
                self.adobe = Some(content[11]);
            }
            // Tables, restart interval and the head of the scan.
            0xdb | 0xc4 | 0xdd | 0xda => {}
            _ => return Ok(()),
        }
        if self.kept.len() == MOST_SEGMENTS {
            return Err(ImageError::corrupt(format!(
                "it has more than `{MOST_SEGMENTS}` segments before its first scan"
            )));
        }
        let body = body.clone();
        self.kept.push(Segment { marker, body });
        Ok(())
    }

    fn finish(self, scan_components: u8, scans: Range<usize>) -> Result<JpegHeader, ImageError> {
        let frame = self
            .frame
            .ok_or_else(|| ImageError::corrupt("its scan comes before its frame header"))?;
        let colour = frame.colour(self.adobe, self.jfif)?;
        let most = |i: usize| frame.components.iter().map(|c| sampling(c[1])[i]).max();
        let (h_max, v_max) = (most(0).unwrap_or(1), most(1).unwrap_or(1));
        let units = |side: u16, most: u32| u64::from(side).div_ceil(u64::from(most) * 8);
        let samples_of_unit: u32 = frame
            .components
            .iter()
            .map(|c| sampling(c[1]).iter().product::<u32>() * 64)
            .sum();
        Ok(JpegHeader {
            width: frame.width,
            height: frame.height,
            exif: self.exif,
            one_pass: !frame.progressive && usize::from(scan_components) == frame.components.len(),
            colour,
            named_rgb: frame.ids() == *b"RGB",
            unit_rows: v_max * 8,
            unit_columns: h_max * 8,
            samples: units(frame.width, h_max)
                * units(frame.height, v_max)
                * u64::from(samples_of_unit),
            kept: self.kept,
            scans,
        })
    }
}

impl Frame {
    fn read(marker: u8, content: &[u8]) -> Result<Self, ImageError> {
        let wrong = || ImageError::corrupt("its frame header has the wrong length");
        let [precision, h1, h0, w1, w0, count, rest @ ..] = content else {
            return Err(wrong());
        };
        if *precision != 8 {
            return Err(ImageError::unsupported(format!(
                "a JPEG of {precision} bits a sample"
            )));
        }
        let (components, []) = rest.as_chunks::<3>() else {
            return Err(wrong());
        };
        if components.len() != usize::from(*count) {
            return Err(wrong());
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(ImageError::unsupported(format!(
                "a JPEG of {count} components"
            )));
        }
        if components
            .iter()
            .any(|c| sampling(c[1]).iter().any(|s| !(1..=4).contains(s)))
        {
            return Err(ImageError::corrupt("a sampling factor is not 1 to 4"));
        }
        Ok(Self {
            progressive: marker == 0xc2,
            height: u16::from_be_bytes([*h1, *h0]),
            width: u16::from_be_bytes([*w1, *w0]),
            components: components.to_vec(),
        })
    }

    fn ids(&self) -> Vec<u8> {
        self.components.iter().map(|c| c[0]).collect()
    }

    /// The rule of libjpeg (`default_decompress_parms`), but that an impossible Adobe transform is refused.
    fn colour(&self, adobe: Option<u8>, jfif: bool) -> Result<Colour, ImageError> {
        Ok(match (self.components.len(), adobe) {
            (1, _) => Colour::Grey,
            (3, _) if jfif => Colour::Ycc,
            (3, Some(0)) => Colour::Rgb,
            (3, Some(_)) => Colour::Ycc,
            (3, None) if self.ids() == *b"RGB" => Colour::Rgb,
            (3, None) => Colour::Ycc,
            (_, None) => Colour::Cmyk { inverted: false },
            (_, Some(0)) => Colour::Cmyk { inverted: true },
            (_, Some(2)) => Colour::Ycck,
            (_, Some(transform)) => {
                return Err(ImageError::corrupt(format!(
                    "it has four components and Adobe's transform `{transform}`"
                )));
            }
        })
    }
}

/// Horizontal and vertical sampling factor.
fn sampling(byte: u8) -> [u32; 2] {
    [u32::from(byte >> 4), u32::from(byte & 15)]
}

/// Code of the next marker and the position after it. Bytes between two segments are skipped, as
/// other decoders do; a truncated or changed file is found out later.
fn next_marker(bytes: &[u8], at: usize) -> Result<(u8, usize), ImageError> {
    let ends = || ImageError::truncated("it ends before its first scan");
    if at == SOI.len() && bytes.get(at).is_some_and(|byte| *byte != 0xff) {
        let reason = format!("there is no marker at byte `{at}`");
        return Err(ImageError::corrupt(reason));
    }
    let mut at = at;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let stray = rest.iter().position(|b| *b == 0xff).ok_or_else(ends)?;
        let fill = rest[stray..].iter().take_while(|b| **b == 0xff).count();
        at += stray + fill + 1;
        match bytes.get(at - 1).ok_or_else(ends)? {
            0 => {}
            marker => return Ok((*marker, at)),
        }
    }
}

/// The content of the segment whose length field begins at `start`.
fn segment(bytes: &[u8], start: usize, marker: u8) -> Result<Range<usize>, ImageError> {
    if matches!(marker, 0x01 | 0xd0..=0xd8) {
        return Ok(start..start);
    }
    if marker == 0xd9 {
        return Err(ImageError::corrupt("it ends before its first scan"));
    }
    let short = || ImageError::truncated(format!("it ends in the segment at byte `{start}`"));
    let [a, b] = *bytes.get(start..start + 2).ok_or_else(short)? else {
        return Err(short());
    };
    let length = usize::from(u16::from_be_bytes([a, b]));
    if length < 2 {
        return Err(ImageError::corrupt(format!(
            "the segment at byte `{start}` has a length of `{length}`"
        )));
    }
    if start + length > bytes.len() {
        return Err(short());
    }
    Ok(start + 2..start + length)
}

/// The end marker cannot occur inside a scan, so a file without one after its first scan is
/// truncated. Rows below a crop are not decoded: only this check shows that they exist.
fn find_end(bytes: &[u8], scan: usize) -> Result<usize, ImageError> {
    let last = bytes[scan..].windows(2).rposition(|pair| pair == EOI);
    last.map(|at| scan + at)
        .ok_or_else(|| ImageError::truncated("it has no end marker"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        JpegHeader::read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_read_is_named() {
        let check = |bytes: &[u8], expected: &str| {
            let message = refused(bytes);
            assert!(message.contains(expected), "{message}");
        };
        check(b"\xff\xd8\xff\xc9\0\x02", "arithmetic-coded");
        check(b"\xff\xd8\xff\xcc\0\x02", "arithmetic-coded");
        check(b"\xff\xd8\xff\xc3\0\x02", "lossless");
        check(b"\xff\xd8\xff\xc5\0\x02", "hierarchical");
        check(
            b"\xff\xd8\xff\xc0\0\x0b\x0c\0\x08\0\x08\x01\x01\x11\0",
            "12 bits",
        );
        check(
            b"\xff\xd8\xff\xc0\0\x0e\x08\0\x08\0\x08\x02\x01\x11\0\x02\x11\0",
            "2 components",
        );
        check(
            b"\xff\xd8\xff\xc0\0\x0b\x08\0\x08\0\x08\x01\x01\x01\0",
            "sampling factor",
        );
        check(b"\xff\xd8\xff\xe0\0\x01", "length of `1`");
        check(b"\xff\xd8..\xff\xd8\xff\xdb\0\x02", "no marker at byte `2`");
        check(
            b"\xff\xd8\xff\xdb\0\x02..\xff\xd8\xff\xdb",
            "another image begins",
        );
        check(b"\xff\xd8\xff\xd9", "before its first scan");
        check(b"\xff\xd8junk!", "no marker at byte `2`");
        check(b"\xff\xd8\xff\xe0\0\x10JF", "is truncated");
        check(b"\xff\xd8\xff", "is truncated");
    }
}
