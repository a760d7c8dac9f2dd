//! Functions with a gradient of their own, for f32 numbers on the CPU.
//!
//! The tensor library has these functions too; here are those that a measurement says are worth computing in fewer or
//! wider passes (`benches/steps.rs`). Numbers of another type, as the checks of gradients use, and tensors on another
//! device go to the library.
//!
//! Loops are compiled for several instruction sets, and the widest one that the machine has is taken when the program
//! runs. They neither add in another order nor fuse a product with a sum, so the set does not change the bits; matrix
//! products are the library's but for those of a recurrent layer's steps. Nothing here starts a thread.

mod attention;
mod convolution;
mod elementwise;
mod lstm;
mod math;
mod norm;
mod pool;
mod product;
mod rotary;

use std::fmt::Debug;

use burn::{
    backend::{
        Autodiff, AutodiffBackend as _, Flex,
        autodiff::{
            checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        flex::FlexTensor,
        tensor::FloatTensor,
    },
    tensor::{DType, Tensor, TensorData},
};

pub(super) use self::{
    attention::attend,
    convolution::convolve,
    elementwise::{gelu, relu, silu},
    lstm::lstm,
    norm::{layer_norm, rms_norm},
    pool::largest,
    rotary::rotate,
};

type Traced = Autodiff<Flex>;

/// A function of `N` tensors.
trait Kernel<const N: usize>: Clone + Debug + Send + 'static {
    /// Values that the gradients are computed from.
    type Kept: Clone + Debug + Send + 'static;

    /// The value.
    fn value(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Kept);

    /// The gradients of those inputs that are wanted, from that of the value.
    fn gradients(
        &self,
        kept: Self::Kept,
        gradient: FlexTensor,
        wanted: [bool; N],
    ) -> [Option<FlexTensor>; N];
}

/// A tensor whose numbers can be reached.
#[derive(Debug)]
enum Operand {
    /// Without gradients.
    Plain(FlexTensor),
    /// In a graph of gradients.
    Traced(FloatTensor<Traced>),
}

impl Operand {
    /// `None` for what is left to the library.
    fn of<const D: usize>(x: &Tensor<D>) -> Option<Self> {
        if x.dtype() != DType::F32 {
            None
        } else if x.is_autodiff() {
            let traced = x.clone().try_into_primitive::<Traced>();
            traced.ok().map(Self::Traced)
        } else {
            x.clone().try_into_primitive::<Flex>().ok().map(Self::Plain)
        }
    }

    fn into_plain(self) -> FlexTensor {
        match self {
            Self::Plain(x) => x,
            Self::Traced(x) => x.into_primitive(),
        }
    }

    fn into_traced(self) -> FloatTensor<Traced> {
        match self {
            Self::Plain(x) => Traced::from_inner(x),
            Self::Traced(x) => x,
        }
    }
}

/// Applies a kernel; the gradients of its inputs are traced if one of them is.
fn apply<const N: usize, const D: usize, K: Kernel<N>>(
    kernel: &K,
    operands: [Operand; N],
) -> Tensor<D> {
    if operands.iter().any(|x| matches!(x, Operand::Traced(_))) {
        let operands = operands.map(Operand::into_traced);
        let nodes = operands.each_ref().map(FloatTensor::<Traced>::node);
        let inputs = operands.map(FloatTensor::<Traced>::into_primitive);
        let step = KernelStep(kernel.clone()).prepare::<NoCheckpointing>(nodes);
        let (value, kept) = kernel.value(inputs);
        Tensor::from_primitive::<Traced>(match step.compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish(kept, value),
            OpsKind::UnTracked(step) => step.finish(value),
        })
    } else {
        let inputs = operands.map(Operand::into_plain);
        Tensor::from_primitive::<Flex>(kernel.value(inputs).0)
    }
}

/// The way back through a kernel.
#[derive(Debug)]
struct KernelStep<K>(K);

impl<K: Kernel<N>, const N: usize> Backward<Flex, N> for KernelStep<K> {
    type State = K::Kept;

    fn backward(self, ops: Ops<K::Kept, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = self.0.gradients(ops.state, gradient, wanted);
        for (parent, found) in ops.parents.into_iter().zip(found) {
            if let (Some(parent), Some(found)) = (parent, found) {
                gradients.register::<Flex>(parent.id, found);
            }
        }
    }
}

/// The same numbers in one run, in row-major order.
fn contiguous(x: FlexTensor) -> FlexTensor {
    // The library's function borrows; with `x` gone its result is the only handle again, if it was before.
    x.to_contiguous()
}

fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

fn shape<const D: usize>(x: &FlexTensor) -> [usize; D] {
    x.layout().shape().dims()
}
