//! What is fitted where rows hold a picture or a text: the target, and the ids of characters.

use std::collections::HashMap;

use arrow::array::AsArray;
use datafusion::logical_expr::ident;
use feedline_schemas::transform::{FittedCharacters, TransformArtefact};
use futures::TryStreamExt;

use super::{Fit, FitSpec, artefact, rows_of};
use crate::{
    Error, TrainSplit,
    payload::{Payload, PayloadKind},
};

/// Fits the target of `spec`, which has no inputs, and to a text the ids of its characters.
///
/// # Errors
/// As [`fit`](super::fit).
pub(crate) async fn fit_payload(
    train: &TrainSplit,
    spec: &FitSpec,
    payload: &Payload,
) -> Result<TransformArtefact, Error> {
    let fit = Fit {
        rows: rows_of(train)?,
        steps: Vec::new(),
    };
    let target = match &spec.target {
        Some(target) => Some(fit.target(target).await?),
        None => None,
    };
    let characters = match payload.kind {
        PayloadKind::Picture => None,
        PayloadKind::Text => Some(characters(train, &payload.column).await?),
    };
    artefact(fit, spec, target, characters)
}

/// Counts the characters of the training split. Counts do not depend on the order of rows.
async fn characters(train: &TrainSplit, column: &str) -> Result<FittedCharacters, Error> {
    let mut counts: HashMap<char, u64> = HashMap::new();
    let texts = train.frame().select(vec![ident(column)])?;
    let mut batches = texts.execute_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let texts = batch.column(0).as_string::<i32>().iter().flatten();
        for character in texts.flat_map(str::chars) {
            *counts.entry(character).or_default() += 1;
        }
    }
    let mut counted: Vec<(char, u64)> = counts.into_iter().collect();
    counted.sort_unstable_by_key(|(character, count)| (std::cmp::Reverse(*count), *character));
    let (characters, counts) = counted.into_iter().unzip();
    Ok(FittedCharacters {
        column: column.to_owned(),
        characters,
        counts,
    })
}
