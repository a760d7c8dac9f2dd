//! Kernels against their references on the CPU: equal bit for bit.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use feedline_loader::{
    Error,
    device::{
        ChannelOrder, ColumnLayout, Driver as _, Mix, Normalize, PADDING, RowPlace, TokenPiece,
        cuda::{Cuda, CudaMemory, Kernels},
        gather_rows, gather_tokens, to_bf16,
    },
};
use serde_json::json;

use crate::Report;

struct Bench<'a> {
    cuda: &'a Cuda,
    kernels: Kernels,
    stream: Arc<CudaStream>,
    random: Random,
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: u32) -> u32 {
        u32::try_from(self.next() % u64::from(most)).unwrap_or_default()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

pub(crate) fn check(cuda: &Cuda, report: &mut Report) -> Result<(), Error> {
    let mut bench = Bench {
        cuda,
        kernels: Kernels::load(cuda)?,
        stream: cuda.compute_stream()?,
        random: Random(7),
    };
    // Units of 16, 4 and 1 bytes.
    for (row_bytes, offset) in [(128, 0), (400, 64), (12, 4), (7, 3)] {
        let wrong = bench.rows(row_bytes, offset)?;
        report.must(
            "gather_rows",
            wrong == 0,
            json!({ "row_bytes": row_bytes, "wrong_bytes": wrong }),
        );
    }
    for token_bytes in [2, 4] {
        let wrong = bench.tokens(token_bytes)?;
        report.must(
            "gather_tokens",
            wrong == 0,
            json!({ "token_bytes": token_bytes, "wrong_tokens": wrong }),
        );
    }
    for order in [ChannelOrder::First, ChannelOrder::Last] {
        for is_mixed in [false, true] {
            let (wrong, wrong_bf16) = bench.images(order, is_mixed)?;
            let details = json!({ "order": order, "mixed": is_mixed, "wrong_f32": wrong, "wrong_bf16": wrong_bf16 });
            report.must("normalize", wrong + wrong_bf16 == 0, details);
        }
    }
    Ok(())
}

impl Bench<'_> {
    fn send(&self, bytes: &[u8]) -> Result<CudaMemory, Error> {
        let memory = self.cuda.allocate(bytes.len())?;
        self.cuda.write(bytes, &memory, 0)?;
        Ok(memory)
    }

    fn rows(&mut self, row_bytes: usize, offset: usize) -> Result<usize, Error> {
        let (slots, rows) = (9, 1_000);
        let slot_bytes = (offset + rows as usize * row_bytes).next_multiple_of(if row_bytes == 7 {
            1
        } else {
            16
        });
        let column = ColumnLayout {
            slot_bytes,
            slots,
            offset,
            rows,
            row_bytes,
        };
        let window = self.random.bytes(slot_bytes * slots as usize);
        // Some places are outside the window.
        let places: Vec<RowPlace> = (0..5_000)
            .map(|_| [self.random.below(slots + 1), self.random.below(rows + 10)])
            .collect();
        let mut expected = vec![0; places.len() * row_bytes];
        gather_rows(&window, &column, &places, &mut expected);
        let (window, out) = (self.send(&window)?, self.cuda.allocate(expected.len())?);
        let sent = self.send(bytemuck::cast_slice(&places))?;
        let all = (&out, 0..expected.len());
        self.kernels.gather_rows(
            &self.stream,
            &window,
            &column,
            (&sent, 0..sent.bytes()),
            all,
        )?;
        Ok(differences(
            &expected,
            &self.cuda.read(&out, 0..expected.len(), &self.stream)?,
        ))
    }

    fn tokens(&mut self, row_bytes: usize) -> Result<usize, Error> {
        let (slots, rows) = (5, 4_096);
        let slot_bytes = 64 + rows as usize * row_bytes;
        let column = ColumnLayout {
            slot_bytes,
            slots,
            offset: 64,
            rows,
            row_bytes,
        };
        let window = self.random.bytes(slot_bytes * slots as usize);
        let mut pieces: Vec<TokenPiece> = Vec::new();
        let mut end = 0;
        while pieces.len() < 700 {
            let length = self.random.below(900);
            let slot = if pieces.len().is_multiple_of(9) {
                PADDING
            } else {
                self.random.below(slots)
            };
            pieces.push([slot, self.random.below(rows), end, end + length]);
            end += length;
        }
        let mut expected = vec![0_u32; end as usize];
        gather_tokens(&window, &column, &pieces, 12_345, &mut expected);
        let (window, out) = (self.send(&window)?, self.cuda.allocate(4 * expected.len())?);
        let sent = self.send(bytemuck::cast_slice(&pieces))?;
        let all = (&out, 0..out.bytes());
        self.kernels.gather_tokens(
            &self.stream,
            &window,
            &column,
            (&sent, 0..sent.bytes()),
            12_345,
            all,
        )?;
        let found = self.cuda.read(&out, 0..out.bytes(), &self.stream)?;
        Ok(differences(bytemuck::cast_slice(&expected), &found))
    }

    fn images(&mut self, order: ChannelOrder, is_mixed: bool) -> Result<(usize, usize), Error> {
        let (count, height, width) = (13, 37, 53);
        let normalize = Normalize::new(
            height,
            width,
            order,
            [0.485, 0.456, 0.406],
            [0.229, 0.224, 0.225],
        );
        let images = self.random.bytes(count as usize * normalize.values());
        let mixes: Vec<Mix> = (0..if is_mixed { count } else { 0 })
            .map(|n| self.mix(n, count, height, width))
            .collect();
        let mut expected = vec![0.0_f32; images.len()];
        normalize.apply(&images, &mixes, &mut expected);
        let rounded: Vec<u16> = expected.iter().copied().map(to_bf16).collect();
        let mix_bytes: Vec<u8> = mixes.iter().flat_map(|mix| mix.to_bytes()).collect();
        let (sent, mixes) = (self.send(&images)?, self.send(&mix_bytes)?);
        let mixes = || is_mixed.then(|| (&mixes, 0..mixes.bytes()));
        let (f32s, bf16s) = (
            self.cuda.allocate(4 * images.len())?,
            self.cuda.allocate(2 * images.len())?,
        );
        let all = (&sent, 0..sent.bytes());
        self.kernels.normalize_f32(
            &self.stream,
            &normalize,
            all.clone(),
            mixes(),
            (&f32s, 0..f32s.bytes()),
        )?;
        self.kernels.normalize_bf16(
            &self.stream,
            &normalize,
            all,
            mixes(),
            (&bf16s, 0..bf16s.bytes()),
        )?;
        let found = self.cuda.read(&f32s, 0..f32s.bytes(), &self.stream)?;
        let found_bf16 = self.cuda.read(&bf16s, 0..bf16s.bytes(), &self.stream)?;
        Ok((
            differences(bytemuck::cast_slice(&expected), &found),
            differences(bytemuck::cast_slice(&rounded), &found_bf16),
        ))
    }

    fn mix(&mut self, n: u32, count: u32, height: u32, width: u32) -> Mix {
        let (top, left) = (self.random.below(height), self.random.below(width));
        match n % 3 {
            0 => Mix::NONE,
            1 => Mix {
                partner: self.random.below(count),
                weight: 0.3,
                ..Mix::NONE
            },
            _ => Mix {
                partner: self.random.below(count),
                weight: 1.0,
                rows: [top, height],
                pixels: [left, left + 9],
            },
        }
    }
}

fn differences(expected: &[u8], found: &[u8]) -> usize {
    assert_eq!(expected.len(), found.len());
    expected.iter().zip(found).filter(|(a, b)| a != b).count()
}
