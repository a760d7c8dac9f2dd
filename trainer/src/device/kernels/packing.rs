//! Tensors of entries at their places in one flat tensor, several by each kernel.

use burn::tensor::{Device, Tensor as DeviceTensor};
use cubecl::prelude::*;

use super::launched;
use crate::model::packed_bucket::PlacedTensor;

/// Tensors that a kernel packs.
const AT_ONCE: usize = 6;

/// A tensor of `len` numbers with these parts at their places, in ascending order, and zeros between them.
pub(crate) fn pack(parts: &[PlacedTensor], len: usize, device: &Device) -> Option<DeviceTensor<1>> {
    if parts.is_empty() {
        return None;
    }
    let packed = launched::empty(len, device)?;
    let mut from = 0;
    let mut groups = parts.chunks(AT_ONCE).peekable();
    while let Some(group) = groups.next() {
        let end = groups.peek().map_or(len, |next| next[0].begin);
        let tensors = (0..AT_ONCE).map(|i| launched::of(&group[i.min(group.len() - 1)].tensor));
        let mut tensors = tensors.collect::<Option<Vec<_>>>()?.into_iter();
        let mut next = || tensors.next().map(|tensor| tensor.into_tensor_arg());
        // A place behind the last one is that of no number.
        let begin = |i: usize| group.get(i).map_or(len, |part| part.begin);
        let (cubes, dim) = launched::threads(&packed, end - from);
        place_parts::launch(
            &packed.client,
            cubes,
            dim,
            next()?,
            next()?,
            next()?,
            next()?,
            next()?,
            next()?,
            packed.clone().into_tensor_arg(),
            begin(0),
            begin(1),
            begin(2),
            begin(3),
            begin(4),
            begin(5),
            from,
            end,
        );
        from = end;
    }
    Some(launched::tensor(packed))
}

#[cube(launch)]
fn place_parts(
    a: &Tensor<f32>,
    b: &Tensor<f32>,
    c: &Tensor<f32>,
    d: &Tensor<f32>,
    e: &Tensor<f32>,
    f: &Tensor<f32>,
    packed: &mut Tensor<f32>,
    begin_a: usize,
    begin_b: usize,
    begin_c: usize,
    begin_d: usize,
    begin_e: usize,
    begin_f: usize,
    from: usize,
    end: usize,
) {
    let i = ABSOLUTE_POS + from;
    if i >= end {
        terminate!();
    }
    if i >= begin_f {
        packed[i] = number_of(f, i - begin_f);
    } else if i >= begin_e {
        packed[i] = number_of(e, i - begin_e);
    } else if i >= begin_d {
        packed[i] = number_of(d, i - begin_d);
    } else if i >= begin_c {
        packed[i] = number_of(c, i - begin_c);
    } else if i >= begin_b {
        packed[i] = number_of(b, i - begin_b);
    } else if i >= begin_a {
        packed[i] = number_of(a, i - begin_a);
    } else {
        packed[i] = 0.0;
    }
}

/// A number of a tensor, 0 behind its end.
#[cube]
fn number_of(x: &Tensor<f32>, i: usize) -> f32 {
    let mut number = 0.0;
    if i < x.len() {
        number = x[i];
    }
    number
}
