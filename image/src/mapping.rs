//! Mapping of boxes from an image to the one that is turned upright, cropped and resized.

use serde::{Deserialize, Serialize};

use crate::{Orientation, Sizing};

/// Steps per pixel in the coordinates of boxes.
const STEPS: f64 = 1000.0;

/// Maps boxes of the original image to the stored one: `[x, y, width, height]` in pixels from the
/// upper left corner of the first pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub(crate) orientation: Orientation,
    /// Width and height as the file has them, not turned, at least 1.
    pub(crate) file_sides: [u32; 2],
    pub(crate) sizing: Sizing,
}

impl Mapping {
    /// Maps a box of the image as stored in the file, before its orientation is applied: see
    /// [`Self::of_upright`].
    #[must_use]
    pub fn of_file(&self, bbox: [f64; 4]) -> Option<[f64; 4]> {
        let [x, y, width, height] = bbox;
        let turn = self.orientation;
        let [across, down] = self.file_sides.map(f64::from);
        let first = |from: f64, length: f64, side: f64, flips: bool| match flips {
            true => side - (from + length),
            false => from,
        };
        let left = first(x, width, across, turn.flip_x);
        let top = first(y, height, down, turn.flip_y);
        self.of_upright(match turn.transpose {
            true => [top, left, height, width],
            false => [left, top, width, height],
        })
    }

    /// Maps a box of the upright image to the stored one, in thousandths of a pixel. The box is
    /// clipped to the kept part; `None` if nothing of it is left. Numbers are finite, sides not
    /// below 0.
    #[must_use]
    pub fn of_upright(&self, bbox: [f64; 4]) -> Option<[f64; 4]> {
        let [x, y, width, height] = bbox;
        let mut sides = self.file_sides;
        if self.orientation.transpose {
            sides.reverse();
        }
        let place = self.sizing.place(sides);
        let part = [
            (place.from.left, place.from.width),
            (place.from.top, place.from.height),
        ];
        let [across, down] = [0, 1].map(|i: usize| {
            let (from, length) = [(x, width), (y, height)][i];
            let (first, used) = part[i];
            let resized = f64::from(place.resized[i]);
            let corner = f64::from(place.corner()[i]);
            [from, from + length].map(|at| {
                let at = (at - first) * (resized / used) + corner;
                (at.clamp(corner, corner + resized) * STEPS).round()
            })
        });
        let sides = [across[1] - across[0], down[1] - down[0]];
        let is_there = sides.iter().all(|side| *side > 0.0);
        is_there.then(|| [across[0], down[0], sides[0], sides[1]].map(|steps| steps / STEPS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoding, Filter, ImageLimits, Preparation, Preparer};

    const SIDES: [u32; 2] = [120, 80];

    const SIZINGS: [Sizing; 6] = [
        Sizing::Original,
        Sizing::ShorterSide(37),
        Sizing::Exact {
            width: 90,
            height: 200,
        },
        Sizing::Pad {
            width: 90,
            height: 70,
        },
        Sizing::Pad {
            width: 61,
            height: 150,
        },
        Sizing::Crop {
            width: 48,
            height: 60,
            shorter_side: 64,
        },
    ];

    /// A PNG of the file's pixels with this EXIF orientation.
    fn file(pixels: &[u8], turn: u8) -> Vec<u8> {
        const AFTER_HEAD: usize = 33;
        let mut file = Encoding::Png.encode(pixels, SIDES[0], SIDES[1]).unwrap();
        // One directory with one entry: tag 274, a short.
        let mut exif = b"eXIfMM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([turn, 0, 0, 0, 0, 0, 0]);
        let length = u32::try_from(exif.len() - 4).unwrap().to_be_bytes();
        let check = crc(&exif).to_be_bytes();
        let chunk = [length.as_slice(), &exif, &check].concat();
        file.splice(AFTER_HEAD..AFTER_HEAD, chunk);
        file
    }

    /// CRC-32 as PNG has it (third edition, annex D).
    fn crc(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
            })
        })
    }

    /// The box of the pixels brighter than half, of an image `width` wide.
    fn bright(pixels: &[u8], width: u32) -> Option<[f64; 4]> {
        let places = (0..).zip(pixels.chunks(3));
        let places = places.filter(|(_, pixel)| pixel[0] > 127);
        let places: Vec<[u32; 2]> = places
            .map(|(at, _): (u32, _)| [at % width, at / width])
            .collect();
        let ends = |axis: usize| {
            let along = places.iter().map(|place| place[axis]);
            Some([along.clone().min()?, along.max()? + 1].map(f64::from))
        };
        let ([left, right], [top, bottom]) = (ends(0)?, ends(1)?);
        Some([left, top, right - left, bottom - top])
    }

    #[test]
    fn a_box_is_where_its_pixels_go_in_every_size_and_orientation() {
        let boxes = [
            [10, 20, 50, 30],
            [0, 0, 60, 40],
            [70, 35, 50, 45],
            [5, 60, 110, 15],
        ];
        for sizing in SIZINGS {
            for turn in 1..=8 {
                for [x, y, width, height] in boxes {
                    let lies = |at: u32| {
                        let (column, row) = (at % SIDES[0], at / SIDES[0]);
                        (x..x + width).contains(&column) && (y..y + height).contains(&row)
                    };
                    let pixels =
                        (0..SIDES[0] * SIDES[1]).flat_map(|at| [255 * u8::from(lies(at)); 3]);
                    let file = file(&pixels.collect::<Vec<_>>(), turn);
                    let how = Preparation {
                        sizing,
                        filter: Filter::Bilinear,
                        encoding: Some(Encoding::Raw),
                        keep_original: false,
                        limits: ImageLimits::DEFAULT,
                        scaled_decoding: false,
                        background: None,
                        hashes: false,
                    };
                    let prepared = Preparer::new(how).prepare(&file).unwrap();
                    let stored = prepared.file.unwrap();
                    let [stored_width, stored_height] = prepared.sides;
                    let bytes = stored_width as usize * stored_height as usize;
                    // All levels are grey, so the file is a PGM.
                    let grey = &stored[stored.len() - bytes..];
                    let pixels: Vec<u8> = grey.iter().flat_map(|level| [*level; 3]).collect();
                    let seen = bright(&pixels, stored_width).unwrap();
                    let bbox = [x, y, width, height].map(f64::from);
                    let told = prepared.mapping.of_file(bbox).unwrap();
                    let far = told
                        .iter()
                        .zip(seen)
                        .map(|(told, seen)| (told - seen).abs());
                    // A pixel is bright where the box covers half of it: each end may be half a pixel off.
                    let most = far.fold(0.0, f64::max);
                    assert!(most <= 1.01, "{sizing:?}, {turn}: {told:?}, seen {seen:?}");
                }
            }
        }
    }

    #[test]
    fn a_box_drawn_on_the_upright_image_is_not_turned_again() {
        let mapping = |turn| Mapping {
            orientation: Orientation::from_exif(turn),
            file_sides: [200, 100],
            sizing: Sizing::Exact {
                width: 50,
                height: 100,
            },
        };
        let bbox = [10.0, 20.0, 40.0, 60.0];
        assert_eq!(mapping(1).of_upright(bbox), mapping(1).of_file(bbox));
        assert_eq!(mapping(3).of_upright(bbox), mapping(1).of_file(bbox));
        // Upright it is 100 x 200.
        assert_eq!(mapping(6).of_upright(bbox), Some([5.0, 10.0, 20.0, 30.0]));
        assert_eq!(mapping(6).of_file(bbox), Some([10.0, 5.0, 30.0, 20.0]));
    }

    #[test]
    fn boxes_are_cut_at_the_edges_of_what_is_kept() {
        let (width, height) = (50, 50);
        let of = |sizing| Mapping {
            orientation: Orientation::default(),
            file_sides: [200, 100],
            sizing,
        };
        let check = |sizing: Sizing, bbox: [f64; 4], expected: Option<[f64; 4]>| {
            assert_eq!(of(sizing).of_upright(bbox), expected, "{sizing:?} {bbox:?}");
        };
        let crop = Sizing::Crop {
            width,
            height,
            shorter_side: 50,
        };
        check(crop, [0.0, 0.0, 60.0, 10.0], Some([0.0, 0.0, 5.0, 5.0]));
        check(crop, [0.0, 0.0, 50.0, 10.0], None);
        let beyond = [-9.0, -9.0, 900.0, 900.0];
        check(crop, beyond, Some([0.0, 0.0, 50.0, 50.0]));
        check(crop, [60.0, 10.0, 0.0, 10.0], None);
        check(Sizing::Original, [200.0, 0.0, 9.0, 9.0], None);
        let pad = Sizing::Pad { width, height };
        check(pad, beyond, Some([0.0, 12.0, 50.0, 25.0]));
        // Numbers of any size are no other numbers than these.
        let huge = [-f64::MAX, -f64::MAX, f64::MAX, f64::MAX];
        check(pad, huge, None);
        let huge = [-f64::MAX / 2.0, -f64::MAX / 2.0, f64::MAX, f64::MAX];
        check(pad, huge, Some([0.0, 12.0, 50.0, 25.0]));
    }
}
