//! Measures images, stage by stage, on one thread and on two: JPEGs of 500 x 400 pixels, quality 90, 4:2:0.
//!
//! `cargo bench -p feedline-loader --bench image [--features turbojpeg] [-- SECONDS [FOLDER]]`. They show the JPEGs of
//! `FOLDER`, resized, or else generated scenes; each line is measured for `SECONDS` (default 2).
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
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use feedline_loader::image::{Crop, ImageConfig, ImageDecoder, Normalise, SampleRandom};
use feedline_testkit::jpeg;

const WIDTH: u32 = 500;
const HEIGHT: u32 = 400;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .filter(|a| a != "--bench")
        .skip(1)
        .collect();
    let is_bench = std::env::args().any(|a| a == "--bench");
    let seconds = arguments.first().and_then(|a| a.parse().ok());
    let seconds = seconds.unwrap_or(if is_bench { 2.0 } else { 0.05 });
    let images = images(arguments.get(1).map(String::as_str), is_bench);
    let bytes: usize = images.iter().map(Vec::len).sum();
    println!(
        "{} JPEGs of {WIDTH} x {HEIGHT}, {} KB each, by {}",
        images.len(),
        bytes / images.len() / 1000,
        if cfg!(feature = "turbojpeg") {
            "libjpeg-turbo"
        } else {
            "zune-jpeg"
        }
    );
    let stages = [
        (
            "decode whole, copy",
            ImageConfig::new(HEIGHT, WIDTH, Crop::Whole),
        ),
        (
            "decode, resize whole to 224",
            ImageConfig::new(224, 224, Crop::Whole),
        ),
        (
            "decode, random resized crop 224, flip",
            ImageConfig::training(224, 224),
        ),
        ("decode, centre crop 224", ImageConfig::evaluation(224, 224)),
        (
            "decode, random resized crop 96, flip",
            ImageConfig::training(96, 96),
        ),
    ];
    for (name, config) in &stages {
        for threads in [1, 2] {
            let (rate, each) = rate(&images, config, threads, seconds);
            println!("{name:40} {threads} threads: {rate:8.0} images/s, {each:.3} ms of CPU each");
        }
    }
    normalise(seconds);
}

/// Images a second over all threads, and milliseconds of CPU for each: the second holds on a busy machine too.
fn rate(images: &[Vec<u8>], config: &ImageConfig, threads: u32, seconds: f64) -> (f64, f64) {
    let work = |thread: u32| {
        let mut decoder = ImageDecoder::new(config.clone()).unwrap();
        let mut out = vec![0; config.bytes()];
        let (mut count, start, cpu) = (0_u64, now(), cpu_seconds());
        while elapsed(start).as_secs_f64() < seconds {
            for image in images {
                let mut random = SampleRandom::new(1, thread.into(), count);
                decoder.decode(image, &mut random, &mut out).unwrap();
                count += 1;
            }
        }
        let count = count as f64;
        let cpu = (cpu_seconds() - cpu) * 1000.0 / count;
        (count / elapsed(start).as_secs_f64(), cpu)
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        let (mut rate, mut cpu) = (0.0, 0.0);
        for thread in running {
            let (r, c) = thread.join().unwrap();
            rate += r;
            cpu += c / f64::from(threads);
        }
        (rate, cpu)
    })
}

/// CPU time of this thread; 0 where the system does not report it.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

fn normalise(seconds: f64) {
    let pixels = vec![7; 64 * 224 * 224 * 3];
    let mut out = vec![0.0; pixels.len()];
    let imagenet = Normalise::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]).unwrap();
    for threads in [1, 2] {
        let (mut count, start) = (0, now());
        while elapsed(start).as_secs_f64() < seconds {
            imagenet.apply(&pixels, [224, 224], &mut out, threads);
            count += 64;
        }
        let rate = f64::from(count) / elapsed(start).as_secs_f64();
        println!("normalise 224 to f32 NCHW, {threads} threads: {rate:8.0} images/s");
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

fn elapsed(start: Instant) -> Duration {
    now().duration_since(start)
}

fn images(folder: Option<&str>, is_bench: bool) -> Vec<Vec<u8>> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/images/photos");
    let folder = folder.map_or(shared.as_path(), Path::new);
    let mut paths: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jpg"))
        .collect();
    paths.sort();
    paths.truncate(if is_bench { 64 } else { 2 });
    let scenes: Vec<_> = if paths.is_empty() {
        (0..2).map(scene).collect()
    } else {
        let config = ImageConfig::new(HEIGHT, WIDTH, Crop::Whole);
        let mut decoder = ImageDecoder::new(config).unwrap();
        let mut out = vec![0; decoder.config().bytes()];
        let mut random = SampleRandom::new(0, 0, 0);
        let mut read = |path| {
            let encoded = fs::read(path).unwrap();
            decoder.decode(&encoded, &mut random, &mut out).unwrap();
            out.clone()
        };
        paths.iter().map(&mut read).collect()
    };
    let options = jpeg::Options {
        quality: 90,
        halved_colour: true,
        restart: 0,
    };
    let encode = |pixels| jpeg::encode(pixels, WIDTH as usize, HEIGHT as usize, options);
    scenes
        .iter()
        .map(|pixels| encode(pixels.as_slice()))
        .collect()
}

/// Waves of several lengths and directions, and a little noise.
fn scene(seed: u32) -> Vec<u8> {
    let mut noise = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut pixels = Vec::with_capacity((WIDTH * HEIGHT * 3) as usize);
    for (y, x) in (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (y, x))) {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let grain = (noise >> 28) as f32;
        let wave = |length: f32, turn: f32| {
            ((x as f32 * turn.cos() + y as f32 * turn.sin()) / length).sin()
        };
        for (channel, turn) in [0.3, 0.8, 1.9].into_iter().enumerate() {
            let value = 110.0 + 50.0 * wave(61.0, turn) + 30.0 * wave(9.0, 2.0 * turn) + grain;
            pixels.push((value + 10.0 * channel as f32).clamp(0.0, 255.0) as u8);
        }
    }
    pixels
}
