//! Previews without the secrets of their sources: a server may repeat them in its records.

use std::collections::BTreeMap;

use feedline_http::SecretMasks;

use super::{ColumnPreview, SourcePreview};

impl SourcePreview {
    /// Masks secrets in values, samples and messages.
    pub(super) fn mask(&mut self, masks: &SecretMasks) {
        let samples = [
            &mut self.bad_sample,
            &mut self.rejected_sample,
            &mut self.stop,
            &mut self.error,
        ];
        let texts = samples.into_iter().flatten().chain(&mut self.records);
        let messages = self.warnings.iter_mut().map(|warning| &mut warning.message);
        for text in texts.chain(messages) {
            *text = masks.mask(text);
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
        if let Some(counts) = &mut self.value_counts {
            let mut masked: BTreeMap<String, u64> = BTreeMap::new();
            for (value, count) in std::mem::take(counts) {
                *masked.entry(masks.mask(&value)).or_default() += count;
            }
            *counts = masked;
        }
    }
}
