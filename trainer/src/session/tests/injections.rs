//! Numbers that are not finite, wherever data or weights bring them. `FEEDLINE_NAN_INJECTIONS` says how many times; 40
//! without it.

use burn::tensor::Tensor;
use feedline_schemas::ids::Seed;

use super::{
    guards::{lenient, lines, tensors},
    ranks::on_ranks,
    *,
};
use crate::{
    model::{
        engine::ModelEngine,
        interface::{Input, Model},
        layers::{Buffer, Builder, Gain, Layout, Linear, Pass},
    },
    parallel::Group,
    testing::train_on,
};

const POISONS: [f32; 5] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -f32::NAN,
    f32::from_bits(0x7f80_1234),
];

/// A finite input that makes [`Bad`] fail.
const FLAG: f32 = 50.0;

/// Place of the injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Input,
    Target,
    /// In a model with running statistics.
    InputOfNorm,
    /// In the rows of one of two ranks.
    InputOfRank,
    Activation,
    /// The activations are finite, their loss is not.
    Loss,
    Gradient,
    Statistics,
    Weight,
    /// Finite, but its square is not.
    HugeTarget,
}

const PLACES: [Place; 10] = [
    Place::Input,
    Place::Target,
    Place::InputOfNorm,
    Place::InputOfRank,
    Place::Activation,
    Place::Loss,
    Place::Gradient,
    Place::Statistics,
    Place::Weight,
    Place::HugeTarget,
];

/// A linear model whose numbers are bad in training, for rows with a flag.
#[derive(Debug)]
struct Bad {
    layer: Linear,
    buffer: Buffer,
    layout: Layout,
    place: Place,
    poison: f32,
}

impl Bad {
    fn new(place: Place, poison: f32) -> Self {
        let mut builder = Builder::new();
        let layer = Linear::new(&mut builder, "layer", &[4], 1, Gain::Glorot);
        let buffer = builder.buffer("seen", &[1], 0.5);
        Self {
            layer,
            buffer,
            layout: builder.finish(),
            place,
            poison,
        }
    }
}

impl Model for Bad {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn initial(&self, seed: Seed) -> Vec<f32> {
        let mut bucket = self.layout.initial(seed);
        if self.place == Place::Weight {
            bucket[2] = self.poison;
        }
        bucket
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let outputs = self.layer.forward(pass, input.rows());
        if !pass.is_training() {
            return outputs;
        }
        let flagged = input.rows().greater_elem(FLAG - 1.0).any_dim(1);
        let one = flagged.clone().float();
        match self.place {
            Place::Activation => outputs.mask_fill(flagged, self.poison),
            Place::Loss => outputs.mask_fill(flagged, 1e30),
            // The square root of 0 is 0, and its slope is not finite.
            Place::Gradient => outputs.clone() + (outputs * 0.0 + (one.neg() + 1.0)).sqrt(),
            Place::Statistics => {
                let none = one.max().neg() + 1.0;
                pass.observe(self.buffer, none.log());
                outputs
            }
            _ => outputs,
        }
    }
}

/// Tensors by name.
type Tensors = BTreeMap<String, Vec<u8>>;

/// One injection into this row; its store, and the parameters that the run began with.
fn inject(place: Place, row: usize, feature: usize, poison: f32) -> (Store, Tensors) {
    let (batch, mut config) = (if place == Place::InputOfRank { 64 } else { 50 }, lenient());
    (config.epochs, config.parallel.parts) = (1, 4);
    if place == Place::InputOfNorm {
        config.model.norm = Some(NormKind::Batch);
    }
    let toy = || {
        let mut toy = regression(batch);
        let Column::Numbers(y) = &mut toy.splits[0].y else {
            unreachable!()
        };
        match place {
            Place::Target => y[row] = poison,
            Place::HugeTarget => y[row] = 1e38,
            Place::Input | Place::InputOfNorm | Place::InputOfRank => {
                toy.splits[0].x[4 * row + feature] = poison;
            }
            _ => toy.splits[0].x[4 * row + feature] = FLAG,
        }
        toy
    };
    let (store, of) = (Store::memory(), plan(&config, &toy()));
    let engine = match place {
        Place::Input
        | Place::Target
        | Place::HugeTarget
        | Place::InputOfNorm
        | Place::InputOfRank => crate::testing::engine(&of),
        _ => {
            let model = Bad::new(place, poison);
            ModelEngine::new(Box::new(model), of.settings.loss().clone())
        }
    };
    let bucket = engine.model().initial(config.seed);
    let entries = engine.model().layout().entries().iter();
    let first = entries
        .map(|entry| {
            let bytes = bucket[entry.range.clone()].iter();
            let bytes = bytes.flat_map(|v| v.to_le_bytes()).collect();
            (entry.name.clone(), bytes)
        })
        .collect();
    if place == Place::InputOfRank {
        for report in on_ranks(2, &config, |_| toy(), Resume::Fresh, &store) {
            assert_eq!(report.unwrap().skipped_batches, 1, "row {row}");
        }
        return (store, first);
    }
    let toy = toy();
    let result = train_on(
        (&Group::alone(), engine),
        &config,
        &toy,
        Resume::Fresh,
        &store,
    );
    match place {
        // Each batch is left out, and then the validation says so too.
        Place::Weight => assert!(
            matches!(result, Err(Error::LossNotFinite { .. })),
            "{result:?}"
        ),
        _ => assert_eq!(result.unwrap().skipped_batches, 1, "{place:?} in row {row}"),
    }
    (store, first)
}

#[test]
fn a_number_that_is_not_finite_changes_no_bit_of_weights_optimizer_buffers_and_average() {
    let asked = std::env::var_os("FEEDLINE_NAN_INJECTIONS");
    let count: usize = asked.map_or(40, |text| text.to_string_lossy().parse().unwrap());
    let (mut compared, mut bytes) = (0, 0);
    for injection in 0..count {
        let place = PLACES[injection % PLACES.len()];
        let (row, feature) = (injection * 37 % 200, injection % 4);
        let poison = POISONS[injection / PLACES.len() % POISONS.len()];
        let (store, first) = inject(place, row, feature, poison);
        let files = contents(&store);
        let skipped = lines(&files, "skipped");
        let named = &skipped[0]["samples"][0]["key"];
        // Elsewhere the losses of all rows of the part are bad, or none is.
        let mixed = [
            Place::InputOfNorm,
            Place::Gradient,
            Place::Statistics,
            Place::Weight,
        ];
        let by_row = !mixed.contains(&place);
        assert!(
            !by_row || *named == format!("{row:016x}"),
            "{place:?} in row {row}: {named}"
        );
        for line in &skipped {
            let step = line["step"].as_u64().unwrap();
            if place == Place::Weight && step == 4 {
                // The run ended in the validation, before the checkpoint of this one.
                continue;
            }
            let now = tensors(&files, step);
            bytes += now.values().map(Vec::len).sum::<usize>();
            compared += 1;
            if step > 1 {
                assert!(now == tensors(&files, step - 1), "{place:?} in row {row}");
                continue;
            }
            for (name, bytes) in &first {
                for kind in ["parameter", "average"] {
                    assert!(now[&format!("{kind}.{name}")] == *bytes, "{place:?} {name}");
                }
            }
            let state = now
                .iter()
                .filter(|(name, _)| name.starts_with("optimizer."));
            assert!(state.flat_map(|(_, bytes)| bytes).all(|byte| *byte == 0));
        }
    }
    println!("{count} injections, {compared} batches left out, {bytes} bytes compared");
}
