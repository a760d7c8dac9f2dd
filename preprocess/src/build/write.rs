//! Write pass: the fitted transform, applied to the rows of each split, in their order.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{AsArray, RecordBatch};
use datafusion::error::DataFusionError;
use feedline_schemas::{
    manifest::{
        BoxCounts, ClassCounts, NaiveForecast, SequenceCounts, Split, SplitShards, TargetSummary,
    },
    report::Warning,
    transform::{FittedTarget, TransformArtefact},
};
use futures::TryStreamExt;

use super::{
    equal_rows::{EqualRows, hashes_of},
    extremes::{self, Extremes},
    prepared::Build,
    rows::{RowWriter, TextCounts},
    tokenizer::TokenizerFile,
};
use crate::{
    Error, Transform,
    exact_sum::ExactMoments,
    meter::Meter,
    rejects::{RejectWriter, Rejects},
    scratch::Scratch,
    shard::{Leaving, ShardLayout, SplitWriter},
    split::{ShuffleKey, code},
    stage::{Ordered, Staged},
    system_columns,
    tokens::{Encoded, Encoder},
};

/// Fitted transform and encoders.
pub(super) struct Fitted {
    pub(super) transform: Transform,
    /// The tokenizer, where documents become tokens.
    pub(super) tokenizer: Option<TokenizerFile>,
    /// Encoder of documents into ids.
    pub(super) encoder: Option<Encoder>,
}

impl Fitted {
    /// The documents of a batch as ids, where it has some.
    fn encoded(&self, batch: &RecordBatch, column: Option<&str>) -> Result<Encoded, Error> {
        match (&self.encoder, column) {
            (Some(encoder), Some(column)) => {
                encoder.encode(system_columns::column(batch, column).as_string::<i32>())
            }
            _ => Ok(Encoded::default()),
        }
    }
}

/// Result of the write pass.
pub(super) struct Written {
    pub(super) splits: Vec<SplitShards>,
    pub(super) rejects: Rejects,
    /// Counts of the documents of each split.
    pub(super) texts: [TextCounts; 3],
    /// Boxes of all splits; none where images have none.
    pub(super) boxes: Option<BoxCounts>,
    /// Windows, where they are the samples.
    pub(super) sequence: Option<SequenceCounts>,
    /// Errors of naive forecasts on the windows.
    pub(super) naive: Vec<NaiveForecast>,
    /// Infinite cells of numeric features, by column and split.
    pub(super) infinite: SplitCells,
    /// Rows with an unknown value of a category, by column and split.
    pub(super) unknown: SplitCells,
    /// Rows of each split by class id.
    pub(super) classes: [Vec<u64>; 3],
    /// Numeric targets of the training split, as stored, each by itself.
    pub(super) targets: Vec<ExactMoments>,
    /// Largest numbers of each split.
    pub(super) extremes: [Extremes; 3],
    /// A warning of rows of validation and test that equal training rows.
    pub(super) equal: Option<Warning>,
}

impl Written {
    /// The classes of the target of `artefact` with their rows.
    pub(super) fn class_counts(&self, artefact: &TransformArtefact) -> Vec<ClassCounts> {
        let Some(FittedTarget::Classification { classes, .. }) = &artefact.target else {
            return Vec::new();
        };
        let [train, validation, test] = &self.classes;
        let counts = train.iter().zip(validation).zip(test);
        let counts = classes.iter().zip(counts);
        counts
            .map(|(name, ((train, validation), test))| ClassCounts {
                name: name.clone(),
                train: *train,
                validation: *validation,
                test: *test,
            })
            .collect()
    }
}

impl Written {
    /// Warnings of numbers so far out that a column says nothing else.
    pub(super) fn extreme_warnings(&self, artefact: &TransformArtefact) -> Vec<Warning> {
        let train = self.splits.iter().find(|split| split.split == Split::Train);
        let rows = train.map_or(0, |split| split.rows);
        extremes::warnings(artefact, &self.extremes, &self.targets, rows)
    }

    /// The numeric targets of `artefact` over the training rows.
    pub(super) fn target_summaries(&self, artefact: &TransformArtefact) -> Vec<TargetSummary> {
        let targets = artefact.targets().zip(&self.targets);
        let summaries = targets.map(|(target, moments)| Self::summary(artefact, target, moments));
        // Those of several targets are there all or none.
        let summaries: Option<Vec<TargetSummary>> = summaries.collect();
        summaries.unwrap_or_default()
    }

    fn summary(
        artefact: &TransformArtefact,
        target: &FittedTarget,
        moments: &ExactMoments,
    ) -> Option<TargetSummary> {
        let FittedTarget::Regression {
            mean,
            scale,
            offset,
            ..
        } = target
        else {
            return None;
        };
        let stored = moments.summary()?;
        let rows = moments.count();
        // The fitted mean is that of the same rows, and of numbers that 32 bits did not round.
        let mean = match rows == artefact.fitted_rows {
            true => *mean,
            false => stored.mean * scale + offset,
        };
        Some(TargetSummary { rows, mean })
    }
}

/// Cells of some kind of each column in each split, in the order of [`Split::ALL`].
pub(super) type SplitCells = BTreeMap<String, [u64; 3]>;

/// Adds the cells of rows of `split`.
pub(super) fn add_cells(all: &mut SplitCells, split: Split, cells: &BTreeMap<String, u64>) {
    for (column, cells) in cells {
        all.entry(column.clone()).or_default()[usize::from(code(split))] += cells;
    }
}

impl Build<'_> {
    pub(super) async fn write(
        &self,
        staged: &Staged,
        fitted: &Arc<Fitted>,
        layout: &ShardLayout,
        scratch: &Scratch,
    ) -> Result<Written, Error> {
        let meter = Meter::new(&self.context.progress, "shards: write", staged.total());
        let mut rejects = RejectWriter::new(scratch.path("rejects-transform.parquet"));
        // The last shards of a split are stored while the next one fills.
        let mut ended = Vec::with_capacity(3);
        let mut texts = [TextCounts::default(); 3];
        let mut boxes: Option<BoxCounts> = None;
        let (mut infinite, mut unknown) = (SplitCells::new(), SplitCells::new());
        let mut classes: [Vec<u64>; 3] = Default::default();
        let mut targets = Vec::new();
        let mut extremes: [Extremes; 3] = Default::default();
        let unseen = self.unseen_columns(fitted.transform.artefact(), &layout.layout);
        let mut equal = EqualRows::new((!unseen.is_empty()).then(|| staged.total()));
        for (split, texts) in Split::ALL.into_iter().zip(&mut texts) {
            let mut rows = RowWriter::new(&self.spec, &layout.layout, &mut rejects);
            let before = self.there.shards[usize::from(code(split))];
            let writer = SplitWriter::new(&self.store, layout, split).behind(before);
            let shards = self
                .write_split(
                    staged,
                    split,
                    fitted,
                    writer,
                    (&mut rows, &mut equal),
                    &meter,
                )
                .await?;
            *texts = rows.texts;
            classes[usize::from(code(split))] = std::mem::take(&mut rows.classes);
            extremes[usize::from(code(split))] = std::mem::take(&mut rows.extremes);
            if split == Split::Train {
                targets = std::mem::take(&mut rows.targets);
            }
            add_cells(&mut infinite, split, &rows.infinite);
            add_cells(&mut unknown, split, &rows.unknown);
            if let Some(found) = rows.boxes {
                let all = boxes.get_or_insert_default();
                all.kept += found.kept;
                all.lost += found.lost;
            }
            ended.push(shards);
        }
        let mut splits = Vec::with_capacity(3);
        for (split, rows, leaving) in ended {
            splits.push(SplitShards {
                split,
                rows,
                shards: leaving.shards().await?,
                table: None,
            });
        }
        Ok(Written {
            splits,
            rejects: rejects.finish()?,
            texts,
            boxes,
            sequence: None,
            naive: Vec::new(),
            infinite,
            unknown,
            classes,
            targets,
            extremes,
            equal: Box::pin(self.equal_rows(equal, unseen)).await?,
        })
    }

    async fn write_split(
        &self,
        staged: &Staged,
        split: Split,
        fitted: &Arc<Fitted>,
        mut writer: SplitWriter<'_>,
        (each, equal): (&mut RowWriter<'_>, &mut EqualRows),
        meter: &Meter,
    ) -> Result<(Split, u64, Leaving), Error> {
        let sizes = &self.spec.config.shards;
        let shuffle = sizes.shuffle.then(|| ShuffleKey::new(sizes.seed));
        // A profile looks at them once more.
        let is_last = !self.spec.config.profile;
        let text = self.spec.document().map(|text| text.column.as_str());
        let is_hashed = equal.is_asked();
        let applied = staged
            .ordered(split, shuffle, is_last)
            .await?
            .map_err(Error::from)
            .map_ok(|ordered| {
                let fitted = Arc::clone(fitted);
                let text = text.map(str::to_owned);
                async move {
                    let work = move || {
                        let Ordered { rows, numbers } = ordered;
                        let applied = match split {
                            Split::Train => fitted.transform.apply_train(&rows, &numbers)?,
                            _ => fitted.transform.apply_beside(&rows, &numbers)?,
                        };
                        let encoded = fitted.encoded(&rows, text.as_deref())?;
                        let hashes = match is_hashed {
                            true => hashes_of(&fitted.transform, &rows, &numbers, &applied),
                            false => Vec::new(),
                        };
                        Ok((rows, applied, encoded, hashes))
                    };
                    let joined = tokio::task::spawn_blocking(work).await;
                    joined
                        .map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))?
                }
            });
        // Twice as many as work at a time: they continue while finished ones are written.
        let ahead = 2 * self.context.partitions.max(1);
        let mut applied = std::pin::pin!(applied.try_buffered(ahead));
        let mut rows = 0;
        while let Some((batch, values, encoded, hashes)) = applied.try_next().await? {
            rows += each.write(&batch, &values, &encoded, &mut writer).await?;
            equal.add(split, &hashes, &values);
            meter.add(batch.num_rows() as u64);
        }
        Ok((split, rows, writer.end().await?))
    }
}
