//! Fit of rows with an image or a text: the target, and the ids of characters.

use std::collections::{BTreeMap, HashMap};

use arrow::array::AsArray;
use datafusion::logical_expr::ident;
use feedline_image::ChannelSums;
use feedline_schemas::{
    config::StoredImageConfig,
    transform::{FittedCharacters, FittedImages, FittedTokens, TransformArtefact},
};
use futures::TryStreamExt;

use super::{Texts, artefact, fit_rows, fit_spec::FitSpec, progress::Fit, rows_of};
use crate::{
    Error, TrainSplit,
    operators::{
        content_column::{ContentColumn, ContentKind},
        images::{self, Images},
    },
    schema::system_columns,
};

/// Fits the target of `spec`, which has no inputs, and to texts the ids of their characters, unless `tokens` says what
/// makes ids of them. Of images that were decoded it takes the moments of their channels.
///
/// # Errors
/// As [`fit`](super::fit).
pub(crate) async fn fit_payload(
    train: &TrainSplit,
    spec: &FitSpec,
    payload: &ContentColumn,
    tokens: Option<FittedTokens>,
) -> Result<TransformArtefact, Error> {
    let fit = Fit {
        rows: rows_of(train)?,
        steps: Vec::new(),
        settled: 0,
        target: spec.target.clone(),
        joined: spec.joined.clone(),
        medians: BTreeMap::new(),
    };
    let target = match &spec.target {
        Some(target) => Some(fit.target(target).await?),
        None => None,
    };
    let characters = match payload.kind {
        ContentKind::Text if tokens.is_none() => Some(characters(train, &payload.column).await?),
        ContentKind::Image | ContentKind::Text => None,
    };
    let targets = target.into_iter().collect();
    let artefact = artefact(fit, spec, targets, Texts { characters, tokens })?;
    Ok(match &payload.images {
        None => artefact,
        Some(images) => artefact.with_images(moments(train, images).await?),
    })
}

/// Fits the steps and the target of `spec`, which may have no inputs, and adds what `tokens` says makes ids of texts, and
/// the moments of images that were decoded.
///
/// # Errors
/// As [`fit`](super::fit).
pub(crate) async fn fit_parts(
    train: &TrainSplit,
    spec: &FitSpec,
    images: Option<&Images>,
    tokens: Option<FittedTokens>,
) -> Result<TransformArtefact, Error> {
    let mut artefact = fit_rows(train, spec).await?;
    artefact.tokens = tokens;
    if let Some(images) = images {
        artefact.images = Some(moments(train, images).await?);
    }
    artefact.hash = artefact.compute_hash();
    Ok(artefact)
}

/// Mean and deviation of the channels of the training split's images, from exact sums.
async fn moments(train: &TrainSplit, images: &Images) -> Result<FittedImages, Error> {
    let mut total = ChannelSums::default();
    let cells = train.frame().select(vec![ident(system_columns::SUMS)])?;
    let mut batches = cells.execute_stream().await?;
    while let Some(batch) = batches.try_next().await? {
        let cells = batch.column(0).as_fixed_size_binary().iter().flatten();
        cells.for_each(|cell| images::add_sums(&mut total, cell));
    }
    let (mean, deviation) = total.moments().unwrap_or_default();
    Ok(FittedImages {
        column: images.column.clone(),
        // Where they were decoded changes nothing. Without a background readers drop alpha.
        prepared: StoredImageConfig {
            isolate: None,
            background: Some(images::background(&images.config)),
            ..images.config.clone()
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
