//! Order of sources that depend on others.

use feedline_schemas::config::SourceConfig;

use crate::backfill::depth;

/// Groups the sources into waves, one after the other. A source that gets values from another one
/// is in a later wave.
pub(super) fn waves<'a>(
    chosen: &[(usize, &'a SourceConfig)],
    all: &[SourceConfig],
) -> Vec<Vec<(usize, &'a SourceConfig)>> {
    let mut waves: Vec<Vec<_>> = Vec::new();
    for (index, source) in chosen {
        let depth = depth(source, all).unwrap_or_default();
        waves.resize_with(waves.len().max(depth + 1), Vec::new);
        waves[depth].push((*index, *source));
    }
    waves
}
