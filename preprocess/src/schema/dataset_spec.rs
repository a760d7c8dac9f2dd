//! The dataset, resolved: configuration and landed columns brought together, before any row is read.

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::{
    config::{Conflicts, DatasetConfig, StepConfig},
    manifest::KeptColumn,
    transform::InputColumn,
};

use crate::{
    fit::{FitSpec, TargetSpec},
    operators::{
        content_column::{ContentColumn, ContentKind},
        dedup::near::NearDup,
        expectations::Expect,
        images::Images,
        join::Join,
        number_format,
        split::Rule,
        time_series::Series,
    },
    schema::no_feature::NoFeatureReason,
};

/// A feature column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) column: InputColumn,
    /// True if the column is a feature only by default. Such a text column is dropped when its
    /// values turn out to identify rows rather than categories.
    pub(crate) by_default: bool,
}

/// The dataset, resolved: every check that needs no data has passed.
#[derive(Clone, Debug)]
pub(crate) struct DatasetSpec {
    /// Content of a row in place of numbers; then there are no inputs and no steps.
    pub(crate) payload: Option<ContentColumn>,
    /// Content of a row besides its numbers, if any.
    pub(crate) parts: Vec<ContentColumn>,
    /// Settings for near-duplicates, where they are looked for.
    pub(crate) near_dup: Option<NearDup>,
    /// Time series of the rows, and the features made of their past.
    pub(crate) series: Option<Arc<Series>>,
    /// Joins that run first.
    pub(crate) joins: Vec<Join>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) target: Option<TargetSpec>,
    /// The further targets, all numbers, where there are several.
    pub(crate) other_targets: Vec<TargetSpec>,
    /// True if a row without a target is rejected; false for inference input, which has none.
    pub(crate) requires_target: bool,
    pub(crate) steps: Vec<StepConfig>,
    pub(crate) config: DatasetConfig,
    pub(crate) max_reject_fraction: f64,
    /// Rule that decides the split of a row.
    pub(crate) rule: Rule,
    /// Passthrough columns, stored as they landed.
    pub(crate) kept: Vec<KeptColumn>,
    /// Expectations of its columns.
    pub(crate) expect: Option<Expect>,
}

impl DatasetSpec {
    /// All images and texts that rows hold.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &ContentColumn> {
        self.payload.iter().chain(&self.parts)
    }

    /// The features that landed.
    pub(crate) fn landed_inputs(&self) -> impl Iterator<Item = &InputColumn> {
        let makes = |name: &str| {
            self.series
                .as_ref()
                .is_some_and(|series| series.makes(name))
        };
        let inputs = self.inputs.iter().map(|input| &input.column);
        inputs.filter(move |column| !makes(&column.name))
    }

    /// All targets, in the order of a model's outputs.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &TargetSpec> + Clone {
        self.target.iter().chain(&self.other_targets)
    }

    /// The targets that are no features; those that are have one column for both.
    pub(crate) fn apart_targets(&self) -> impl Iterator<Item = &TargetSpec> + Clone {
        let is_input = |name: &str| self.inputs.iter().any(|input| input.column.name == name);
        self.targets()
            .filter(move |target| !is_input(&target.column))
    }

    /// The target and the rule, where one of the rows that are equal but for it is chosen.
    pub(crate) fn conflicts(&self) -> Option<(&str, Conflicts)> {
        let target = self.target.as_ref()?;
        Some((target.column.as_str(), self.config.conflicts?))
    }

    fn payload_of(&self, kind: ContentKind) -> Option<&ContentColumn> {
        self.payloads().find(|payload| payload.kind == kind)
    }

    /// The images of the rows.
    pub(crate) fn image(&self) -> Option<&ContentColumn> {
        self.payload_of(ContentKind::Image)
    }

    /// Steps for the images.
    pub(crate) fn images(&self) -> Option<&Images> {
        self.image().and_then(|image| image.images.as_ref())
    }

    /// The documents of the rows.
    pub(crate) fn document(&self) -> Option<&ContentColumn> {
        self.payload_of(ContentKind::Text)
    }

    /// Steps to fit, without the columns in `left_out`.
    pub(crate) fn fit_spec(&self, left_out: &BTreeMap<String, NoFeatureReason>) -> FitSpec {
        let stays = |name: &String| !left_out.contains_key(name);
        let steps = self.steps.iter().cloned().map(|mut step| {
            step.columns.retain(stays);
            step
        });
        FitSpec {
            inputs: self
                .inputs
                .iter()
                .map(|i| i.column.clone())
                .filter(|c| stays(&c.name))
                .collect(),
            left_out: left_out.clone(),
            joined: BTreeMap::new(),
            steps: steps.filter(|step| !step.columns.is_empty()).collect(),
            target: self.target.clone(),
            other_targets: self.other_targets.clone(),
            null_values: self.config.null_values.clone(),
            missing_values: self.config.missing_values.clone(),
            signs: number_format::of(&self.config),
        }
    }
}
