//! Layout of the pixels in a TIFF file, and the layouts that are read.

use super::{Directory, LONG, ORIENTATION, SHORT};
use crate::{Format, Header, ImageError, ImageLimits, Orientation};

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
pub(super) const COLOURS: u16 = 262;
const STRIP_PLACES: u16 = 273;
const SAMPLES: u16 = 277;
const STRIP_ROWS: u16 = 278;
const STRIP_BYTES: u16 = 279;
const PLANES: u16 = 284;
const PREDICTOR: u16 = 317;
const TILE_WIDTH: u16 = 322;
const TILE_HEIGHT: u16 = 323;
const TILE_PLACES: u16 = 324;
const TILE_BYTES: u16 = 325;
const EXTRA: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;

/// [`COLOURS`] of a palette.
pub(super) const PALETTE: u32 = 3;

/// Reads sides and orientation, and checks that the layout is one that is decoded right, and that all strips or tiles
/// are there.
pub(crate) fn header(encoded: &[u8]) -> Result<Header, ImageError> {
    let cut = || ImageError::truncated("its directory is missing");
    let directory = Directory::first(encoded).ok_or_else(cut)?;
    directory.check()?;
    let layout = Layout::read(&directory)?;
    layout.check_parts(&directory)?;
    let turn = directory.number(ORIENTATION).unwrap_or(1);
    Ok(Header {
        format: Format::Tiff,
        width: layout.width,
        height: layout.height,
        orientation: Orientation::from_exif(u16::try_from(turn).unwrap_or(1)),
        decoder_bytes: layout.decoder_bytes(encoded.len()),
        limits: ImageLimits::DEFAULT,
        jpeg: None,
    })
}

struct Layout {
    width: u32,
    height: u32,
    bits: u32,
    samples: u32,
    /// Each sample in strips or tiles of its own.
    is_planar: bool,
    is_compressed: bool,
    /// Width and height of a strip or tile; the last of them go over the edges.
    part: [u32; 2],
    is_tiled: bool,
}

impl Layout {
    fn read(directory: &Directory) -> Result<Self, ImageError> {
        let must = |tag: u16, what: &str| {
            let number = number(directory, tag)?;
            number.ok_or_else(|| ImageError::corrupt(format!("its {what} is missing")))
        };
        let or =
            |tag: u16, default: u32| number(directory, tag).map(|number| number.unwrap_or(default));
        let (width, height) = (must(WIDTH, "width")?, must(HEIGHT, "height")?);
        let is_tiled = directory.field(TILE_PLACES).is_some();
        let part = if is_tiled {
            [
                must(TILE_WIDTH, "tiles' width")?,
                must(TILE_HEIGHT, "tiles' height")?,
            ]
        } else {
            [width, or(STRIP_ROWS, height)?.min(height)]
        };
        let layout = Self {
            width,
            height,
            bits: or(BITS, 1)?,
            samples: or(SAMPLES, 1)?,
            is_planar: or(PLANES, 1)? == 2,
            is_compressed: or(COMPRESSION, 1)? != 1,
            part,
            is_tiled,
        };
        layout.check(directory)?;
        Ok(layout)
    }

    /// Refuses what the decoder does not decode, or not right.
    fn check(&self, directory: &Directory) -> Result<(), ImageError> {
        let refuse = |reason: String| Err(ImageError::unsupported(reason));
        let colours = number(directory, COLOURS)?;
        let (bits, samples) = (self.bits, self.samples);
        let fits = match colours {
            Some(0 | 1) => samples == 1 && matches!(bits, 1 | 8 | 16),
            Some(2) => matches!(samples, 3 | 4) && matches!(bits, 8 | 16),
            Some(PALETTE) => samples == 1 && bits == 8,
            Some(5) => samples == 4 && matches!(bits, 8 | 16) && !self.is_planar,
            _ => false,
        };
        if !fits {
            let colours = match colours {
                Some(0 | 1) => "grey".into(),
                Some(2) => "RGB".into(),
                Some(PALETTE) => "a palette".into(),
                Some(5) => "CMYK".into(),
                Some(6) => "YCbCr".into(),
                Some(other) => format!("the colours `{other}`"),
                None => "unknown colours".into(),
            };
            return refuse(format!(
                "a TIFF of {colours} in {samples} samples of {bits} bits"
            ));
        }
        if few(directory, BITS)?.iter().any(|other| *other != bits) {
            return refuse("a TIFF whose samples differ in bits".into());
        }
        if few(directory, SAMPLE_FORMAT)?
            .iter()
            .any(|format| *format != 1)
        {
            return refuse("a TIFF whose samples are no unsigned integers".into());
        }
        // The decoder undoes a predictor after it has left out a sample that it does not know.
        let is_unknown = few(directory, EXTRA)?
            .iter()
            .any(|extra| !matches!(extra, 1 | 2));
        if is_unknown && number(directory, PREDICTOR)?.unwrap_or(1) != 1 {
            return refuse("a TIFF with a predictor and a sample of no known meaning".into());
        }
        match number(directory, COMPRESSION)?.unwrap_or(1) {
            // None, Group 4 fax, LZW, Deflate by both of its numbers, PackBits.
            1 | 4 | 5 | 8 | 32_946 | 32_773 => Ok(()),
            6 | 7 => refuse("a TIFF compressed as JPEG".into()),
            other => refuse(format!("a TIFF of compression `{other}`")),
        }
    }

    /// Holds strips or tiles to their number, and their places to the length of the file.
    fn check_parts(&self, directory: &Directory) -> Result<(), ImageError> {
        if self.width == 0 || self.height == 0 || self.part.contains(&0) {
            return Err(ImageError::corrupt("its header says pixels without area"));
        }
        // The part of a tile beyond the right edge is decoded too.
        let across = u64::from(self.width.div_ceil(self.part[0]));
        let decoded = across * u64::from(self.part[0]) * u64::from(self.height);
        if decoded > self.pixels().saturating_mul(4).saturating_add(4 << 20) {
            return Err(ImageError::unsupported(
                "a TIFF whose tiles are much larger than its image",
            ));
        }
        let (places, lengths) = if self.is_tiled {
            (TILE_PLACES, TILE_BYTES)
        } else {
            (STRIP_PLACES, STRIP_BYTES)
        };
        let (Some(places), Some(lengths)) = (directory.field(places), directory.field(lengths))
        else {
            return Err(ImageError::corrupt("the positions of its rows are missing"));
        };
        let planes = if self.is_planar { self.samples } else { 1 };
        let down = self.height.div_ceil(self.part[1]);
        let expected = across * u64::from(down) * u64::from(planes);
        let found = [places.count, lengths.count].map(u64::from);
        if found != [expected; 2] {
            let what = format!("there should be `{expected}` strips or tiles, not `{found:?}`");
            return Err(ImageError::corrupt(what));
        }
        let file = directory.bytes.len() as u64;
        for index in 0..places.count {
            let part = directory.element(places, index);
            let part = part.zip(directory.element(lengths, index));
            let Some((place, length)) = part.map(|(at, len)| (u64::from(at), u64::from(len)))
            else {
                return Err(ImageError::truncated("the list of its rows is missing"));
            };
            if place + length > file {
                return Err(ImageError::truncated(format!(
                    "it has `{file}` bytes and part `{index}` of it is not among them"
                )));
            }
            let needed = self.part_bytes(index % down);
            if !self.is_compressed && length < needed {
                return Err(ImageError::corrupt(format!(
                    "part `{index}` has `{length}` bytes and its rows need `{needed}`"
                )));
            }
        }
        Ok(())
    }

    fn pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Bytes of a row of a strip or tile.
    fn row_bytes(&self) -> u64 {
        let samples = if self.is_planar { 1 } else { self.samples };
        (u64::from(self.part[0]) * u64::from(self.bits * samples)).div_ceil(8)
    }

    /// Bytes of the strip or tile of this place in a column of them, uncompressed; the last strip ends with the image.
    fn part_bytes(&self, down: u32) -> u64 {
        let [_, rows] = self.part;
        let rows = if self.is_tiled {
            rows
        } else {
            rows.min(self.height.saturating_sub(down.saturating_mul(rows)))
        };
        self.row_bytes().saturating_mul(u64::from(rows))
    }

    /// Decoded strips, the decoder's output and our three channels; a row; a copy of the file and
    /// its stored tags (the decoder takes at most 1 MiB for the values of one); tables.
    fn decoder_bytes(&self, encoded: usize) -> u64 {
        let of_pixel = u64::from(self.bits.div_ceil(8) * self.samples);
        self.pixels()
            .saturating_mul(of_pixel * 2 + 3)
            .saturating_add(self.row_bytes())
            .saturating_add(encoded as u64 * 5 + (4 << 20))
    }
}

/// The numbers of a tag that has one for each sample, or none.
fn few(directory: &Directory, tag: u16) -> Result<Vec<u32>, ImageError> {
    const MOST: u32 = 16;
    let Some(field) = directory.field(tag) else {
        return Ok(Vec::new());
    };
    let numbers = (field.count <= MOST).then(|| directory.numbers(field));
    numbers.flatten().ok_or_else(|| {
        ImageError::corrupt(format!("its tag `{tag}` has `{}` numbers", field.count))
    })
}

/// The first number of a tag, which must be of a type that TIFF 6.0 lets it have.
fn number(directory: &Directory, tag: u16) -> Result<Option<u32>, ImageError> {
    let Some(field) = directory.field(tag) else {
        return Ok(None);
    };
    let number = directory.element(field, 0);
    if !matches!(field.r#type, SHORT | LONG) || number.is_none() {
        return Err(ImageError::corrupt(format!("its tag `{tag}` is no number")));
    }
    Ok(number)
}
