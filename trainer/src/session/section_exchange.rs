//! Exchange of a gradient between the devices of ranks, section by section while the backward pass runs.
//!
//! Sections are runs of trained parameters, the last ones first: a backward pass comes to the last layers first. Where ranks hold
//! the optimizer in shares, a section is part of one share, and its sums go to the rank that moves it.

use std::{
    collections::BTreeMap,
    mem,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use burn::tensor::{Device, Tensor};

use crate::{
    error::Error,
    model::{
        engine::{
            GradientSink,
            sections::{InOrder, runs_from_last},
        },
        interface::Parameter,
        layers::Layout,
        packed_bucket::Pack,
    },
    parallel::{ExchangeTotals, Ranks, TensorOp, TensorSender, Wire},
};

/// Division of the trained parameters into sections. The same on all ranks.
#[derive(Clone, Debug)]
pub(super) struct DeviceSections {
    sections: Arc<[Section]>,
    /// Place of each parameter of the layout; `None` for one that is not trained.
    places: Arc<[Option<SectionPlace>]>,
}

/// A section of the gradient.
#[derive(Debug)]
struct Section {
    pack: Pack,
    op: TensorOp,
}

/// Place of a parameter.
#[derive(Clone, Copy, Debug)]
struct SectionPlace {
    section: usize,
    /// Number in the pack of the section.
    entry: usize,
}

impl DeviceSections {
    /// The trained parameters of `layout` in sections of at most `bytes_max`; one that alone is larger is a section. `shares` are
    /// ranges of them that one rank each moves.
    pub(super) fn new(
        layout: &Layout,
        trained: &[Parameter],
        shares: Option<&[Range<usize>]>,
        bytes_max: usize,
    ) -> Self {
        let mut sections = Vec::new();
        let mut by_range = BTreeMap::new();
        let mut divide = |share: Range<usize>, op| {
            let parameters = &trained[share];
            let lens: Vec<usize> = parameters.iter().map(|p| p.range.len()).collect();
            for run in runs_from_last(&lens, bytes_max / size_of::<f32>()) {
                let section = sections.len();
                let ranges = parameters[run].iter().map(|p| p.range.clone());
                let places = ranges.clone().enumerate().map(|(entry, range)| {
                    let place = SectionPlace { section, entry };
                    ((range.start, range.end), place)
                });
                by_range.extend(places);
                let pack = Pack::new(ranges);
                sections.push(Section { pack, op });
            }
        };
        match shares {
            None => divide(0..trained.len(), TensorOp::AllReduce),
            Some(shares) => {
                for (root, share) in shares.iter().enumerate().rev() {
                    divide(share.clone(), TensorOp::Reduce { root });
                }
            }
        }
        let entries = layout.trained_entries().iter();
        let places = entries.map(|entry| {
            let key = (entry.range.start, entry.range.end);
            by_range.get(&key).copied()
        });
        Self {
            places: places.collect(),
            sections: sections.into(),
        }
    }

    /// Receiver of the gradient of a batch, which begins the exchange of each section as soon as that is complete on this rank; and
    /// the exchange.
    pub(super) fn exchange(
        &self,
        sender: TensorSender,
        wire: Wire,
        device: &Device,
    ) -> (GradientSink, SectionExchange) {
        let numbers = Arc::default();
        let sections = self.sections.iter();
        let mut found = FoundSections {
            found: sections.map(|_| Vec::new()).collect(),
            open: self.sections.iter().map(|s| s.pack.entries()).collect(),
            complete: InOrder::default(),
            sections: self.clone(),
            sender,
            wire,
            device: device.clone(),
            numbers: Arc::clone(&numbers),
        };
        let sink = move |parameter, gradient| found.take(parameter, gradient);
        let exchange = SectionExchange {
            sections: Arc::clone(&self.sections),
            numbers,
        };
        (Box::new(sink), exchange)
    }
}

/// Sections of the gradient of a batch on this rank.
struct FoundSections {
    sections: DeviceSections,
    /// Gradients of each section by entry; a parameter without one has none.
    found: Vec<Vec<(usize, Tensor<1>)>>,
    /// Parameters of each section that are still to come.
    open: Vec<usize>,
    /// Ranks exchange the sections in the same order.
    complete: InOrder<Tensor<1>>,
    sender: TensorSender,
    wire: Wire,
    device: Device,
    numbers: Arc<Mutex<Vec<u64>>>,
}

impl FoundSections {
    fn take(&mut self, parameter: usize, gradient: Option<Tensor<1>>) {
        let Some(SectionPlace { section, entry }) = self.sections.places[parameter] else {
            return;
        };
        self.found[section].extend(gradient.map(|gradient| (entry, gradient)));
        self.open[section] -= 1;
        if self.open[section] > 0 {
            return;
        }
        let found = mem::take(&mut self.found[section]);
        let Section { pack, .. } = &self.sections.sections[section];
        let packed = pack.join(found, &self.device);
        let (sections, sender, wire) = (&self.sections.sections, &self.sender, self.wire);
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        self.complete.put(section, packed, |section, packed| {
            numbers.push(sender.begin(sections[section].op, wire, packed));
        });
    }
}

/// Exchange of the gradient of a batch.
#[derive(Debug)]
pub(super) struct SectionExchange {
    sections: Arc<[Section]>,
    /// Number of the exchange of each section.
    numbers: Arc<Mutex<Vec<u64>>>,
}

impl SectionExchange {
    /// Waits for the sums. Returns those of the sections that this rank moves, in bucket order, and the times of all.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(super) fn finish(self, ranks: &Ranks) -> Result<(Vec<Tensor<1>>, ExchangeTotals), Error> {
        let own = ranks.place().rank;
        let mut totals = ExchangeTotals::default();
        let mut sums = Vec::new();
        let numbers = mem::take(&mut *self.numbers.lock().unwrap_or_else(PoisonError::into_inner));
        for (section, number) in self.sections.iter().zip(numbers) {
            let (sum, times) = ranks.finish_tensor(number)?;
            totals.add(times);
            match section.op {
                TensorOp::Reduce { root } if root != own => {}
                _ => sums.push(sum),
            }
        }
        sums.reverse();
        Ok((sums, totals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::{Builder, Initial};

    /// Parameters of these lengths; all are trained but the second.
    fn trained_of(lens: &[usize]) -> (Layout, Vec<Parameter>) {
        let mut builder = Builder::new();
        for (i, len) in lens.iter().enumerate() {
            builder.parameter(&i.to_string(), &[*len], true, Initial::Constant(0.0));
        }
        let layout = builder.finish();
        let entries = layout.trained_entries().iter().enumerate();
        let trained = entries.filter(|(i, _)| *i != 1);
        let trained = trained.map(|(_, entry)| entry.clone()).collect();
        (layout, trained)
    }

    /// Operation and length of each section, and the section and entry of each parameter.
    type Division = (Vec<(TensorOp, usize)>, Vec<Option<(usize, usize)>>);

    fn division(shares: Option<&[Range<usize>]>, bytes_max: usize) -> Division {
        let (layout, trained) = trained_of(&[3, 200, 300, 5, 100]);
        let sections = DeviceSections::new(&layout, &trained, shares, bytes_max);
        let places = sections
            .places
            .iter()
            .map(|p| p.map(|p| (p.section, p.entry)));
        let of_section = |section: &Section| (section.op, section.pack.len());
        (
            sections.sections.iter().map(of_section).collect(),
            places.collect(),
        )
    }

    #[test]
    fn sections_are_of_trained_parameters_from_the_last_on() {
        use TensorOp::AllReduce;
        let (sections, places) = division(None, 420);
        assert_eq!(
            sections,
            [(AllReduce, 256), (AllReduce, 384), (AllReduce, 128)]
        );
        let expected = [Some((2, 0)), None, Some((1, 0)), Some((0, 0)), Some((0, 1))];
        assert_eq!(places, expected);
        let (sections, places) = division(None, usize::MAX);
        assert_eq!(sections, [(AllReduce, 128 + 384 + 128 + 128)]);
        assert_eq!(places[4], Some((0, 3)));
    }

    #[test]
    fn sections_of_shares_go_to_the_rank_that_moves_them() {
        let reduce = |root| TensorOp::Reduce { root };
        let shares = [0..2, 2..2, 2..4];
        let (sections, places) = division(Some(&shares), usize::MAX);
        assert_eq!(sections, [(reduce(2), 256), (reduce(0), 512)]);
        let expected = [Some((1, 0)), None, Some((1, 1)), Some((0, 0)), Some((0, 1))];
        assert_eq!(places, expected);
    }
}
