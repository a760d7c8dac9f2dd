//! Writing rows: the good ones of each batch to the shards, the bad ones to the rejects.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    datatypes::UInt64Type,
};
use datafusion::{logical_expr::ident, prelude::DataFrame};
use feedline_schemas::{
    config::DatasetKind,
    manifest::{BoxCounts, CutCounts, Layout, Split, SplitShards, TargetKind, TokenCounts},
};
use futures::TryStreamExt;

use super::extremes::Extremes;
use crate::{
    Error,
    content::key_of,
    dataset_spec::DatasetSpec,
    exact_sum::ExactMoments,
    images::box_counts,
    kept,
    reject_reason::Reason,
    rejects::RejectWriter,
    shard::{NumberRows, Row, SplitWriter, tokens_in},
    stage::Staged,
    system_columns::{self, column},
    tokens::{Encoded, units},
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
            kept: spec.kept.iter().map(kept::named).collect(),
            length: length.unwrap_or(usize::MAX),
            rejects,
            texts: TextCounts::default(),
            boxes: has_boxes(spec).then(BoxCounts::default),
            infinite: BTreeMap::new(),
            unknown: BTreeMap::new(),
            classes: vec![0; classes_of(layout)],
            targets: vec![ExactMoments::default(); numbers_of(layout)],
            extremes: Extremes::default(),
        }
    }

    /// Writes the good rows of a batch, sets aside the bad ones, and returns how many were written.
    pub(super) async fn write(
        &mut self,
        batch: &RecordBatch,
        applied: &Applied,
        encoded: &Encoded,
        writer: &mut SplitWriter<'_>,
    ) -> Result<u64, Error> {
        let hashes = column(batch, system_columns::HASH).as_fixed_size_binary();
        let origins = column(batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let bad = set_aside(self.rejects, batch, applied)?;
        for (column, cells) in &applied.infinite {
            *self.infinite.entry(column.clone()).or_default() += cells;
        }
        for (column, rows) in &applied.unknown {
            *self.unknown.entry(column.clone()).or_default() += rows.len() as u64;
        }
        match &applied.y {
            Some(TargetValues::Classification(ids)) => {
                for (id, _) in ids.iter().zip(&bad).filter(|(_, is_bad)| !**is_bad) {
                    let id = usize::try_from(*id).expect("the transform makes ids from 0");
                    self.classes[id] += 1;
                }
            }
            Some(TargetValues::Regression(y)) => {
                let good = y.iter().zip(&bad).filter(|(_, is_bad)| !**is_bad);
                for (y, _) in good.filter(|(y, _)| y.is_finite()) {
                    self.targets[0].add(f64::from(*y));
                    self.extremes.add_target(0, *y);
                }
            }
            Some(TargetValues::Regressions { y, targets }) => {
                let rows = y.chunks_exact(*targets).zip(&bad);
                for (row, _) in rows.filter(|(_, is_bad)| !**is_bad) {
                    for (target, y) in row.iter().enumerate().filter(|(_, y)| y.is_finite()) {
                        self.targets[target].add(f64::from(*y));
                        self.extremes.add_target(target, *y);
                    }
                }
            }
            None => {}
        }
        if self.features > 0 {
            let rows = applied.x.chunks_exact(self.features).zip(&bad);
            rows.filter(|(_, is_bad)| !**is_bad)
                .for_each(|(row, _)| self.extremes.add(row));
        }
        let mut written = 0;
        let images = self
            .image
            .map(|name| column(batch, name).as_binary::<i32>());
        let boxes = self.boxes.is_some().then(|| {
            let counts = column(batch, system_columns::BOXES_COUNTS).as_fixed_size_binary();
            (
                column(batch, system_columns::BOXES).as_string::<i32>(),
                counts,
            )
        });
        let kept = self.kept.iter().map(|name| Arc::clone(column(batch, name)));
        let kept: Arc<[ArrayRef]> = kept.collect();
        if writer.takes_rows() {
            let keys = (0..batch.num_rows()).map(|row| key_of(hashes.value(row)));
            let keys: Vec<u64> = keys.collect();
            let rows = NumberRows {
                x: &applied.x,
                features: self.features,
                y: applied.y.as_ref(),
                keys: &keys,
                origins: origins.values(),
                kept: &kept,
            };
            let mut start = 0;
            let ends = (0..bad.len()).filter(|row| bad[*row]);
            for end in ends.chain([bad.len()]) {
                writer.push_rows(&rows, start..end).await?;
                written += end.saturating_sub(start) as u64;
                start = end + 1;
            }
            return Ok(written);
        }
        for row in (0..batch.num_rows()).filter(|row| !bad[*row]) {
            let tokens = self
                .document
                .map(|_| self.texts.take(encoded.document(row), self.length));
            writer
                .push(Row {
                    x: &applied.x[row * self.features..(row + 1) * self.features],
                    image: images.map(|images| images.value(row)),
                    boxes: boxes.map(|(text, _)| text.value(row)),
                    tokens,
                    y: applied.y.as_ref().map(|y| (y, row)),
                    key: key_of(hashes.value(row)),
                    origin: origins.value(row),
                    kept: (!kept.is_empty()).then_some((&kept, row)),
                })
                .await?;
            if let Some(((_, counts), all)) = boxes.zip(self.boxes.as_mut()) {
                let [kept, lost] = box_counts(counts.value(row));
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
