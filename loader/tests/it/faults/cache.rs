//! Sources that go away under the loader, and what the cache must not do about it.

use std::fs::File;

use feedline_loader::Error;
use feedline_storage::{Store, StoreOptions};

use crate::{SHARDS, config, dataset::publish_train, open, samples};

/// Only the cache's own files are mapped. A source is read, so a truncated one is an error and not
/// a signal.
#[tokio::test]
async fn fault_22_a_source_cut_short_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    let manifest = publish_train(&store, SHARDS).await;
    let mut config = config(16);
    // Nothing is read ahead, so that most of the shards is still to be read.
    config.prefetch_bytes = 0;
    let loader = open(&store, &config).await;
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    let first = samples(&batches.next().unwrap().unwrap());
    assert_eq!(first.len(), 16);
    for shard in &manifest.splits[0].shards {
        let file = File::options()
            .write(true)
            .open(folder.path().join(&shard.path));
        file.unwrap().set_len(shard.blocks[0].offset + 100).unwrap();
    }
    let error = batches.find_map(Result::err).unwrap();
    assert!(matches!(error, Error::ShardTruncated { .. }), "{error}");
}
