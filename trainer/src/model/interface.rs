//! Interface of a model: a layout of numbers in one flat bucket, and a forward pass.
//!
//! # A model of one's own
//! Lay the layers out in a [`Builder`](crate::model::layers::Builder), keep them and the finished
//! [`Layout`], and compute outputs from an [`Input`] with whatever control flow is wanted: the
//! backward pass follows the computation. Then train it with [`train_with`](crate::train_with).
//! `examples/own_model.rs` is a complete one.
//!
//! The promises of a run (the same bits on every resume and for any number of threads) hold for a
//! model whose outputs for a row are a function of the bucket, the row and the pass alone.

use std::fmt::Debug;

use burn::tensor::{Bool, Device, Int, Tensor};
use feedline_schemas::{config::LoraConfig, ids::Seed};

pub(crate) use crate::model::layers::{Parameter, bucket_len};
use crate::{
    error::Error,
    model::layers::{KeyValueCache, Layout, Mask, Pass},
};

/// A network.
///
/// A model of one layer:
///
/// ```no_run
/// # use feedline_trainer::{
/// #     Context, Error, Input, Model, Resume, Shape, tensor::Tensor, train_with,
/// #     layers::{Builder, Gain, Layout, Linear, Pass},
/// # };
/// #[derive(Debug)]
/// struct OneLayer(Layout, Linear);
///
/// impl Model for OneLayer {
///     fn layout(&self) -> &Layout { &self.0 }
///     fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
///         self.1.forward(pass, input.rows())
///     }
/// }
/// # fn example(context: &Context) -> Result<(), Error> {
/// # let config = feedline_schemas::config::TrainConfig::default();
/// # let features = |shape| match shape { Shape::Rows { features } => features, _ => 0 };
/// let build = |shape: Shape, outputs: usize| -> Result<Box<dyn Model>, Box<Error>> {
///     let mut builder = Builder::new();
///     let layer = Linear::new(&mut builder, "layer", &[features(shape)], outputs, Gain::Glorot);
///     Ok(Box::new(OneLayer(builder.finish(), layer)))
/// };
/// let report = train_with(&config, Some(&build), Resume::Continue, context)?;
/// # drop(report);
/// # Ok(()) }
/// ```
pub trait Model: Debug + Send + Sync {
    /// Ranges of its parameters and buffers.
    fn layout(&self) -> &Layout;

    /// Computes outputs from `input`. With rows, images or several of them: `[rows, outputs]`. For a model that learns
    /// the next token: `[rows * length, vocabulary]`, positions of the first row first.
    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2>;

    /// Objective that the outputs are compared with.
    fn objective(&self) -> Objective {
        Objective::Target
    }

    /// Scores of the token after each row of `ids`, `[rows, new]`, which come after the tokens whose keys and values are in
    /// `cache`: `[rows, vocabulary]`. Adds the new ones to the cache. `None` for a model without keys and values, whose
    /// texts are continued by whole passes.
    fn extend(
        &self,
        pass: &Pass<'_>,
        ids: Tensor<2, Int>,
        cache: &mut KeyValueCache,
    ) -> Option<Tensor<2>> {
        drop((pass, ids, cache));
        None
    }

    /// The parameters and buffers in bucket order, without gaps.
    #[doc(hidden)]
    fn parameters(&self) -> &[Parameter] {
        self.layout().entries()
    }

    /// The initial bucket: a pure function of the seed.
    #[doc(hidden)]
    fn initial(&self, seed: Seed) -> Vec<f32> {
        self.layout().initial(seed)
    }
}

/// Objective that a model's outputs are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The dataset's target.
    Target,
    /// The rows themselves.
    Input,
    /// The token after each position.
    NextToken,
}

/// Inputs of a model: the parts that the samples have.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Numbers, `[rows, features]`.
    pub rows: Option<Tensor<2>>,
    /// Images, normalised, `[rows, channels, height, width]`.
    pub images: Option<Tensor<4>>,
    /// Token ids.
    pub tokens: Option<TokenInput>,
}

/// Token ids of some rows.
#[derive(Clone, Debug)]
pub struct TokenInput {
    /// Ids, `[rows, length]`.
    pub ids: Tensor<2, Int>,
    /// Position of each id in its document, `[rows, length]`, below the length.
    pub positions: Tensor<2, Int>,
    /// Positions that each position may attend to: itself and those before it in its document.
    pub mask: Mask,
    /// Of texts beside other parts, what each position counts in a mean over its row, `[rows, length]`: one over the
    /// text's length, and 0 for padding.
    pub shares: Option<Tensor<2>>,
    /// The ids to predict, where they are on a device that is not the processor.
    pub(crate) next: Option<NextIds>,
}

/// The id after each position of some rows.
#[derive(Clone, Debug)]
pub(crate) struct NextIds {
    /// Ids, `[rows, length]`.
    pub(crate) ids: Tensor<2, Int>,
    /// True where the id belongs to the same document or stream, and so has a loss; `None` where all do.
    pub(crate) predicted: Option<Tensor<2, Bool>>,
}

impl NextIds {
    /// The same beside outputs whose device tracks gradients, or not, as `device` does.
    pub(crate) fn on(&self, device: &Device) -> Self {
        let Self { ids, predicted } = self.clone();
        if device.is_autodiff() {
            Self {
                ids: ids.autodiff(),
                predicted: predicted.map(Tensor::autodiff),
            }
        } else {
            Self {
                ids: ids.inner(),
                predicted: predicted.map(Tensor::inner),
            }
        }
    }
}

impl Input {
    /// The rows.
    ///
    /// # Panics
    /// When there are none: what a model reads is checked against the dataset before it is built.
    #[must_use]
    pub fn rows(&self) -> Tensor<2> {
        self.rows
            .clone()
            .expect("a model that reads rows is built for rows only")
    }

    /// The images.
    ///
    /// # Panics
    /// As [`rows`](Self::rows).
    #[must_use]
    pub fn images(&self) -> Tensor<4> {
        self.images
            .clone()
            .expect("a model that reads images is built for images only")
    }

    /// The numbers of each sample, `[rows, numbers]`: rows as they are, of an image one plane after the other.
    pub(crate) fn numbers(&self) -> Tensor<2> {
        match &self.images {
            Some(images) => images.clone().flatten(1, 3),
            None => self.rows(),
        }
    }

    /// The tokens.
    ///
    /// # Panics
    /// As [`rows`](Self::rows).
    #[must_use]
    pub fn tokens(&self) -> &TokenInput {
        self.tokens
            .as_ref()
            .expect("a model that reads tokens is built for tokens only")
    }
}

/// Shape of samples for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Rows of numbers.
    Rows {
        /// Numbers in a row.
        features: usize,
    },
    /// Images.
    Images {
        /// Colours: 3, or 1 for brightness.
        channels: usize,
        /// Pixels.
        height: usize,
        /// Pixels.
        width: usize,
    },
    /// Rows of token ids.
    Tokens {
        /// Ids that the model reads of a row.
        length: usize,
        /// Number of ids there are.
        vocabulary: usize,
    },
    /// Rows of several parts; missing ones are empty.
    Multi {
        /// Numbers in a row; 0 for none.
        features: usize,
        /// Colours, height and width of images.
        images: Option<[usize; 3]>,
        /// Ids of a row's text, padding included, and the number of ids there are.
        tokens: Option<[usize; 2]>,
    },
}

impl Shape {
    /// The parts, each as a shape of its own.
    pub(crate) fn parts(self) -> Vec<Self> {
        let Self::Multi {
            features,
            images,
            tokens,
        } = self
        else {
            return vec![self];
        };
        let rows = (features > 0).then_some(Self::Rows { features });
        let images = images.map(|[channels, height, width]| Self::Images {
            channels,
            height,
            width,
        });
        let tokens = tokens.map(|[length, vocabulary]| Self::Tokens { length, vocabulary });
        [rows, images, tokens].into_iter().flatten().collect()
    }
}

/// A model with adapters.
#[derive(Debug)]
struct Adapted {
    model: Box<dyn Model>,
    layout: Layout,
}

impl Model for Adapted {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        self.model.forward(pass, input)
    }

    fn objective(&self) -> Objective {
        self.model.objective()
    }

    fn extend(
        &self,
        pass: &Pass<'_>,
        ids: Tensor<2, Int>,
        cache: &mut KeyValueCache,
    ) -> Option<Tensor<2>> {
        self.model.extend(pass, ids, cache)
    }
}

/// The model with the adapters that `config` names, if any.
///
/// # Errors
/// [`Error::Config`] for a pattern that describes no fully connected layer.
pub(crate) fn adapted(
    model: Box<dyn Model>,
    config: Option<&LoraConfig>,
) -> Result<Box<dyn Model>, Error> {
    let Some(config) = config else {
        return Ok(model);
    };
    let layout = model.layout().adapted(config)?;
    Ok(Box::new(Adapted { model, layout }))
}

/// Builds a model for samples of a shape and a number of outputs.
pub type Build<'a> = dyn Fn(Shape, usize) -> Result<Box<dyn Model>, Box<Error>> + 'a;

/// Most parameters a model may have: 2^31, 8 GiB of weights, with moments and gradient 32 GiB.
pub(crate) const PARAMETERS_MAX: usize = 1 << 31;
