//! Previews without the secrets of their sources: a server may repeat them in its records.

use std::collections::BTreeMap;

use feedline_http::SecretMasks;

use super::{ColumnPreview, SourcePreview};
use crate::warnings::mask_warning;

impl SourcePreview {
    /// Masks secrets in values, samples and messages.
    pub(super) fn mask(&mut self, masks: &SecretMasks) {
        let samples = [&mut self.bad_sample, &mut self.rejected_sample];
        for text in samples.into_iter().flatten().chain(&mut self.records) {
            *text = masks.mask(text);
        }
        for warning in &mut self.warnings {
            mask_warning(warning, masks);
        }
        for text in [&mut self.stop, &mut self.error].into_iter().flatten() {
            *text = masks.mask_message(text);
        }
        for column in &mut self.columns {
            column.mask(masks);
        }
    }
}

impl ColumnPreview {
    fn mask(&mut self, masks: &SecretMasks) {
        for sample in &mut self.samples {
            *sample = masks.mask(sample);
        }
        if let Some(numbers) = &mut self.numbers {
            let texts = [&mut numbers.reason, &mut numbers.cell];
            let others = [&mut numbers.place, &mut numbers.number];
            for text in texts.into_iter().chain(others.into_iter().flatten()) {
                *text = masks.mask(text);
            }
        }
        if let Some(counts) = &mut self.value_counts {
            let mut masked: BTreeMap<String, u64> = BTreeMap::new();
            for (value, count) in std::mem::take(counts) {
                *masked.entry(masks.mask(&value)).or_default() += count;
            }
            *counts = masked;
        }
    }
}
