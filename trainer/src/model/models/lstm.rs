//! Long short-term memory, over time series or tokens.

use burn::tensor::{Int, Tensor};
use feedline_schemas::config::ModelConfig;

use super::blocks::size;
use crate::{
    error::{Error, config as wrong},
    model::{
        interface::{Input, Model, Objective},
        layers::{Builder, Dropout, Embedding, Gain, Layout, Linear, Lstm, Pass},
    },
};

/// Layers one above the other, with dropout after each.
#[derive(Clone, Debug)]
struct Stack {
    layers: Vec<(Lstm, Dropout)>,
}

impl Stack {
    fn new(b: &mut Builder, config: &ModelConfig, [steps, from]: [usize; 2]) -> Self {
        let width = size(config.width);
        let layer = |i: usize| {
            let from = if i == 0 { from } else { width };
            let layer = Lstm::new(b, &format!("lstm.{i}"), [steps, from], width);
            (layer, Dropout::new(b, config.dropout))
        };
        Self {
            layers: (0..size(config.layers)).map(layer).collect(),
        }
    }

    /// `[rows, steps, in]` to the highest layer's state after each step. The state begins at each position 0.
    fn forward(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        positions: Option<&Tensor<2, Int>>,
    ) -> Tensor<3> {
        let layers = self.layers.iter();
        layers.fold(x, |x, (lstm, dropout)| {
            let states = lstm.forward_documents(pass, x, positions);
            pass.border(dropout.forward(pass, states))
        })
    }
}

/// Reads a row as a time series, `[steps, channels]`, step by step; the outputs come from the state after the last.
#[derive(Clone, Debug)]
pub(super) struct RowSeries {
    layout: Layout,
    stack: Stack,
    last: Linear,
    steps: usize,
}

impl RowSeries {
    /// For rows of `features`.
    ///
    /// # Errors
    /// [`Error::Config`] when the steps do not divide the features.
    pub(super) fn new(
        config: &ModelConfig,
        features: usize,
        outputs: usize,
    ) -> Result<Self, Error> {
        if config.context.is_some() {
            let reason = "it is for tokens, the dataset holds rows of numbers; take it out";
            return Err(wrong("model.context", reason));
        }
        let steps = config.steps.map_or(features, |steps| steps as usize);
        if !features.is_multiple_of(steps) {
            let reason = format!("it is {steps} and must divide the features of a row, {features}");
            return Err(wrong("model.steps", reason));
        }
        let mut b = Builder::new();
        let stack = Stack::new(&mut b, config, [steps, features / steps]);
        let last = Linear::new(&mut b, "last", &[size(config.width)], outputs, Gain::Glorot);
        Ok(Self {
            layout: b.finish(),
            stack,
            last,
            steps,
        })
    }
}

impl Model for RowSeries {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = input.rows();
        let [rows, features] = x.dims();
        let x = x.reshape([rows, self.steps, features / self.steps]);
        let states = self.stack.forward(pass, x, None);
        let width = states.dims()[2];
        let last = states.narrow(1, self.steps - 1, 1);
        self.last.forward(pass, last.reshape([rows, width]))
    }
}

/// Predicts the next token. The state begins with each packed document, unless the row is one stream.
#[derive(Clone, Debug)]
pub(super) struct Language {
    layout: Layout,
    tokens: Embedding,
    stack: Stack,
    scores: Linear,
    vocabulary: usize,
}

impl Language {
    /// For `length` ids below `vocabulary`.
    pub(super) fn new(config: &ModelConfig, length: usize, vocabulary: usize) -> Self {
        let width = size(config.width);
        let mut b = Builder::new();
        let gain = Gain::Normal(1.0);
        let tokens = Embedding::new(&mut b, "tokens", [vocabulary, width], length, gain);
        let stack = Stack::new(&mut b, config, [length, width]);
        let scores = Linear::new(&mut b, "scores", &[length, width], vocabulary, Gain::Glorot);
        Self {
            layout: b.finish(),
            tokens,
            stack,
            scores,
            vocabulary,
        }
    }
}

impl Model for Language {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let tokens = input.tokens();
        let ids = tokens.ids.clone();
        let [rows, length] = ids.dims();
        let x = self.tokens.forward(pass, ids);
        let states = self.stack.forward(pass, x, Some(&tokens.positions));
        let scores = self.scores.forward(pass, states);
        scores.reshape([rows * length, self.vocabulary])
    }

    fn objective(&self) -> Objective {
        Objective::NextToken
    }
}
