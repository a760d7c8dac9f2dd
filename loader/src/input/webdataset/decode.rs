//! Samples of a block as rows.

use std::sync::Arc;

use bytes::Bytes;
use feedline_schemas::manifest::TargetKind;
use futures::FutureExt;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::{
    label::Label,
    members::SampleMembers,
    rows::{TakenRows, key_in},
    walk::{ArchiveSample, ArchiveWindow, Problem, walk},
};
use crate::input::{
    block_rows::{BlockRows, BlockTarget, DenseRows, ImageRows, Spans},
    warnings::Warnings,
};

/// Reader of the samples of a block.
#[derive(Clone, Debug)]
pub(super) struct SampleDecoder {
    pub(super) wanted: Arc<SampleMembers>,
    pub(super) target: TargetKind,
    /// Numbers of a row; 0 for images.
    pub(super) features: usize,
    pub(super) warnings: Arc<Warnings>,
}

/// Values taken from the samples of a block.
#[derive(Default)]
struct TakenSamples {
    spans: Vec<(usize, usize)>,
    rows: TakenRows,
    keys: Vec<u64>,
    numbers: Vec<f32>,
    /// Targets that are integers that float32 cannot hold, and the member or key of the first of them.
    rounded_targets: u64,
    rounded_label: Option<&'static str>,
    classes: Vec<i32>,
}

impl SampleDecoder {
    /// The `rows` samples of a block whose bytes begin at `start` of the archive. Images stay where they are. `seed` is for
    /// the keys of samples that have none but their name.
    pub(super) fn decode(
        &self,
        bytes: &Bytes,
        start: u64,
        rows: u32,
        seed: u64,
    ) -> Result<BlockRows, String> {
        let mut window = ArchiveWindow {
            source: None,
            start,
            bytes: bytes.clone(),
            end: start + bytes.len() as u64,
        };
        let mut taken = TakenSamples::default();
        let mut unused = Xxh3::new();
        let walked = walk(&mut window, &self.wanted, &mut unused, |sample| {
            self.take(&sample, start, seed, &mut taken)
        });
        match walked.now_or_never() {
            Some(Ok(())) => {}
            Some(Err(Problem::Content(reason))) => return Err(reason),
            Some(Err(Problem::Read(_))) | None => {
                return Err("a member is outside its block".into());
            }
        }
        let found = taken.keys.len();
        if found != rows as usize {
            return Err(format!(
                "it has `{found}` samples, and had `{rows}` when the archive was opened"
            ));
        }
        Ok(self.finish(bytes, taken))
    }

    fn take(
        &self,
        sample: &ArchiveSample,
        start: u64,
        seed: u64,
        taken: &mut TakenSamples,
    ) -> Result<(), String> {
        let mut key = None;
        if let (Some(row), Some(json)) = (&self.wanted.row, &sample.json) {
            let read = row.take(json, self.features, &mut taken.rows);
            key = read.map_err(|reason| format!("sample `{}`: {reason}", sample.key))?;
        } else {
            let image = sample.image.clone().unwrap_or(0..0);
            let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
            taken.spans.push((at(image.start), at(image.end)));
            if let Some(name) = &self.wanted.key {
                let json = sample.json.as_deref().ok_or("it has no member `json`");
                let read = json
                    .map_err(str::to_owned)
                    .and_then(|json| key_in(json, name));
                key = Some(read.map_err(|reason| format!("sample `{}`: {reason}", sample.key))?);
            }
        }
        let name_hash = || xxh3_64_with_seed(sample.key.as_bytes(), seed);
        taken.keys.push(key.unwrap_or_else(name_hash));
        let in_json = sample.json_label.map(|(_, label)| label);
        match (self.target, sample.label.or(in_json)) {
            (TargetKind::None | TargetKind::Regressions { .. }, _) => {}
            (TargetKind::Regression, Some(label)) => {
                if label.is_rounded() {
                    let in_json = sample.json_label.filter(|_| sample.label.is_none());
                    let name = in_json.map_or("cls", |(name, _)| name);
                    taken.rounded_label.get_or_insert(name);
                    taken.rounded_targets += 1;
                }
                taken.numbers.push(label.as_number());
            }
            (TargetKind::Classification { .. }, Some(Label::Integer(class))) => {
                // What does not fit is out of range, and -1 is so too.
                taken.classes.push(i32::try_from(class).unwrap_or(-1));
            }
            _ => return Err(format!("sample `{}` has no label that fits", sample.key)),
        }
        Ok(())
    }

    fn finish(&self, bytes: &Bytes, taken: TakenSamples) -> BlockRows {
        let found = taken.rounded_label.unwrap_or("label");
        let label = self.wanted.label.as_deref().unwrap_or(found);
        self.warnings
            .add_rounded_target(label, taken.rounded_targets);
        let y = match self.target {
            TargetKind::None | TargetKind::Regressions { .. } => BlockTarget::None,
            TargetKind::Regression => BlockTarget::Regression(taken.numbers.into()),
            TargetKind::Classification { .. } => BlockTarget::Classification(taken.classes.into()),
        };
        let (keys, origins, bad) = (taken.keys.into(), Vec::new().into(), Vec::new());
        if self.wanted.row.is_some() {
            taken.rows.warn(&self.warnings);
            return BlockRows::Dense(DenseRows {
                x: taken.rows.x.into(),
                y,
                keys,
                origins,
                bad,
            });
        }
        BlockRows::Images(ImageRows {
            bytes: bytes.clone().into(),
            spans: Spans::Apart(taken.spans),
            y,
            keys,
            origins,
            bad,
        })
    }
}
