//! Callers that do not want to wait for as long as it takes.

use std::{task::Poll, time::Duration};

use feedline_storage::{Effect, Faults, Operation, Rule, Store};

use super::{SHARDS, config, dataset::publish_train, open, samples};

#[tokio::test]
async fn waiting_in_small_pieces_gives_the_same_batches() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let loader = open(&store, &config(100)).await;
    let whole: Vec<_> = loader
        .epoch(loader.start_state())
        .unwrap()
        .map(|batch| samples(&batch.unwrap()))
        .collect();
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    let mut pieces = Vec::new();
    loop {
        match batches.next_within(Duration::from_micros(50)) {
            Poll::Pending => {}
            Poll::Ready(Some(batch)) => pieces.push(samples(&batch.unwrap())),
            Poll::Ready(None) => break,
        }
    }
    assert_eq!(pieces, whole);
    assert!(matches!(
        batches.next_within(Duration::ZERO),
        Poll::Ready(None)
    ));
}

#[tokio::test]
async fn a_read_that_hangs_does_not_keep_the_caller() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let hang = Rule {
        operation: Operation::Read,
        path_contains: "shards/".into(),
        skip: 0,
        times: u64::MAX,
        effect: Effect::Delay(Duration::from_secs(3600)),
    };
    let loader = open(&store.with_faults(Faults::new(vec![hang])), &config(100)).await;
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    for _ in 0..3 {
        assert!(batches.next_within(Duration::from_millis(1)).is_pending());
    }
    assert_eq!(
        batches.remaining(),
        loader.batches_per_epoch(),
        "nothing was given and nothing is lost"
    );
}
