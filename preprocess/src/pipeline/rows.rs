//! Writing rows: the good ones of each batch to the shards, the bad ones to the rejects.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, StringArray},
    datatypes::UInt64Type,
};
use datafusion::{logical_expr::ident, prelude::DataFrame};
use feedline_schemas::{
    config::DatasetKind,
    manifest::{BoxCounts, CutCounts, Layout, Split, SplitShards, TargetKind, TokenCounts},
};
use futures::TryStreamExt;

use super::checks::extremes::Extremes;
use crate::{
    Error,
    operators::{dedup::content_hash::key_of, images::box_counts, passthrough_columns},
    schema::{
        dataset_spec::DatasetSpec,
        reject_reason::Reason,
        system_columns::{self, column},
    },
    shards::writer::{NumberRows, Row, SplitWriter, tokens_in},
    staging::{Staged, rejects::RejectWriter},
    statistics::exact_sum::ExactMoments,
    tokenizer::{Encoded, units},
    transform::{Applied, TargetValues},
};

/// Writes the rows of a split, batch by batch.
pub(super) struct RowWriter<'a> {
    image: Option<&'a str>,
    document: Option<&'a str>,
    features: usize,
    /// Passthrough columns, under their names in the plan.
    kept: Vec<String>,
    /// Most ids of a row.
    length: usize,
    rejects: &'a mut RejectWriter,
    pub(super) texts: TextCounts,
    /// Boxes of the rows so far; none where images have none.
    pub(super) boxes: Option<BoxCounts>,
    /// Count of infinite cells so far, by column.
    pub(super) infinite: BTreeMap<String, u64>,
    /// Count of cells that caps changed so far, by column.
    pub(super) capped: BTreeMap<String, u64>,
    /// Count of rows with an unknown value so far, by category.
    pub(super) unknown: BTreeMap<String, u64>,
    /// Count of written rows so far, by class.
    pub(super) classes: Vec<u64>,
    /// Numeric targets of the written rows so far, as stored, each by itself.
    pub(super) targets: Vec<ExactMoments>,
    pub(super) extremes: Extremes,
}

/// Counts of documents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextCounts {
    /// [`units`] of them.
    pub(super) units: u64,
    /// Their ids.
    ids: u64,
    /// Ids of characters or tokens that the training split lacks.
    unknown: u64,
    /// Truncated parts.
    cut: CutCounts,
}

impl<'a> RowWriter<'a> {
    pub(super) fn new(
        spec: &'a DatasetSpec,
        layout: &Layout,
        rejects: &'a mut RejectWriter,
    ) -> Self {
        let (features, length) = match layout {
            Layout::Dense { features, .. } => (*features, None),
            Layout::Multi {
                features, tokens, ..
            } => (*features, tokens.map(|tokens| tokens.length as usize)),
            Layout::Images { .. } | Layout::Tokens { .. } => (0, None),
        };
        Self {
            image: spec.image().map(|image| image.column.as_str()),
            document: spec.document().map(|document| document.column.as_str()),
            features: features as usize,
            kept: spec.kept.iter().map(passthrough_columns::named).collect(),
            length: length.unwrap_or(usize::MAX),
            rejects,
            texts: TextCounts::default(),
            boxes: has_boxes(spec).then(BoxCounts::default),
            infinite: BTreeMap::new(),
            capped: BTreeMap::new(),
            unknown: BTreeMap::new(),
            classes: vec![0; classes_of(layout)],
            targets: vec![ExactMoments::default(); numbers_of(layout)],
            extremes: Extremes::default(),
        }
    }

    /// Writes the good rows of a batch, rejects the bad ones, and returns how many were written.
    pub(super) async fn write(
        &mut self,
        batch: &RecordBatch,
        applied: &Applied,
        encoded: &Encoded,
        writer: &mut SplitWriter<'_>,
    ) -> Result<u64, Error> {
        let bad = set_aside(self.rejects, batch, applied)?;
        self.count_cells(applied);
        self.count_targets(applied, &bad);
        self.measure_features(applied, &bad);
        let kept = self.kept.iter().map(|name| Arc::clone(column(batch, name)));
        let rows = TransformedRows {
            batch,
            applied,
            kept: kept.collect(),
            bad,
        };
        match writer.takes_rows() {
            true => rows.push_runs(self.features, writer).await,
            false => self.push_each(&rows, encoded, writer).await,
        }
    }

    /// Counts infinite cells, capped cells and unknown values, those of bad rows among them.
    fn count_cells(&mut self, applied: &Applied) {
        for (column, cells) in &applied.infinite {
            *self.infinite.entry(column.clone()).or_default() += cells;
        }
        for (column, cells) in &applied.capped {
            *self.capped.entry(column.clone()).or_default() += cells;
        }
        for (column, rows) in &applied.unknown {
            *self.unknown.entry(column.clone()).or_default() += rows.len() as u64;
        }
    }

    /// Counts the classes of good rows, or adds up their numeric targets.
    fn count_targets(&mut self, applied: &Applied, bad: &[bool]) {
        match &applied.y {
            Some(TargetValues::Classification(ids)) => {
                for (id, _) in ids.iter().zip(bad).filter(|(_, is_bad)| !**is_bad) {
                    let id = usize::try_from(*id).expect("the transform makes ids from 0");
                    self.classes[id] += 1;
                }
            }
            Some(TargetValues::Regression(y)) => {
                let good = y.iter().zip(bad).filter(|(_, is_bad)| !**is_bad);
                good.for_each(|(y, _)| self.add_target(0, *y));
            }
            Some(TargetValues::Regressions { y, targets }) => {
                let rows = y.chunks_exact(*targets).zip(bad);
                for (row, _) in rows.filter(|(_, is_bad)| !**is_bad) {
                    let cells = row.iter().enumerate();
                    cells.for_each(|(target, y)| self.add_target(target, *y));
                }
            }
            None => {}
        }
    }

    /// Adds a number of the target at this place, if it is finite.
    fn add_target(&mut self, place: usize, y: f32) {
        if y.is_finite() {
            self.targets[place].add(f64::from(y));
            self.extremes.add_target(place, y);
        }
    }

    /// Looks for the largest features of good rows.
    fn measure_features(&mut self, applied: &Applied, bad: &[bool]) {
        if self.features > 0 {
            let rows = applied.x.chunks_exact(self.features).zip(bad);
            rows.filter(|(_, is_bad)| !**is_bad)
                .for_each(|(row, _)| self.extremes.add(row));
        }
    }

    /// Writes rows with images or texts, one by one.
    async fn push_each(
        &mut self,
        rows: &TransformedRows<'_>,
        encoded: &Encoded,
        writer: &mut SplitWriter<'_>,
    ) -> Result<u64, Error> {
        let (batch, applied) = (rows.batch, rows.applied);
        let hashes = column(batch, system_columns::HASH).as_fixed_size_binary();
        let origins = rows.origins();
        let images = self.image.map(|name| column(batch, name));
        let images = images.map(|images| images.as_binary::<i32>());
        let boxes = self.boxes.is_some().then(|| BoxColumns::of(batch));
        let mut written = 0;
        for row in (0..batch.num_rows()).filter(|row| !rows.bad[*row]) {
            let tokens = self
                .document
                .map(|_| self.texts.take(encoded.document(row), self.length));
            writer
                .push(Row {
                    x: &applied.x[row * self.features..(row + 1) * self.features],
                    image: images.map(|images| images.value(row)),
                    boxes: boxes.map(|boxes| boxes.texts.value(row)),
                    tokens,
                    y: applied.y.as_ref().map(|y| (y, row)),
                    key: key_of(hashes.value(row)),
                    origin: origins[row],
                    kept: (!rows.kept.is_empty()).then_some((&rows.kept, row)),
                })
                .await?;
            if let Some((boxes, all)) = boxes.zip(self.boxes.as_mut()) {
                let [kept, lost] = box_counts(boxes.counts.value(row));
                all.kept += kept;
                all.lost += lost;
            }
            written += 1;
        }
        self.texts.units += encoded.units;
        self.texts.unknown += encoded.unknown;
        Ok(written)
    }
}

/// A batch of staged rows, and what the transform made of it.
struct TransformedRows<'a> {
    batch: &'a RecordBatch,
    applied: &'a Applied,
    /// Passthrough columns.
    kept: Arc<[ArrayRef]>,
    /// True for rows that are rejected.
    bad: Vec<bool>,
}

impl TransformedRows<'_> {
    fn origins(&self) -> &[u64] {
        column(self.batch, system_columns::ORIGIN)
            .as_primitive::<UInt64Type>()
            .values()
    }

    /// Writes rows of numbers, each run of good ones at once.
    async fn push_runs(&self, features: usize, writer: &mut SplitWriter<'_>) -> Result<u64, Error> {
        let hashes = column(self.batch, system_columns::HASH).as_fixed_size_binary();
        let keys = (0..self.batch.num_rows()).map(|row| key_of(hashes.value(row)));
        let keys: Vec<u64> = keys.collect();
        let numbers = NumberRows {
            x: &self.applied.x,
            features,
            y: self.applied.y.as_ref(),
            keys: &keys,
            origins: self.origins(),
            kept: &self.kept,
        };
        let (mut start, mut written) = (0, 0);
        let ends = (0..self.bad.len()).filter(|row| self.bad[*row]);
        for end in ends.chain([self.bad.len()]) {
            writer.push_rows(&numbers, start..end).await?;
            written += end.saturating_sub(start) as u64;
            start = end + 1;
        }
        Ok(written)
    }
}

/// Boxes of images and their counts.
#[derive(Clone, Copy)]
struct BoxColumns<'a> {
    texts: &'a StringArray,
    counts: &'a FixedSizeBinaryArray,
}

impl<'a> BoxColumns<'a> {
    fn of(batch: &'a RecordBatch) -> Self {
        let counts = column(batch, system_columns::BOXES_COUNTS);
        Self {
            texts: column(batch, system_columns::BOXES).as_string::<i32>(),
            counts: counts.as_fixed_size_binary(),
        }
    }
}

/// Number of classes of a layout's target; 0 where it is no class.
fn classes_of(layout: &Layout) -> usize {
    match layout.target() {
        TargetKind::Classification { classes } => classes as usize,
        TargetKind::None | TargetKind::Regression | TargetKind::Regressions { .. } => 0,
    }
}

/// Number of targets of a layout that are numbers.
fn numbers_of(layout: &Layout) -> usize {
    match layout.target() {
        TargetKind::Regression => 1,
        TargetKind::Regressions { targets } => targets as usize,
        TargetKind::None | TargetKind::Classification { .. } => 0,
    }
}

/// Sets the rows aside that cannot be used, and returns which they are.
pub(super) fn set_aside(
    rejects: &mut RejectWriter,
    batch: &RecordBatch,
    applied: &Applied,
) -> Result<Vec<bool>, Error> {
    let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
    let mut bad = vec![false; batch.num_rows()];
    let mut set_aside = Vec::new();
    for (row, reason, detail) in &applied.bad {
        if !std::mem::replace(&mut bad[*row], true) {
            let reason = Reason {
                reason: (*reason).to_owned(),
                column: String::new(),
                value: detail.clone(),
            };
            set_aside.push((origins.value(*row), reason.to_json()));
        }
    }
    rejects.push(set_aside)?;
    Ok(bad)
}

impl TextCounts {
    /// The ids of a document that a row of `length` has room for, counted.
    fn take<'a>(&mut self, ids: &'a [u32], length: usize) -> &'a [u32] {
        let (taken, left) = ids.split_at(ids.len().min(length));
        self.ids += taken.len() as u64;
        self.cut.rows += u64::from(!left.is_empty());
        self.cut.tokens += left.len() as u64;
        taken
    }
}

/// Truncated parts in all splits, where rows have a length.
pub(super) fn cut(layout: &Layout, texts: [TextCounts; 3]) -> Option<CutCounts> {
    let Layout::Multi {
        tokens: Some(tokens),
        ..
    } = layout
    else {
        return None;
    };
    let mut cut = CutCounts::default();
    for texts in texts {
        cut.rows += texts.cut.rows;
        cut.tokens += texts.cut.tokens;
    }
    if cut.rows > 0 {
        tracing::warn!(
            rows = cut.rows,
            tokens = cut.tokens,
            length = tokens.length,
            "texts are longer than a row and were truncated; raise `dataset.tokens.window` to keep more"
        );
    }
    Some(cut)
}

/// [`units`] of all documents in column `name` that were staged.
pub(super) async fn units_staged(
    staged: &Staged,
    name: &str,
    kind: DatasetKind,
) -> Result<u64, Error> {
    let mut count = 0;
    for split in Split::ALL {
        let documents = staged.frame(split)?.select(vec![ident(name)])?;
        count += units_of(documents, kind).await?;
    }
    Ok(count)
}

/// Returns true if the images of a dataset have boxes.
pub(super) fn has_boxes(spec: &DatasetSpec) -> bool {
    spec.images()
        .is_some_and(|images| images.boxes_on().is_some())
}

/// [`units`] of all documents.
pub(super) async fn units_of(documents: DataFrame, kind: DatasetKind) -> Result<u64, Error> {
    let mut count = 0;
    let mut batches = documents.execute_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let texts = batch.column(0).as_string::<i32>().iter().flatten();
        count += texts.map(|text| units(kind, text)).sum::<u64>();
    }
    Ok(count)
}

/// The token ids of the splits. All that the documents have was made ids of, and these are all in the shards.
pub(super) fn conserved(
    kind: DatasetKind,
    documents: u64,
    splits: &[SplitShards],
    texts: [TextCounts; 3],
) -> Result<TokenCounts, Error> {
    let check = |what: String, documents: u64, shards: u64| match documents == shards {
        true => Ok(shards),
        false => Err(Error::Lost {
            what,
            documents,
            shards,
        }),
    };
    let what = match kind {
        DatasetKind::Characters => "characters",
        _ => "bytes of text",
    };
    check(
        what.to_owned(),
        documents,
        texts.iter().map(|t| t.units).sum(),
    )?;
    let mut ids = [0; 3];
    for ((split, texts), ids) in Split::ALL.into_iter().zip(texts).zip(&mut ids) {
        let shards = tokens_in(splits.iter().find(|s| s.split == split));
        *ids = check(
            format!("token ids for the {split} split"),
            texts.ids,
            shards,
        )?;
    }
    let [train, validation, test] = ids;
    Ok(TokenCounts {
        train,
        validation,
        test,
        unknown: texts.iter().map(|t| t.unknown).sum(),
    })
}
