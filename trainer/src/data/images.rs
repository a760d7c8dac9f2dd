//! `[train.images]`: the loader's settings for images, and the statistics that they are normalised by.

use feedline_loader::image::{Augment, Crop, ImageConfig, MixConfig};
use feedline_schemas::{
    config::{AugmentStep, Augmentation, DatasetKind, ImagesConfig, NormaliseBy, TrainConfig},
    manifest::Layout,
    report::{ImagesReport, NormalizedBy},
    transform::{FittedImages, TransformArtefact},
};

use crate::{
    config::values::above_zero,
    error::{Error, config as wrong},
    float_casts::single,
    model::{init::Weights, input::Statistics},
};

/// Checks every value of `config` that needs no dataset.
///
/// # Errors
/// [`Error::Config`] for the first value that is out of range, or does not fit the others.
pub(crate) fn check(config: &ImagesConfig) -> Result<(), Error> {
    if !matches!(config.channels, 1 | 3) {
        let reason = format!("it is {} and must be 1 or 3", config.channels);
        return Err(wrong("images.channels", reason));
    }
    let (mean, deviation) = (config.mean, config.deviation);
    for mean in mean.into_iter().flatten() {
        // Shares of 255: means of bytes would make all images alike.
        if !(0.0..=1.0).contains(&mean) {
            let reason = format!(
                "it is a share of 255, 0 to 1, and `{mean}` is none; divide means of bytes by 255"
            );
            return Err(wrong("images.mean", reason));
        }
    }
    for deviation in deviation.into_iter().flatten() {
        above_zero("images.deviation", f64::from(deviation))?;
        if deviation > 1.0 {
            let reason = format!(
                "it is a share of 255, up to 1, and `{deviation}` is none; divide deviations of bytes by 255"
            );
            return Err(wrong("images.deviation", reason));
        }
    }
    if let Some(mix) = &config.mix
        && mix.mixup <= 0.0
        && mix.cutmix <= 0.0
    {
        let reason = "`mixup` and `cutmix` are both 0, so no image is mixed; give one of them a probability, or leave the table out";
        return Err(wrong("images.mix", reason));
    }
    if mean.is_some() != deviation.is_some() {
        let (given, other) = match mean {
            Some(_) => ("mean", "deviation"),
            None => ("deviation", "mean"),
        };
        let reason = format!("it is given without `train.images.{other}`; give both or none");
        return Err(wrong(&format!("images.{given}"), reason));
    }
    if config.normalize.is_some() && mean.is_some() {
        let reason = "`mean` and `deviation` are given as well; leave out one or the other";
        return Err(wrong("images.normalize", reason));
    }
    if let Augmentation::Steps(steps) = &config.augment {
        check_steps(steps)?;
    }
    let mixing = ImageConfig {
        mix: mix(config),
        ..whole(1, 1)
    };
    mixing.check().map_err(|error| of_loader(error, None))
}

fn check_steps(steps: &[AugmentStep]) -> Result<(), Error> {
    for (i, step) in steps.iter().enumerate() {
        if i > 0 && matches!(step, AugmentStep::RandomResizedCrop { .. }) {
            let reason = "only the first step can be a `random_resized_crop`: it cuts the image out of the file as it is \
                          decoded; move it to the front";
            return Err(wrong(&format!("images.augment.{i}"), reason));
        }
        let config = with_steps(whole(1, 1), std::slice::from_ref(step));
        config.check().map_err(|error| of_loader(error, Some(i)))?;
    }
    Ok(())
}

/// An error of the loader about a key of its own, as one about the key of step `step`.
fn of_loader(error: feedline_loader::Error, step: Option<usize>) -> Error {
    let feedline_loader::Error::Config { key, reason } = error else {
        return error.into();
    };
    let field = key.rsplit('.').next().unwrap_or(key);
    let key = match step {
        Some(i) => format!("images.augment.{i}.{field}"),
        None => format!("images.mix.{}", field.trim_end_matches("_probability")),
    };
    wrong(&key, reason)
}

/// The whole image, nothing random.
const fn whole(height: u32, width: u32) -> ImageConfig {
    ImageConfig::new(height, width, Crop::Whole)
}

/// The loader's settings for images, of a split that is trained on or one that is measured.
pub(crate) fn for_loader(config: &ImagesConfig, trained_on: bool) -> ImageConfig {
    let (height, width) = (config.height, config.width);
    if !trained_on {
        return whole(height, width);
    }
    let augmented = match &config.augment {
        Augmentation::Usual(true) => ImageConfig::training(height, width),
        Augmentation::Usual(false) => whole(height, width),
        Augmentation::Steps(steps) => with_steps(whole(height, width), steps),
    };
    ImageConfig {
        mix: mix(config),
        ..augmented
    }
}

fn with_steps(mut config: ImageConfig, steps: &[AugmentStep]) -> ImageConfig {
    for step in steps {
        config.augment.push(match *step {
            AugmentStep::RandomResizedCrop { scale, ratio } => {
                config.crop = Crop::RandomResized { scale, ratio };
                continue;
            }
            AugmentStep::RandomCrop { padding, fill } => Augment::RandomCrop { padding, fill },
            AugmentStep::HorizontalFlip { probability } => Augment::HorizontalFlip { probability },
            AugmentStep::VerticalFlip { probability } => Augment::VerticalFlip { probability },
            AugmentStep::Rotate { degrees, fill } => Augment::Rotate { degrees, fill },
            AugmentStep::ColourJitter {
                brightness,
                contrast,
                saturation,
                hue,
            } => Augment::ColourJitter {
                brightness,
                contrast,
                saturation,
                hue,
            },
            AugmentStep::RandAugment {
                operations,
                magnitude,
                bins,
                fill,
            } => Augment::RandAugment {
                operations,
                magnitude,
                bins,
                fill,
            },
            AugmentStep::Cutout {
                probability,
                side,
                fill,
            } => Augment::Cutout {
                probability,
                side,
                fill,
            },
        });
    }
    config
}

fn mix(config: &ImagesConfig) -> Option<MixConfig> {
    config.mix.map(|mix| MixConfig {
        mixup_probability: mix.mixup,
        mixup_alpha: mix.mixup_alpha,
        cutmix_probability: mix.cutmix,
        cutmix_alpha: mix.cutmix_alpha,
    })
}

/// Refuses what images are asked for of a dataset of a kind that has none, before it is built.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn check_kind(config: &ImagesConfig, dataset: DatasetKind) -> Result<(), Error> {
    let key = match (dataset, config.mix, config.augment.is_on()) {
        (DatasetKind::Images | DatasetKind::Multi, ..) => return Ok(()),
        (_, Some(_), _) => "images.mix",
        (_, None, true) => "images.augment",
        (_, None, false) => return Ok(()),
    };
    Err(wrong(key, "the dataset has no images; leave it out"))
}

/// Refuses what images are asked for of a dataset that has none, or that its rows cannot have.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn check_layout(config: &ImagesConfig, layout: &Layout) -> Result<(), Error> {
    let has_images = has_images(layout);
    if config.augment.is_on() && !has_images {
        let reason = "the dataset has no images; leave it out";
        return Err(wrong("images.augment", reason));
    }
    match (config.mix, layout) {
        (None, _) | (Some(_), Layout::Images { .. }) => Ok(()),
        (Some(_), Layout::Multi { images: true, .. }) => {
            let reason = "the other parts of a row cannot be mixed; leave it out";
            Err(wrong("images.mix", reason))
        }
        (Some(_), _) => Err(wrong(
            "images.mix",
            "the dataset has no images; leave it out",
        )),
    }
}

/// `config` with the defaults for images where the dataset has none: they change nothing there, so other values are no other
/// run.
pub(crate) fn of_layout(config: &TrainConfig, layout: &Layout) -> TrainConfig {
    let mut config = config.clone();
    if !has_images(layout) {
        config.images = ImagesConfig::default();
    }
    config
}

fn has_images(layout: &Layout) -> bool {
    matches!(
        layout,
        Layout::Images { .. } | Layout::Multi { images: true, .. }
    )
}

/// The statistics that images are normalised by, and where they come from.
///
/// # Errors
/// [`Error::Config`] where the dataset is asked for those that it does not have.
pub(crate) fn statistics(
    config: &TrainConfig,
    artefact: &TransformArtefact,
    weights: Option<&Weights>,
) -> Result<(Statistics, NormalizedBy), Error> {
    let images = &config.images;
    if let (Some(mean), Some(deviation)) = (images.mean, images.deviation) {
        return Ok(([mean, deviation], NormalizedBy::Given));
    }
    let imagenet = (ImagesConfig::IMAGENET, NormalizedBy::Imagenet);
    let fitted = artefact.images.as_ref().filter(|f| f.pixels > 0);
    let of_dataset = |fitted| {
        (
            of_training_split(fitted, images.channels),
            NormalizedBy::Dataset,
        )
    };
    match (images.normalize, weights) {
        (Some(NormaliseBy::Imagenet), _) => Ok(imagenet),
        (Some(NormaliseBy::Dataset), _) => fitted.map(of_dataset).ok_or_else(|| {
            let reason = "the dataset has no statistics of its images; add `[dataset.image]` and build it again, or set \
                          `\"imagenet\"`";
            wrong("images.normalize", reason)
        }),
        (None, Some(weights)) => Ok(weights
            .statistics()
            .map_or(imagenet, |found| (found, NormalizedBy::Init))),
        (None, None) => Ok(fitted.map_or(imagenet, of_dataset)),
    }
}

/// Mean and deviation as the dataset's transform has them; of one channel, those of the brightness. The deviation of a
/// colour that never changes is taken for 1. The brightness of images in colour is taken to change as if their colours
/// changed together; of grey ones these are its exact figures.
fn of_training_split(fitted: &FittedImages, channels: u32) -> Statistics {
    let of_colours = [fitted.mean, fitted.deviation];
    let of_model = if channels == 1 {
        of_colours.map(|[red, green, blue]| [0.299 * red + 0.587 * green + 0.114 * blue; 3])
    } else {
        of_colours
    };
    let [mean, deviation] = of_model.map(|colours| colours.map(single));
    let deviation = deviation.map(|value| if value > 0.0 { value } else { 1.0 });
    [mean, deviation]
}

/// Treatment of images by a training; `None` where the dataset has none.
pub(crate) fn report(
    config: &ImagesConfig,
    normalized_by: NormalizedBy,
    layout: &Layout,
) -> Option<ImagesReport> {
    let [mean, deviation] = ImagesConfig::IMAGENET;
    has_images(layout).then(|| ImagesReport {
        mean: config.mean.unwrap_or(mean),
        deviation: config.deviation.unwrap_or(deviation),
        normalized_by,
        augmented: config.augment.is_on(),
        mixed: config.mix.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::ImageMixConfig;

    use super::*;
    use crate::data::task::tests::artefact;

    fn refused(change: impl FnOnce(&mut ImagesConfig)) -> String {
        let mut config = ImagesConfig::default();
        change(&mut config);
        check(&config).unwrap_err().to_string()
    }

    fn steps(json: &str) -> Augmentation {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_step_out_of_range_is_named_by_its_place() {
        let error = refused(|c| {
            c.augment = steps(
                r#"[{"type": "horizontal_flip"}, {"type": "vertical_flip", "probability": 1.5}]"#,
            );
        });
        assert!(
            error
                .starts_with("cannot use `train.images.augment.1.probability`: it is `[1.5, 1.5]`"),
            "{error}"
        );
        let error = refused(|c| {
            c.augment = steps(r#"[{"type": "random_resized_crop", "scale": [0.5, 0.1]}]"#)
        });
        assert!(error.contains("`train.images.augment.0.scale`"), "{error}");
        let error = refused(|c| {
            c.augment =
                steps(r#"[{"type": "cutout", "side": 2}, {"type": "random_resized_crop"}]"#);
        });
        assert!(
            error.contains("`train.images.augment.1`: only the first"),
            "{error}"
        );
        let error = refused(|c| {
            c.mix = Some(ImageMixConfig {
                mixup: 0.75,
                cutmix: 0.5,
                ..ImageMixConfig::default()
            });
        });
        assert!(error.contains("`train.images.mix.cutmix`"), "{error}");
    }

    #[test]
    fn half_of_the_statistics_and_two_words_on_them_are_refused() {
        let error = refused(|c| c.mean = Some([0.5; 3]));
        assert!(
            error.contains("`train.images.mean`: it is given without"),
            "{error}"
        );
        let error = refused(|c| {
            (c.mean, c.deviation) = (Some([0.5; 3]), Some([0.5; 3]));
            c.normalize = Some(NormaliseBy::Imagenet);
        });
        assert!(error.contains("`train.images.normalize`"), "{error}");
    }

    #[test]
    fn what_is_written_reaches_the_loader_in_its_order_and_only_for_training() {
        let config = ImagesConfig {
            augment: steps(
                r#"[{"type": "random_resized_crop"}, {"type": "rotate", "degrees": [-9, 9]}, {"type": "rand_augment"}]"#,
            ),
            mix: Some(ImageMixConfig {
                cutmix: 1.0,
                ..ImageMixConfig::default()
            }),
            ..ImagesConfig::default()
        };
        let trained = for_loader(&config, true);
        assert_eq!(trained.crop, ImageConfig::training(1, 1).crop);
        let [
            Augment::Rotate { degrees, .. },
            Augment::RandAugment { magnitude, .. },
        ] = trained.augment[..]
        else {
            panic!("{:?}", trained.augment)
        };
        assert_eq!((degrees, magnitude), ([-9.0, 9.0], 9));
        assert_eq!(trained.mix, Some(MixConfig::new(0.0, 1.0)));
        assert_eq!(for_loader(&config, false), whole(224, 224));
        let usual = ImagesConfig {
            augment: Augmentation::Usual(true),
            ..ImagesConfig::default()
        };
        assert_eq!(for_loader(&usual, true), ImageConfig::training(224, 224));
    }

    #[test]
    fn statistics_are_the_datasets_unless_something_else_is_said() {
        let plain = TrainConfig::default();
        let of = |config: &TrainConfig, fitted: Option<FittedImages>| {
            let mut artefact = artefact(None);
            artefact.images = fitted;
            statistics(config, &artefact, None)
        };
        let fitted = || {
            Some(FittedImages {
                column: "p".into(),
                prepared: feedline_schemas::config::StoredImageConfig::default(),
                pixels: 9,
                mean: [0.1, 0.2, 0.3],
                deviation: [0.0, 0.5, 0.25],
            })
        };
        let (found, by) = of(&plain, fitted()).unwrap();
        assert_eq!(
            (found, by),
            ([[0.1, 0.2, 0.3], [1.0, 0.5, 0.25]], NormalizedBy::Dataset)
        );
        let imagenet = (ImagesConfig::IMAGENET, NormalizedBy::Imagenet);
        assert_eq!(of(&plain, None).unwrap(), imagenet);
        let asking = |by| {
            let mut config = TrainConfig::default();
            config.images.normalize = Some(by);
            config
        };
        assert_eq!(
            of(&asking(NormaliseBy::Imagenet), fitted()).unwrap(),
            imagenet
        );
        let error = of(&asking(NormaliseBy::Dataset), None).unwrap_err();
        assert!(error.to_string().contains("no statistics of its images"));
        let mut given = TrainConfig::default();
        (given.images.mean, given.images.deviation) = (Some([0.5; 3]), Some([0.5; 3]));
        assert_eq!(
            of(&given, fitted()).unwrap(),
            ([[0.5; 3]; 2], NormalizedBy::Given)
        );
    }

    #[test]
    fn settings_of_images_are_those_of_no_run_on_rows() {
        let mut config = TrainConfig::default();
        config.images.height = 3;
        let target = feedline_schemas::manifest::TargetKind::Regression;
        let rows = Layout::Dense {
            features: 2,
            target,
        };
        assert_eq!(of_layout(&config, &rows), TrainConfig::default());
        assert_eq!(of_layout(&config, &Layout::Images { target }), config);
    }

    #[test]
    fn brightness_of_grey_images_has_their_statistics() {
        let fitted = FittedImages {
            column: "p".into(),
            prepared: feedline_schemas::config::StoredImageConfig::default(),
            pixels: 9,
            mean: [0.2860; 3],
            deviation: [0.3530; 3],
        };
        let [mean, deviation] = of_training_split(&fitted, 1);
        assert!((mean[0] - 0.2860).abs() < 1e-7 && (deviation[0] - 0.3530).abs() < 1e-7);
    }
}
