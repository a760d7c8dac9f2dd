//! Outputs that the dataset asks of a model: one number, several or a class, and how stored targets map to the target's units.

use feedline_schemas::{
    config::{LossKind, ModelKind},
    manifest::{ClassCounts, Layout, Manifest, TargetKind, TargetSummary},
    transform::{FittedTarget, TransformArtefact},
};

/// The task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    /// Predict a number, stored as `(y - offset) / scale`.
    Regression {
        /// Mean of the target over the training split as it is, in its units.
        mean: f64,
        /// In the target's units.
        offset: f64,
        /// In the target's units; not 0.
        scale: f64,
    },
    /// Predict several numbers, each as one alone.
    Regressions(Vec<NumberTarget>),
    /// Predict a class.
    Classification {
        /// Training rows of each class; at least one class, and one with rows.
        counts: Vec<u64>,
        /// Their names.
        names: Vec<String>,
    },
    /// Predict the next token.
    NextToken {
        /// Number of ids.
        vocabulary: usize,
    },
    /// Give the features back.
    Reconstruction {
        /// Their number.
        features: usize,
    },
}

/// One of several numbers to predict, stored as `(y - offset) / scale`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NumberTarget {
    /// Its column.
    pub(crate) name: String,
    /// Mean over the training split as it is, in its units.
    pub(crate) mean: f64,
    /// In its units.
    pub(crate) offset: f64,
    /// In its units; not 0.
    pub(crate) scale: f64,
}

impl NumberTarget {
    /// Reads it from what was fitted.
    ///
    /// # Errors
    /// Text that says what cannot be used.
    fn of(fitted: &FittedTarget) -> Result<Self, String> {
        let FittedTarget::Regression {
            column,
            mean,
            scale,
            offset,
        } = fitted
        else {
            return Err(format!(
                "its target `{}` is a class beside others, which are numbers; build it again",
                fitted.column()
            ));
        };
        match is_usable_number(*mean, *offset, *scale) {
            true => Ok(Self {
                name: column.clone(),
                mean: *mean,
                offset: *offset,
                scale: *scale,
            }),
            false => Err(format!(
                "its target `{column}` has mean `{mean}`, offset `{offset}` and scale `{scale}`; build it again"
            )),
        }
    }

    /// A stored number in the target's units.
    pub(crate) fn unscale(&self, stored: f32) -> f64 {
        f64::from(stored) * self.scale + self.offset
    }
}

/// Returns whether a number that is stored as `(y - offset) / scale` can be predicted.
fn is_usable_number(mean: f64, offset: f64, scale: f64) -> bool {
    mean.is_finite() && offset.is_finite() && scale.is_finite() && scale > 0.0
}

impl Task {
    /// Reads the task from what the model is for, the dataset's layout and its fitted target.
    ///
    /// # Errors
    /// Text that says why there is nothing to learn, or where the two disagree.
    pub(crate) fn of(
        kind: ModelKind,
        layout: &Layout,
        artefact: &TransformArtefact,
    ) -> Result<Self, String> {
        match layout {
            Layout::Tokens { vocabulary, .. } => Ok(Self::NextToken {
                vocabulary: *vocabulary as usize,
            }),
            Layout::Dense { features, .. } if kind == ModelKind::Autoencoder => {
                Ok(Self::Reconstruction {
                    features: *features as usize,
                })
            }
            Layout::Dense { target, .. }
            | Layout::Images { target }
            | Layout::Multi { target, .. } => Self::of_target(target, artefact),
        }
    }

    /// Reads the task of predicting the target, or several.
    fn of_target(target: &TargetKind, artefact: &TransformArtefact) -> Result<Self, String> {
        match (target, &artefact.target) {
            (TargetKind::Regressions { targets }, _) => Self::of_numbers(*targets, artefact),
            _ if !artefact.other_targets.is_empty() => {
                Err("its transform has several targets, its shards have not; build it again".into())
            }
            (TargetKind::None, _) => {
                Err("it has no target column; set `dataset.target` and build it again".into())
            }
            (
                TargetKind::Regression,
                Some(FittedTarget::Regression {
                    mean,
                    scale,
                    offset,
                    ..
                }),
            ) => Self::of_number(*mean, *offset, *scale),
            (
                TargetKind::Classification { classes },
                Some(FittedTarget::Classification {
                    counts,
                    classes: names,
                    ..
                }),
            ) => Self::of_classes(*classes as usize, counts, names),
            (target, _) => Err(format!(
                "its shards hold target `{target:?}`, its transform another one; build it again"
            )),
        }
    }

    /// Reads the task of predicting this many numbers.
    fn of_numbers(targets: u32, artefact: &TransformArtefact) -> Result<Self, String> {
        let found: Vec<_> = artefact
            .targets()
            .map(NumberTarget::of)
            .collect::<Result<_, _>>()?;
        match found.len() == targets as usize {
            true => Ok(Self::Regressions(found)),
            false => Err(format!(
                "its shards have `{targets}` targets, its transform `{}`; build it again",
                found.len()
            )),
        }
    }

    /// Reads the task of predicting one number.
    fn of_number(mean: f64, offset: f64, scale: f64) -> Result<Self, String> {
        match is_usable_number(mean, offset, scale) {
            true => Ok(Self::Regression {
                mean,
                offset,
                scale,
            }),
            false => Err(format!(
                "its target has mean `{mean}`, offset `{offset}` and scale `{scale}`; build it again"
            )),
        }
    }

    /// Reads the task of predicting one of so many classes.
    fn of_classes(classes: usize, counts: &[u64], names: &[String]) -> Result<Self, String> {
        let has_rows = counts.iter().any(|&count| count > 0);
        match counts.len() == classes && names.len() == counts.len() && has_rows {
            true => Ok(Self::Classification {
                counts: counts.to_vec(),
                names: names.to_vec(),
            }),
            false => Err(format!(
                "its shards have `{classes}` classes, its transform `{}`; build it again",
                counts.len()
            )),
        }
    }

    /// The same task over the training rows of a manifest.
    pub(crate) fn of_manifest(self, manifest: &Manifest) -> Self {
        match self {
            Self::Regressions(targets) => {
                let current = manifest.target.iter().chain(&manifest.other_targets);
                let current: Vec<f64> = current.map(|target| target.mean).collect();
                let mut targets = targets;
                if current.len() == targets.len() {
                    for (target, mean) in targets.iter_mut().zip(current) {
                        target.mean = mean;
                    }
                }
                Self::Regressions(targets)
            }
            other => other.of_rows(&manifest.counts.classes, manifest.target.as_ref()),
        }
    }

    /// The same task over the training rows as they are now: a dataset that has grown has other class counts and another mean
    /// than the rows that its transform was fitted on. Older manifests do not have them.
    fn of_rows(self, classes: &[ClassCounts], target: Option<&TargetSummary>) -> Self {
        match self {
            Self::Regression {
                mean,
                offset,
                scale,
            } => Self::Regression {
                mean: target.map_or(mean, |target| target.mean),
                offset,
                scale,
            },
            Self::Classification { counts, names } => {
                let is_same = names.iter().eq(classes.iter().map(|class| &class.name));
                let current: Vec<u64> = classes.iter().map(|class| class.train).collect();
                let is_known = is_same && current.iter().any(|&count| count > 0);
                Self::Classification {
                    counts: if is_known { current } else { counts },
                    names,
                }
            }
            other => other,
        }
    }

    /// Names of the classes by id; none where no class is predicted.
    pub(crate) fn classes(&self) -> &[String] {
        match self {
            Self::Classification { names, .. } => names,
            Self::Regression { .. }
            | Self::Regressions(_)
            | Self::NextToken { .. }
            | Self::Reconstruction { .. } => &[],
        }
    }

    /// Names of the targets by output, where several numbers are predicted; otherwise none.
    pub(crate) fn targets(&self) -> Vec<String> {
        match self {
            Self::Regressions(targets) => targets.iter().map(|t| t.name.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// Numbers the model puts out per row.
    pub(crate) const fn outputs(&self) -> usize {
        match self {
            Self::Regression { .. } => 1,
            Self::Regressions(targets) => targets.len(),
            Self::Classification { counts, .. } => counts.len(),
            Self::NextToken { vocabulary } => *vocabulary,
            Self::Reconstruction { features } => *features,
        }
    }

    /// The metric that models with any loss are compared by.
    pub(crate) const fn main_metric(&self) -> &'static str {
        match self {
            Self::Regression { .. } | Self::Regressions(_) | Self::Reconstruction { .. } => "rmse",
            Self::Classification { .. } | Self::NextToken { .. } => "cross_entropy",
        }
    }

    /// The losses that fit.
    pub(crate) const fn losses(&self) -> &'static [LossKind] {
        use LossKind::{BinaryCrossEntropy, CrossEntropy, Huber, Mae, Mse, Quantile};
        match self {
            Self::Regression { .. } | Self::Regressions(_) => &[Mse, Mae, Huber, Quantile],
            Self::Classification { counts, .. } if counts.len() == 2 => {
                &[CrossEntropy, BinaryCrossEntropy]
            }
            Self::Classification { .. } | Self::NextToken { .. } => &[CrossEntropy],
            Self::Reconstruction { .. } => &[Mse],
        }
    }

    /// The loss used when the configuration names none.
    pub(crate) const fn default_loss(&self) -> LossKind {
        match self {
            Self::Regression { .. } | Self::Regressions(_) | Self::Reconstruction { .. } => {
                LossKind::Mse
            }
            Self::Classification { .. } | Self::NextToken { .. } => LossKind::CrossEntropy,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use feedline_schemas::{Versioned, ids::Hash128, manifest::TokenType};

    /// An artefact with this target and nothing else.
    pub(crate) fn artefact(target: Option<FittedTarget>) -> TransformArtefact {
        TransformArtefact {
            format: TransformArtefact::TAG.format.into(),
            version: TransformArtefact::TAG.version,
            hash: Hash128::new(0),
            fitted_rows: 1,
            null_values: vec![],
            missing_values: vec![],
            inputs: vec![],
            steps: vec![],
            features: vec![],
            target,
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        }
    }

    fn regression(scale: f64) -> Option<FittedTarget> {
        Some(FittedTarget::Regression {
            column: "y".into(),
            mean: 2.0,
            scale,
            offset: 2.0,
        })
    }

    fn check(target: TargetKind, fitted: Option<FittedTarget>) -> Result<Task, String> {
        Task::of(
            ModelKind::Mlp,
            &Layout::Dense {
                features: 3,
                target,
            },
            &artefact(fitted),
        )
    }

    #[test]
    fn task_follows_the_dataset() {
        let task = check(TargetKind::Regression, regression(3.0)).unwrap();
        assert_eq!((task.outputs(), task.default_loss()), (1, LossKind::Mse));
        let classes = FittedTarget::Classification {
            column: "c".into(),
            classes: vec!["a".into(), "b".into()],
            counts: vec![3, 1],
        };
        let task = check(
            TargetKind::Classification { classes: 2 },
            Some(classes.clone()),
        )
        .unwrap();
        assert_eq!(
            (task.outputs(), task.default_loss()),
            (2, LossKind::CrossEntropy)
        );
        assert!(
            check(TargetKind::Classification { classes: 3 }, Some(classes))
                .unwrap_err()
                .contains("`3` classes")
        );
    }

    #[test]
    fn counts_and_mean_are_those_of_the_training_rows_as_they_are() {
        let class = |name: &str, train| ClassCounts {
            name: name.into(),
            train,
            ..ClassCounts::default()
        };
        let task = |counts: &[u64]| Task::Classification {
            counts: counts.to_vec(),
            names: vec!["a".into(), "b".into()],
        };
        let fitted = task(&[90, 10]);
        let grown = [class("a", 190), class("b", 910)];
        assert_eq!(fitted.clone().of_rows(&grown, None), task(&[190, 910]));
        let swapped = [class("b", 910), class("a", 190)];
        for other in [&[][..], &grown[..1], &swapped] {
            assert_eq!(fitted.clone().of_rows(other, None), fitted);
        }
        let number = |mean| Task::Regression {
            mean,
            offset: 2.0,
            scale: 3.0,
        };
        let target = TargetSummary { rows: 9, mean: 7.5 };
        assert_eq!(number(2.0).of_rows(&[], Some(&target)), number(7.5));
        assert_eq!(number(2.0).of_rows(&[], None), number(2.0));
    }

    #[test]
    fn several_targets_have_an_output_each_and_the_means_of_the_rows_as_they_are() {
        let number = |column: &str, mean, scale| FittedTarget::Regression {
            column: column.into(),
            mean,
            scale,
            offset: mean,
        };
        let both = |second| TransformArtefact {
            other_targets: vec![second],
            ..artefact(Some(number("a", 1.0, 2.0)))
        };
        let of = |targets, artefact: &TransformArtefact| {
            let layout = Layout::Dense {
                features: 3,
                target: TargetKind::Regressions { targets },
            };
            Task::of(ModelKind::Mlp, &layout, artefact)
        };
        let task = of(2, &both(number("b", -3.0, 40.0))).unwrap();
        assert_eq!((task.outputs(), task.default_loss()), (2, LossKind::Mse));
        assert_eq!(task.targets(), ["a", "b"]);
        assert!(task.classes().is_empty());
        for (targets, second, reason) in [
            (3, number("b", 0.0, 1.0), "`3` targets, its transform `2`"),
            (2, number("b", 0.0, 0.0), "target `b` has mean `0`"),
        ] {
            let refused = of(targets, &both(second)).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        let one = Layout::Dense {
            features: 3,
            target: TargetKind::Regression,
        };
        let refused = Task::of(ModelKind::Mlp, &one, &both(number("b", 0.0, 1.0))).unwrap_err();
        assert!(refused.contains("several targets"), "{refused}");
    }

    #[test]
    fn tokens_and_autoencoders_need_no_target() {
        let tokens = Layout::Tokens {
            id: TokenType::U16,
            vocabulary: 50,
        };
        let task = Task::of(ModelKind::Transformer, &tokens, &artefact(None)).unwrap();
        assert_eq!(
            (task.outputs(), task.default_loss()),
            (50, LossKind::CrossEntropy)
        );
        let rows = Layout::Dense {
            features: 3,
            target: TargetKind::None,
        };
        let task = Task::of(ModelKind::Autoencoder, &rows, &artefact(None)).unwrap();
        assert_eq!((task.outputs(), task.default_loss()), (3, LossKind::Mse));
    }

    #[test]
    fn dataset_without_a_usable_target_is_refused() {
        assert!(
            check(TargetKind::None, None)
                .unwrap_err()
                .contains("dataset.target")
        );
        assert!(check(TargetKind::Regression, None).is_err());
        assert!(check(TargetKind::Regression, regression(0.0)).is_err());
        assert!(check(TargetKind::Regression, regression(f64::NAN)).is_err());
    }
}
