//! Tensors of one backend, in and out of the graph of a backward pass.

use burn::{
    backend::{Autodiff, Backend, tensor::FloatTensor},
    tensor::Tensor,
};

/// A backend whose tensors can be reached.
pub(super) trait Reach: Backend {
    /// A tensor in a graph; `None` when it is on another backend, or in none.
    fn on_graph<const D: usize>(x: Tensor<D>) -> Option<FloatTensor<Autodiff<Self>>>;

    /// A tensor in no graph; `None` when it is on another backend, or in one.
    fn plain<const D: usize>(x: Tensor<D>) -> Option<FloatTensor<Self>>;

    /// Gives a tensor in a graph back.
    fn back<const D: usize>(x: FloatTensor<Autodiff<Self>>) -> Tensor<D>;

    /// Gives a tensor in no graph back.
    fn tensor<const D: usize>(x: FloatTensor<Self>) -> Tensor<D>;
}

/// Makes tensors of a backend reachable.
macro_rules! reach {
    ($backend:ty) => {
        impl Reach for $backend {
            fn on_graph<const D: usize>(x: Tensor<D>) -> Option<FloatTensor<Autodiff<Self>>> {
                x.try_into_primitive::<Autodiff<Self>>().ok()
            }

            fn plain<const D: usize>(x: Tensor<D>) -> Option<FloatTensor<Self>> {
                x.try_into_primitive::<Self>().ok()
            }

            fn back<const D: usize>(x: FloatTensor<Autodiff<Self>>) -> Tensor<D> {
                Tensor::from_primitive::<Autodiff<Self>>(x)
            }

            fn tensor<const D: usize>(x: FloatTensor<Self>) -> Tensor<D> {
                Tensor::from_primitive::<Self>(x)
            }
        }
    };
}

reach!(burn::backend::Flex);
#[cfg(any(feature = "cuda", feature = "wgpu"))]
reach!(burn::backend::Cube);

/// Reason that tensors of a pass are on the backend that is asked for.
pub(super) const ONE_BACKEND: &str =
    "all tensors of a pass are on one backend, in a graph in training";

/// A tensor in a graph.
pub(super) fn on_graph<B: Reach, const D: usize>(x: Tensor<D>) -> FloatTensor<Autodiff<B>> {
    B::on_graph(x).expect(ONE_BACKEND)
}
