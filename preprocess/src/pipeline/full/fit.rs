//! The transform, fitted on the training split, and the warnings that its statistics and the staged rows give.

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::{
    manifest::{Layout, RowTokens, Split, TargetKind},
    record::ColumnType,
    report::Warning,
    transform::{FittedTarget, TransformArtefact},
};

use super::{FullBuild, stage::StagedDataset};
use crate::{
    Error, TrainSplit, Transform,
    fit::{FitSpec, fit, fit_parts, fit_payload},
    pass_progress::PassProgress,
    pipeline::{
        rows,
        tokenizer::{self, TokenizerFile},
        write_pass::Fitted,
    },
    schema::no_feature::NoFeatureReason,
    shards::shard_layout::ShardLayout,
    staging::Staged,
    tokenizer::Encoder,
    transform::Characters,
    warnings,
};

/// The fitted transform of a dataset, and the columns that are no features.
pub(super) struct FittedDataset {
    pub(super) fitted: Arc<Fitted>,
    /// Columns that are no features by default, with the reason of each.
    dropped_columns: BTreeMap<String, NoFeatureReason>,
    /// Those without a value in any training row, with the rows of validation and test that have one.
    without_values: BTreeMap<String, [u64; 2]>,
}

impl FittedDataset {
    pub(super) fn artefact(&self) -> &TransformArtefact {
        self.fitted.transform.artefact()
    }

    /// Columns that are no features by default, each with the text of its reason.
    pub(super) fn describe_dropped(&self) -> BTreeMap<String, String> {
        let dropped = self.dropped_columns.iter();
        let described = dropped.map(|(name, reason)| (name.clone(), reason.to_string()));
        described.collect()
    }
}

impl FullBuild<'_> {
    /// Fits the transform on the training split.
    pub(super) async fn fit_transform(
        &self,
        staged: &StagedDataset<'_>,
    ) -> Result<FittedDataset, Error> {
        let columns = &self.build.input.columns;
        let mut left_out = staged.rows.identifiers(|name| {
            let mut columns = columns.iter();
            columns.any(|column| column.name == name && column.r#type == ColumnType::Timestamp)
        });
        let without_values = self
            .build
            .find_columns_without_values(&staged.rows, &left_out);
        let without_values = Box::pin(without_values).await?;
        let reasons = without_values.keys();
        left_out.extend(reasons.map(|name| (name.clone(), NoFeatureReason::NoTrainValue)));
        let fitted = self.fit(&staged.rows, &left_out).await?;
        Ok(FittedDataset {
            fitted: Arc::new(fitted),
            dropped_columns: self.build.dropped_columns(&left_out),
            without_values,
        })
    }

    /// Transform to fit, without the columns in `left_out`.
    fn fit_spec(&self, left_out: &BTreeMap<String, NoFeatureReason>) -> FitSpec {
        let spec = &self.build.spec;
        let joins = spec.joins.iter().zip(&self.counts.joins);
        let joined = joins.flat_map(|(join, counts)| {
            let columns = join.brought();
            columns.map(move |column| (column.name.clone(), counts.clone()))
        });
        FitSpec {
            joined: joined.collect(),
            ..spec.fit_spec(left_out)
        }
    }

    /// Fits steps, target and tokenizer on the training split, without the columns in `left_out`.
    async fn fit(
        &self,
        staged: &Staged,
        left_out: &BTreeMap<String, NoFeatureReason>,
    ) -> Result<Fitted, Error> {
        let build = self.build;
        let train = TrainSplit::of(staged)?;
        let meter = PassProgress::new(&build.context.progress, "shards: fit", train.rows());
        let spec = self.fit_spec(left_out);
        let (mut tokenizer, mut tokens) = (None, None);
        if let (Some(document), Some(config)) = (build.spec.document(), &build.tokenizer.settings) {
            let column = &document.column;
            let file = match &build.tokenizer.given {
                Some(given) => given.clone(),
                None => TokenizerFile::learn(&train, config, column, build.context).await?,
            };
            tokens = Some(file.fitted(column, config, build.cuts_documents())?);
            tokenizer = Some(file);
        }
        let artefact = match &build.spec.payload {
            Some(payload) => fit_payload(&train, &spec, payload, tokens).await?,
            None if build.spec.parts.is_empty() => fit(&train, &spec).await?,
            None => fit_parts(&train, &spec, build.spec.images(), tokens).await?,
        };
        meter.add(train.rows());
        let encoder = match (&tokenizer, &artefact.tokens) {
            (Some(file), Some(fitted)) => Some(file.encoder(fitted)),
            _ => Characters::of(&artefact)?.map(Encoder::Characters),
        };
        Ok(Fitted {
            transform: Transform::new(artefact)?,
            tokenizer,
            encoder,
        })
    }

    /// Finds the warnings of the rows and of the fitted statistics; `split_warnings` are those of the splits.
    pub(super) async fn find_warnings(
        &mut self,
        staged: &StagedDataset<'_>,
        split_warnings: Vec<Warning>,
        fitted: &FittedDataset,
    ) -> Result<(), Error> {
        let (build, session) = (self.build, &self.session);
        let (rows, notes, duplicates) = (&staged.rows, &staged.notes, self.counts.duplicates);
        let many = build.many_duplicates(rows, duplicates, notes.copied.clone());
        let many = Box::pin(many).await?;
        let labelled = notes.labelled.clone().filter(|_| duplicates > 0);
        let labels = Box::pin(build.labels_differ(labelled, rows)).await?;
        let labels = labels.map(|(conflicts, warning)| {
            self.counts.conflicts = Some(conflicts);
            warning
        });
        let found = build.find_warnings(rows, fitted.artefact(), &fitted.dropped_columns);
        let found = Box::pin(found).await?;
        let alike = Box::pin(build.keys_alike(session)).await?;
        let repeated = Box::pin(build.repeated_hours(session)).await?;
        let nan = Box::pin(build.nan_cells(session, build.tables(), &notes.nan)).await?;
        let versions = Box::pin(build.text_versions(session)).await?;
        let numbers = Box::pin(build.row_numbers(session, fitted.artefact())).await?;
        self.warnings.extend(many);
        self.warnings.extend(build.left_at_landing());
        self.warnings.extend(labels);
        self.warnings
            .extend(build.near_labels_differ(&notes.near_conflicts));
        self.warnings.extend(split_warnings);
        self.warnings.extend(alike);
        self.warnings.extend(repeated);
        self.warnings
            .extend(nan.into_iter().chain(versions).chain(numbers));
        self.warnings.extend(staged.texts.iter().cloned());
        let train = rows.rows(Split::Train);
        let without_values = warnings::without_train_values(&fitted.without_values, train);
        self.warnings.extend(without_values);
        self.warnings.extend(found);
        Ok(())
    }

    /// Layout of all shards.
    ///
    /// # Errors
    /// [`Error::Config`] for windows that are too large to be a sample.
    pub(super) fn shard_layout(&self, fitted: &FittedDataset) -> Result<ShardLayout, Error> {
        let build = self.build;
        build.check_sequence(&fitted.fitted.transform)?;
        let layout = self.row_layout(&fitted.fitted);
        let sizes = &build.spec.config.shards;
        Ok(ShardLayout {
            boxes: rows::has_boxes(&build.spec),
            kept: build.spec.kept.clone(),
            ..ShardLayout::new(build.name, fitted.artefact().hash, layout, sizes)
        })
    }

    /// Content of a row of the shards.
    fn row_layout(&self, fitted: &Fitted) -> Layout {
        let build = self.build;
        let transform = &fitted.transform;
        let target = target_kind(transform.artefact());
        let rows = build
            .sequence()
            .map_or(1, |windows| windows.length as usize);
        let features = transform.features().saturating_mul(rows);
        let features = u32::try_from(features).expect("fewer than 2^32 features");
        match (&fitted.encoder, &build.spec.payload) {
            (encoder, _) if !build.spec.parts.is_empty() => Layout::Multi {
                features,
                images: build.spec.image().is_some(),
                tokens: encoder.as_ref().map(|encoder| RowTokens {
                    id: encoder.id_type(),
                    vocabulary: encoder.vocabulary(),
                    length: tokenizer::row_length(build.tokenizer.settings.as_ref()),
                }),
                target,
            },
            (Some(encoder), _) => Layout::Tokens {
                id: encoder.id_type(),
                vocabulary: encoder.vocabulary(),
            },
            (None, Some(_)) => Layout::Images { target },
            (None, None) => Layout::Dense { features, target },
        }
    }
}

fn target_kind(artefact: &TransformArtefact) -> TargetKind {
    let others = u32::try_from(artefact.other_targets.len()).expect("fewer than 2^32 targets");
    match &artefact.target {
        None => TargetKind::None,
        Some(_) if others > 0 => TargetKind::Regressions {
            targets: 1 + others,
        },
        Some(FittedTarget::Regression { .. }) => TargetKind::Regression,
        Some(FittedTarget::Classification { classes, .. }) => TargetKind::Classification {
            classes: u32::try_from(classes.len()).expect("fewer than 2^32 classes"),
        },
    }
}
