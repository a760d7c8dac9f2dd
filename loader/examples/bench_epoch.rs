//! Measures epochs of rows from a consumer that keeps the row number of each, and prints one JSON line per epoch:
//! `bench_epoch URL BATCH EPOCHS`. `bench/loader` compares it with other loaders.
#![expect(clippy::print_stdout, reason = "results are for a program")]

use std::{error::Error, sync::Arc, time::Duration};

use feedline_loader::{Loader, LoaderConfig};
use feedline_schemas::{ids::Seed, manifest::Split};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock, SystemClock},
};

/// Rows of a source block, for the measure of mixing.
const BLOCK: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, batch, epochs] = arguments.as_slice() else {
        return Err("usage: bench_epoch URL BATCH EPOCHS".into());
    };
    let (batch, epochs): (u32, u64) = (batch.parse()?, epochs.parse()?);
    let start = SystemClock.monotonic();
    let store = Store::open(url, &StoreOptions::default())?;
    let config = LoaderConfig::new(Split::Train, Seed::new(1), batch);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let loader = runtime.block_on(Loader::open(&store, &config, Arc::new(SystemClock)))?;
    let mut state = loader.start_state();
    for epoch in 0..epochs {
        let start = if epoch == 0 {
            start
        } else {
            SystemClock.monotonic()
        };
        let mut first = None;
        let mut order = Vec::new();
        for batch in loader.epoch(state.clone())? {
            let batch = batch?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "row numbers are small integers"
            )]
            let numbers = batch
                .x()
                .chunks_exact(batch.features())
                .map(|x| x[0] as u32);
            order.push(numbers.collect::<Vec<_>>());
            first.get_or_insert_with(|| SystemClock.monotonic() - start);
        }
        let time = SystemClock.monotonic() - start;
        report(&order, first.unwrap_or_default(), time, loader.samples());
        state = loader.next_epoch(&state);
    }
    println!("{}", serde_json::to_string(&loader.metrics())?);
    Ok(())
}

fn report(order: &[Vec<u32>], first: Duration, time: Duration, samples: u64) {
    let rows: usize = order.iter().map(Vec::len).sum();
    let after_first = rows - order.first().map_or(0, Vec::len);
    let blocks: usize = order
        .iter()
        .map(|batch| distinct(batch.iter().map(|n| n / BLOCK)))
        .sum();
    let once = rows as u64 == samples && distinct(order.iter().flatten().copied()) == rows;
    println!(
        "{{\"samples_per_s\":{:.0},\"steady_per_s\":{:.0},\"first_batch_ms\":{:.3},\"exactly_once\":{once},\
         \"blocks_per_batch\":{:.1}}}",
        rows as f64 / time.as_secs_f64(),
        after_first as f64 / (time - first).as_secs_f64(),
        first.as_secs_f64() * 1e3,
        blocks as f64 / order.len() as f64,
    );
}

fn distinct(values: impl Iterator<Item = u32>) -> usize {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}
