//! Gradients of parameters, taken out of a backward pass while the rest of it runs.
//!
//! The tensor library goes back through the operations in the order of their depth, deepest first,
//! where the depth of an operation is one more than that of the deepest tensor it takes. A
//! parameter has depth 0, so an operation on parameters only would come last of all. The operation
//! that hands a parameter to a layer therefore takes a mark along, as deep as the layer's input:
//! its turn comes when the backward pass has left the layer, and then it has the gradient of this
//! use. A parameter's gradient is complete after all its uses.
//!
//! Marks and the operations that hand out parameters change no number, and are part of every pass
//! in training: the depths decide in which order three gradients of one tensor are added, and these
//! bits must not depend on a listener.

use std::{
    fmt,
    marker::PhantomData,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use burn::{
    backend::{
        Backend, TensorMetadata,
        autodiff::{
            NodeId,
            checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
    },
    tensor::{DType, Shape, Tensor},
};

use super::graph::{Reach, on_graph};

/// Callback for each parameter, by its number in the layout, with its gradient, flat.
type Finished = Box<dyn FnMut(usize, Option<Tensor<1>>) + Send>;

/// Takes in the gradients of one backward pass.
pub(crate) struct Harvest(Arc<Mutex<HarvestState>>);

struct HarvestState {
    parameters: Vec<Uses>,
    finished: Finished,
}

/// Uses of a parameter seen so far.
#[derive(Default)]
struct Uses {
    /// Uses whose gradients are still to come.
    open: usize,
    sum: Option<Tensor<1>>,
    /// True when `finished` has been called with it.
    given: bool,
}

impl HarvestState {
    fn give(&mut self, parameter: usize) {
        let uses = &mut self.parameters[parameter];
        if !mem::replace(&mut uses.given, true) {
            (self.finished)(parameter, uses.sum.take());
        }
    }
}

impl Harvest {
    /// Calls `finished` once for each of so many parameters: with its gradient as soon as that is complete, or with none
    /// where it has none.
    pub(crate) fn new(
        parameters: usize,
        finished: impl FnMut(usize, Option<Tensor<1>>) + Send + 'static,
    ) -> Self {
        let parameters = (0..parameters).map(|_| Uses::default()).collect();
        Self(Arc::new(Mutex::new(HarvestState {
            parameters,
            finished: Box::new(finished),
        })))
    }

    /// Says that the forward pass is over: what it has not used has no gradient.
    pub(crate) fn forward_done(&self) {
        self.give_where(|uses| uses.open == 0);
    }

    /// Says that the backward pass is over: what it has not come by has no further gradient.
    pub(crate) fn backward_done(self) {
        self.give_where(|_| true);
    }

    fn give_where(&self, is_complete: impl Fn(&Uses) -> bool) {
        let mut state = locked(&self.0);
        for parameter in 0..state.parameters.len() {
            if is_complete(&state.parameters[parameter]) {
                state.give(parameter);
            }
        }
    }

    /// Receiver of the pass's gradients.
    pub(super) fn taker(&self) -> Taker {
        Taker {
            // An operation that is never run must not keep alive what waits for it.
            state: Arc::downgrade(&self.0),
            counts: true,
        }
    }
}

impl fmt::Debug for Harvest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harvest").finish_non_exhaustive()
    }
}

fn locked(state: &Mutex<HarvestState>) -> MutexGuard<'_, HarvestState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receiver of gradients.
#[derive(Clone)]
pub(super) struct Taker {
    state: Weak<Mutex<HarvestState>>,
    /// True when uses are new, and not those of a segment that is recomputed.
    counts: bool,
}

impl Taker {
    /// The same for a pass whose uses are expected already.
    pub(super) fn of_known_uses(&self) -> Self {
        Self {
            counts: false,
            ..self.clone()
        }
    }

    /// Says that gradients of so many uses of a parameter will come.
    pub(super) fn expect(&self, parameter: usize, uses: usize) {
        if let Some(state) = self.state.upgrade().filter(|_| self.counts) {
            locked(&state).parameters[parameter].open += uses;
        }
    }

    fn take(&self, parameter: usize, gradient: Tensor<1>) {
        let Some(state) = self.state.upgrade() else {
            return;
        };
        let mut state = locked(&state);
        let uses = &mut state.parameters[parameter];
        assert!(
            !uses.given,
            "a segment that is computed again uses a parameter more often than at first; it must do the same each time"
        );
        uses.sum = Some(match uses.sum.take() {
            Some(sum) => gradient + sum,
            None => gradient,
        });
        uses.open = uses.open.saturating_sub(1);
        if uses.open == 0 {
            state.give(parameter);
        }
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").finish_non_exhaustive()
    }
}

/// Depth of a pass in the graph.
#[derive(Clone, Debug)]
pub(super) struct DepthMark {
    /// The tensor that has this depth.
    of: NodeId,
    /// An operation of the graph; its number means nothing.
    tensor: Tensor<1>,
}

/// `x`, behind a mark; `None` when `mark` is its already.
pub(super) fn marked<const D: usize>(
    x: &Tensor<D>,
    mark: Option<&DepthMark>,
) -> Option<(Tensor<D>, DepthMark)> {
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if <burn::backend::Cube as Reach>::on_graph(x.clone()).is_some() {
        return marked_on::<burn::backend::Cube, D>(x, mark);
    }
    marked_on::<burn::backend::Flex, D>(x, mark)
}

fn marked_on<B: Reach, const D: usize>(
    x: &Tensor<D>,
    mark: Option<&DepthMark>,
) -> Option<(Tensor<D>, DepthMark)> {
    let x = on_graph::<B, D>(x.clone());
    if mark.is_some_and(|mark| mark.of == x.id()) {
        return None;
    }
    let (x, node) = x.into_parts();
    let (shape, device, dtype) = (x.shape(), x.device(), x.dtype());
    let nothing = B::float_empty(Shape::new([1]), &device, DType::F32.into());
    let passed = Arc::new(AtomicBool::new(false));
    let below = Below {
        passed: Arc::clone(&passed),
        zeros: (shape, device, dtype),
    };
    let prepared = Marking(PhantomData::<B>).prepare::<NoCheckpointing>([node]);
    let tensor = match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(below, nothing),
        OpsKind::UnTracked(prepared) => prepared.finish(nothing),
    };
    let prepared = Passing(PhantomData::<B>).prepare::<NoCheckpointing>([tensor.node()]);
    let x = match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(passed, x),
        OpsKind::UnTracked(prepared) => prepared.finish(x),
    };
    let mark = DepthMark {
        of: x.id(),
        tensor: B::back(tensor),
    };
    Some((B::back(x), mark))
}

/// The operation that is a mark: between a tensor and [`Passing`], which gives the tensor on.
#[derive(Debug)]
struct Marking<B>(PhantomData<B>);

/// State of a mark on the tensor.
struct Below<B: Backend> {
    /// True when a gradient has passed.
    passed: Arc<AtomicBool>,
    zeros: (Shape, B::Device, DType),
}

impl<B: Backend> Clone for Below<B> {
    fn clone(&self) -> Self {
        Self {
            passed: Arc::clone(&self.passed),
            zeros: self.zeros.clone(),
        }
    }
}

impl<B: Backend> fmt::Debug for Below<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Below").finish_non_exhaustive()
    }
}

impl<B: Reach> Backward<B, 1> for Marking<B> {
    type State = Below<B>;

    fn backward(self, ops: Ops<Below<B>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Below { passed, zeros } = ops.state;
        let [Some(x)] = ops.parents else {
            return;
        };
        let gradient = if passed.load(Ordering::Relaxed) {
            gradients.consume::<B>(&ops.node)
        } else {
            // Only parameters were handed out here; what comes before expects a gradient all the same.
            let (shape, device, dtype) = zeros;
            B::float_zeros(shape, &device, dtype.into())
        };
        gradients.register::<B>(x.id, gradient);
    }
}

/// The operation that gives on what was marked.
#[derive(Debug)]
struct Passing<B>(PhantomData<B>);

impl<B: Reach> Backward<B, 1> for Passing<B> {
    type State = Arc<AtomicBool>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        if let [Some(mark)] = ops.parents {
            gradients.register::<B>(mark.id, gradient);
            ops.state.store(true, Ordering::Relaxed);
        }
    }
}

/// The parameter `weight`, by its number, in a shape; its gradient goes to `taker` when the backward pass is at `mark`.
pub(super) fn handed_out<const D: usize>(
    (parameter, weight): (usize, Tensor<1>),
    shape: [usize; D],
    taker: &Taker,
    mark: Option<&DepthMark>,
) -> Tensor<D> {
    taker.expect(parameter, 1);
    let to = (taker.clone(), parameter);
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if <burn::backend::Cube as Reach>::on_graph(weight.clone()).is_some() {
        return handed_out_on::<burn::backend::Cube, D>(weight, shape, to, mark);
    }
    handed_out_on::<burn::backend::Flex, D>(weight, shape, to, mark)
}

fn handed_out_on<B: Reach, const D: usize>(
    weight: Tensor<1>,
    shape: [usize; D],
    to: (Taker, usize),
    mark: Option<&DepthMark>,
) -> Tensor<D> {
    let weight = on_graph::<B, 1>(weight);
    let depth = match mark {
        Some(mark) => on_graph::<B, 1>(mark.tensor.clone()).node(),
        None => weight.node(),
    };
    let (weight, node) = weight.into_parts();
    let weight = B::float_reshape(weight, Shape::new(shape));
    let prepared = HandOut(PhantomData::<B>).prepare::<NoCheckpointing>([node, depth]);
    B::back(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(to, weight),
        OpsKind::UnTracked(prepared) => prepared.finish(weight),
    })
}

/// The operation that hands a parameter to a layer.
#[derive(Debug)]
struct HandOut<B>(PhantomData<B>);

impl<B: Reach> Backward<B, 2> for HandOut<B> {
    type State = (Taker, usize);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let len = gradient.shape().num_elements();
        let (taker, parameter) = ops.state;
        let gradient = B::float_reshape(gradient, Shape::new([len]));
        taker.take(parameter, B::tensor(gradient));
    }
}
