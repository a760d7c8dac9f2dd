//! What is fitted where rows hold a picture or a text: the target, and the ids of characters.

use std::collections::{BTreeMap, HashMap};

use arrow::array::AsArray;
use datafusion::logical_expr::ident;
use feedline_picture::ChannelSums;
use feedline_schemas::{
    config::StoredPictureConfig,
    transform::{FittedCharacters, FittedPictures, FittedTokens, TransformArtefact},
};
use futures::TryStreamExt;

use super::{Fit, FitSpec, Texts, artefact, fit_rows, rows_of};
use crate::{
    Error, TrainSplit,
    columns::system,
    payload::{Payload, PayloadKind},
    pictures::{self, Pictures},
};

/// Fits the target of `spec`, which has no inputs, and to texts the ids of their characters, unless `tokens` says what
/// makes ids of them. Of pictures that were decoded it takes the moments of their channels.
///
/// # Errors
/// As [`fit`](super::fit).
pub(crate) async fn fit_payload(
    train: &TrainSplit,
    spec: &FitSpec,
    payload: &Payload,
    tokens: Option<FittedTokens>,
) -> Result<TransformArtefact, Error> {
    let fit = Fit {
        rows: rows_of(train)?,
        steps: Vec::new(),
        settled: 0,
        target: spec.target.clone(),
        medians: BTreeMap::new(),
    };
    let target = match &spec.target {
        Some(target) => Some(fit.target(target).await?),
        None => None,
    };
    let characters = match payload.kind {
        PayloadKind::Text if tokens.is_none() => Some(characters(train, &payload.column).await?),
        PayloadKind::Picture | PayloadKind::Text => None,
    };
    let targets = target.into_iter().collect();
    let artefact = artefact(fit, spec, targets, Texts { characters, tokens })?;
    Ok(match &payload.pictures {
        None => artefact,
        Some(pictures) => artefact.with_pictures(moments(train, pictures).await?),
    })
}

/// Fits the steps and the target of `spec`, which may have no inputs, and adds what `tokens` says makes ids of texts, and
/// the moments of pictures that were decoded.
///
/// # Errors
/// As [`fit`](super::fit).
pub(crate) async fn fit_parts(
    train: &TrainSplit,
    spec: &FitSpec,
    pictures: Option<&Pictures>,
    tokens: Option<FittedTokens>,
) -> Result<TransformArtefact, Error> {
    let mut artefact = fit_rows(train, spec).await?;
    artefact.tokens = tokens;
    if let Some(pictures) = pictures {
        artefact.pictures = Some(moments(train, pictures).await?);
    }
    artefact.hash = artefact.compute_hash();
    Ok(artefact)
}

/// Mean and deviation of the channels of the training split's pictures, from exact sums.
async fn moments(train: &TrainSplit, pictures: &Pictures) -> Result<FittedPictures, Error> {
    let mut total = ChannelSums::default();
    let cells = train.frame().select(vec![ident(system::SUMS)])?;
    let mut batches = cells.execute_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let cells = batch.column(0).as_fixed_size_binary().iter().flatten();
        cells.for_each(|cell| pictures::add_sums(&mut total, cell));
    }
    let (mean, deviation) = total.moments().unwrap_or_default();
    Ok(FittedPictures {
        column: pictures.column.clone(),
        // Where they were decoded changes nothing.
        prepared: StoredPictureConfig {
            isolate: None,
            ..pictures.config.clone()
        },
        pixels: total.pixels,
        mean,
        deviation,
    })
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
