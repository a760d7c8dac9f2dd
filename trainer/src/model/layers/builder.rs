//! Ranges, names and initial values of a model's numbers.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use feedline_schemas::ids::Seed;
use serde::Serialize;

use crate::random::Stream;

/// A parameter's or buffer's place in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name, such as `layer.0.weight`.
    pub(crate) name: String,
    /// Shape; the bucket holds it row-major.
    pub(crate) shape: Vec<usize>,
    /// Elements of the bucket.
    pub(crate) range: Range<usize>,
    /// True when weight decay applies to it.
    pub(crate) decays: bool,
    /// True for a matrix or kernel inside the model: no table of vectors, and not the last layer's.
    pub(crate) is_hidden: bool,
}

/// Number of elements in the bucket of `parameters`.
pub(crate) fn bucket_len(parameters: &[Parameter]) -> usize {
    parameters.last().map_or(0, |p| p.range.end)
}

/// A parameter of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(super) usize);

/// A buffer of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(pub(super) usize);

/// A segment of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment(pub(super) usize);

/// Name and content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFacts {
    /// Name, such as `block.0`.
    pub(crate) name: String,
    /// Numbers of its input for one sample.
    pub(crate) input: usize,
    /// Layers of the layout that belong to it.
    pub(crate) layers: Range<usize>,
}

/// Initial value of a parameter. Random ones are drawn from the seed and the parameter's number
/// among the random ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// All elements the same.
    Constant(f32),
    /// Uniform in `±bound`.
    Uniform {
        /// Largest absolute value.
        bound: f64,
    },
    /// Normal with mean 0 (Box and Muller 1958).
    Normal {
        /// Standard deviation.
        deviation: f64,
    },
}

/// One line of a model's summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerFacts {
    /// Name, such as `layer.0`.
    pub name: String,
    /// Kind of the layer, such as `conv 3x3`.
    pub kind: String,
    /// Sizes of its output for one sample.
    pub output: Vec<usize>,
    /// Its parameters.
    pub parameters: usize,
    /// Numbers per sample that are kept for the backward pass.
    pub kept: usize,
    /// Scores of attention per sample, which the processor keeps too, and a GPU computes again.
    pub scores: usize,
}

/// Lays out parameters, buffers and the places where randomness is drawn.
#[derive(Debug, Default)]
pub struct Builder {
    parameters: Vec<(String, Vec<usize>, bool, Initial)>,
    buffers: Vec<(String, Vec<usize>, Initial)>,
    scope: String,
    dropouts: usize,
    facts: Vec<LayerFacts>,
    segments: Vec<SegmentFacts>,
    linears: Vec<usize>,
    /// Numbers of parameters that are tables of vectors.
    tables: Vec<usize>,
}

impl Builder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `name` and a dot before the names of what `build` lays out.
    pub fn within<T>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.scope.len();
        self.scope.push_str(name);
        self.scope.push('.');
        let built = build(self);
        self.scope.truncate(length);
        built
    }

    /// Lays out with `build` what may be computed again in the backward pass, as
    /// [`Pass::checkpoint`](super::Pass::checkpoint) does where the configuration names it. `sizes` are those of its
    /// input for one sample.
    pub fn segment<T>(
        &mut self,
        name: &str,
        sizes: &[usize],
        build: impl FnOnce(&mut Self) -> T,
    ) -> (Segment, T) {
        let segment = self.segments.len();
        let first = self.facts.len();
        self.segments.push(SegmentFacts {
            name: self.named(name),
            input: sizes.iter().product(),
            layers: first..first,
        });
        let built = build(self);
        self.segments[segment].layers.end = self.facts.len();
        (Segment(segment), built)
    }

    /// Adds a parameter. Weight decay applies to it if it `decays`: by custom to weights, not to biases and scales.
    pub fn parameter(
        &mut self,
        name: &str,
        shape: &[usize],
        decays: bool,
        initial: Initial,
    ) -> Slot {
        self.parameters
            .push((self.named(name), shape.to_vec(), decays, initial));
        Slot(self.parameters.len() - 1)
    }

    /// Adds a buffer, whose elements all begin as `value`.
    pub fn buffer(&mut self, name: &str, shape: &[usize], value: f32) -> Buffer {
        self.buffers
            .push((self.named(name), shape.to_vec(), Initial::Constant(value)));
        Buffer(self.buffers.len() - 1)
    }

    /// Notes a layer for the summary; `kept` is the number of elements per sample kept for the backward pass.
    pub fn note(
        &mut self,
        name: &str,
        kind: String,
        output: &[usize],
        parameters: usize,
        kept: usize,
    ) {
        self.facts.push(LayerFacts {
            name: self.named(name),
            kind,
            output: output.to_vec(),
            parameters,
            kept,
            scores: 0,
        });
    }

    /// Says that a parameter is the weight of a fully connected layer, `[in, out]`.
    pub(super) fn linear(&mut self, weight: Slot) {
        self.linears.push(weight.0);
    }

    /// Adds scores of attention to the layer that was noted last.
    pub(super) fn note_scores(&mut self, scores: usize) {
        if let Some(facts) = self.facts.last_mut() {
            facts.scores = scores;
        }
    }

    /// Notes that a parameter is a table with a vector for each id or position: no matrix that inputs are multiplied by.
    pub fn table(&mut self, weight: Slot) {
        self.tables.push(weight.0);
    }

    /// The weight of the fully connected layer that nothing is laid out behind, by custom that of the model's outputs.
    fn output(&self) -> Option<usize> {
        let weight = *self.linears.last()?;
        let (name, ..) = &self.parameters[weight];
        let layer = name.strip_suffix("weight")?;
        let behind = self.parameters[weight + 1..].iter();
        let mut names = behind.map(|(name, ..)| name);
        names
            .all(|name| name.strip_prefix(layer) == Some("bias"))
            .then_some(weight)
    }

    /// The next place where dropout draws.
    pub(super) fn dropout_site(&mut self) -> usize {
        self.dropouts += 1;
        self.dropouts - 1
    }

    /// The layout of everything added.
    #[must_use]
    pub fn finish(self) -> Layout {
        let trained = self.parameters.len();
        let output = self.output();
        let (mut entries, mut initials): (Vec<Parameter>, Vec<Initial>) = Default::default();
        let buffers = self.buffers.into_iter();
        let buffers = buffers.map(|(name, shape, initial)| (name, shape, false, initial));
        for (name, shape, decays, initial) in self.parameters.into_iter().chain(buffers) {
            let begin = bucket_len(&entries);
            let range = begin..begin + shape.iter().product::<usize>();
            initials.push(initial);
            let number = entries.len();
            let is_inside = output != Some(number) && !self.tables.contains(&number);
            entries.push(Parameter {
                is_hidden: decays && shape.len() > 1 && is_inside,
                name,
                shape,
                range,
                decays,
            });
        }
        Layout {
            entries: entries.into(),
            initial: initials.into(),
            trained,
            facts: self.facts.into(),
            segments: self.segments.into(),
            linears: self.linears.into(),
            adapters: Arc::default(),
            dropouts: self.dropouts,
        }
    }

    fn named(&self, name: &str) -> String {
        if name.is_empty() {
            self.scope.trim_end_matches('.').to_owned()
        } else {
            format!("{}{name}", self.scope)
        }
    }
}

/// Ranges of a model's parameters and buffers in its bucket, and their initial values. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Parameters, then buffers, without gaps.
    entries: Arc<[Parameter]>,
    initial: Arc<[Initial]>,
    /// Entries that are parameters.
    trained: usize,
    facts: Arc<[LayerFacts]>,
    segments: Arc<[SegmentFacts]>,
    /// Weights of fully connected layers.
    pub(super) linears: Arc<[usize]>,
    pub(super) adapters: Arc<[Adapter]>,
    /// Places where dropout draws, without those of adapters.
    pub(super) dropouts: usize,
}

/// Adapter of a fully connected layer; its parameters by their numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Adapter {
    /// Weight of the layer.
    pub(super) weight: usize,
    /// `[in, rank]`.
    pub(super) a: usize,
    /// `[rank, out]`.
    pub(super) b: usize,
    /// Factor of the product.
    pub(super) scale: f64,
    /// Share of the input that is dropped.
    pub(super) dropout: f64,
    /// Number of its dropout site.
    pub(super) site: usize,
}

/// A layout to which parameters are added.
#[derive(Debug)]
pub(super) struct LayoutParts {
    layout: Layout,
    /// Parameters without buffers, and what they begin as.
    parameters: Vec<(Parameter, Initial)>,
    pub(super) facts: Vec<LayerFacts>,
    pub(super) adapters: Vec<Adapter>,
}

impl LayoutParts {
    /// Adds a parameter that weight decay applies to; its number.
    pub(super) fn add(&mut self, name: String, shape: [usize; 2], initial: Initial) -> usize {
        let begin = self.parameters.last().map_or(0, |(last, _)| last.range.end);
        let parameter = Parameter {
            name,
            shape: shape.to_vec(),
            range: begin..begin + shape[0] * shape[1],
            decays: true,
            is_hidden: false,
        };
        self.parameters.push((parameter, initial));
        self.parameters.len() - 1
    }

    /// The layout, with the buffers behind all parameters.
    pub(super) fn finish(self) -> Layout {
        let trained = self.parameters.len();
        let buffers = self.layout.trained..self.layout.entries.len();
        let (mut entries, mut initial): (Vec<_>, Vec<_>) = self.parameters.into_iter().unzip();
        for i in buffers {
            let begin = bucket_len(&entries);
            let buffer = &self.layout.entries[i];
            entries.push(Parameter {
                range: begin..begin + buffer.range.len(),
                ..buffer.clone()
            });
            initial.push(self.layout.initial[i]);
        }
        Layout {
            entries: entries.into(),
            initial: initial.into(),
            trained,
            facts: self.facts.into(),
            adapters: self.adapters.into(),
            ..self.layout
        }
    }
}

impl Layout {
    /// Parameters, then buffers, in bucket order and without gaps.
    pub(crate) fn entries(&self) -> &[Parameter] {
        &self.entries
    }

    /// The fully connected layer that was laid out last: by custom the one whose outputs are the model's. Its name and how
    /// many numbers it puts out.
    pub(crate) fn last_linear(&self) -> Option<(&str, usize)> {
        let weight = &self.entries[*self.linears.last()?];
        let outputs = *weight.shape.last()?;
        Some((weight.name.trim_end_matches(".weight"), outputs))
    }

    /// The layers that read rows of so many features, by their weights `[features, width]`: by custom the layer that was laid
    /// out first, of the model or of a branch of it.
    pub(crate) fn readers(&self, features: usize) -> Vec<&str> {
        let branch = |name: &str| {
            let mut parts = name.splitn(3, '.');
            let is_branch = parts.next() == Some("branch");
            parts.next().filter(|_| is_branch).map(str::to_owned)
        };
        let trained = self.trained_entries().iter().enumerate();
        let has_branches = trained
            .clone()
            .any(|(_, entry)| branch(&entry.name).is_some());
        let mut seen = BTreeSet::new();
        let first = trained.filter(|(_, entry)| {
            let branch = branch(&entry.name);
            branch.is_some() == has_branches && seen.insert(branch)
        });
        let mut readers = Vec::new();
        for (i, entry) in first {
            let is_matrix = self.linears.contains(&i) || entry.name.ends_with(".input");
            let Some((layer, _)) = entry.name.rsplit_once('.').filter(|_| is_matrix) else {
                continue;
            };
            if entry.shape.first() == Some(&features) {
                readers.push(layer);
            } else if has_branches {
                // A branch of some of the columns: its rows cannot be moved, so none are.
                return Vec::new();
            }
        }
        readers
    }

    /// Entries that are parameters: the first so many.
    pub(crate) const fn trained(&self) -> usize {
        self.trained
    }

    /// Places where dropout draws, without those of adapters.
    pub(crate) const fn dropouts(&self) -> usize {
        self.dropouts
    }

    /// The parameters.
    pub(crate) fn trained_entries(&self) -> &[Parameter] {
        &self.entries[..self.trained]
    }

    /// Elements of the bucket that the parameters take: the first so many.
    #[must_use]
    pub fn trained_len(&self) -> usize {
        bucket_len(self.trained_entries())
    }

    /// Elements of the bucket.
    #[must_use]
    pub fn len(&self) -> usize {
        bucket_len(&self.entries)
    }

    /// Returns true if the model has no numbers at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The layers, as noted when they were built.
    #[must_use]
    pub fn facts(&self) -> &[LayerFacts] {
        &self.facts
    }

    /// The layout, to be extended.
    pub(super) fn taken_apart(&self) -> LayoutParts {
        let initial = self.initial.iter().copied();
        LayoutParts {
            layout: self.clone(),
            parameters: self
                .trained_entries()
                .iter()
                .cloned()
                .zip(initial)
                .collect(),
            facts: self.facts.to_vec(),
            adapters: Vec::new(),
        }
    }

    /// The layout with its first `parameters` parameters and without adapters.
    pub(super) fn without_adapters(&self, parameters: usize) -> Self {
        let mut parts = self.taken_apart();
        parts.parameters.truncate(parameters);
        parts.finish()
    }

    /// True for the weight of a fully connected layer or of its adapter: a matrix `[in, out]`.
    pub(crate) fn is_linear(&self, entry: usize) -> bool {
        self.linears.contains(&entry) || self.is_adapter(entry)
    }

    /// True where there are adapters.
    pub(crate) fn has_adapters(&self) -> bool {
        !self.adapters.is_empty()
    }

    /// Returns true if an entry is an adapter's.
    pub(crate) fn is_adapter(&self, entry: usize) -> bool {
        let mut adapters = self.adapters.iter();
        adapters.any(|adapter| adapter.a == entry || adapter.b == entry)
    }

    /// Segments that may be recomputed in the backward pass.
    pub(crate) fn segments(&self) -> &[SegmentFacts] {
        &self.segments
    }

    /// The bucket that training begins with: a pure function of the seed.
    #[must_use]
    pub fn initial(&self, seed: Seed) -> Vec<f32> {
        let stream = Stream::initialization(seed);
        let mut bucket = vec![0.0; self.len()];
        let mut drawn = 0;
        for (entry, initial) in self.entries.iter().zip(&*self.initial) {
            let values = &mut bucket[entry.range.clone()];
            let part = stream.part(drawn);
            match *initial {
                Initial::Constant(value) => values.fill(value),
                Initial::Uniform { bound } => {
                    fill(values, |i| bound * 2.0f64.mul_add(part.uniform(i), -1.0))
                }
                Initial::Normal { deviation } => fill(values, |i| {
                    let radius = (-2.0 * (1.0 - part.uniform(2 * i)).ln()).sqrt();
                    let angle = std::f64::consts::TAU * part.uniform(2 * i + 1);
                    deviation * radius * angle.cos()
                }),
            }
            drawn += usize::from(!matches!(initial, Initial::Constant(_)));
        }
        bucket
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
fn fill(values: &mut [f32], number: impl Fn(u64) -> f64) {
    for (value, i) in values.iter_mut().zip(0..) {
        *value = number(i) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_first_and_buffers_after_them_without_gaps() {
        let mut builder = Builder::new();
        builder.within("a", |b| {
            b.parameter("weight", &[2, 3], true, Initial::Constant(0.5));
            b.buffer("mean", &[3], 7.0);
        });
        builder.parameter("bias", &[3], false, Initial::Constant(0.0));
        let layout = builder.finish();
        let found: Vec<_> = layout
            .entries()
            .iter()
            .map(|p| (p.name.as_str(), p.range.clone(), p.decays))
            .collect();
        let expected = [
            ("a.weight", 0..6, true),
            ("bias", 6..9, false),
            ("a.mean", 9..12, false),
        ];
        assert_eq!(found, expected);
        assert_eq!((layout.trained_len(), layout.len()), (9, 12));
        let bucket = layout.initial(Seed::new(1));
        assert_eq!(bucket[..6], [0.5; 6]);
        assert_eq!(bucket[9..], [7.0; 3]);
    }

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let mut builder = Builder::new();
        builder.parameter("w", &[100_000], true, Initial::Normal { deviation: 2.0 });
        let bucket = builder.finish().initial(Seed::new(3));
        let n = 100_000.0;
        let mean = bucket.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let squares = bucket.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((squares - 4.0).abs() < 0.06, "{squares}");
    }
}
