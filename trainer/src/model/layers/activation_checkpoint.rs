//! Segments: parts of a model that are computed again in the backward pass instead of being kept (activation
//! checkpointing; Chen, Xu, Zhang, Guestrin 2016, arXiv 1604.06174).
//!
//! In the forward pass such a segment is computed without a graph, and only its input is kept. In the backward pass it is
//! computed again, now with a graph of its own, through which the gradient of its output goes back at once; then that
//! graph is gone. What it keeps for the backward pass is there for one segment at a time. The same operations on the same
//! numbers in the same order: losses and gradients have the same bits as without.

use std::{fmt, marker::PhantomData, sync::Arc};

use burn::{
    backend::{
        Backend,
        autodiff::{
            checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        tensor::FloatTensor,
    },
    tensor::Tensor,
};

use super::{
    Layout, Pass, Segment,
    grad_hooks::Taker,
    graph::{ONE_BACKEND, Reach, on_graph},
    pass::{PassSettings, Training},
};

const HARVEST: &str = "weights that want gradients come with a harvest";

impl Pass<'_> {
    /// Computes `forward` of `x`, which is all that is kept of it for the backward pass where the configuration names the
    /// segment in `train.model.checkpoint`: the backward pass computes it again. The numbers have the same bits.
    ///
    /// `forward` must give the same numbers each time, and other tensors that it takes along must be constants: what a
    /// gradient flows through has to come as `x`.
    ///
    /// # Panics
    /// When `forward` takes along a tensor that a gradient flows through.
    #[must_use]
    pub fn checkpoint<const D: usize, const E: usize>(
        &mut self,
        segment: Segment,
        x: Tensor<D>,
        forward: impl Fn(&mut Pass<'_>, Tensor<D>) -> Tensor<E> + Send + Sync + 'static,
    ) -> Tensor<E> {
        let x = self.border(x);
        let y = match self.training {
            Some(training) if self.settings.again(segment.0) && x.is_autodiff() => {
                record(self, x, training, forward)
            }
            _ => forward(self, x),
        };
        self.border(y)
    }
}

/// Computes `forward` of `x` with constants; the operation that is recorded computes it again.
fn record<const D: usize, const E: usize>(
    pass: &mut Pass<'_>,
    x: Tensor<D>,
    training: Training,
    forward: impl Fn(&mut Pass<'_>, Tensor<D>) -> Tensor<E> + Send + Sync + 'static,
) -> Tensor<E> {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if <burn::backend::Cube as Reach>::on_graph(x.clone()).is_some() {
        return record_on::<burn::backend::Cube, D, E>(pass, x, training, forward);
    }
    record_on::<burn::backend::Flex, D, E>(pass, x, training, forward)
}

fn record_on<B: Reach, const D: usize, const E: usize>(
    pass: &mut Pass<'_>,
    x: Tensor<D>,
    training: Training,
    forward: impl Fn(&mut Pass<'_>, Tensor<D>) -> Tensor<E> + Send + Sync + 'static,
) -> Tensor<E> {
    let plain: Arc<[Tensor<1>]> = pass.weights.iter().cloned().map(constant).collect();
    let mut again = Again::<B, D, E, _> {
        layout: pass.layout.clone(),
        settings: pass.settings.clone(),
        training,
        weights: Arc::clone(&plain),
        leaves: Vec::new(),
        taker: pass.taker.as_ref().map(Taker::of_known_uses),
        x: constant(x.clone()),
        forward,
        backend: PhantomData,
    };
    let mut inside =
        Pass::new(&again.layout, &plain, Some(training)).with_settings(&again.settings);
    let y = (again.forward)(&mut inside, again.x.clone());
    assert!(
        !y.is_tracked(),
        "a segment uses a tensor from outside that a gradient flows through; give it to the segment as its input"
    );
    let (used, observed) = inside.into_used();
    pass.observed.extend(observed);
    for (parameter, uses) in used {
        pass.note_uses(parameter, uses);
        if pass.weights[parameter].is_require_grad() {
            let taker = pass.taker.as_ref().expect(HARVEST);
            taker.expect(parameter, uses);
            again.leaves.push(parameter);
        }
    }
    if again.leaves.is_empty() && !x.is_tracked() {
        return y;
    }
    let x = on_graph::<B, D>(x);
    // A leaf as a parent makes the operation part of the graph where the input is not.
    let leaf = again.leaves.first();
    let leaf = leaf.map(|&i| on_graph::<B, 1>(pass.weights[i].clone()).node());
    let parents = [x.node(), leaf.unwrap_or_else(|| x.node())];
    let y = B::plain(y.inner()).expect(ONE_BACKEND);
    let y = match Recompute(PhantomData::<B>)
        .prepare::<NoCheckpointing>(parents)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prepared) => prepared.finish(Arc::new(again), y),
        OpsKind::UnTracked(prepared) => prepared.finish(y),
    };
    B::back(y)
}

/// The numbers of `x`, which no gradient flows through. They stay with the backend that makes graphs: for some operations
/// the other one has code of its own that rounds otherwise.
fn constant<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    x.inner().autodiff()
}

/// More operations than any layer puts between a frozen parameter or another constant and where it is used.
const DEPTH: usize = 16;

/// `x` behind so many operations. The backend takes operations in the order of their depth in the graph, and the sum of
/// three gradients depends on the order. In the whole graph the input of a segment is deeper than constants, and
/// parameters are as deep as the boundary in front of the segment; in the graph of its own they
/// have to be too.
fn deepened<B: Reach, const D: usize>(x: Tensor<D>) -> Tensor<D> {
    (0..DEPTH).fold(x, |x, _| through::<B, D>(x, None))
}

/// `x`, whose gradient is said to be `gradient`, where there is one, and in any case is not touched: an operation of the
/// library might lay its numbers out otherwise, and the order of later sums depends on that.
fn through<B: Reach, const D: usize>(x: Tensor<D>, gradient: Option<FloatTensor<B>>) -> Tensor<D> {
    let x = on_graph::<B, D>(x);
    let prepared = Through(PhantomData::<B>).prepare::<NoCheckpointing>([x.node()]);
    let x = x.into_primitive();
    let x = match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(gradient, x),
        OpsKind::UnTracked(prepared) => prepared.finish(x),
    };
    B::back(x)
}

/// The operation that changes no number.
#[derive(Debug)]
struct Through<B>(PhantomData<B>);

impl<B: Reach> Backward<B, 1> for Through<B> {
    type State = Option<FloatTensor<B>>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let found = gradients.consume::<B>(&ops.node);
        if let [Some(x)] = ops.parents {
            gradients.register::<B>(x.id, ops.state.unwrap_or(found));
        }
    }
}

/// The operation of a segment in the graph.
#[derive(Debug)]
struct Recompute<B>(PhantomData<B>);

impl<B: Reach> Backward<B, 2> for Recompute<B> {
    type State = Arc<dyn BackPropagate<B>>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let of_output = gradients.consume::<B>(&ops.node);
        let [x, _] = ops.parents;
        let of_x = ops.state.back_propagate(of_output, x.is_some());
        if let Some((x, of_x)) = x.zip(of_x) {
            gradients.register::<B>(x.id, of_x);
        }
    }
}

/// A segment that was computed without a graph.
trait BackPropagate<B: Backend>: fmt::Debug + Send + Sync {
    /// The gradient of the input, where it is `wanted`, from that of the output. Those of the parameters go to the
    /// harvest.
    fn back_propagate(&self, of_output: FloatTensor<B>, wanted: bool) -> Option<FloatTensor<B>>;
}

/// All that is needed to compute a segment again.
struct Again<B, const D: usize, const E: usize, F> {
    layout: Layout,
    settings: PassSettings,
    training: Training,
    /// Constants.
    weights: Arc<[Tensor<1>]>,
    /// The weights that the segment uses and that want gradients.
    leaves: Vec<usize>,
    /// Receiver of the gradients.
    taker: Option<Taker>,
    /// A constant.
    x: Tensor<D>,
    forward: F,
    backend: PhantomData<fn() -> B>,
}

impl<B, const D: usize, const E: usize, F> fmt::Debug for Again<B, D, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again")
            .field("x", &self.x.dims())
            .finish_non_exhaustive()
    }
}

impl<B: Reach, const D: usize, const E: usize, F> BackPropagate<B> for Again<B, D, E, F>
where
    F: Fn(&mut Pass<'_>, Tensor<D>) -> Tensor<E> + Send + Sync,
{
    fn back_propagate(&self, of_output: FloatTensor<B>, wanted: bool) -> Option<FloatTensor<B>> {
        let mut weights = self.weights.to_vec();
        for &i in &self.leaves {
            weights[i] = constant(weights[i].clone()).require_grad();
        }
        let x = constant(self.x.clone());
        let x = if wanted { x.require_grad() } else { x };
        let mut pass = Pass::new(&self.layout, &weights, Some(self.training))
            .with_settings(&self.settings)
            .with_taker(self.taker.clone());
        let deep = pass.border(deepened::<B, D>(x.clone()));
        let y = (self.forward)(&mut pass, deep);
        let mut gradients = through::<B, E>(y, Some(of_output)).backward();
        let of_x = x.grad_remove(&mut gradients)?;
        Some(B::plain(of_x).expect(ONE_BACKEND))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use feedline_schemas::ids::{Seed, Step};

    use super::*;
    use crate::{
        model::layers::{Builder, Gain, Linear, check::check},
        random::Stream,
    };

    #[test]
    fn gradients_of_an_input_that_is_used_at_several_depths_are_summed_in_the_same_order() {
        check(
            [3, 5],
            |b| Linear::new(b, "l", &[5], 5, Gain::Glorot),
            |l, pass, x| {
                let y = l.forward(pass, x.clone()) + x.clone().tanh();
                y + x.clone() * 0.3 + x.exp()
            },
        );
    }

    #[test]
    #[should_panic(expected = "a gradient flows through")]
    fn a_segment_that_takes_along_what_a_gradient_flows_through_is_refused() {
        let mut builder = Builder::new();
        let (segment, ()) = builder.segment("s", &[2], |_| ());
        let layout = builder.finish();
        let settings = PassSettings::new(&layout, &["s".into()]).unwrap();
        let training = Training {
            stream: Stream::dropout(Seed::new(1), Step::new(0)),
            first_row: 0,
            ghosts: crate::model::layers::Ghosts::WHOLE,
        };
        let mut pass = Pass::new(&layout, &[], Some(training)).with_settings(&settings);
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::ones([1, 2], &device).require_grad();
        let taken = x.clone();
        drop(pass.checkpoint(segment, x, move |_, x| x * taken.clone()));
    }
}
