//! A gradient in sections, which are given out while the backward pass still runs.
//!
//! Sections are runs of parameters, the last of the layout first: a backward pass comes to the last layers first. Each
//! part of a batch hands in a section when its own backward pass is through with it. The parts of a section are added in
//! a [`Tree`] of the section's own, in part order, so the bits are those of one tree over whole gradients, wherever the
//! cuts are. What is complete comes out in the order of the sections.

use std::{
    collections::BTreeMap,
    mem,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
};

use burn::tensor::Tensor;

use crate::{
    device::numbers,
    model::layers::{Harvest, Layout},
    parallel::Tree,
};

/// Runs of parameters that have so many numbers, from the last on. A run has at most `numbers_max` of them, or one parameter.
pub(crate) fn runs_from_last(lens: &[usize], numbers_max: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut numbers = 0;
    for (i, len) in lens.iter().enumerate().rev() {
        numbers += len;
        match runs.last_mut() {
            Some(run) if numbers <= numbers_max => run.start = i,
            _ => {
                runs.push(i..i + 1);
                numbers = *len;
            }
        }
    }
    runs
}

/// Division of a gradient into sections. The same on all ranks. Buffers belong to no section.
#[derive(Clone, Debug)]
pub(crate) struct Sections {
    layout: Layout,
    /// Parameters of each section, the last of the layout first.
    parameters: Arc<[Range<usize>]>,
}

impl Sections {
    /// The parameters of `layout` in runs of at most so many bytes; one that alone is larger is a section.
    pub(crate) fn of_bytes(layout: &Layout, bytes_max: usize) -> Self {
        let entries = layout.trained_entries().iter();
        let lens: Vec<usize> = entries.map(|entry| entry.range.len()).collect();
        let parameters = runs_from_last(&lens, bytes_max / size_of::<f32>());
        Self {
            layout: layout.clone(),
            parameters: parameters.into(),
        }
    }

    /// All parameters in one section.
    pub(crate) fn one(layout: &Layout) -> Self {
        Self::of_bytes(layout, usize::MAX)
    }

    /// The elements of a gradient that a section is.
    pub(crate) fn range(&self, section: usize) -> Range<usize> {
        let entries = self.layout.trained_entries();
        let Range { start, end } = self.parameters[section];
        entries[start].range.start..entries[end - 1].range.end
    }

    /// The section that a parameter is in.
    fn of(&self, parameter: usize) -> usize {
        let runs = &self.parameters;
        runs.partition_point(|run| run.start > parameter)
    }

    /// To add up this many parts.
    pub(super) fn gather(self, parts: usize) -> (Arc<Gathering>, Complete) {
        let (complete, sums) = channel();
        let sections = self.clone();
        let gathering = Gathering {
            parts,
            sums: self.parameters.iter().map(|_| Mutex::default()).collect(),
            sections: self,
            complete,
        };
        (Arc::new(gathering), Complete { sections, sums })
    }
}

/// Gives values on in the order of their numbers.
#[derive(Debug)]
pub(crate) struct InOrder<T> {
    next: usize,
    waiting: BTreeMap<usize, T>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
        }
    }
}

impl<T> InOrder<T> {
    /// Takes a value in, and calls `take` with those that have waited for it.
    pub(crate) fn put(&mut self, number: usize, value: T, mut take: impl FnMut(usize, T)) {
        self.waiting.insert(number, value);
        while let Some(value) = self.waiting.remove(&self.next) {
            take(self.next, value);
            self.next += 1;
        }
    }
}

/// A section of a part's gradient, or of a sum of them; `None` where all of it is 0.
type Numbers = Option<Vec<f32>>;

/// Parts that wait for those before them, and the sum.
type Sum = (InOrder<Numbers>, Tree<Vec<f32>>);

/// Adds up the parts' gradients.
#[derive(Debug)]
pub(super) struct Gathering {
    sections: Sections,
    parts: usize,
    sums: Vec<Mutex<Sum>>,
    complete: Sender<(usize, Numbers)>,
}

impl Gathering {
    /// Takes in a section of a part's gradient. It waits for those of the parts before.
    fn put(&self, part: usize, section: usize, numbers: Numbers) {
        let mut sums = self.sums[section]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (order, tree) = &mut *sums;
        let add = |sum: &mut Vec<f32>, part: Vec<f32>| add(sum, &part);
        let mut all = false;
        order.put(part, numbers, |taken, numbers| {
            tree.push(numbers, add);
            all = taken + 1 == self.parts;
        });
        if all {
            let sum = mem::take(tree).finish(add);
            // The receiver is gone where the caller has panicked.
            self.complete.send((section, sum)).ok();
        }
    }

    /// Says that a part has no gradient.
    pub(super) fn put_nothing(&self, part: usize) {
        for section in 0..self.sums.len() {
            self.put(part, section, None);
        }
    }

    /// Receiver of the gradient of a part.
    pub(super) fn harvest(self: Arc<Self>, part: usize) -> Harvest {
        let parameters = self.sections.layout.trained();
        let runs = self.sections.parameters.iter();
        let mut found = OfPart {
            part,
            sections: runs.map(|run| (run.len(), Vec::new())).collect(),
            gathering: self,
        };
        Harvest::new(parameters, move |parameter, gradient| {
            found.take(parameter, gradient);
        })
    }
}

/// The gradient of a part.
struct OfPart {
    part: usize,
    /// Number of parameters still to come, and the gradients of those that have one.
    sections: Vec<(usize, Vec<(usize, Tensor<1>)>)>,
    gathering: Arc<Gathering>,
}

impl OfPart {
    fn take(&mut self, parameter: usize, gradient: Option<Tensor<1>>) {
        let Sections { layout, .. } = &self.gathering.sections;
        let section = self.gathering.sections.of(parameter);
        let (open, found) = &mut self.sections[section];
        found.extend(gradient.map(|gradient| (parameter, gradient)));
        *open -= 1;
        if *open > 0 {
            return;
        }
        let range = self.gathering.sections.range(section);
        let filled = (!found.is_empty()).then(|| {
            let mut filled = vec![0.0; range.len()];
            for (parameter, gradient) in mem::take(found) {
                let Range { start, end } = layout.entries()[parameter].range;
                let place = &mut filled[start - range.start..end - range.start];
                place.copy_from_slice(&numbers(gradient));
            }
            filled
        });
        self.gathering.put(self.part, section, filled);
    }
}

/// The sums of all parts.
#[derive(Debug)]
pub(super) struct Complete {
    sections: Sections,
    sums: Receiver<(usize, Numbers)>,
}

impl Complete {
    /// Writes the sums into `gradient` and calls `give` with each section, by its number, once and in their order.
    /// Waits until all are there, or until what adds them up is gone.
    pub(super) fn write(self, gradient: &mut [f32], mut give: impl FnMut(usize, &mut [f32])) {
        let mut order = InOrder::default();
        for (section, sum) in self.sums {
            order.put(section, sum, |section, sum| {
                let place = &mut gradient[self.sections.range(section)];
                // Adding to 0 makes one zero of two, so that a rank without rows leaves no trace.
                place.fill(0.0);
                if let Some(sum) = sum {
                    add(place, &sum);
                }
                give(section, place);
            });
        }
    }
}

/// Adds numbers to those of a sum.
pub(super) fn add(sum: &mut [f32], part: &[f32]) {
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::{Builder, Initial};

    fn layout_of(lens: &[usize]) -> Layout {
        let mut builder = Builder::new();
        for (i, len) in lens.iter().enumerate() {
            builder.parameter(&i.to_string(), &[*len], true, Initial::Constant(0.0));
        }
        builder.buffer("buffer", &[7], 0.0);
        builder.finish()
    }

    #[test]
    fn sections_are_whole_parameters_from_the_last_on() {
        let ranges = |lens: &[usize], bytes_max| {
            let sections = Sections::of_bytes(&layout_of(lens), bytes_max);
            let ranges = (0..sections.parameters.len()).map(|i| sections.range(i));
            ranges.collect::<Vec<_>>()
        };
        assert_eq!(ranges(&[3, 2, 4, 1, 9], 20), [10..19, 5..10, 0..5]);
        assert_eq!(ranges(&[3, 2, 4], 0), [5..9, 3..5, 0..3]);
        assert_eq!(ranges(&[3, 2, 4], 36), ranges(&[9], 0));
        assert!(ranges(&[], 100).is_empty());
        let sections = Sections::of_bytes(&layout_of(&[3, 2, 4, 1, 9]), 20);
        assert_eq!([0, 1, 2, 3, 4].map(|i| sections.of(i)), [2, 2, 1, 1, 0]);
    }
}
