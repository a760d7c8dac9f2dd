//! Fault 24: random changes of real files give images or errors: no panic gets out, no abort, no hang, and no more
//! memory than the header's bound.
//!
//! `FEEDLINE_IMAGE_MUTATIONS` is the number of changed files, 200 by default.

use std::fs;

use feedline_image::{
    Encoding, Format, Header, ImageError, ImageLimits, Preparation, Preparer, Sizing,
};

use crate::{
    allocations::most_of,
    image_corpus::{images, shared},
    raw, tiff,
};

/// Most processor time of one image.
const MOST_SECONDS: f64 = 2.0;
/// Memory a decoder may take besides the amount in its header and copies of the file: a small
/// output and its encoder.
const BESIDES: u64 = 2 << 20;

/// A sequence of numbers that looks random.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap()
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() % end.max(1)
    }

    /// Half of the time a place near the beginning, where headers are.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let end = if self.below(2) == 0 { 700 } else { usize::MAX };
        self.below(bytes.len().min(end))
    }
}

/// Changes a file in one to four places.
fn mutate(bytes: &mut Vec<u8>, all: &[Vec<u8>], numbers: &mut Numbers) {
    for _ in 0..=numbers.below(4) {
        let at = numbers.place(bytes);
        match numbers.below(7) {
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = numbers.next().to_le_bytes()[0],
            2 => bytes.truncate(at.max(1)),
            3 => {
                let end = (at + numbers.below(64)).min(bytes.len());
                bytes.drain(at..end);
                bytes.push(0);
            }
            4 => {
                let other = &all[numbers.below(all.len())];
                let from = numbers.below(other.len());
                let to = (from + numbers.below(200)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            5 => bytes[at..].iter_mut().take(4).for_each(|b| *b = 0xff),
            _ => {
                let from = numbers.below(bytes.len());
                let part: Vec<u8> = bytes[from..].iter().take(64).copied().collect();
                let end = (at + part.len()).min(bytes.len());
                bytes.splice(at..end, part);
            }
        }
    }
}

/// Processor time of this thread, in seconds; 0 where the system does not report it.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

fn how() -> Preparation {
    Preparation {
        encoding: Some(Encoding::Jpeg { quality: 80 }),
        hashes: true,
        // So that no change of a header can take much memory or time.
        limits: ImageLimits {
            pixels: 4 << 20,
            decoder_bytes: 64 << 20,
            ..ImageLimits::DEFAULT
        },
        ..raw(Sizing::Crop {
            width: 64,
            height: 64,
            shorter_side: 72,
        })
    }
}

/// Holds one file to all of it. Whether it was an image.
fn check(name: &str, file: &[u8]) -> bool {
    let bound = Header::read(file, Format::ALL, &how().limits).map_or(0, |h| h.decoder_bytes());
    let before = cpu_seconds();
    let (result, most) = most_of(|| Preparer::new(how()).prepare(file));
    let seconds = cpu_seconds() - before;
    let decoded = match &result {
        Ok(prepared) => format!("{:?}", prepared.sides),
        Err(error) => error.to_string(),
    };
    assert!(seconds < MOST_SECONDS, "{name}: {seconds} s for {decoded}");
    let allowed = bound + 2 * file.len() as u64 + BESIDES;
    assert!(
        most <= allowed,
        "{name}: {most} bytes and {allowed} are allowed, for {decoded}"
    );
    match result {
        Ok(prepared) => {
            assert_eq!(prepared.sides, [64, 64]);
            true
        }
        Err(ImageError::Corrupt { reason }) => {
            // Known panics of decoders come back as errors; ours would be mistakes.
            assert!(!reason.contains("resized"), "{name}: {reason}");
            false
        }
        Err(_) => false,
    }
}

#[test]
fn mutations_of_real_files_give_images_or_errors_in_bounded_time_and_memory() {
    let count = std::env::var_os("FEEDLINE_IMAGE_MUTATIONS");
    let count: u64 = count.map_or(200, |count| count.to_str().unwrap().parse().unwrap());
    let mut names = Vec::new();
    let mut files = Vec::new();
    for folder in ["photos", "bccd", "orientation", "odd"] {
        let Some(folder) = shared(folder) else { return };
        for (name, file) in images(&folder) {
            names.push(name);
            files.push(file);
        }
    }
    // As often as the other old formats, which have one or two files in a folder.
    let (more_names, more_files): (Vec<_>, Vec<_>) = tiff::good().into_iter().unzip();
    names.extend(more_names);
    files.extend(more_files);
    let work = |first: u64| {
        let (mut good, mut bad) = (0_u64, 0_u64);
        for round in (first..count).step_by(2) {
            let mut numbers = Numbers(round);
            // The numbers of neighbours look alike at first.
            (0..4).for_each(|_| assert!(numbers.next() < 1 << 31));
            let at = numbers.below(files.len());
            let mut file = files[at].clone();
            mutate(&mut file, &files, &mut numbers);
            if check(&format!("mutation {round} of {}", names[at]), &file) {
                good += 1;
            } else {
                bad += 1;
            }
        }
        [good, bad]
    };
    let found = std::thread::scope(|scope| {
        let second = scope.spawn(|| work(1));
        let first = work(0);
        let second = second.join().unwrap();
        [first[0] + second[0], first[1] + second[1]]
    });
    let [good, bad] = found;
    println!("{good} images, {bad} errors");
    assert!(good > count / 50 && bad > count / 4, "{good} and {bad}");
}

#[test]
fn a_whole_file_keeps_to_the_bound_of_its_header() {
    for folder in ["photos", "odd"] {
        let Some(folder) = shared(folder) else { return };
        for (name, file) in images(&folder) {
            check(&name, &file);
        }
    }
    for (name, file) in tiff::good() {
        check(&name, &file);
    }
}

#[test]
fn sides_that_no_image_has_are_refused_and_no_overflow() {
    let mut png = Encoding::Png.encode(&[7; 12], 2, 2).unwrap();
    png[16..24].fill(0xff);
    let mut bmp = vec![0; 60];
    bmp[..2].copy_from_slice(b"BM");
    bmp[10..14].fill(0xff);
    bmp[14] = 40;
    bmp[18..26].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f]);
    bmp[28..30].fill(0xff);
    for file in [png, bmp] {
        assert!(Header::read(&file, Format::ALL, &how().limits).is_err());
    }
}

/// 636 bytes that promise 13,300 times 13,300 pixels in several scans: the image crate takes 1.5 GiB for it.
#[test]
fn a_bomb_takes_no_memory() {
    let mut bomb =
        b"\xff\xd8\xff\xc2\0\x11\x08\x33\xf4\x33\xf4\x03\x01\x11\0\x02\x11\0\x03\x11\0".to_vec();
    bomb.extend(b"\xff\xda\0\x08\x01\x01\0\0\0\0\0\xff\xd9");
    let limits = ImageLimits {
        pixels: 1 << 28,
        ..ImageLimits::DEFAULT
    };
    let how = Preparation { limits, ..how() };
    let (result, most) = most_of(|| Preparer::new(how).prepare(&bomb));
    assert!(result.unwrap_err().to_string().contains("decoder_bytes"));
    assert!(most < 1 << 16, "{most}");
}
