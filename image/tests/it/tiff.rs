//! TIFF in the layouts that are read, and the reasons why others are not.

use feedline_image::Sizing;

use crate::{pillow::scene, pixels, prepare, raw};

/// Files of [`scene`] of 40 x 30 pixels, and of its blocks in black and white, as Pillow 13.0 writes them.
pub(crate) const WRITTEN: &[(&str, &[u8])] = &[
    ("deflate", include_bytes!("../data/deflate.tiff")),
    ("fax", include_bytes!("../data/fax.tiff")),
    ("packbits", include_bytes!("../data/packbits.tiff")),
    ("predicted", include_bytes!("../data/predicted.tiff")),
];

const SHORT: u16 = 3;

/// A file, part by part.
#[derive(Clone)]
struct Tiff {
    big: bool,
    /// Tag, type, values.
    tags: Vec<(u16, u16, Vec<u32>)>,
    /// Strips or tiles.
    parts: Vec<Vec<u8>>,
}

impl Tiff {
    /// Of one strip, whose values are `levels`.
    fn new(sides: [u32; 2], colours: u32, bits: u32, samples: u32, levels: &[u16]) -> Self {
        let short = |tag: u16, value: u32| (tag, SHORT, vec![value]);
        let bits = vec![bits; samples as usize];
        let tags = vec![
            short(256, sides[0]),
            short(257, sides[1]),
            (258, SHORT, bits),
            short(259, 1),
            short(262, colours),
            short(277, samples),
            short(278, sides[1]),
            short(284, 1),
        ];
        Self {
            big: false,
            tags,
            parts: Vec::new(),
        }
        .with_part(levels)
    }

    fn with_part(mut self, levels: &[u16]) -> Self {
        let is_wide = self.tags[2].2[0] == 16;
        let bytes = levels.iter().flat_map(|level| match (is_wide, self.big) {
            (true, true) => level.to_be_bytes().to_vec(),
            (true, false) => level.to_le_bytes().to_vec(),
            (false, _) => vec![level.to_le_bytes()[0]],
        });
        let bytes = bytes.collect();
        self.parts.push(bytes);
        self
    }

    fn with(mut self, tag: u16, r#type: u16, values: &[u32]) -> Self {
        self.tags.retain(|(other, ..)| *other != tag);
        self.tags.push((tag, r#type, values.to_vec()));
        self
    }

    /// Header, parts, directory, values: as long as all of it, so that any cut hits something.
    fn file(&self) -> Vec<u8> {
        let two = |value: u16| match self.big {
            true => value.to_be_bytes(),
            false => value.to_le_bytes(),
        };
        let four = |value: usize| {
            let value = u32::try_from(value).unwrap();
            match self.big {
                true => value.to_be_bytes(),
                false => value.to_le_bytes(),
            }
        };
        let start: usize = 8 + self.parts.iter().map(Vec::len).sum::<usize>();
        let mut file = if self.big { b"MM\0*" } else { b"II*\0" }.to_vec();
        file.extend(four(start));
        let (mut places, mut lengths) = (Vec::new(), Vec::new());
        for part in &self.parts {
            places.push(u32::try_from(file.len()).unwrap());
            lengths.push(u32::try_from(part.len()).unwrap());
            file.extend(part);
        }
        let mut tags = self.tags.clone();
        let is_tiled = tags.iter().any(|(tag, ..)| *tag == 322);
        let [at, bytes] = if is_tiled { [324, 325] } else { [273, 279] };
        tags.push((at, 4, places));
        tags.push((bytes, 4, lengths));
        tags.sort_by_key(|(tag, ..)| *tag);
        let mut values = Vec::new();
        let end = start + 2 + tags.len() * 12 + 4;
        file.extend(two(u16::try_from(tags.len()).unwrap()));
        for (tag, r#type, numbers) in &tags {
            file.extend(two(*tag));
            file.extend(two(*r#type));
            file.extend(four(numbers.len()));
            let mut written: Vec<u8> = numbers
                .iter()
                .flat_map(|number| match r#type {
                    4 => four(*number as usize).to_vec(),
                    _ => two(u16::try_from(*number).unwrap()).to_vec(),
                })
                .collect();
            if written.len() > 4 {
                file.extend(four(end + values.len()));
                values.extend(written);
            } else {
                written.resize(4, 0);
                file.extend(written);
            }
        }
        file.extend([0; 4]);
        file.extend(values);
        file
    }
}

/// Kinds of colours, each of 2 x 2 pixels, in both orders of bytes.
fn kinds() -> Vec<(&'static str, Tiff, [[u8; 3]; 4])> {
    let grey = |levels: [u8; 4]| levels.map(|level| [level; 3]);
    let mut map = vec![0; 768];
    for (at, colour) in [(7, [255, 0, 9]), (200, [1, 2, 3])] {
        for (channel, level) in colour.iter().enumerate() {
            map[channel * 256 + at] = level * 257;
        }
    }
    let rgb = [1, 2, 3, 40, 50, 60, 7, 8, 9, 250, 251, 255];
    let rgba = [1, 2, 3, 0, 40, 50, 60, 128, 7, 8, 9, 255, 250, 251, 255, 9];
    let colours = [[1, 2, 3], [40, 50, 60], [7, 8, 9], [250, 251, 255]];
    let wide = rgb.map(|level| level * 257 - level % 2 * 100);
    let inks = [0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 255, 100, 50, 0, 51];
    let printed = [[255; 3], [0, 255, 255], [0; 3], [124, 164, 204]];
    let planes = [1, 40, 7, 250, 2, 50, 8, 251, 3, 60, 9, 255];
    let planar = Tiff::new([2, 2], 2, 8, 3, &planes[..4])
        .with_part(&planes[4..8])
        .with_part(&planes[8..])
        .with(284, SHORT, &[2]);
    vec![
        (
            "grey",
            Tiff::new([2, 2], 1, 8, 1, &[0, 9, 200, 255]),
            grey([0, 9, 200, 255]),
        ),
        (
            "white is zero",
            Tiff::new([2, 2], 0, 8, 1, &[0, 9, 200, 255]),
            grey([255, 246, 55, 0]),
        ),
        (
            "one bit",
            Tiff::new([2, 2], 1, 1, 1, &[0b0100_0000, 0b1000_0000]),
            grey([0, 255, 255, 0]),
        ),
        (
            "wide grey",
            Tiff::new([2, 2], 1, 16, 1, &[0, 129, 65_406, 65_535]),
            grey([0, 1, 254, 255]),
        ),
        ("rgb", Tiff::new([2, 2], 2, 8, 3, &rgb), colours),
        ("wide rgb", Tiff::new([2, 2], 2, 16, 3, &wide), colours),
        (
            "rgba",
            Tiff::new([2, 2], 2, 8, 4, &rgba).with(338, SHORT, &[2]),
            colours,
        ),
        (
            "a sample of no meaning",
            Tiff::new([2, 2], 2, 8, 4, &rgba).with(338, SHORT, &[0]),
            colours,
        ),
        ("planar", planar, colours),
        ("cmyk", Tiff::new([2, 2], 5, 8, 4, &inks), printed),
        (
            "palette",
            Tiff::new([2, 2], 3, 8, 1, &[7, 200, 7, 0]).with(320, SHORT, &map),
            [[255, 0, 9], [1, 2, 3], [255, 0, 9], [0; 3]],
        ),
    ]
}

/// Four strips of one row, and 16 tiles that go over the edges.
fn parted() -> [Tiff; 2] {
    let row: Vec<u16> = (0..5).map(|x| x * 40).collect();
    let mut strips = Tiff::new([5, 4], 1, 8, 1, &row).with(278, SHORT, &[1]);
    for _ in 1..4 {
        strips = strips.with_part(&row);
    }
    let mut tiles = Tiff::new([20, 20], 1, 8, 1, &[0; 256])
        .with(322, SHORT, &[16])
        .with(323, SHORT, &[16]);
    for level in 1..4 {
        tiles = tiles.with_part(&[level; 256]);
    }
    [strips, tiles]
}

/// Every file that is read.
pub(crate) fn good() -> Vec<(String, Vec<u8>)> {
    let written = WRITTEN.iter().map(|(name, file)| (*name, file.to_vec()));
    let kinds = kinds()
        .into_iter()
        .map(|(name, tiff, _)| (name, tiff.file()));
    let parted = parted().map(|tiff| ("parted", tiff.file()));
    let all = written.chain(kinds).chain(parted);
    all.map(|(name, file)| (format!("{name}.tiff"), file))
        .collect()
}

fn decoded(file: &[u8]) -> Vec<u8> {
    pixels(&prepare(raw(Sizing::Original), file).unwrap())
}

#[test]
fn colours_are_read_in_both_orders_of_bytes() {
    for (name, tiff, expected) in kinds() {
        assert_eq!(decoded(&tiff.file()), expected.as_flattened(), "{name}");
        let mut big = Tiff { big: true, ..tiff };
        if big.tags[2].2[0] == 16 {
            big.parts[0]
                .as_chunks_mut::<2>()
                .0
                .iter_mut()
                .for_each(|level| level.reverse());
        }
        assert_eq!(decoded(&big.file()), expected.as_flattened(), "big {name}");
    }
}

#[test]
fn alpha_of_a_tiff_is_blended_onto_the_background() {
    let (_, tiff, _) = kinds()
        .into_iter()
        .find(|(name, ..)| *name == "rgba")
        .unwrap();
    let white = crate::Preparation {
        background: Some([255; 3]),
        ..raw(Sizing::Original)
    };
    let prepared = prepare(white, &tiff.file()).unwrap();
    let expected = [[255; 3], [147, 152, 157], [7, 8, 9], [255; 3]];
    assert_eq!(pixels(&prepared), expected.as_flattened());
    assert!(prepared.is_transparent);
}

#[test]
fn strips_and_tiles_come_to_their_places() {
    let [strips, tiles] = parted();
    let row = [0, 40, 80, 120, 160].map(|level| [level; 3]);
    assert_eq!(
        decoded(&strips.file()),
        [row; 4].as_flattened().as_flattened()
    );
    let tiles = decoded(&tiles.file());
    for (at, pixel) in tiles.as_chunks::<3>().0.iter().enumerate() {
        let expected = at % 20 / 16 + at / 20 / 16 * 2;
        assert_eq!(*pixel, [u8::try_from(expected).unwrap(); 3], "pixel {at}");
    }
}

#[test]
fn the_tag_of_the_orientation_turns_an_image() {
    for (value, expected) in [(1, [1, 2, 3, 4]), (3, [4, 3, 2, 1]), (6, [3, 1, 4, 2])] {
        let tiff = Tiff::new([2, 2], 1, 8, 1, &[1, 2, 3, 4]).with(274, SHORT, &[value]);
        let expected = expected.map(|level| [level; 3]);
        assert_eq!(decoded(&tiff.file()), expected.as_flattened(), "{value}");
    }
}

#[test]
fn compressed_files_hold_the_pixels_that_pillow_wrote() {
    for (name, file) in WRITTEN {
        let expected = match *name {
            "fax" => (0..30)
                .flat_map(|y| (0..40).map(move |x| (x / 11 + y / 7) % 2 == 0))
                .flat_map(|is_white| [if is_white { 255 } else { 0 }; 3])
                .collect(),
            _ => scene(40, 30),
        };
        assert_eq!(decoded(file), expected, "{name}");
    }
}

#[test]
fn fault_23_every_cut_is_noticed() {
    for (name, file) in good() {
        for end in 0..file.len() {
            let error = prepare(raw(Sizing::Original), &file[..end]).expect_err(&name);
            let kinds: &[&str] = match end {
                0 => &["empty"],
                _ => &["truncated"],
            };
            assert!(
                kinds.contains(&error.code()),
                "{name} cut to {end}: {error}"
            );
        }
    }
}

#[test]
fn what_is_not_read_is_refused_with_its_reason() {
    let check = |tiff: Tiff, kind: &str, part: &str| {
        let error = prepare(raw(Sizing::Original), &tiff.file()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.code(), kind, "{error}");
    };
    let grey = || Tiff::new([2, 2], 1, 8, 1, &[0; 16]);
    let rgb = || Tiff::new([2, 2], 2, 8, 3, &[0; 16]);
    let one = |tag, value| grey().with(tag, SHORT, &[value]);
    let new = "unsupported";
    check(one(262, 3), "corrupt", "its palette has not 256 colours");
    check(
        one(262, 3).with(258, SHORT, &[4]),
        new,
        "a palette in 1 samples of 4 bits",
    );
    check(rgb().with(262, SHORT, &[6]), new, "a TIFF of YCbCr");
    check(
        rgb().with(258, SHORT, &[32; 3]),
        new,
        "RGB in 3 samples of 32 bits",
    );
    check(rgb().with(258, SHORT, &[8, 8, 16]), new, "differ in bits");
    check(one(339, 3), new, "no unsigned integers");
    check(one(259, 7), new, "compressed as JPEG");
    check(one(259, 50_000), new, "compression `50000`");
    check(
        rgb()
            .with(277, SHORT, &[4])
            .with(338, SHORT, &[0])
            .with(317, SHORT, &[2]),
        new,
        "a predictor and a sample",
    );
    check(one(278, 1), "corrupt", "there should be `2` strips");
    check(one(278, 0), "corrupt", "without area");
    check(one(256, 9), "corrupt", "its rows need `18`");
    check(
        grey().with(322, 4, &[1 << 30]).with(323, 4, &[1]),
        new,
        "tiles are much larger",
    );
    check(
        grey().with(256, 2, &[2]),
        "corrupt",
        "its tag `256` is no number",
    );
    let mut twice = grey();
    twice.tags.push((256, 4, vec![1 << 31]));
    check(twice, "corrupt", "its tag `256` comes twice");
}
