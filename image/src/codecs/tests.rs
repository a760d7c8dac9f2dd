//! Pixels with alpha, on a background and without one.

use image::{
    ExtendedColorType, ImageEncoder,
    codecs::{bmp::BmpEncoder, png::PngEncoder, webp::WebPEncoder},
};

use crate::{
    Decoder, Encoding, Filter, Format, Header, ImageLimits, Preparation, Preparer, Sizing, Target,
    UprightBox,
};

const WHITE: Option<[u8; 3]> = Some([255; 3]);
const BLACK: Option<[u8; 3]> = Some([0; 3]);
const COLOUR: Option<[u8; 3]> = Some([255, 128, 1]);

/// Three pixels in one row.
const SIDES: (u32, u32) = (3, 1);

/// Pixels of a palette with alpha 0, 128 and 255, as Pillow 13.0 writes them.
const PALETTE: &[u8] = include_bytes!("../../tests/data/transparent-palette.png");
/// The same colours; the first is transparent.
const GIF: &[u8] = include_bytes!("../../tests/data/transparent.gif");
/// Grey levels 0, 128 and 255; 128 is transparent.
const GREY: &[u8] = include_bytes!("../../tests/data/transparent-grey.png");

/// The pixels of a file of [`SIDES`] on `background`, and true if some are not opaque.
fn decode(file: &[u8], background: Option<[u8; 3]>) -> (Vec<u8>, bool) {
    let header = Header::read(file, Format::ALL, &ImageLimits::DEFAULT).unwrap();
    let target = Target {
        width: SIDES.0,
        height: SIDES.1,
        filter: Filter::Bilinear,
        scaled_decoding: false,
    };
    let region = UprightBox::whole_pixels([0, 0, SIDES.0, SIDES.1]).stored(&header, target);
    let mut pixels = vec![0; target.bytes()];
    let mut decoder = Decoder::default();
    decoder.set_background(background);
    decoder.decode(file, &header, &region, &mut pixels).unwrap();
    (pixels, decoder.is_transparent())
}

fn png(pixels: &[u8], colour: ExtendedColorType) -> Vec<u8> {
    let mut file = Vec::new();
    PngEncoder::new(&mut file)
        .write_image(pixels, SIDES.0, SIDES.1, colour)
        .unwrap();
    file
}

fn wide(levels: &[u16]) -> Vec<u8> {
    levels
        .iter()
        .flat_map(|level| level.to_ne_bytes())
        .collect()
}

/// Holds a file to its pixels on white, on black, and without a background.
fn check(name: &str, file: &[u8], white: [[u8; 3]; 3], black: [[u8; 3]; 3], none: [[u8; 3]; 3]) {
    for (background, expected) in [(WHITE, white), (BLACK, black), (None, none)] {
        let found = decode(file, background);
        assert_eq!(
            found,
            (expected.as_flattened().to_vec(), true),
            "{name} on {background:?}"
        );
    }
}

#[test]
fn transparent_pixels_are_blended_onto_the_background_and_rounded_to_nearest() {
    // Alpha 0, 128 and 255: 200 * 128 / 255 = 100.39, and 255 * 127 / 255 = 127.
    let rgba = [10, 20, 30, 0, 200, 100, 0, 128, 1, 2, 3, 255];
    let white = [[255; 3], [227, 177, 127], [1, 2, 3]];
    let black = [[0; 3], [100, 50, 0], [1, 2, 3]];
    let none = [[10, 20, 30], [200, 100, 0], [1, 2, 3]];
    let file = png(&rgba, ExtendedColorType::Rgba8);
    check("RGBA8", &file, white, black, none);
    check("a palette", PALETTE, white, black, none);
    let on_colour = [255, 128, 1, 227, 114, 0, 1, 2, 3];
    assert_eq!(decode(&file, COLOUR).0, on_colour);
    let mut webp = Vec::new();
    WebPEncoder::new_lossless(&mut webp)
        .encode(&rgba, SIDES.0, SIDES.1, ExtendedColorType::Rgba8)
        .unwrap();
    for (background, expected) in [(WHITE, white), (BLACK, black)] {
        let found = decode(&webp, background);
        assert_eq!(found, (expected.as_flattened().to_vec(), true), "WebP");
    }
    let on = |under: [u8; 3]| [under, none[1], none[2]];
    check("GIF", GIF, on([255; 3]), on([0; 3]), none);
}

#[test]
fn grey_and_wide_pixels_with_alpha_are_blended_by_the_same_rule() {
    let grey = |levels: [u8; 3]| levels.map(|level| [level; 3]);
    let [white, black, none] = [[255, 227, 9], [0, 100, 9], [40, 200, 9]].map(grey);
    let la8 = png(&[40, 0, 200, 128, 9, 255], ExtendedColorType::La8);
    check("LA8", &la8, white, black, none);
    // 40 * 257, and alpha that is rounded to 0, 128 and 255.
    let la16 = wide(&[10_280, 128, 51_400, 32_900, 2_313, 65_500]);
    let la16 = png(&la16, ExtendedColorType::La16);
    check("LA16", &la16, white, black, none);
    let rgba16 = wide(&[
        2_570, 5_140, 7_710, 0, 51_400, 25_700, 0, 32_896, 257, 514, 771, 65_535,
    ]);
    check(
        "RGBA16",
        &png(&rgba16, ExtendedColorType::Rgba16),
        [[255; 3], [227, 177, 127], [1, 2, 3]],
        [[0; 3], [100, 50, 0], [1, 2, 3]],
        [[10, 20, 30], [200, 100, 0], [1, 2, 3]],
    );
    let [white, black, none] = [[0, 255, 255], [0, 0, 255], [0, 128, 255]].map(grey);
    check("grey with a transparent level", GREY, white, black, none);
}

#[test]
fn opaque_images_have_the_same_pixels_on_any_background() {
    let rgb: Vec<u8> = vec![10, 20, 30, 200, 100, 0, 1, 2, 3];
    let rgba = [10, 20, 30, 255, 200, 100, 0, 255, 1, 2, 3, 255];
    let levels: Vec<u16> = rgba.iter().map(|level| u16::from(*level) * 257).collect();
    let rgba16 = png(&wide(&levels), ExtendedColorType::Rgba16);
    let files = [
        png(&rgb, ExtendedColorType::Rgb8),
        png(&rgba, ExtendedColorType::Rgba8),
        rgba16,
    ];
    for file in &files {
        for background in [None, WHITE, BLACK, COLOUR] {
            assert_eq!(decode(file, background), (rgb.clone(), false));
        }
    }
    for level in 0..=u8::MAX {
        assert_eq!(super::blend(level, u8::MAX, 7), level);
        assert_eq!(super::blend(level, 0, 7), 7);
    }
}

#[test]
fn alpha_of_a_bmp_that_is_0_everywhere_is_none() {
    let of_alpha = |alpha: [u8; 3]| {
        let pixels = alpha.map(|alpha| [10, 20, 30, alpha]);
        let mut file = Vec::new();
        BmpEncoder::new(&mut file)
            .encode(
                pixels.as_flattened(),
                SIDES.0,
                SIDES.1,
                ExtendedColorType::Rgba8,
            )
            .unwrap();
        decode(&file, WHITE)
    };
    let levels = [10, 20, 30];
    assert_eq!(of_alpha([0; 3]), (levels.repeat(3), false));
    let expected = [[255; 3], levels, levels].as_flattened().to_vec();
    assert_eq!(of_alpha([0, 255, 255]), (expected, true));
}

#[test]
fn a_transparent_file_stays_as_it_came_only_where_nothing_is_blended() {
    let rgba = png(
        &[10, 20, 30, 0, 200, 100, 0, 255, 1, 2, 3, 255],
        ExtendedColorType::Rgba8,
    );
    let prepare = |background, encoding| {
        let how = Preparation {
            sizing: Sizing::Original,
            filter: Filter::Bilinear,
            encoding,
            keep_original: true,
            limits: ImageLimits::DEFAULT,
            scaled_decoding: false,
            background,
            hashes: true,
        };
        Preparer::new(how).prepare(&rgba).unwrap()
    };
    let png = Some(Encoding::Png);
    let [white, black, none] = [WHITE, BLACK, None].map(|background| prepare(background, png));
    assert!(white.is_transparent && black.is_transparent && none.is_transparent);
    assert_eq!(none.file, None);
    for (prepared, background) in [(white, WHITE), (black, BLACK)] {
        let original = prepare(background, None);
        assert_eq!(original.file, None);
        assert_eq!(original.hashes, prepared.hashes);
        assert_ne!(original.hashes, none.hashes);
        let stored = decode(&prepared.file.unwrap(), None);
        assert_eq!(stored, (decode(&rgba, background).0, false));
    }
}
