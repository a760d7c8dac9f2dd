//! Sizes, filters and colours are those of Pillow.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use feedline_image::{Encoding, Filter, Sizing};

use crate::{
    Preparation,
    image_corpus::{images, shared},
    mean_difference, pixels, prepare, raw,
};

/// Runs a script with these arguments; false, with a message, where there is no Pillow.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn pillow(script: &str, arguments: &[&Path]) -> bool {
    let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    let run = |code: &str| {
        let all = [OsStr::new("-c"), code.as_ref()];
        let arguments = arguments.iter().map(|path| path.as_os_str());
        Command::new(&python).args(all).args(arguments).output()
    };
    let has = run("import PIL");
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no Python with Pillow; install it and set FEEDLINE_PYTHON");
        return false;
    }
    let output = run(script).unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    true
}

const RESIZED: &str = r"
import sys
from PIL import Image
image = Image.open(sys.argv[1]).convert('RGB')
results = []
for filter in (Image.BILINEAR, Image.BICUBIC, Image.LANCZOS):
    for size in ((60, 45), (200, 30), (300, 250)):
        results.append(image.resize(size, filter))
    # Shorter side 50 of 140 x 100, and its centre.
    results.append(image.resize((70, 50), filter).crop((15, 5, 55, 45)))
    padded = Image.new('RGB', (64, 64))
    padded.paste(image.resize((64, 46), filter), (0, 9))
    results.append(padded)
with open(sys.argv[2], 'wb') as out:
    for result in results:
        out.write(result.tobytes())
";

/// Waves with edges between them, so that filters differ.
pub(crate) fn scene(width: u32, height: u32) -> Vec<u8> {
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    places
        .flat_map(|(x, y)| {
            let block = if (x / 11 + y / 7) % 2 == 0 { 60 } else { 0 };
            [x * 255 / width, y * 255 / height, (x * y) % 191]
                .map(|level| u8::try_from((level * 3 / 4 + block).min(255)).unwrap())
        })
        .collect()
}

#[test]
fn every_size_and_filter_is_within_a_level_of_pillow() {
    let folder = tempfile::tempdir().unwrap();
    let (image, results) = (folder.path().join("a.png"), folder.path().join("results"));
    let file = Encoding::Png.encode(&scene(140, 100), 140, 100).unwrap();
    fs::write(&image, &file).unwrap();
    if !pillow(RESIZED, &[&image, &results]) {
        return;
    }
    let expected = fs::read(results).unwrap();
    let mut rest = expected.as_slice();
    let exact = |width, height| Sizing::Exact { width, height };
    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
        let crop = Sizing::Crop {
            width: 40,
            height: 40,
            shorter_side: 50,
        };
        let pad = Sizing::Pad {
            width: 64,
            height: 64,
        };
        for sizing in [exact(60, 45), exact(200, 30), exact(300, 250), crop, pad] {
            let how = Preparation {
                filter,
                ..raw(sizing)
            };
            let found = pixels(&prepare(how, &file).unwrap());
            let pillow;
            (pillow, rest) = rest.split_at(found.len());
            let most = found.iter().zip(pillow).map(|(a, b)| a.abs_diff(*b)).max();
            // Others overshoot at edges, which is clipped between the passes, in another order than
            // Pillow's.
            let allowed = if filter == Filter::Bilinear { 1 } else { 24 };
            assert!(
                most.unwrap() <= allowed,
                "{filter:?} {sizing:?}: {most:?} levels"
            );
            let mean = mean_difference(&found, pillow);
            assert!(
                mean < 0.3,
                "{filter:?} {sizing:?}: {mean} levels on average"
            );
        }
    }
    assert!(rest.is_empty());
}

const DECODED: &str = r"
import os, struct, sys, warnings
from PIL import Image, ImageOps
warnings.simplefilter('ignore')
Image.MAX_IMAGE_PIXELS = 50_000_000
with open(sys.argv[2], 'wb') as out:
    for name in sorted(os.listdir(sys.argv[1])):
        try:
            image = Image.open(os.path.join(sys.argv[1], name))
            image.load()
            pixels = ImageOps.exif_transpose(image).convert('RGB')
        except Exception:
            continue
        name = name.encode()
        out.write(struct.pack('<III', len(name), *pixels.size) + name + pixels.tobytes())
";

/// Files whose colours Pillow gives otherwise, and why.
const OTHER_COLOURS: &[&str] = &[
    // Where its frame is transparent, Pillow gives the black that it was drawn on.
    "anim.webp",
    // Its first frame leaves a part of the screen, which Pillow paints with the transparent colour.
    "large-gif-anim-combine.gif",
];

#[test]
fn every_format_has_the_colours_of_pillow() {
    for name in ["odd", "photos", "orientation"] {
        let Some(folder) = shared(name) else { return };
        let results = tempfile::tempdir().unwrap();
        let results = results.path().join("results");
        if !pillow(DECODED, &[&folder, &results]) {
            return;
        }
        let expected = fs::read(results).unwrap();
        let files = images(&folder);
        let (mut rest, mut compared) = (expected.as_slice(), 0);
        let mut others = Vec::new();
        while let Some((head, after)) = rest.split_first_chunk::<12>() {
            let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            let (name, after) = after.split_at(number(0) as usize);
            let name = std::str::from_utf8(name).unwrap();
            let sides = [number(4), number(8)];
            let pillow;
            (pillow, rest) = after.split_at(sides[0] as usize * sides[1] as usize * 3);
            let Ok(found) = prepare(raw(Sizing::Original), &files[name]) else {
                continue;
            };
            assert_eq!(found.sides, sides, "{name}");
            if !OTHER_COLOURS.contains(&name) {
                let mean = mean_difference(&pixels(&found), pillow);
                compared += 1;
                if mean > 1.5 {
                    others.push(format!("{name}: {mean} levels on average"));
                }
            }
        }
        assert!(others.is_empty(), "{others:#?}");
        assert!(compared >= 8, "{compared} of {name} were compared");
    }
}
