//! Write pass: the fitted transform, applied to the rows of each split, in their order.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{AsArray, RecordBatch};
use feedline_schemas::{
    manifest::{
        BoxCounts, ClassCounts, NaiveForecast, SequenceCounts, Split, SplitShards, TargetSummary,
    },
    report::Warning,
    transform::{FittedTarget, TransformArtefact},
};
use futures::TryStreamExt;

use super::{
    checks::{
        equal_rows::{EqualRows, hashes_of},
        extremes::{self, Extremes, TrainingNumbers},
    },
    prepare::Build,
    rows::{RowWriter, TextCounts},
    tokenizer::TokenizerFile,
};
use crate::{
    Error, Transform,
    engine::scratch::Scratch,
    operators::split::{ShuffleKey, code},
    pass_progress::PassProgress,
    schema::{dataset_spec::DatasetSpec, system_columns},
    shards::{
        shard_layout::ShardLayout,
        writer::{Leaving, SplitWriter},
    },
    staging::{
        Ordered, Staged,
        rejects::{RejectWriter, Rejects},
    },
    statistics::exact_sum::ExactMoments,
    tokenizer::{Encoded, Encoder},
    transform::Applied,
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
    /// Transforms a batch of `split`. `document` is the column of documents; `hashed` has the columns of images and texts if
    /// the rows are hashed.
    fn apply(
        &self,
        split: Split,
        Ordered { rows, numbers }: Ordered,
        document: Option<&str>,
        hashed: Option<&[String]>,
    ) -> Result<TransformedBatch, Error> {
        let applied = match split {
            Split::Train => self.transform.apply_train(&rows, &numbers)?,
            _ => self.transform.apply_beside(&rows, &numbers)?,
        };
        let encoded = self.encoded(&rows, document)?;
        let hashes = hashed.map_or_else(Vec::new, |contents| {
            hashes_of(&self.transform, (&rows, contents), &numbers, &applied)
        });
        Ok((rows, applied, encoded, hashes))
    }

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

/// A batch of staged rows: the rows, what the transform made of them, their documents as ids, and hashes of what a model sees.
type TransformedBatch = (RecordBatch, Applied, Encoded, Vec<u64>);

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
    /// Cells that caps changed, by column and split.
    pub(super) capped: SplitCells,
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

    /// Warning of appended rows with numbers far from those of the training rows before, `train`.
    pub(super) fn appended_extremes(
        &self,
        artefact: &TransformArtefact,
        train: &TrainingNumbers,
    ) -> Option<Warning> {
        extremes::appended_warnings(artefact, &self.extremes, train)
    }

    /// Warnings of a number that many of the written training rows have as a target, far from all others. `noun` names such a
    /// row.
    pub(super) fn repeated_targets(
        &self,
        artefact: &TransformArtefact,
        spec: &DatasetSpec,
        noun: &str,
    ) -> Vec<Warning> {
        let expect = spec.expect.as_ref();
        let expected = expect.map_or(&[][..], |expect| &expect.columns);
        self.extremes[0].repeated_ends(artefact, &self.targets, expected, noun)
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

/// Totals of the rows that were written so far.
#[derive(Default)]
struct WriteTotals {
    texts: [TextCounts; 3],
    boxes: Option<BoxCounts>,
    infinite: SplitCells,
    capped: SplitCells,
    unknown: SplitCells,
    classes: [Vec<u64>; 3],
    targets: Vec<ExactMoments>,
    extremes: [Extremes; 3],
}

impl WriteTotals {
    /// Adds the `rows` of a split once all of them were written.
    fn add(&mut self, split: Split, rows: &mut RowWriter<'_>) {
        let place = usize::from(code(split));
        self.texts[place] = rows.texts;
        self.classes[place] = std::mem::take(&mut rows.classes);
        self.extremes[place] = std::mem::take(&mut rows.extremes);
        if split == Split::Train {
            self.targets = std::mem::take(&mut rows.targets);
        }
        add_cells(&mut self.infinite, split, &rows.infinite);
        add_cells(&mut self.capped, split, &rows.capped);
        add_cells(&mut self.unknown, split, &rows.unknown);
        if let Some(found) = rows.boxes {
            let all = self.boxes.get_or_insert_default();
            all.kept += found.kept;
            all.lost += found.lost;
        }
    }

    fn written(self, splits: Vec<SplitShards>, rejects: Rejects) -> Written {
        Written {
            splits,
            rejects,
            texts: self.texts,
            boxes: self.boxes,
            sequence: None,
            naive: Vec::new(),
            infinite: self.infinite,
            capped: self.capped,
            unknown: self.unknown,
            classes: self.classes,
            targets: self.targets,
            extremes: self.extremes,
            equal: None,
        }
    }
}

impl Build<'_> {
    /// Applies the transform to the staged rows, and writes the shards of all splits.
    pub(super) async fn write(
        &self,
        staged: &Staged,
        fitted: &Arc<Fitted>,
        layout: &ShardLayout,
        scratch: &Scratch,
    ) -> Result<Written, Error> {
        let meter = PassProgress::new(&self.context.progress, "shards: write", staged.total());
        let mut rejects = RejectWriter::new(scratch.path("rejects-transform.parquet"));
        // The last shards of a split are stored while the next one fills.
        let mut ended = Vec::with_capacity(3);
        let mut totals = WriteTotals::default();
        let unseen = self.unseen_differences(fitted.transform.artefact(), &layout.layout);
        let mut equal = EqualRows::new(unseen.exist().then(|| staged.total()));
        for split in Split::ALL {
            let mut rows = RowWriter::new(&self.spec, &layout.layout, &mut rejects);
            let before = self.previous.counts.shards[usize::from(code(split))];
            let writer = SplitWriter::new(&self.store, layout, split).behind(before);
            let each = (&mut rows, &mut equal);
            let shards = self.write_split(staged, split, fitted, writer, each, &meter);
            ended.push(shards.await?);
            totals.add(split, &mut rows);
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
        let written = totals.written(splits, rejects.finish()?);
        Ok(Written {
            equal: Box::pin(self.equal_rows(equal, unseen)).await?,
            ..written
        })
    }

    async fn write_split(
        &self,
        staged: &Staged,
        split: Split,
        fitted: &Arc<Fitted>,
        mut writer: SplitWriter<'_>,
        (each, equal): (&mut RowWriter<'_>, &mut EqualRows),
        meter: &PassProgress,
    ) -> Result<(Split, u64, Leaving), Error> {
        let sizes = &self.spec.config.shards;
        let shuffle = sizes.shuffle.then(|| ShuffleKey::new(sizes.seed));
        // A profile looks at them once more.
        let is_last = !self.spec.config.profile;
        let text = self.spec.document().map(|text| text.column.as_str());
        let contents = || self.spec.payloads().map(|content| content.column.clone());
        let hashed: Option<Arc<[String]>> = equal.is_asked().then(|| contents().collect());
        let applied = staged
            .ordered(split, shuffle, is_last)
            .await?
            .map_err(Error::from)
            .map_ok(|ordered| {
                let fitted = Arc::clone(fitted);
                let text = text.map(str::to_owned);
                let hashed = hashed.clone();
                async move {
                    let work =
                        move || fitted.apply(split, ordered, text.as_deref(), hashed.as_deref());
                    let joined = tokio::task::spawn_blocking(work).await;
                    joined?
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
