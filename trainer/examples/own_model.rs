//! A model of one's own, trained on a small made-up dataset: `cargo run -p feedline-trainer --example own_model`.
//!
//! One residual block is applied four times with the same weights, and the outputs after each time are averaged: control
//! flow that no configuration names. Everything else (the loader, the optimizer, checkpoints, early stopping) is as for
//! the models that come with feedline.

use std::sync::Arc;

use feedline_schemas::{
    config::{ScheduleConfig, TrainConfig},
    progress::Silent,
};
use feedline_storage::{Store, clock::SystemClock};
use feedline_testkit::learnable_dataset as dataset;
use feedline_trainer::{
    Context, Error, Group, Input, Model, Resume, Shape,
    layers::{Activation, Builder, Dropout, Gain, LayerNorm, Layout, Linear, Pass},
    tensor::Tensor,
    train_with,
};

/// Number of applications of the block.
const TIMES: u8 = 4;

/// Rows to one number, through a block that is applied again and again.
#[derive(Debug)]
struct Looped {
    layout: Layout,
    first: Linear,
    norm: LayerNorm,
    inner: Linear,
    dropout: Dropout,
    last: Linear,
}

impl Looped {
    fn new(features: usize, outputs: usize) -> Self {
        let (width, mut b) = (32, Builder::new());
        let first = Linear::new(&mut b, "first", &[features], width, Gain::Glorot);
        let (norm, inner, dropout) = b.within("block", |b| {
            let norm = LayerNorm::new(b, "norm", &[width]);
            let inner = Linear::new(b, "inner", &[width], width, Gain::He);
            (norm, inner, Dropout::new(b, 0.05))
        });
        let last = Linear::new(&mut b, "last", &[width], outputs, Gain::Glorot);
        Self {
            layout: b.finish(),
            first,
            norm,
            inner,
            dropout,
            last,
        }
    }
}

impl Model for Looped {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let mut x = self.first.forward(pass, input.rows());
        let mut sum = self.last.forward(pass, x.clone());
        for _ in 0..TIMES {
            let added = self.inner.forward(pass, self.norm.forward(pass, x.clone()));
            x = x + self.dropout.forward(pass, Activation::Gelu.forward(added));
            sum = sum + self.last.forward(pass, x.clone());
        }
        sum / f64::from(TIMES + 1)
    }
}

/// The model for samples of a shape.
fn build(shape: Shape, outputs: usize) -> Result<Box<dyn Model>, Box<Error>> {
    let Shape::Rows { features } = shape else {
        return Err(Box::new(Error::Config {
            key: "train.dataset".into(),
            reason: "this model reads rows of numbers".into(),
        }));
    };
    Ok(Box::new(Looped::new(features, outputs)))
}

#[expect(clippy::print_stdout, reason = "what an example shows")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dataset = Store::memory();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(dataset::publish(&dataset, dataset::Kind::Regression));
    let context = Context {
        dataset,
        runs: Store::memory(),
        weights: None,
        progress: Arc::new(Silent),
        clock: Arc::new(SystemClock),
        stop: Arc::default(),
        group: Group::alone(),
    };
    let config = TrainConfig {
        batch_size: 64,
        learning_rate: 0.01,
        schedule: ScheduleConfig {
            warmup_steps: Some(10),
            ..ScheduleConfig::default()
        },
        ..TrainConfig::default()
    };
    let report = train_with(&config, Some(&build), Resume::Fresh, &context)?;
    let (found, mean) = (report.test["rmse"], report.baseline["rmse"]);
    println!(
        "{} parameters, {} steps: error {found:.3}, of the mean alone {mean:.3}",
        report.parameters, report.steps
    );
    assert!(found < 0.5 * mean, "it learns");
    Ok(())
}
