//! `feedline predict` for image files.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use feedline_preprocess::{Engine, LandedPlace, RejectedRow, Transform};
use feedline_schemas::{
    manifest::Manifest,
    report::PredictReport,
    transform::{FittedTarget, TransformArtefact},
};
use feedline_storage::Store;
use feedline_trainer::{Predicted, Use};

use crate::{
    cli,
    commands::work::PipelineWork,
    exit::Outcome,
    predict::{Answers, Output, images, series},
};

impl PipelineWork<'_> {
    /// Predicts image files, which are decoded and resized like those of the dataset.
    pub(super) async fn predict_images(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
    ) -> anyhow::Result<Outcome> {
        let place = images_of(options)?;
        let (config, training) = self.training()?;
        let choice = options.run.choice();
        let chosen = self
            .choose(&choice, Use::PreparedRows, &config, &training)
            .await?;
        // Outputs follow the classes that the run was trained on, whatever ids the dataset has now.
        let artefact = chosen.transform().clone();
        let model = (chosen, training);
        self.check_built_by(manifest).await?;
        let context = self.preprocessing(Engine::Local);
        let folder = series::Folder::create(&context.scratch)?;
        let format = options.format.map(Into::into);
        let background = artefact.image_background();
        let config = &self.loaded.config;
        let landing = images::landing(place, format, config, background, folder.path())?;
        let found = self.land(&landing).await?;
        let (dataset, rejected) = self.build_images(&landing, context).await?;
        let landed_images = images::LandedImages {
            paths: images::landed_paths(landing).await?,
            rejected,
            dataset,
        };
        let output = Output::of(options.to.as_deref(), options.escape_formulas)?;
        let mut report = PredictReport {
            transform: artefact.hash.to_string(),
            to: output.name(),
            ..PredictReport::default()
        };
        let answers = image_columns(artefact)?;
        let predict = move || -> anyhow::Result<PredictReport> {
            landed_images.answer(&answers, &model, output, &mut report)?;
            series::add_rejects(&mut report, &found);
            Ok(report)
        };
        let report = tokio::task::spawn_blocking(predict).await?;
        drop(folder);
        self.finish_predict(options, report)
    }

    /// Builds a dataset of the landed images. Returns it, if any image is usable, and the rejected
    /// rows.
    async fn build_images(
        &self,
        landing: &series::Landing,
        context: feedline_preprocess::Context,
    ) -> anyhow::Result<(Option<Store>, BTreeMap<LandedPlace, RejectedRow>)> {
        let context = feedline_preprocess::Context {
            root: landing.root.clone(),
            ..context
        };
        let build = Box::pin(feedline_preprocess::refit(&landing.config, &context));
        let built = self.tools.stop.unless_stopped(build).await?;
        let dataset = landing.root.child("dataset");
        match built {
            // No image is usable, and the report needs the reason of each.
            Err(feedline_preprocess::Error::TooManyRejects { .. }) => {
                let rejected = feedline_preprocess::all_rejected_rows(&dataset).await?;
                Ok((None, rejected))
            }
            built => {
                built
                    .with_context(|| format!("cannot predict the images of `{}`", landing.file))?;
                let built = feedline_preprocess::read_manifest(&dataset).await?;
                let rejected = feedline_preprocess::rejected_rows(&dataset, &built).await?;
                Ok((Some(dataset), rejected))
            }
        }
    }
}

/// Folder, file or archive with the images; refuses options that are for rows of a table.
fn images_of(options: &cli::Predict) -> anyhow::Result<&str> {
    let Some(place) = &options.rows else {
        anyhow::bail!("the model reads images; give a folder, an image file or an archive of them");
    };
    anyhow::ensure!(
        options.history.is_none() && options.keep.is_empty() && !options.flags,
        "`--history`, `--passthrough` and `--flags` are for rows of a table, and the model reads images; leave them out"
    );
    Ok(place)
}

/// Columns of the output: the path of an image, and its class or number.
fn image_columns(artefact: TransformArtefact) -> anyhow::Result<Answers> {
    let is_class = matches!(artefact.target, Some(FittedTarget::Classification { .. }));
    Ok(Answers {
        predictor: None,
        names: Vec::new(),
        transform: Arc::new(Transform::new(artefact)?),
        kept: vec![images::PATH.to_owned()],
        kept_types: Vec::new(),
        numbers: Vec::new(),
        predicted: Some(match is_class {
            true => Predicted::Classes {
                ids: Vec::new(),
                probabilities: Vec::new(),
            },
            false => Predicted::Numbers(Vec::new()),
        }),
        flags: false,
    })
}
