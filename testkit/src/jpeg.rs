//! A small baseline JPEG encoder, so that tests and benches have JPEGs without files or a codec that writes them.
//!
//! ITU-T T.81: the quantisation tables of annex K.1 scaled as libjpeg does, the luminance Huffman tables of annex K.3
//! for all components. Written to be read, not to be fast.
#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]

use std::f32::consts::PI;

const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];
const LUMINANCE: [u16; 64] = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113,
    92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
];
const DC_COUNTS: [u8; 16] = [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0];
const DC_VALUES: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
const AC_COUNTS: [u8; 16] = [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d];
/// The first 38 of the 162 values; the rest are in order, see [`ac_values`].
const AC_FIRST: [u8; 38] = [
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07,
    0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0,
    0x24, 0x33, 0x62, 0x72, 0x82, 0x09,
];

/// Encoding of an image.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// 1 to 100.
    pub quality: u16,
    /// Colour has half the columns and rows (4:2:0).
    pub halved_colour: bool,
    /// Blocks of units between restart markers, 0 for none.
    pub restart: u16,
}

/// Encodes u8 RGB `[height, width, 3]`.
pub fn encode(pixels: &[u8], width: usize, height: usize, options: Options) -> Vec<u8> {
    let table = LUMINANCE.map(|q| quantum(q, options.quality));
    let unit = if options.halved_colour { 16 } else { 8 };
    let mut bytes = vec![0xff, 0xd8];
    headers(&mut bytes, &table, [width, height], options);
    let mut writer = Writer::new(bytes);
    let planes = Planes {
        pixels,
        width,
        height,
    };
    let mut previous = [0; 3];
    let (rows, columns) = (height.div_ceil(unit), width.div_ceil(unit));
    for index in 0..rows * columns {
        let (y, x) = (index / columns * unit, index % columns * unit);
        if options.restart > 0 && index > 0 && index % usize::from(options.restart) == 0 {
            let number = (index / usize::from(options.restart) - 1) % 8;
            writer.restart(u8::try_from(number).unwrap());
            previous = [0; 3];
        }
        for (component, previous) in previous.iter_mut().enumerate() {
            let step = if component > 0 && unit == 16 { 2 } else { 1 };
            let blocks = unit / 8 / step;
            for block in 0..blocks * blocks {
                let corner = [x + block % blocks * 8, y + block / blocks * 8];
                let samples = planes.block(component, corner, step);
                writer.block(&coefficients(&samples, &table), previous);
            }
        }
    }
    writer.finish()
}

fn quantum(base: u16, quality: u16) -> u16 {
    let scale = if quality < 50 {
        5000 / quality
    } else {
        200 - quality * 2
    };
    ((base * scale + 50) / 100).clamp(1, 255)
}

fn headers(bytes: &mut Vec<u8>, table: &[u16; 64], sides: [usize; 2], options: Options) {
    let mut segment = |marker: u8, content: &[u8]| {
        bytes.extend([0xff, marker]);
        bytes.extend(u16::try_from(content.len() + 2).unwrap().to_be_bytes());
        bytes.extend(content);
    };
    segment(0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    let quanta = ZIGZAG.map(|i| u8::try_from(table[i]).unwrap());
    segment(0xdb, &[&[0][..], &quanta].concat());
    let [width, height] = sides.map(|side| u16::try_from(side).unwrap().to_be_bytes());
    let first = if options.halved_colour { 0x22 } else { 0x11 };
    let components = [3, 1, first, 0, 2, 0x11, 0, 3, 0x11, 0];
    segment(0xc0, &[&[8][..], &height, &width, &components].concat());
    segment(0xc4, &[&[0][..], &DC_COUNTS, &DC_VALUES].concat());
    segment(0xc4, &[&[0x10][..], &AC_COUNTS, &ac_values()].concat());
    if options.restart > 0 {
        segment(0xdd, &options.restart.to_be_bytes());
    }
    segment(0xda, &[3, 1, 0, 2, 0, 3, 0, 0, 63, 0]);
}

/// Run and size of each code, by its length and then its place.
fn ac_values() -> Vec<u8> {
    let mut values = AC_FIRST.to_vec();
    for run in 0..16 {
        values.extend(
            (0..=10)
                .map(|size| run << 4 | size)
                .filter(|v| !AC_FIRST.contains(v) && v & 15 != 0),
        );
    }
    values
}

struct Planes<'a> {
    pixels: &'a [u8],
    width: usize,
    height: usize,
}

impl Planes<'_> {
    /// 64 samples of a component (JFIF, section 7) less 128, each the mean of `step` times `step` pixels.
    fn block(&self, component: usize, [x, y]: [usize; 2], step: usize) -> [f32; 64] {
        std::array::from_fn(|i| {
            let mut sum = 0.0;
            for part in 0..step * step {
                let column = (x + i % 8 * step + part % step).min(self.width - 1);
                let row = (y + i / 8 * step + part / step).min(self.height - 1);
                let at = (row * self.width + column) * 3;
                let [r, g, b] = [0, 1, 2].map(|c| f32::from(self.pixels[at + c]));
                sum += match component {
                    0 => 0.299 * r + 0.587 * g + 0.114 * b - 128.0,
                    1 => -0.168_736 * r - 0.331_264 * g + 0.5 * b,
                    _ => 0.5 * r - 0.418_688 * g - 0.081_312 * b,
                };
            }
            sum / (step * step) as f32
        })
    }
}

/// The quantised cosine transform, in zigzag order (annex A.3.3).
fn coefficients(samples: &[f32; 64], table: &[u16; 64]) -> [i32; 64] {
    let cosine = |x: usize, u: usize| ((2 * x + 1) as f32 * u as f32 * PI / 16.0).cos();
    let scale = |u: usize| if u == 0 { 0.5_f32.sqrt() } else { 1.0 } / 2.0;
    let basis: [[f32; 8]; 8] =
        std::array::from_fn(|u| std::array::from_fn(|x| scale(u) * cosine(x, u)));
    let rows: [f32; 64] = std::array::from_fn(|i| {
        let (y, u) = (i / 8, i % 8);
        (0..8).map(|x| samples[y * 8 + x] * basis[u][x]).sum()
    });
    ZIGZAG.map(|i| {
        let (v, u) = (i / 8, i % 8);
        let sum: f32 = (0..8).map(|y| rows[y * 8 + u] * basis[v][y]).sum();
        (sum / f32::from(table[i])).round() as i32
    })
}

/// Huffman codes into bits into bytes.
struct Writer {
    bytes: Vec<u8>,
    bits: u64,
    count: u32,
    dc: [(u16, u32); 256],
    ac: [(u16, u32); 256],
}

impl Writer {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            bits: 0,
            count: 0,
            dc: codes(&DC_COUNTS, &DC_VALUES),
            ac: codes(&AC_COUNTS, &ac_values()),
        }
    }

    fn put(&mut self, value: u32, length: u32) {
        self.bits = self.bits << length | u64::from(value);
        self.count += length;
        while self.count >= 8 {
            self.count -= 8;
            let byte = u8::try_from(self.bits >> self.count & 0xff).unwrap();
            self.bytes.push(byte);
            if byte == 0xff {
                self.bytes.push(0);
            }
        }
    }

    /// Fills the last byte with ones.
    fn align(&mut self) {
        if self.count > 0 {
            self.put((1 << (8 - self.count)) - 1, 8 - self.count);
        }
        self.bits = 0;
    }

    fn restart(&mut self, number: u8) {
        self.align();
        self.bytes.extend([0xff, 0xd0 + number]);
    }

    fn block(&mut self, block: &[i32; 64], previous: &mut i32) {
        let (value, size) = magnitude(block[0] - *previous);
        *previous = block[0];
        let (code, length) = self.dc[size as usize];
        self.put(code.into(), length);
        self.put(value, size);
        let mut run = 0;
        for coefficient in &block[1..] {
            if *coefficient == 0 {
                run += 1;
                continue;
            }
            while run > 15 {
                let (code, length) = self.ac[0xf0];
                self.put(code.into(), length);
                run -= 16;
            }
            let (value, size) = magnitude(*coefficient);
            let (code, length) = self.ac[run << 4 | size as usize];
            self.put(code.into(), length);
            self.put(value, size);
            run = 0;
        }
        if run > 0 {
            let (code, length) = self.ac[0];
            self.put(code.into(), length);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.align();
        self.bytes.extend([0xff, 0xd9]);
        self.bytes
    }
}

/// A value's bits and how many (annex F.1.2.1).
fn magnitude(value: i32) -> (u32, u32) {
    let size = 32 - value.unsigned_abs().leading_zeros();
    let bits = if value < 0 { value - 1 } else { value };
    (bits.cast_unsigned() & ((1 << size) - 1), size)
}

/// Code and length of each value (annex C).
fn codes(counts: &[u8; 16], values: &[u8]) -> [(u16, u32); 256] {
    let mut table = [(0, 0); 256];
    let (mut code, mut next) = (0_u32, values.iter());
    for (length, count) in (1..).zip(counts) {
        for value in next.by_ref().take(usize::from(*count)) {
            table[usize::from(*value)] = (u16::try_from(code).unwrap(), length);
            code += 1;
        }
        code <<= 1;
    }
    table
}
