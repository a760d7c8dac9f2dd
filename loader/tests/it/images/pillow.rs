//! Sizes and colours are those of Pillow.

use std::{fs, path::Path, process::Command};

use feedline_loader::image::{Augment, Crop, ImageConfig, ImageDecoder, SampleRandom};

use super::{mean_difference, png, scene};

/// Pillow's results for an image, by each of the calls.
const PILLOW: &str = r#"
import sys
from PIL import Image, ImageEnhance
image = Image.open(sys.argv[1])
results = [
    image.resize((60, 45), Image.BILINEAR),
    image.resize((200, 30), Image.BILINEAR),
    image.resize((70, 50), Image.BILINEAR).crop((15, 5, 55, 45)),
    ImageEnhance.Brightness(image).enhance(1.3),
    ImageEnhance.Contrast(image).enhance(0.6),
    ImageEnhance.Color(image).enhance(1.7),
    image.rotate(30, Image.BILINEAR, fillcolor=(9, 9, 9)),
]
hue, saturation, value = image.convert('HSV').split()
turned = hue.point(lambda v: (v + 64) % 256)
results.append(Image.merge('HSV', (turned, saturation, value)).convert('RGB'))
with open(sys.argv[2], 'wb') as out:
    for result in results:
        out.write(result.tobytes())
"#;

#[test]
fn sizes_and_colours_are_those_of_pillow() {
    let folder = tempfile::tempdir().unwrap();
    let (width, height) = (140, 100);
    let encoded = png(
        &scene(width, height),
        140,
        100,
        image::ExtendedColorType::Rgb8,
    );
    let (image, results) = (folder.path().join("a.png"), folder.path().join("results"));
    fs::write(&image, &encoded).unwrap();
    if !pillow(&image, &results) {
        return;
    }
    let expected = fs::read(results).unwrap();
    let same = |augment| ImageConfig {
        augment: vec![augment],
        ..ImageConfig::new(100, 140, Crop::Whole)
    };
    let jitter = |amounts: [f32; 4]| {
        let [brightness, contrast, saturation, hue] = amounts.map(|amount| [amount; 2]);
        same(Augment::ColourJitter {
            brightness,
            contrast,
            saturation,
            hue,
        })
    };
    let rotate = Augment::Rotate {
        degrees: [30.0, 30.0],
        fill: [9; 3],
    };
    // Settings, the most levels that a value may differ by, and on average. Pillow rotates in another fixed point and
    // fills where a neighbour is outside; its hue has 256 steps.
    let cases = [
        ("shrunk", ImageConfig::new(45, 60, Crop::Whole), 1, 0.2),
        ("stretched", ImageConfig::new(30, 200, Crop::Whole), 1, 0.2),
        (
            "centre",
            ImageConfig::new(40, 40, Crop::Center { shorter_side: 50 }),
            1,
            0.2,
        ),
        ("brightness", jitter([1.3, 1.0, 1.0, 0.0]), 1, 0.1),
        ("contrast", jitter([1.0, 0.6, 1.0, 0.0]), 1, 0.1),
        ("saturation", jitter([1.0, 1.0, 1.7, 0.0]), 1, 0.1),
        ("rotation", same(rotate), 255, 1.0),
        ("hue", jitter([1.0, 1.0, 1.0, 0.25]), 12, 3.0),
    ];
    let mut rest = expected.as_slice();
    for (name, config, most, average) in cases {
        let mut out = vec![0; config.bytes()];
        let mut decoder = ImageDecoder::new(config).unwrap();
        decoder
            .decode(&encoded, &mut SampleRandom::new(0, 0, 0), &mut out)
            .unwrap();
        let pillow;
        (pillow, rest) = rest.split_at(out.len());
        let largest = out.iter().zip(pillow).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(largest <= Some(most), "{name} differs by up to {largest:?}");
        let difference = mean_difference(&out, pillow);
        assert!(
            difference < average,
            "{name} differs by {difference} on average"
        );
    }
    assert!(rest.is_empty());
}

/// Runs [`PILLOW`], or says why not and returns false.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn pillow(image: &Path, results: &Path) -> bool {
    let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
    let run = |arguments: &[&std::ffi::OsStr]| Command::new(&python).args(arguments).output();
    let has = run(&["-c".as_ref(), "import PIL".as_ref()]);
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no Python with Pillow; install it and set FEEDLINE_PYTHON");
        return false;
    }
    let output = run(&[
        "-c".as_ref(),
        PILLOW.as_ref(),
        image.as_ref(),
        results.as_ref(),
    ]);
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    true
}
