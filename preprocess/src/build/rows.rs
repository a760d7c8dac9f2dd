//! Writing rows: the good ones of each batch to the shards, the bad ones to the rejects.

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    datatypes::UInt64Type,
};
use datafusion::prelude::DataFrame;
use feedline_schemas::manifest::{Split, SplitShards, TokenCounts};
use futures::TryStreamExt;

use crate::{
    Error, Transform,
    columns::{DatasetSpec, system},
    content::key_of,
    payload::{Payload, PayloadKind},
    rejects::RejectWriter,
    shard::{Cell, Row, SplitWriter, tokens_in},
    stage::column,
    transform::{Applied, Characters},
    typing::Reason,
};

/// Writes the rows of a split, batch by batch.
pub(super) struct RowWriter<'a> {
    payload: Option<&'a Payload>,
    features: usize,
    characters: Option<Characters>,
    rejects: &'a mut RejectWriter,
    /// Ids of the document being written.
    ids: Vec<u32>,
    /// Token ids so far that stand for an unknown character.
    pub(super) unknown: u64,
}

impl<'a> RowWriter<'a> {
    pub(super) fn new(
        spec: &'a DatasetSpec,
        transform: &Transform,
        rejects: &'a mut RejectWriter,
    ) -> Result<Self, Error> {
        Ok(Self {
            payload: spec.payload.as_ref(),
            features: transform.features(),
            characters: Characters::of(transform.artefact())?,
            rejects,
            ids: Vec::new(),
            unknown: 0,
        })
    }

    /// Writes the good rows of a batch, sets aside the bad ones, and returns how many were written.
    pub(super) async fn write(
        &mut self,
        batch: &RecordBatch,
        applied: &Applied,
        writer: &mut SplitWriter<'_>,
    ) -> Result<u64, Error> {
        let hashes = column(batch, system::HASH).as_fixed_size_binary();
        let origins = column(batch, system::ORIGIN).as_primitive::<UInt64Type>();
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
        self.rejects.push(set_aside)?;
        let mut written = 0;
        let payload = self.payload.map(|payload| column(batch, &payload.column));
        for row in (0..batch.num_rows()).filter(|row| !bad[*row]) {
            let cell = match payload {
                Some(cells) => self.cell(cells, row),
                None => Cell::Numbers(&applied.x[row * self.features..(row + 1) * self.features]),
            };
            writer
                .push(Row {
                    cell,
                    y: applied.y.as_ref().map(|y| (y, row)),
                    key: key_of(hashes.value(row)),
                    origin: origins.value(row),
                })
                .await?;
            written += 1;
        }
        Ok(written)
    }

    /// The payload of a row.
    fn cell<'c>(&'c mut self, cells: &'c ArrayRef, row: usize) -> Cell<'c> {
        if self.payload.is_some_and(|p| p.kind == PayloadKind::Picture) {
            return Cell::Picture(cells.as_binary::<i32>().value(row));
        }
        self.ids.clear();
        if let Some(characters) = &self.characters {
            let text = cells.as_string::<i32>().value(row);
            self.unknown += characters.encode(text, &mut self.ids);
        }
        Cell::Tokens(&self.ids)
    }
}

/// Characters of all documents.
pub(super) async fn characters(documents: DataFrame) -> Result<u64, Error> {
    let mut count = 0;
    let mut batches = documents.execute_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let texts = batch.column(0).as_string::<i32>().iter().flatten();
        count += texts.map(|text| text.chars().count() as u64).sum::<u64>();
    }
    Ok(count)
}

/// The token ids of the splits, which must be as many as the documents have characters.
pub(super) fn conserved(
    documents: u64,
    splits: &[SplitShards],
    unknown: u64,
) -> Result<TokenCounts, Error> {
    let [train, validation, test] =
        Split::ALL.map(|split| tokens_in(splits.iter().find(|s| s.split == split)));
    let tokens = TokenCounts {
        train,
        validation,
        test,
        unknown,
    };
    if tokens.total() == documents {
        Ok(tokens)
    } else {
        Err(Error::Lost {
            documents,
            shards: tokens.total(),
        })
    }
}
