//! A TIFF's palette, which the decoder does not look up: it is handed the indices as greys.

use super::{
    Directory,
    layout::{COLOURS, PALETTE},
};
use crate::ImageError;

const COLOUR_MAP: u16 = 320;
/// Red, green and blue of 256 colours.
const LEVELS: u32 = 768;
/// Tag number of "black is zero" greys.
const GREY: u16 = 1;

/// The colours of 256 indices.
pub(crate) struct Palette {
    colours: Box<[[u8; 3]; 256]>,
    /// Position of the tag of a palette.
    at: usize,
    little: bool,
}

impl Palette {
    /// The palette of a file whose header was read; `None` where it has none.
    pub(crate) fn read(encoded: &[u8]) -> Result<Option<Self>, ImageError> {
        let Some(directory) = Directory::first(encoded) else {
            return Ok(None);
        };
        let Some(field) = directory.field(COLOURS) else {
            return Ok(None);
        };
        if directory.element(field, 0) != Some(PALETTE) {
            return Ok(None);
        }
        let map = directory.field(COLOUR_MAP);
        let map = map.filter(|map| map.count == LEVELS);
        let levels = map
            .and_then(|map| directory.numbers(map))
            .unwrap_or_default();
        let (channels, rest) = levels.as_chunks::<256>();
        let ([red, green, blue], []) = (channels, rest) else {
            return Err(ImageError::corrupt("its palette has not 256 colours"));
        };
        // The upper byte: programs differ in whether 255 is 65535 or 65280 here, and it is the same in both.
        let upper = |level: u32| level.to_le_bytes()[1];
        let mut colours = Box::new([[0; 3]; 256]);
        for (index, colour) in colours.iter_mut().enumerate() {
            *colour = [red[index], green[index], blue[index]].map(upper);
        }
        Ok(Some(Self {
            colours,
            at: field.at,
            little: directory.little,
        }))
    }

    /// Makes a copy of the file one of greys.
    pub(crate) fn make_grey(&self, encoded: &mut [u8]) {
        let grey = if self.little {
            GREY.to_le_bytes()
        } else {
            GREY.to_be_bytes()
        };
        encoded[self.at..self.at + 2].copy_from_slice(&grey);
    }

    /// Turns greys, u8 RGB, into the colours of their levels.
    pub(crate) fn look_up(&self, pixels: &mut [u8]) {
        for pixel in pixels.as_chunks_mut::<3>().0 {
            *pixel = self.colours[usize::from(pixel[0])];
        }
    }
}
