//! The gradient in sections, and when they come.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

use burn::backend::{
    Autodiff, Flex,
    autodiff::{
        checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
        grads::Gradients,
        ops::{Backward, Ops, OpsKind},
    },
};

use super::{super::sections::add, *};
use crate::model::{
    engine::sections::Sections,
    interface::Input,
    layers::{Builder, Ghosts, Harvest, Initial, Layout, PassSettings, Segment, Slot, Training},
};

impl ModelEngine {
    /// The gradient as the tensor library gives it at the end of a backward pass through a graph without marks, in
    /// which each parameter is a leaf.
    pub(crate) fn by_leaves(
        &self,
        bucket: &[f32],
        samples: Samples<'_>,
        dropout: Stream,
    ) -> Vec<f32> {
        let mut tree = Tree::default();
        let sum = |sum: &mut Vec<f32>, part: Vec<f32>| add(sum, &part);
        for part in self.cut.parts(samples, self.model.layout().len()) {
            let gradient = (!part.is_empty())
                .then(|| self.walk(bucket, samples.slice(part.clone()), dropout, None));
            tree.push(gradient, sum);
        }
        let mut gradient = vec![0.0; bucket.len()];
        add(&mut gradient, &tree.finish(sum).unwrap_or_default());
        gradient
    }

    /// The parameters in the order in which one backward pass over all samples completes them, without those that are
    /// only complete at its end.
    pub(crate) fn completion(
        &self,
        bucket: &[f32],
        samples: Samples<'_>,
        dropout: Stream,
    ) -> Vec<usize> {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        let parameters = self.model.layout().trained();
        let harvest = Harvest::new(parameters, move |parameter, _| {
            seen.lock().unwrap().push(parameter);
        });
        self.walk(bucket, samples, dropout, Some(&harvest));
        drop(harvest);
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    }

    /// The gradients of the leaves of a part's graph; with a harvest they go there instead, and segments are computed
    /// again.
    fn walk(
        &self,
        bucket: &[f32],
        part: Samples<'_>,
        stream: Stream,
        harvest: Option<&Harvest>,
    ) -> Vec<f32> {
        let layout = self.model.layout();
        let device = self.device.clone().autodiff();
        let weights = self.weights(bucket).into_iter().enumerate();
        let weights: Vec<Tensor<1>> = weights
            .map(|(i, weight)| {
                let trains = i < layout.trained() && self.passes.trains(i);
                weight.autodiff().set_require_grad(trains)
            })
            .collect();
        let training = Training {
            stream,
            first_row: part.first_row(),
            ghosts: Ghosts::WHOLE,
        };
        let mut pass = Pass::new(layout, &weights, Some(training));
        if let Some(harvest) = harvest {
            pass = pass.with_settings(&self.passes).with_harvest(harvest);
        }
        let input = input::tensors(part, &self.normalisation, &device);
        let outputs = self.model.forward(&mut pass, &input);
        let losses = self
            .losses(&self.loss, outputs, (part, &input), &device)
            .unwrap();
        let mut gradients = (losses.sum() / self.nominal(part)).backward();
        let mut gradient = vec![0.0; bucket.len()];
        for (weight, entry) in weights.iter().zip(layout.trained_entries()) {
            if let Some(of_weight) = weight.grad_remove(&mut gradients) {
                gradient[entry.range.clone()].copy_from_slice(&numbers(of_weight));
            }
        }
        gradient
    }

    /// The gradient, section by section; checks that each comes once and in order.
    pub(crate) fn in_sections(
        &self,
        bucket: &[f32],
        samples: Samples<'_>,
        dropout: Stream,
        bytes_max: usize,
    ) -> Vec<f32> {
        let layout = self.model.layout();
        let sections = Sections::of_bytes(layout, bytes_max);
        let mut gradient = vec![f32::NAN; bucket.len()];
        let mut given = Vec::new();
        let give = |section: usize, numbers: &mut [f32]| {
            given.push((section, numbers.to_vec()));
            // What other ranks add stays.
            numbers.iter_mut().for_each(|number| *number += 1.0);
        };
        let (random, cut) = ((dropout, 1.0), sections.clone());
        self.loss_and_sections(
            (bucket, &self.weights(bucket)),
            samples,
            random,
            &mut gradient,
            cut,
            Some((give, || ())),
        );
        let mut end = layout.trained_len();
        let mut joined = vec![0.0; bucket.len()];
        for (i, (section, numbers)) in given.into_iter().enumerate() {
            let range = sections.range(section);
            assert_eq!((section, range.end), (i, end));
            let kept = gradient[range.clone()].iter().map(|kept| kept.to_bits());
            assert!(kept.eq(numbers.iter().map(|given| (given + 1.0).to_bits())));
            joined[range.clone()].copy_from_slice(&numbers);
            end = range.start;
        }
        assert_eq!(end, 0, "all parameters are given");
        assert!(gradient[layout.trained_len()..].iter().all(|v| *v == 0.0));
        joined
    }
}

/// A model made for a test, with this forward pass over its parameters.
struct Own<F> {
    layout: Layout,
    parts: Parts,
    forward: F,
}

/// Its segments, and its parameters, three numbers each.
type Parts = (Vec<Segment>, Vec<Slot>);

impl<F> fmt::Debug for Own<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

impl<F> Model for Own<F>
where
    F: Fn(&mut Pass<'_>, &Parts, Tensor<2>) -> Tensor<2> + Send + Sync,
{
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        (self.forward)(pass, &self.parts, input.rows())
    }
}

/// An engine for a model of one's own with so many parameters and three segments, some of them computed again.
fn own<F>(parameters: usize, checkpoint: &[&str], forward: F) -> ModelEngine
where
    F: Fn(&mut Pass<'_>, &Parts, Tensor<2>) -> Tensor<2> + Send + Sync + 'static,
{
    let mut builder = Builder::new();
    let segment = |i: usize| builder.segment(&format!("s.{i}"), &[3], |_| ()).0;
    let segments = (0..3).map(segment).collect();
    let initial = Initial::Normal { deviation: 1.0 };
    let slot = |i: usize| builder.parameter(&format!("p.{i}"), &[1, 3], true, initial);
    let parts = (segments, (0..parameters).map(slot).collect());
    let layout = builder.finish();
    let checkpoint: Vec<String> = checkpoint.iter().map(ToString::to_string).collect();
    let passes = PassSettings::new(&layout, &checkpoint).unwrap();
    let model = Own {
        layout,
        parts,
        forward,
    };
    ModelEngine::with_threads(Box::new(model), LossKind::Mse.into(), 1).with_passes(passes)
}

/// Rows of three numbers.
const ROWS: usize = 8;

fn rows() -> (Vec<f32>, Vec<f32>) {
    (uniform(3 * ROWS, 70), uniform(ROWS, 71))
}

/// `tanh(x p)`.
fn layer(pass: &Pass<'_>, x: Tensor<2>, p: Slot) -> Tensor<2> {
    (x * pass.parameter(p)).tanh()
}

/// The bits of what `gradient` makes of a bucket and the rows.
fn bits(engine: &ModelEngine, gradient: impl Fn(&[f32], Samples<'_>) -> Vec<f32>) -> Vec<u32> {
    let (x, y) = rows();
    let samples = Samples::of_rows(&x, 3, Targets::Numbers(&y));
    let gradient = gradient(&engine.model().initial(Seed::new(2)), samples);
    gradient.iter().map(|v| v.to_bits()).collect()
}

fn in_sections(engine: &ModelEngine, bytes_max: usize) -> Vec<u32> {
    bits(engine, |b, samples| {
        engine.in_sections(b, samples, stream(0), bytes_max)
    })
}

fn by_leaves(engine: &ModelEngine) -> Vec<u32> {
    bits(engine, |b, samples| engine.by_leaves(b, samples, stream(0)))
}

#[test]
fn a_parameter_is_complete_when_all_its_uses_are() {
    let engine = |checkpoint: &[&str]| {
        own(6, checkpoint, |pass, (segments, p), x| {
            let p: [Slot; 6] = p.clone().try_into().unwrap();
            // Before all boundaries, and again in the last segment.
            let x = layer(pass, x, p[0]);
            let x = pass.checkpoint(segments[0], x, move |pass, x| layer(pass, x, p[1]));
            // Handed out, but not used; the last is never asked for.
            drop(pass.parameter::<2>(p[2]));
            let x = pass.checkpoint(segments[1], x, move |pass, x| {
                let inner = layer(pass, x.clone(), p[3]);
                inner * pass.parameter(p[3]) + x
            });
            let x = pass.checkpoint(segments[2], x, move |pass, x| layer(pass, x, p[0]));
            layer(pass, x, p[4]).sum_dim(1)
        })
    };
    let expected = by_leaves(&engine(&[]));
    let zeros: Vec<bool> = expected.chunks(3).map(|p| p == [0; 3]).collect();
    assert_eq!(zeros, [false, false, true, false, false, true]);
    for (checkpoint, bytes_max) in [(&[][..], 0), (&[], 24), (&["s.1"], 36), (&["*"], 0)] {
        let found = in_sections(&engine(checkpoint), bytes_max);
        assert_eq!(found, expected, "{checkpoint:?}, {bytes_max} bytes");
    }
}

#[test]
fn segments_in_segments_give_all_their_parameters() {
    let engine = |checkpoint: &[&str]| {
        own(3, checkpoint, |pass, (segments, p), x| {
            let [outer, inner] = [segments[0], segments[1]];
            let p: [Slot; 3] = p.clone().try_into().unwrap();
            let x = pass.checkpoint(outer, x, move |pass, x| {
                let x = layer(pass, x, p[0]);
                let x = pass.checkpoint(inner, x, move |pass, x| layer(pass, x, p[1]));
                layer(pass, x, p[2])
            });
            x.sum_dim(1)
        })
    };
    let expected = by_leaves(&engine(&[]));
    assert!(expected.iter().all(|bits| *bits != 0));
    for checkpoint in [&[][..], &["s.0"], &["s.1"], &["*"]] {
        let found = in_sections(&engine(checkpoint), 0);
        assert_eq!(found, expected, "{checkpoint:?}");
    }
}

#[test]
fn what_comes_before_a_segment_that_stops_gradients_has_none() {
    for checkpoint in [&[][..], &["s.0"], &["*"]] {
        let engine = own(3, checkpoint, |pass, (segments, p), x| {
            let p: [Slot; 3] = p.clone().try_into().unwrap();
            let x = layer(pass, x, p[0]);
            let x = pass.checkpoint(segments[0], x, move |pass, x| layer(pass, x, p[1]));
            let x = pass.checkpoint(segments[1], x, move |pass, x| layer(pass, x.detach(), p[2]));
            x.sum_dim(1)
        });
        let found = in_sections(&engine, 0);
        assert_eq!(found[..6], [0; 6], "{checkpoint:?}");
        assert!(found[6..].iter().all(|bits| *bits != 0));
    }
}

/// `x`, whose backward pass waits, at its turn of this number, until so many sections have been given.
fn waiting(x: Tensor<2>, wait: &Arc<Wait>) -> Tensor<2> {
    let x = x.try_into_primitive::<Autodiff<Flex>>().unwrap();
    let (x, node) = x.into_parts();
    let prepared = Waiting.prepare::<NoCheckpointing>([node]).compute_bound();
    Tensor::from_primitive::<Autodiff<Flex>>(match prepared.stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(Arc::clone(wait), x),
        OpsKind::UnTracked(prepared) => prepared.finish(x),
    })
}

#[derive(Debug)]
struct Wait {
    turn: usize,
    turns: AtomicUsize,
    sections: usize,
    given: Mutex<Receiver<usize>>,
}

#[derive(Debug)]
struct Waiting;

impl Backward<Flex, 1> for Waiting {
    type State = Arc<Wait>;

    fn backward(self, ops: Ops<Arc<Wait>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let wait = &ops.state;
        if wait.turns.fetch_add(1, Ordering::Relaxed) + 1 == wait.turn {
            let given = wait.given.lock().unwrap();
            for section in 0..wait.sections {
                let found = given.recv_timeout(Duration::from_secs(60));
                assert_eq!(found, Ok(section), "a section comes while the pass waits");
            }
        }
        let gradient = gradients.consume::<Flex>(&ops.node);
        if let [Some(x)] = ops.parents {
            gradients.register::<Flex>(x.id, gradient);
        }
    }
}

#[test]
fn sections_are_given_while_the_backward_pass_is_in_the_layers_before() {
    for (checkpoint, parts) in [(&[][..], 1), (&["*"], 1), (&[], 4), (&["s.0"], 4)] {
        let (send, given) = channel();
        let wait = Arc::new(Wait {
            // Only the last part's gradients make a sum complete.
            turn: parts,
            turns: AtomicUsize::new(0),
            // All but those of the first segment and of what is before.
            sections: 3,
            given: Mutex::new(given),
        });
        let (x, y) = rows();
        let samples = Samples::of_rows(&x, 3, Targets::Numbers(&y));
        let engine = own(5, checkpoint, move |pass, (segments, p), x| {
            let p: [Slot; 5] = p.clone().try_into().unwrap();
            let x = layer(pass, x, p[0]);
            let wait = Arc::clone(&wait);
            let x = pass.checkpoint(segments[0], x, move |pass, x| {
                waiting(layer(pass, x, p[1]), &wait)
            });
            let x = pass.checkpoint(segments[1], x, move |pass, x| layer(pass, x, p[2]));
            let x = pass.checkpoint(segments[2], x, move |pass, x| layer(pass, x, p[3]));
            layer(pass, x, p[4]).sum_dim(1)
        });
        let engine = engine.with_cut(BatchCut {
            least: parts,
            ..BatchCut::BY_SHAPE
        });
        let bucket = engine.model().initial(Seed::new(2));
        let mut gradient = vec![0.0; bucket.len()];
        let sections = Sections::of_bytes(engine.model().layout(), 0);
        let give = move |section, _: &mut [f32]| send.send(section).unwrap();
        let random = (stream(0), 1.0);
        engine.loss_and_sections(
            (&bucket, &engine.weights(&bucket)),
            samples,
            random,
            &mut gradient,
            sections,
            Some((give, || ())),
        );
        assert!(gradient.iter().all(|v| *v != 0.0));
    }
}

#[test]
#[should_panic(expected = "no layer computes this")]
fn a_model_that_panics_stops_the_step() {
    let engine = own(1, &[], |pass, (_, p), x| {
        let x = layer(pass, x, p[0]);
        assert!(!pass.is_training(), "no layer computes this");
        x
    });
    in_sections(&engine, 0);
}
