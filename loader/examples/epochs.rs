//! Simulates training for two epochs, stops in the middle of the first, and resumes from there.
//!
//! `cargo run -p feedline-loader --example epochs -- [URL]`; without a URL over a small dataset that it makes.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use feedline_loader::{Error, Loader, LoaderState, Split};
use feedline_testkit::numbered_dataset as dataset;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let url = match std::env::args().nth(1) {
        Some(url) => url,
        None => demo(folder.path().to_str().ok_or("the path is not UTF-8")?)?,
    };
    let saved = first_run(&url)?;
    // The state is a few integers; a trainer keeps it in its checkpoint.
    let saved = serde_json::to_string(&saved)?;
    println!("saved: {saved}");
    second_run(&url, serde_json::from_str(&saved)?)?;
    Ok(())
}

fn open(url: &str) -> Result<Loader, Error> {
    Loader::builder(url)
        .split(Split::Train)
        .batch_size(64)
        .seed(7)
        .open_blocking()
}

/// Ends after ten batches, as if it were killed.
fn first_run(url: &str) -> Result<LoaderState, Error> {
    let loader = open(url)?;
    let mut state = loader.start_state();
    for batch in loader.batches()?.take(10) {
        let batch = batch?;
        let mean = batch.x().iter().sum::<f32>() / batch.rows() as f32;
        println!("{} rows, sum of a row {mean:.1} on average", batch.rows());
        state = batch.state().clone();
    }
    Ok(state)
}

/// Resumes, and runs to the end of the next epoch.
fn second_run(url: &str, state: LoaderState) -> Result<(), Error> {
    let loader = open(url)?;
    loader.resume(state)?;
    for _ in 0..2 {
        let epoch = loader.state().epoch;
        let mut rows = 0;
        for batch in loader.batches()? {
            rows += batch?.rows();
        }
        println!("epoch {epoch}: {rows} more rows");
    }
    let metrics = loader.metrics();
    println!(
        "waited {:.3} s for {} batches with {} threads",
        metrics.consumer_wait_seconds, metrics.batches, metrics.decode_threads
    );
    Ok(())
}

/// A dataset of 4,000 rows in `folder`.
fn demo(folder: &str) -> Result<String, Box<dyn std::error::Error>> {
    let store = feedline_storage::Store::open(folder, &Default::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(dataset::publish_train(&store, &[&[250; 16]]));
    Ok(folder.to_owned())
}
