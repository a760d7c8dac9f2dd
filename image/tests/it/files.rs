//! Every shared image is decoded, or rejected with its reason.

use feedline_image::{Encoding, ImageLimits, Sizing};

use crate::{
    image_corpus::{REJECTED, images, shared},
    mean_difference, pixels, prepare, raw,
};

/// Rows of a manifest: name, format, sides, orientation, and what Pillow says where it cannot decode.
struct Listed {
    name: String,
    sides: Option<[u32; 2]>,
    orientation: String,
    error: String,
}

fn manifest(folder: &std::path::Path) -> Vec<Listed> {
    let text = std::fs::read_to_string(folder.join("manifest.csv")).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    lines
        .map(|line| {
            let cells = cells(line);
            let side = |name: &str| cells[at(name)].parse().ok();
            Listed {
                name: cells[0].clone(),
                sides: side("width").zip(side("height")).map(|(w, h)| [w, h]),
                orientation: cells[at("exif_orientation")].clone(),
                error: cells[at("decode_error")].clone(),
            }
        })
        .collect()
}

/// The cells of a line of CSV; a cell with a comma in it is quoted.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells.last_mut().unwrap().push(other),
        }
    }
    cells
}

/// Files that Pillow opens and that are not read, and why.
const NOT_READ: &[(&str, &str)] = &[
    ("hopper_16bit.pgm", "another largest value than 255"),
    ("its_5482a5465776.jpg", "a colour space that there is not"),
    ("testimgari.jpg", "an arithmetic-coded JPEG"),
];

#[test]
fn every_file_is_decoded_or_rejected_as_its_manifest_says() {
    let mut others = Vec::new();
    for name in ["photos", "odd"] {
        let Some(folder) = shared(name) else { return };
        let files = images(&folder);
        let listed = manifest(&folder);
        assert_eq!(files.len(), listed.len());
        for entry in listed {
            let file = &files[&entry.name];
            let found = prepare(raw(Sizing::Original), file);
            let refused = REJECTED.iter().find(|(name, ..)| *name == entry.name);
            let excused = NOT_READ.iter().any(|(name, _)| *name == entry.name);
            match (found, refused) {
                (Ok(prepared), None) if entry.error.is_empty() => {
                    let mut sides = entry.sides.unwrap();
                    if matches!(entry.orientation.as_str(), "5" | "6" | "7" | "8") {
                        sides.reverse();
                    }
                    assert_eq!(prepared.sides, sides, "{}", entry.name);
                }
                (Err(error), Some((_, kind, part)))
                    if (!entry.error.is_empty() || excused)
                        && error.code() == *kind
                        && error.to_string().contains(part) => {}
                (Ok(_), _) => others.push(format!("{}: is decoded", entry.name)),
                (Err(error), _) => others.push(format!("{}: {error}", entry.name)),
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn every_micrograph_is_decoded_and_stored_in_the_size_asked_for() {
    let Some(folder) = shared("bccd") else { return };
    let square = Sizing::Crop {
        width: 96,
        height: 96,
        shorter_side: 128,
    };
    for (name, file) in images(&folder) {
        let prepared = prepare(raw(square), &file).unwrap();
        assert_eq!(prepared.sides, [96, 96], "{name}");
        assert_eq!(prepared.sums.pixels, 96 * 96, "{name}");
    }
}

#[test]
fn all_eight_orientations_come_out_the_same() {
    let Some(folder) = shared("orientation") else {
        return;
    };
    let files = images(&folder);
    let upright: Vec<_> = (1..=8)
        .map(|n| {
            let file = &files[&format!("landscape_{n}.jpg")];
            let jpeg = crate::Preparation {
                encoding: Some(Encoding::Jpeg { quality: 95 }),
                ..raw(Sizing::ShorterSide(100))
            };
            let stored = prepare(jpeg, file).unwrap();
            assert_eq!(stored.sides, [133, 100], "orientation {n}");
            // What is stored is upright by itself.
            let again = prepare(raw(Sizing::Original), &stored.file.unwrap()).unwrap();
            pixels(&again)
        })
        .collect();
    // The first was rendered with other colours than the rest, which hides no turn: unturned they differ by over 30.
    for (n, image) in (1..).zip(&upright) {
        let difference = mean_difference(&upright[1], image);
        let most = if n == 1 { 20.0 } else { 3.0 };
        assert!(difference < most, "orientation {n} differs by {difference}");
    }
}

#[test]
fn a_file_that_is_small_enough_stays_as_it_came() {
    let Some(folder) = shared("bccd") else { return };
    let (_, file) = images(&folder).pop_first().unwrap();
    let keep = crate::Preparation {
        encoding: Some(Encoding::Jpeg { quality: 50 }),
        keep_original: true,
        ..raw(Sizing::ShorterSide(480))
    };
    assert_eq!(prepare(keep, &file).unwrap().file, None);
    let smaller = crate::Preparation {
        sizing: Sizing::ShorterSide(479),
        ..keep
    };
    assert!(prepare(smaller, &file).unwrap().file.is_some());
    let png = crate::Preparation {
        encoding: Some(Encoding::Png),
        ..keep
    };
    assert!(prepare(png, &file).unwrap().file.is_some());
    let anew = crate::Preparation {
        keep_original: false,
        ..keep
    };
    assert!(prepare(anew, &file).unwrap().file.is_some());
    // An image on its side is turned, so it becomes another file.
    let Some(folder) = shared("orientation") else {
        return;
    };
    let turned = &images(&folder)["landscape_6.jpg"];
    assert!(prepare(keep, turned).unwrap().file.is_some());
}

#[test]
fn limits_hold_before_anything_is_decoded() {
    let Some(folder) = shared("photos") else {
        return;
    };
    let (_, file) = images(&folder).pop_last().unwrap();
    let check = |limits: ImageLimits, key: &str| {
        let how = crate::Preparation {
            limits,
            ..raw(Sizing::Original)
        };
        let ((), most) = crate::allocations::most_of(|| {
            let error = prepare(how, &file).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        });
        assert!(most < 1 << 16, "{most} bytes for an error");
    };
    let limits = ImageLimits::DEFAULT;
    let with = |change: fn(&mut ImageLimits)| {
        let mut limits = limits;
        change(&mut limits);
        limits
    };
    check(with(|l| l.encoded_bytes = 999), "encoded_bytes");
    check(with(|l| l.side = 59), "side");
    check(with(|l| l.pixels = 3599), "pixels");
    check(with(|l| l.decoder_bytes = 9999), "decoder_bytes");
}

#[test]
fn a_format_that_shards_do_not_hold_must_be_converted() {
    let Some(folder) = shared("odd") else { return };
    let files = images(&folder);
    let original = crate::Preparation {
        encoding: None,
        ..raw(Sizing::Original)
    };
    for name in ["hopper.bmp", "l1.tiff", "mixed-disposal.gif"] {
        let error = prepare(original, &files[name]).unwrap_err();
        assert_eq!(error.code(), "unsupported", "{name}: {error}");
        assert!(
            prepare(raw(Sizing::Original), &files[name]).is_ok(),
            "{name}"
        );
    }
    assert_eq!(prepare(original, &files["ball.png"]).unwrap().file, None);
}

#[test]
fn photographs_look_like_their_worse_and_smaller_copies_and_like_no_others() {
    let Some(folder) = shared("photos") else {
        return;
    };
    let (mut looks, mut copies) = (Vec::new(), 0);
    let hashed = crate::Preparation {
        hashes: true,
        ..raw(Sizing::Original)
    };
    let jpeg = |quality, sizing| crate::Preparation {
        encoding: Some(Encoding::Jpeg { quality }),
        ..raw(sizing)
    };
    for (_, file) in images(&folder) {
        let worse = prepare(jpeg(60, Sizing::Original), &file)
            .unwrap()
            .file
            .unwrap();
        let smaller = prepare(jpeg(85, Sizing::ShorterSide(200)), &file).unwrap();
        for copy in [&file, &worse, smaller.file.as_ref().unwrap()] {
            looks.push(prepare(hashed, copy).unwrap().hashes.unwrap().looks);
        }
        copies += 2;
    }
    let mut groups = feedline_image::Groups::new(looks.len());
    feedline_image::perceptual(&looks, 4, &mut groups);
    let firsts: Vec<usize> = groups
        .into_firsts()
        .into_iter()
        .map(|at| at as usize)
        .collect();
    let own = |at: &usize| firsts[*at] == firsts[at / 3 * 3];
    let found = (0..looks.len()).filter(|at| at % 3 > 0).filter(own).count();
    let strangers = (0..looks.len())
        .filter(|at| firsts[*at] / 3 != at / 3)
        .count();
    println!("{found} of {copies} copies, {strangers} strangers");
    assert!(
        found * 100 >= copies * 95 && strangers == 0,
        "{found} of {copies}, {strangers}"
    );
}

#[test]
fn fault_23_every_cut_of_an_old_format_is_noticed() {
    let Some(folder) = shared("odd") else { return };
    let files = images(&folder);
    for name in [
        "hopper.bmp",
        "mixed-disposal.gif",
        "animated-loop-3.gif",
        "l1.tiff",
        "simple.webp",
    ] {
        let file = &files[name];
        let step = (file.len() / 300).max(1);
        for end in (0..file.len()).step_by(step) {
            let error = prepare(raw(Sizing::Original), &file[..end]).expect_err(name);
            assert!(
                matches!(
                    error.code(),
                    "empty" | "truncated" | "corrupt" | "unsupported"
                ),
                "{name} cut to {end}: {error}"
            );
        }
    }
}
