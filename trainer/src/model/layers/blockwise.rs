//! AttendBlocks by blocks of queries, for devices: scores are computed for one block at a time, and computed again in the
//! backward pass (Dao et al. 2022, arXiv 2205.14135, algorithms 1 and 4, with operations of the library for each block).
//!
//! Memory is `[rows, heads, block, length]` for scores, whatever the number of blocks. What is kept is the input, the output
//! and the logarithm of the sum of exponentials of each query.

use std::marker::PhantomData;

use burn::{
    backend::autodiff::{
        checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind},
    },
    tensor::{Bool, Int, Tensor},
};

use super::{
    graph::{ONE_BACKEND, Reach, on_graph},
    heads::Heads,
    in_f32,
};
use crate::float_casts::exact_len;

/// Queries of a block.
pub(super) const BLOCK: usize = 128;

/// AttendBlocks of some heads by blocks of queries.
#[derive(Clone, Debug)]
pub(super) struct Blockwise {
    pub(super) heads: Heads,
    pub(super) visible: Visible,
    /// Queries of a block.
    pub(super) block: usize,
}

/// Positions that a position attends to.
#[derive(Clone, Debug)]
pub(super) enum Visible {
    All,
    /// Itself and those before it.
    Before,
    /// The same within its document, by the numbers of documents, `[rows, length]`.
    Within(Box<Tensor<2, Int>>),
}

/// Queries of `begin..end`, and the keys before `keys` that they may see.
#[derive(Clone, Copy)]
struct QueryBlock {
    begin: usize,
    end: usize,
    keys: usize,
}

/// Values that the gradient is computed from.
#[derive(Clone, Debug)]
struct ForwardValues {
    blockwise: Blockwise,
    qkv: Tensor<3>,
    y: Tensor<3>,
    /// Logarithms of the sums of exponentials, `[rows, heads, length, 1]`.
    sums: Tensor<4>,
}

/// `softmax(q k^T / sqrt(inside) + mask) v` in each head, joined: `[rows, length, (queries + 2 keys) inside]`, which hold
/// queries, keys and values in this order, to `[rows, length, queries inside]`.
pub(super) fn attend(qkv: Tensor<3>, blockwise: &Blockwise) -> Tensor<3> {
    if !qkv.is_autodiff() {
        return blockwise.value(&qkv).0;
    }
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    if <burn::backend::Cube as Reach>::on_graph(qkv.clone()).is_some() {
        return attend_on::<burn::backend::Cube>(qkv, blockwise);
    }
    attend_on::<burn::backend::Flex>(qkv, blockwise)
}

fn attend_on<B: Reach>(qkv: Tensor<3>, blockwise: &Blockwise) -> Tensor<3> {
    let plain = qkv.clone().inner();
    let (y, sums) = blockwise.value(&plain);
    let output = B::plain(y.clone()).expect(ONE_BACKEND);
    let x = on_graph::<B, 3>(qkv);
    let attention = AttendBlocks(PhantomData::<B>);
    let prepared = attention.prepare::<NoCheckpointing>([x.node()]);
    B::back(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(prepared) => {
            let kept = ForwardValues {
                blockwise: blockwise.clone(),
                qkv: plain,
                y,
                sums,
            };
            prepared.finish(kept, output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    })
}

/// The operation in the graph.
#[derive(Debug)]
struct AttendBlocks<B>(PhantomData<B>);

impl<B: Reach> Backward<B, 1> for AttendBlocks<B> {
    type State = ForwardValues;

    fn backward(self, ops: Ops<ForwardValues, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let of_y = B::tensor::<3>(gradients.consume::<B>(&ops.node));
        if let [Some(x)] = ops.parents {
            let of_x = B::plain(ops.state.gradient(of_y)).expect(ONE_BACKEND);
            gradients.register::<B>(x.id, of_x);
        }
    }
}

/// Heads of some columns, `[rows, heads, length, inside]`.
fn split(x: &Tensor<3>, first: usize, heads: usize, inside: usize) -> Tensor<4> {
    let [rows, length, _] = x.dims();
    x.clone()
        .narrow(2, first * inside, heads * inside)
        .reshape([rows, length, heads, inside])
        .swap_dims(1, 2)
}

/// Queries, keys and values, `[rows, heads, length, inside]`.
pub(super) fn parts(qkv: &Tensor<3>, Heads { queries, keys }: Heads) -> [Tensor<4>; 3] {
    let inside = qkv.dims()[2] / (queries + 2 * keys);
    [(0, queries), (queries, keys), (queries + keys, keys)]
        .map(|(first, heads)| split(qkv, first, heads, inside))
}

/// The reverse of [`split`].
fn joined(x: Tensor<4>) -> Tensor<3> {
    let [rows, heads, length, inside] = x.dims();
    x.swap_dims(1, 2).reshape([rows, length, heads * inside])
}

impl Blockwise {
    fn blocks(&self, length: usize) -> impl Iterator<Item = QueryBlock> {
        let (block, sees_all) = (self.block, matches!(self.visible, Visible::All));
        (0..length).step_by(block).map(move |begin| {
            let end = length.min(begin + block);
            QueryBlock {
                begin,
                end,
                keys: if sees_all { length } else { end },
            }
        })
    }

    /// Rows of a block with the queries that share keys beside each other, `[rows, keys, group * block, inside]`.
    fn grouped(&self, x: &Tensor<4>, of: QueryBlock) -> Tensor<4> {
        let [rows, heads, _, inside] = x.dims();
        let keys = self.heads.keys;
        let block = of.end - of.begin;
        x.clone()
            .narrow(2, of.begin, block)
            .reshape([rows, keys, heads / keys * block, inside])
    }

    /// Scores of a block in f32, minus infinity for what it may not see: `[rows, queries, block, keys]`.
    fn scores(&self, q: &Tensor<4>, k: &Tensor<4>, of: QueryBlock) -> Tensor<4> {
        let [rows, heads, _, inside] = q.dims();
        let scale = 1.0 / exact_len(inside).sqrt();
        let q = self.grouped(q, of) * scale;
        let k = k.clone().narrow(2, 0, of.keys);
        let block = of.end - of.begin;
        let scores = in_f32(q.matmul(k.swap_dims(2, 3))).reshape([rows, heads, block, of.keys]);
        match self.hidden(of, &scores) {
            Some(hidden) => scores + hidden,
            None => scores,
        }
    }

    /// Minus infinity for what the queries of a block may not see, else 0: `[rows or 1, 1, block, keys]`.
    fn hidden(&self, of: QueryBlock, scores: &Tensor<4>) -> Option<Tensor<4>> {
        let [rows, _, block, keys] = scores.dims();
        let device = scores.device();
        let offset = i64::try_from(of.begin).expect("positions fit in memory");
        let later = || -> Tensor<4, Bool> {
            Tensor::<2, Bool>::tril_mask([block, keys], offset, &device).unsqueeze()
        };
        let unseen = match &self.visible {
            Visible::All => return None,
            Visible::Before => later(),
            Visible::Within(segments) => {
                let all = [rows, 1, block, keys];
                let numbers = |begin: usize, len: usize, sizes: [usize; 4]| {
                    let some = segments.as_ref().clone().narrow(1, begin, len);
                    some.reshape(sizes).expand(all)
                };
                let of_queries = numbers(of.begin, block, [rows, 1, block, 1]);
                let others = of_queries.not_equal(numbers(0, keys, [rows, 1, 1, keys]));
                others.bool_or(later().expand(all))
            }
        };
        let zeros = Tensor::zeros(unseen.dims(), (&device, scores.dtype()));
        Some(zeros.mask_fill(unseen, f32::NEG_INFINITY))
    }

    /// The output, and the logarithms of the sums of exponentials.
    fn value(&self, qkv: &Tensor<3>) -> (Tensor<3>, Tensor<4>) {
        let products = qkv.dtype();
        let [q, k, v] = parts(qkv, self.heads);
        let [rows, heads, length, inside] = q.dims();
        let (mut outputs, mut sums) = (Vec::new(), Vec::new());
        for of in self.blocks(length) {
            let scores = self.scores(&q, &k, of);
            let largest = scores.clone().max_dim(3);
            let exponentials = (scores - largest.clone()).exp();
            let sum = exponentials.clone().sum_dim(3);
            let shares = (exponentials / sum.clone()).cast(products);
            let block = of.end - of.begin;
            let keys = self.heads.keys;
            let together = heads / keys * block;
            let shares = shares.reshape([rows, keys, together, of.keys]);
            let seen = shares.matmul(v.clone().narrow(2, 0, of.keys));
            outputs.push(seen.reshape([rows, heads, block, inside]));
            sums.push(largest + sum.log());
        }
        (joined(Tensor::cat(outputs, 2)), Tensor::cat(sums, 2))
    }
}

impl ForwardValues {
    /// The gradient of the input from that of the output.
    fn gradient(&self, of_y: Tensor<3>) -> Tensor<3> {
        let Self {
            blockwise,
            qkv,
            y,
            sums,
        } = self;
        let products = qkv.dtype();
        let [q, k, v] = parts(qkv, blockwise.heads);
        let [rows, heads, length, inside] = q.dims();
        let keys = blockwise.heads.keys;
        let scale = 1.0 / exact_len(inside).sqrt();
        let of_y = of_y.cast(products);
        // The mean of a row of the gradient of shares, by the shares.
        let means = in_f32(of_y.clone()) * in_f32(y.clone());
        let means = split(&means, 0, heads, inside).sum_dim(3);
        let of_y = split(&of_y, 0, heads, inside);
        let wide = sums.dtype();
        let zeros = || Tensor::<4>::zeros([rows, keys, length, inside], (&q.device(), wide));
        let (mut of_k, mut of_v, mut of_q) = (zeros(), zeros(), Vec::new());
        for of in blockwise.blocks(length) {
            let block = of.end - of.begin;
            let flat = [rows, keys, heads / keys * block, of.keys];
            let scores = blockwise.scores(&q, &k, of);
            let shares = (scores - sums.clone().narrow(2, of.begin, block)).exp();
            let of_seen = blockwise.grouped(&of_y, of);
            let values = v.clone().narrow(2, 0, of.keys);
            let of_shares = in_f32(of_seen.clone().matmul(values.swap_dims(2, 3)));
            let of_shares = of_shares.reshape([rows, heads, block, of.keys]);
            let of_scores = of_shares - means.clone().narrow(2, of.begin, block);
            let of_scores = (shares.clone() * of_scores * scale).cast(products);
            let (of_scores, shares) =
                (of_scores.reshape(flat), shares.cast(products).reshape(flat));
            let add = |sum: Tensor<4>, more: Tensor<4>| {
                let place = [0..rows, 0..keys, 0..of.keys, 0..inside];
                let more = more.cast(wide) + sum.clone().slice(place.clone());
                sum.slice_assign(place, more)
            };
            of_v = add(of_v, shares.swap_dims(2, 3).matmul(of_seen));
            let queries = blockwise.grouped(&q, of);
            of_k = add(of_k, of_scores.clone().swap_dims(2, 3).matmul(queries));
            let of_queries = of_scores.matmul(k.clone().narrow(2, 0, of.keys));
            of_q.push(of_queries.reshape([rows, heads, block, inside]));
        }
        let of_q = joined(Tensor::cat(of_q, 2));
        let [of_k, of_v] = [of_k, of_v].map(|of| joined(of).cast(products));
        Tensor::cat(vec![of_q, of_k, of_v], 2)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;
    use crate::testing::uniform;

    const GROUPED: Heads = Heads {
        queries: 4,
        keys: 2,
    };

    /// Outputs and the gradient of the input.
    fn run(device: &Device, attend: &dyn Fn(Tensor<3>) -> Tensor<3>) -> [Vec<f32>; 2] {
        let device = device.clone().autodiff();
        let data = TensorData::new(uniform(2 * 7 * 16, 3), [2, 7, 16]);
        let x = Tensor::<3>::from_data(data, &device).require_grad();
        let y = attend(x.clone());
        let shape = y.dims();
        let factors = TensorData::new(uniform(shape.iter().product(), 4), shape);
        let mut gradients = (y.clone() * Tensor::from_data(factors, &device))
            .sum()
            .backward();
        let of_x = x.grad_remove(&mut gradients).unwrap();
        [
            crate::device::numbers(y.inner()),
            crate::device::numbers(of_x),
        ]
    }

    #[test]
    fn blocks_of_any_size_give_what_one_block_gives() {
        let segments = [1, 1, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1, 0];
        let adapter = crate::model::layers::check::adapter().map(|adapter| adapter.device);
        for device in [Some(Device::flex()), adapter].into_iter().flatten() {
            let data = TensorData::new(segments.to_vec(), [2, 7]);
            let numbers = Tensor::<2, Int>::from_data(data, &device);
            for visible in [
                Visible::All,
                Visible::Before,
                Visible::Within(Box::new(numbers)),
            ] {
                let of = |block| {
                    let blockwise = Blockwise {
                        heads: GROUPED,
                        visible: visible.clone(),
                        block,
                    };
                    run(&device, &|x| attend(x, &blockwise))
                };
                let whole = of(7);
                for block in [1, 2, 3, 6, 100] {
                    for (found, expected) in of(block).iter().zip(&whole) {
                        for (found, expected) in found.iter().zip(expected) {
                            assert!((found - expected).abs() < 2e-6, "{found} {expected}");
                        }
                    }
                }
            }
        }
    }
}
