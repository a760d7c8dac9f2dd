//! Outputs of a file of weights, matched to those of a dataset by the names of their classes or targets.

use feedline_schemas::config::InitConfig;

use super::{
    warnings::Warnings,
    weights_file::{FileClasses, TARGETS_KEY, Weights},
};
use crate::{
    error::{Error, config as wrong},
    model::class_outputs::{self, OutputHead, Outputs},
};

impl Weights {
    /// Positions of the outputs for the dataset's `classes` among those of the file; `None` where
    /// they are in order, or no names are known.
    ///
    /// # Errors
    /// [`Error::Config`] for outputs of other classes, or of none.
    pub(super) fn places(
        &self,
        config: &InitConfig,
        classes: &[String],
        head: Option<&OutputHead<'_>>,
        warnings: &mut Warnings,
    ) -> Result<Option<Vec<usize>>, Error> {
        if classes.is_empty() {
            return Ok(None);
        }
        let anew = match head {
            Some(head) => format!(
                "to start with a new output layer `{}`, set `train.init.replace = [\"{}\"]`",
                head.name(),
                head.pattern()
            ),
            None => "to start with a new output layer, name it in `train.init.replace`".to_owned(),
        };
        let found = match (self.classes(), &config.classes) {
            (FileClasses::Named(own), given) if !given.is_empty() && own != *given => {
                let reason = format!(
                    "the file says that its outputs are for {}; remove this key",
                    class_outputs::list(&own)
                );
                return Err(wrong("init.classes", reason));
            }
            (FileClasses::Named(own), _) => own,
            (_, given) if !given.is_empty() => given.clone(),
            (FileClasses::Unnamed, _) => {
                let reason = format!(
                    "`{}` is of a run that predicts no classes, or of a release that did not name them; {anew}, or name the \
                     classes of its outputs in `train.init.classes`",
                    self.url
                );
                return Err(wrong("init.from", reason));
            }
            (FileClasses::Foreign, _) => {
                let message = format!(
                    "the weights of `{}` do not name the classes of their outputs, which are taken for the dataset's classes in the \
                     order of their ids: {}",
                    self.url,
                    class_outputs::list(classes)
                );
                warnings.push("unnamed_classes", "train.init.classes", message);
                return Ok(None);
            }
        };
        match (class_outputs::match_classes(&found, classes), head) {
            (Ok(Outputs::InOrder), _) => Ok(None),
            (Ok(Outputs::Moved(places)), Some(head)) => {
                warnings.push_moved("classes", &self.url, head.name(), [&found, classes]);
                Ok(Some(places))
            }
            (Ok(Outputs::Moved(_)), None) => {
                let reason = format!(
                    "the outputs of `{}` are for {}, the dataset's classes are {}, and the model has no output layer whose \
                     columns could be moved; build the dataset with that order in `dataset.classes`",
                    self.url,
                    class_outputs::list(&found),
                    class_outputs::list(classes)
                );
                Err(wrong("init.from", reason))
            }
            (Err(differences), _) => {
                let reason = format!(
                    "the outputs of `{}` are for other classes than those of the dataset: {differences}; {anew}",
                    self.url
                );
                Err(wrong("init.from", reason))
            }
        }
    }

    /// Places of the outputs for the dataset's `targets` among those of the file; `None` where they are in order, or the file
    /// does not name them.
    ///
    /// # Errors
    /// [`Error::Config`] for outputs of other targets.
    pub(super) fn places_of_targets(
        &self,
        targets: &[String],
        head: Option<&OutputHead<'_>>,
        warnings: &mut Warnings,
    ) -> Result<Option<Vec<usize>>, Error> {
        let listed = class_outputs::list(targets);
        let Some(found) = self.names(TARGETS_KEY) else {
            if let FileClasses::Named(classes) = self.classes() {
                let reason = format!(
                    "the outputs of `{}` are for the classes {}, and the dataset has the targets {listed}; to begin the output \
                     layer anew, name it in `train.init.replace`",
                    self.url,
                    class_outputs::list(&classes)
                );
                return Err(wrong("init.from", reason));
            }
            let message = format!(
                "the weights of `{}` do not name the targets of their outputs, which are taken for the dataset's targets in their \
                 order: {listed}",
                self.url
            );
            warnings.push("unnamed_targets", "train.init.replace", message);
            return Ok(None);
        };
        let replace = match head {
            Some(head) => head.pattern(),
            None => "NAME.*".to_owned(),
        };
        let refused = |reason: String| {
            let reason = format!(
                "the outputs of `{}` are for the targets {}, and those of the dataset are {listed}: {reason}; to begin the output \
                 layer anew, set `train.init.replace = [\"{replace}\"]`",
                self.url,
                class_outputs::list(&found)
            );
            wrong("init.from", reason)
        };
        match (class_outputs::match_classes(&found, targets), head) {
            (Ok(Outputs::InOrder), _) => Ok(None),
            (Ok(Outputs::Moved(places)), Some(head)) => {
                warnings.push_moved("targets", &self.url, head.name(), [&found, targets]);
                Ok(Some(places))
            }
            (Ok(Outputs::Moved(_)), None) => Err(refused(
                "the order is another, and the model has no output layer whose columns could be moved".to_owned(),
            )),
            (Err(differences), _) => Err(refused(differences)),
        }
    }
}
