//! Count of the cells that differ from a feature that was the same in all earlier rows.
//!
//! Moments cannot distinguish one extreme cell from many small ones. So the shards are read once more where it matters, which is
//! seldom.

use std::{io::Cursor, sync::Arc};

use arrow::ipc::reader::FileReader;
use bytes::Bytes;
use feedline_schemas::manifest::{Shard, Split, SplitShards};
use feedline_storage::Store;

use super::{Measured, ShardIndex, blocking, check_content, training_cells::TrainingCells};
use crate::Error;

impl ShardIndex {
    /// Counts the training rows of the shards of this index, those of `splits`, that differ from a feature that was the same in
    /// all rows `before`, if they may be few.
    pub(crate) async fn count_unlike(
        &mut self,
        before: &Self,
        dataset: &Store,
        splits: &[SplitShards],
    ) -> Result<(), Error> {
        let constants = self.constants_to_count(before);
        if constants.is_empty() {
            return Ok(());
        }
        self.unlike = constants.iter().map(|(place, _)| (*place, 0)).collect();
        let training = splits.iter().filter(|split| split.split == Split::Train);
        let shards: Vec<Shard> = training.flat_map(|split| split.shards.clone()).collect();
        for shard in shards {
            let bytes = dataset.get(&shard.path).await?;
            let url = dataset.url_of(&shard.path);
            let wanted = Arc::clone(&constants);
            let work = move || {
                check_content(&bytes, &shard, &url)?;
                count_unlike(&bytes, &wanted)
            };
            let counts = blocking(work).await?;
            for (all, count) in self.unlike.values_mut().zip(counts) {
                *all += count;
            }
        }
        Ok(())
    }

    /// Places of the features to count, ascending, each with its earlier value.
    fn constants_to_count(&self, before: &Self) -> Arc<[(usize, f64)]> {
        let features = before.moments.iter().zip(&self.moments).enumerate();
        let constants = features.filter_map(|(place, (old, new))| {
            let value = Measured::of(*old).constant_to_count(&Measured::of(*new))?;
            Some((place, value))
        });
        constants.collect()
    }
}

/// Counts the cells of a shard that differ from each of `constants`.
fn count_unlike(bytes: &Bytes, constants: &[(usize, f64)]) -> Result<Vec<u64>, Error> {
    let mut counts = vec![0; constants.len()];
    for batch in FileReader::try_new(Cursor::new(bytes), None)? {
        let batch = batch?;
        let TrainingCells { x, width, y } = TrainingCells::of(&batch)?;
        let targets = y.len().checked_div(batch.num_rows()).unwrap_or_default();
        for (count, (place, constant)) in counts.iter_mut().zip(constants) {
            let (cells, width, place) = match place.checked_sub(width) {
                None => (x, width, *place),
                Some(target) => (y, targets, target),
            };
            let cells = cells.iter().skip(place).step_by(width.max(1));
            let unlike = cells.filter(|cell| (f64::from(**cell) - constant).abs() > 0.0);
            *count += unlike.count() as u64;
        }
    }
    Ok(counts)
}
