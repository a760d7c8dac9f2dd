//! Layers: each lays its parameters out in a [`Builder`] and computes its outputs in a [`Pass`].
//!
//! All parameters of a model are in one flat f32 bucket, one range after the other in the order of
//! building. After them come the buffers, numbers that no gradient moves (the running statistics of
//! batch norm). A layer keeps [`Slot`]s, not tensors, so the same layer serves every part of a
//! batch, every thread and every precision: the tensors come with the pass.
//!
//! Types: products (fully connected, convolution, attention, LSTM) are computed in bf16 or f16 where `train.precision`
//! says so; norms, softmax, exponentials and dropout in f32. Every layer gives back the type it got, so tensors of two
//! types meet only where a model makes them.
//!
//! Sizes: a layer's constructor takes the sizes of one sample (`[channels, height, width]`), its `forward` takes tensors
//! with the samples in front. Constructors assume sizes that fit, which the models check before they build.
//!
//! Two layers are laid out, each under its name:
//!
//! ```
//! use feedline_trainer::layers::{Builder, Gain, Linear};
//!
//! let mut builder = Builder::new();
//! builder.within("encoder", |b| Linear::new(b, "first", &[4], 8, Gain::He));
//! Linear::new(&mut builder, "last", &[8], 1, Gain::Glorot);
//! let layout = builder.finish();
//! assert_eq!(layout.len(), (4 * 8 + 8) + (8 * 1 + 1));
//! let names: Vec<&str> = layout.facts().iter().map(|layer| layer.name.as_str()).collect();
//! assert_eq!(names, ["encoder.first", "last"]);
//! ```

mod activation;
mod activation_checkpoint;
mod attention;
mod blockwise;
mod builder;
mod conv;
mod embedding;
mod grad_hooks;
mod graph;
mod heads;
mod kernel;
mod linear;
mod lora;
mod lstm;
mod norm;
mod pass;
mod window;

#[cfg(test)]
pub(crate) mod check;

pub use self::{
    activation::{Activation, Dropout},
    attention::{AngleTable, Angles, Attention, KeyValueCache, Mask},
    builder::{Buffer, Builder, Initial, LayerFacts, Layout, Parameter, Segment, Slot},
    conv::{AveragePool, Conv2d, MaxPool, global_average},
    embedding::Embedding,
    heads::Heads,
    linear::{Gain, Linear},
    lstm::Lstm,
    norm::{BatchNorm, GroupNorm, LayerNorm, MOMENTUM, RmsNorm},
    pass::{Pass, in_f32},
};
pub(crate) use self::{
    builder::bucket_len,
    grad_hooks::Harvest,
    pass::{Ghosts, PassSettings, Training, observed_in},
};
