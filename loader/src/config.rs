//! Settings of a loader.

use feedline_schemas::{
    ids::{Rank, Seed},
    manifest::Split,
};

use crate::Error;

/// Settings of a loader. Those marked "order" decide which samples a batch holds and must be the same on every rank
/// and when resuming; the others may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Split to read.
    pub split: Split,
    /// Order: seed of the shuffle.
    pub seed: Seed,
    /// Order: samples in a global batch, over all ranks together, at least 1.
    pub global_batch: u32,
    /// Which of the ranks this is, below `world_size`. Default 0.
    pub rank: Rank,
    /// Number of ranks, at least 1. Default 1.
    pub world_size: u32,
    /// Order: locality domains, 1 to 65,536. A rank reads only the blocks of the domains its share of the batch comes
    /// from, so more domains let more ranks read little. Shrinks to the largest number that divides `global_batch` and
    /// for which there are enough blocks. Default 64.
    pub domains: u32,
    /// Order: blocks per shuffle window of each domain, 1 to 65,536; grows by as much as the domains shrink. Samples
    /// are shuffled among `domains * window_blocks` blocks at a time: more mix better and take more memory. Default 8.
    pub window_blocks: u32,
    /// Most bytes of blocks in memory or on their way. When the windows of one batch alone are larger, they are held
    /// all the same, with a warning, and nothing is read ahead. Default 1 GiB.
    pub prefetch_bytes: u64,
    /// Batches that can be filled, ready or in use at one time, 2 to 64; their memory is allocated once. Default 3.
    pub slabs: u32,
}

impl LoaderConfig {
    /// Settings for one rank, with the defaults.
    #[must_use]
    pub const fn new(split: Split, seed: Seed, global_batch: u32) -> Self {
        Self {
            split,
            seed,
            global_batch,
            rank: Rank::new(0),
            world_size: 1,
            domains: 64,
            window_blocks: 8,
            prefetch_bytes: 1 << 30,
            slabs: 3,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |key, reason: String| Err(Error::Config { key, reason });
        let outside = |value: u32, least: u32, most: u32| {
            (!(least..=most).contains(&value))
                .then(|| format!("it is `{value}`, use `{least}` to `{most}`"))
        };
        if let Some(reason) = outside(self.global_batch, 1, 1 << 30) {
            return refuse("global_batch", reason);
        }
        if self.rank.get() >= self.world_size {
            let (rank, world) = (self.rank, self.world_size);
            return refuse(
                "rank",
                format!("rank `{rank}` is not one of `{world}` ranks, which count from 0"),
            );
        }
        if let Some(reason) = outside(self.domains, 1, 1 << 16) {
            return refuse("domains", reason);
        }
        if let Some(reason) = outside(self.window_blocks, 1, 1 << 16) {
            return refuse("window_blocks", reason);
        }
        match outside(self.slabs, 2, 64) {
            Some(reason) => refuse("slabs", reason),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let check = |change: fn(&mut LoaderConfig), message: &str| {
            let mut config = LoaderConfig::new(Split::Train, Seed::new(0), 8);
            assert!(config.check().is_ok());
            change(&mut config);
            assert_eq!(
                config.check().unwrap_err().to_string(),
                format!("cannot use loader setting {message}")
            );
        };
        check(
            |c| c.global_batch = 0,
            "`global_batch`: it is `0`, use `1` to `1073741824`",
        );
        check(
            |c| c.rank = Rank::new(1),
            "`rank`: rank `1` is not one of `1` ranks, which count from 0",
        );
        check(
            |c| c.domains = 0,
            "`domains`: it is `0`, use `1` to `65536`",
        );
        check(
            |c| c.window_blocks = 65_537,
            "`window_blocks`: it is `65537`, use `1` to `65536`",
        );
        check(|c| c.slabs = 1, "`slabs`: it is `1`, use `2` to `64`");
    }
}
