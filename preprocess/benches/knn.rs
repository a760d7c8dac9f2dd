//! Measures how fast missing cells are filled from their nearest rows, all rows being the reference.
//!
//! `cargo bench -p feedline-preprocess --bench knn [-- ROWS COLUMNS THREADS [IN.f64 OUT.f64]]`, by default 20,000 rows of 50
//! columns, a tenth of the cells missing, on two threads. `IN.f64` are the cells row by row, eight bytes each, NaN where
//! missing; what they become is written to `OUT.f64`, for a comparison with another program. Prints a line of JSON.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::cast_precision_loss, reason = "counts and draws are small")]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{fs, thread, time::Instant};

use feedline_preprocess::knn::Neighbours;
use feedline_schemas::config::NeighbourWeights;

const NEIGHBOURS: usize = 5;

/// Rows that a thread fills at a time, as many as a batch of a build has.
const BATCH: usize = 8192;

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn main() {
    let is_bench = std::env::args().any(|a| a == "--bench");
    let arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let arguments: Vec<String> = arguments.collect();
    let number = |at: usize| arguments.get(at).and_then(|a| a.parse().ok());
    let rows: usize = number(0).unwrap_or(if is_bench { 20_000 } else { 50 });
    let columns: usize = number(1).unwrap_or(50);
    let threads: usize = number(2).unwrap_or(2).max(1);
    let table = match arguments.get(3) {
        Some(path) => read(&fs::read(path).unwrap(), columns),
        None => generated(rows, columns),
    };
    let means: Vec<f64> = table.iter().map(|cells| mean(cells)).collect();
    let missing = table.iter().flatten().filter(|x| x.is_nan()).count();

    let began = Instant::now();
    let neighbours = Neighbours::new(table.clone(), means, NEIGHBOURS, NeighbourWeights::Uniform);
    let rows = table[0].len();
    let mut batches: Vec<Vec<Vec<f64>>> = (0..rows)
        .step_by(BATCH.min(rows.div_ceil(threads)))
        .map(|first| {
            let end = (first + BATCH.min(rows.div_ceil(threads))).min(rows);
            table
                .iter()
                .map(|cells| cells[first..end].to_vec())
                .collect()
        })
        .collect();
    let share = batches.len().div_ceil(threads);
    thread::scope(|scope| {
        for batches in batches.chunks_mut(share) {
            let neighbours = &neighbours;
            scope.spawn(move || batches.iter_mut().for_each(|batch| neighbours.fill(batch)));
        }
    });
    let seconds = began.elapsed().as_secs_f64();

    if let Some(path) = arguments.get(4) {
        let mut bytes = Vec::with_capacity(8 * rows * columns);
        for batch in &batches {
            for row in 0..batch[0].len() {
                bytes.extend(batch.iter().flat_map(|cells| cells[row].to_le_bytes()));
            }
        }
        fs::write(path, bytes).unwrap();
    }
    let cells_per_s = missing as f64 / seconds;
    println!(
        "{{\"rows\": {rows}, \"columns\": {columns}, \"threads\": {threads}, \"missing\": {missing}, \"seconds\": {seconds:.3}, \"cells_per_s\": {cells_per_s:.0}}}"
    );
}

fn mean(cells: &[f64]) -> f64 {
    let there: Vec<f64> = cells.iter().copied().filter(|x| x.is_finite()).collect();
    there.iter().sum::<f64>() / there.len().max(1) as f64
}

/// Column by column, from cells row by row.
fn read(bytes: &[u8], columns: usize) -> Vec<Vec<f64>> {
    let cells: Vec<f64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f64::from_le_bytes(*bytes))
        .collect();
    let column = |c: usize| cells.iter().skip(c).step_by(columns).copied().collect();
    (0..columns).map(column).collect()
}

/// Sums of a few hidden numbers of each row, and noise.
fn generated(rows: usize, columns: usize) -> Vec<Vec<f64>> {
    const HIDDEN: usize = 5;
    let draw = |a: usize, b: usize| {
        let mut x = (a as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (b as u64 + 1) << 17;
        for _ in 0..3 {
            x ^= x >> 31;
            x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        (x >> 11) as f64 / (1_u64 << 53) as f64
    };
    let cell = |row: usize, column: usize| {
        if draw(row, 1000 + column) < 0.1 {
            return f64::NAN;
        }
        let parts = (0..HIDDEN).map(|h| (draw(row, h) - 0.5) * (draw(column, 500 + h) - 0.5));
        parts.sum::<f64>() + 0.1 * draw(row, 2000 + column)
    };
    let column = |column: usize| (0..rows).map(|row| cell(row, column)).collect();
    (0..columns).map(column).collect()
}
