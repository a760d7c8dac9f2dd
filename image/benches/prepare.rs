//! Measures JPEG files to what a shard holds: shorter side 256 and the centre 224 x 224, as pixels and as JPEG.
//!
//! `cargo bench -p feedline-image --bench prepare [--features turbojpeg] [-- FOLDER [THREADS [STORE [SCALED [OUT]]]]]`.
//! It prepares all `*.jpg` of `FOLDER` in the order of their names, or else generated scenes, on `THREADS` threads
//! (default 2); `STORE` is `raw` (default) or `jpeg` (quality 90); `SCALED` is `whole` (default) or `scaled`, which lets
//! libjpeg-turbo decode at a reduced size. The files go one after another to `OUT`, without PPM headers, if it is named.
//! The last line is a JSON object.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "levels are held to their range"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use feedline_image::{Encoding, Filter, ImageLimits, Preparation, Preparer, Sizing};

fn main() {
    let all: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let is_bench = std::env::args().any(|a| a == "--bench");
    let argument = |at: usize| all.get(at).map(String::as_str);
    let threads: usize = argument(1).map_or(2, |threads| threads.parse().unwrap());
    let store = argument(2).unwrap_or("raw");
    let how = Preparation {
        sizing: Sizing::Crop {
            width: 224,
            height: 224,
            shorter_side: 256,
        },
        filter: Filter::Bilinear,
        encoding: Some(match store {
            "jpeg" => Encoding::Jpeg { quality: 90 },
            _ => Encoding::Raw,
        }),
        keep_original: false,
        limits: ImageLimits::DEFAULT,
        scaled_decoding: argument(3) == Some("scaled"),
        background: Some([255; 3]),
        hashes: false,
    };
    let sources = sources(argument(0), if is_bench { 64 } else { 2 });
    let start = now();
    let mut out = argument(4).map(|out| fs::File::create(out).unwrap());
    let mut bytes = 0;
    prepare(how, &sources, threads, |file| {
        bytes += file.len();
        if let Some(out) = &mut out {
            let skipped = if store == "jpeg" {
                0
            } else {
                header_bytes(file)
            };
            out.write_all(&file[skipped..]).unwrap();
        }
    });
    let seconds = now().duration_since(start).as_secs_f64();
    let rate = sources.len() as f64 / seconds;
    println!(
        "{{\"peer\": \"feedline-{store}\", \"procs\": {threads}, \"images_per_s\": {rate:.1}, \"n\": {}, \"mib\": {:.1}}}",
        sources.len(),
        bytes as f64 / f64::from(1 << 20)
    );
}

/// Bytes before the pixels of a PPM.
fn header_bytes(file: &[u8]) -> usize {
    file.len()
        - feedline_schemas::pnm::Pnm::parse(file)
            .unwrap()
            .pixels
            .len()
}

/// Gives `take` the prepared files in the order of their sources; a few of them wait for an earlier
/// one.
fn prepare(how: Preparation, sources: &[Source], threads: usize, mut take: impl FnMut(&[u8])) {
    let next = AtomicUsize::new(0);
    let (send, prepared) = mpsc::sync_channel::<(usize, Vec<u8>)>(4 * threads);
    thread::scope(|scope| {
        for send in vec![send; threads] {
            let next = &next;
            scope.spawn(move || {
                let mut preparer = Preparer::new(how);
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(source) = sources.get(at) else {
                        return;
                    };
                    let prepared = preparer.prepare(&source.read()).unwrap();
                    send.send((at, prepared.file.unwrap())).unwrap();
                }
            });
        }
        let (mut early, mut due) = (BTreeMap::new(), 0);
        for (at, file) in prepared {
            early.insert(at, file);
            while let Some(file) = early.remove(&due) {
                take(&file);
                due += 1;
            }
        }
        assert_eq!(due, sources.len(), "every file is prepared");
    });
}

enum Source {
    File(PathBuf),
    Made(Vec<u8>),
}

impl Source {
    fn read(&self) -> Vec<u8> {
        match self {
            Self::File(path) => fs::read(path).unwrap(),
            Self::Made(bytes) => bytes.clone(),
        }
    }
}

fn sources(folder: Option<&str>, count: u32) -> Vec<Source> {
    let Some(folder) = folder.map(Path::new) else {
        return (0..count).map(|seed| Source::Made(scene(seed))).collect();
    };
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jpg"));
    paths.sort();
    paths.into_iter().map(Source::File).collect()
}

/// Waves of several lengths and a little noise, as a JPEG of 500 x 400 pixels.
fn scene(seed: u32) -> Vec<u8> {
    let (width, height) = (500, 400);
    let mut noise = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut pixels = Vec::with_capacity((width * height * 3) as usize);
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let grain = (noise >> 28) as f32;
        let wave = |length: f32, turn: f32| ((x as f32 * turn + y as f32) / length).sin();
        for turn in [0.3, 0.8, 1.9] {
            let value = 110.0 + 50.0 * wave(61.0, turn) + 30.0 * wave(9.0, 2.0 * turn) + grain;
            pixels.push(value.clamp(0.0, 255.0) as u8);
        }
    }
    let jpeg = Encoding::Jpeg { quality: 90 };
    jpeg.encode(&pixels, width, height).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}
