//! Sums and lengths of vectors on a device, and choices by what is known there.

use burn::tensor::{Bool, Tensor};

use crate::device::kernels;

/// The Euclidean length of a vector, `[1]`. Not finite when an element is not; elements up to the largest f32 do not
/// overflow.
pub(crate) fn length(x: Tensor<1>) -> Tensor<1> {
    if let Some(length) = kernels::length(&x) {
        return length;
    }
    let largest = in_stages(x.clone().abs(), |x| x.max_dim(1)).clamp_min(f32::MIN_POSITIVE);
    let shares = x / largest.clone();
    total(shares.clone() * shares).sqrt() * largest
}

/// The sum of a vector, `[1]`, in an order that follows from its length.
pub(crate) fn total(x: Tensor<1>) -> Tensor<1> {
    if let Some(total) = kernels::total(&x) {
        return total;
    }
    in_stages(x, |x| x.sum_dim(1))
}

/// Numbers that one thread of a device takes in.
const STAGE: usize = 128;

/// Reduces runs of a vector until one number is left. The library reduces a whole vector by one thread, or by additions in
/// any order.
fn in_stages(mut x: Tensor<1>, reduce: impl Fn(Tensor<2>) -> Tensor<2>) -> Tensor<1> {
    let device = x.device();
    if x.dims() == [0] {
        return Tensor::zeros([1], &device);
    }
    while let [len] = x.dims()
        && len > 1
    {
        let rows = len.div_ceil(STAGE);
        if rows * STAGE > len {
            let place = 0..len;
            x = Tensor::zeros([rows * STAGE], &device).slice_assign([place], x);
        }
        x = reduce(x.reshape([rows, STAGE])).reshape([rows]);
    }
    x
}

/// `of / by`, or 1 where one of them is 0.
pub(super) fn trust_ratio(of: Tensor<1>, by: Tensor<1>) -> Tensor<1> {
    let known = of
        .clone()
        .greater_elem(0.0)
        .bool_and(by.clone().greater_elem(0.0));
    let ratio = of / by;
    Tensor::ones_like(&ratio).mask_where(known, ratio)
}

/// `new` where `good`, `[1]`, is true, else `old`.
pub(crate) fn chosen(good: &Tensor<1, Bool>, new: Tensor<1>, old: Tensor<1>) -> Tensor<1> {
    let all = good.clone().expand(old.dims());
    old.mask_where(all, new)
}
