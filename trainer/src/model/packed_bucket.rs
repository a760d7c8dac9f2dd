//! Runs of a bucket as one flat tensor.
//!
//! Each entry begins at a multiple of [`ALIGNMENT`] numbers: a part of a tensor that begins there, and whose length is a
//! multiple too, is a view of it on a GPU; any other is a copy. The numbers between entries are 0 and stay 0: their gradient
//! is 0, and every update is 0 where weight and gradient are.

use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use crate::device::{Upload as _, kernels};

/// Numbers between the places where entries may begin: 512 bytes, the coarsest alignment among the backends.
pub(crate) const ALIGNMENT: usize = 128;

/// Places of entries in a flat tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pack {
    places: Vec<EntryPlace>,
    len: usize,
}

/// Place of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryPlace {
    /// Elements of the bucket.
    of_bucket: Range<usize>,
    /// First element in the tensor.
    begin: usize,
}

impl EntryPlace {
    fn range(&self) -> Range<usize> {
        self.begin..self.begin + self.of_bucket.len()
    }
}

impl Pack {
    /// A pack of these ranges of a bucket, in this order.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut len = 0;
        let place = |of_bucket: Range<usize>| {
            let begin = len;
            len += of_bucket.len().next_multiple_of(ALIGNMENT);
            EntryPlace { of_bucket, begin }
        };
        let places = ranges.into_iter().map(place).collect();
        // Tensors without numbers are a special case of every operation.
        let len = len.max(ALIGNMENT);
        Self { places, len }
    }

    /// A pack of several runs of ranges, in this order. Each run has a share of the tensor, and the shares are equally long.
    /// Returns the length of a share too.
    pub(crate) fn in_shares(runs: impl IntoIterator<Item = Vec<Range<usize>>>) -> (Self, usize) {
        let packs: Vec<Self> = runs.into_iter().map(Self::new).collect();
        let share_len = packs.iter().map(Self::len).max().unwrap_or(ALIGNMENT);
        let len = share_len * packs.len().max(1);
        let shares = packs.into_iter().enumerate();
        let places = shares.flat_map(|(share, pack)| {
            let places = pack.places.into_iter();
            places.map(move |place| EntryPlace {
                begin: share * share_len + place.begin,
                ..place
            })
        });
        let places = places.collect();
        (Self { places, len }, share_len)
    }

    /// Numbers of the tensor.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.places.len()
    }

    /// Numbers of an entry.
    pub(crate) fn len_of(&self, entry: usize) -> usize {
        self.places[entry].of_bucket.len()
    }

    /// The entries' numbers of a bucket on a device.
    pub(crate) fn upload(&self, bucket: &[f32], device: &Device) -> Tensor<1> {
        let mut packed = vec![0.0; self.len];
        for place in &self.places {
            packed[place.range()].copy_from_slice(&bucket[place.of_bucket.clone()]);
        }
        Tensor::upload(TensorData::new(packed, [self.len]), device)
    }

    /// Writes numbers that came from the device to their places in a bucket.
    pub(crate) fn unpack(&self, packed: &[f32], bucket: &mut [f32]) {
        for place in &self.places {
            bucket[place.of_bucket.clone()].copy_from_slice(&packed[place.range()]);
        }
    }

    /// One value of each entry, at each of its elements on a device; a number where all have the same.
    pub(crate) fn spread(&self, value_of: impl Fn(usize) -> f64, device: &Device) -> Spread {
        let first = (self.places.first()).map_or(0.0, |_| value_of(0));
        if (0..self.places.len()).all(|entry| value_of(entry).to_bits() == first.to_bits()) {
            return Spread::Same(first);
        }
        let mut values = vec![0.0; self.len];
        for (entry, place) in self.places.iter().enumerate() {
            values[place.range()].fill(crate::float_casts::single(value_of(entry)));
        }
        let values = Tensor::upload(TensorData::new(values, [self.len]), device);
        Spread::Each(Box::new(values))
    }

    /// An entry of a packed tensor.
    pub(crate) fn view(&self, packed: &Tensor<1>, entry: usize) -> Tensor<1> {
        let EntryPlace { of_bucket, begin } = &self.places[entry];
        packed.clone().narrow(0, *begin, of_bucket.len())
    }

    /// Packs the tensors of entries; an entry without one is 0.
    pub(crate) fn join(
        &self,
        tensors: impl IntoIterator<Item = (usize, Tensor<1>)>,
        device: &Device,
    ) -> Tensor<1> {
        let parts = tensors.into_iter().map(|(entry, tensor)| PlacedTensor {
            begin: self.places[entry].begin,
            tensor,
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_by_key(|part| part.begin);
        if let Some(packed) = kernels::pack(&parts, self.len, device) {
            return packed;
        }
        let place = |packed: Tensor<1>, PlacedTensor { begin, tensor }| {
            let place = begin..begin + tensor.dims()[0];
            packed.slice_assign([place], tensor)
        };
        parts
            .into_iter()
            .fold(Tensor::zeros([self.len], device), place)
    }

    /// `N` values of each entry, for each [`ALIGNMENT`] numbers of the tensor on a device; those behind the entries have zeros.
    pub(crate) fn settings<const N: usize>(
        &self,
        values_of: impl Fn(usize) -> [f64; N],
        device: &Device,
    ) -> Tensor<1> {
        let mut settings = vec![0.0; self.len.div_ceil(ALIGNMENT) * N];
        for (entry, place) in self.places.iter().enumerate() {
            let values = values_of(entry).map(crate::float_casts::single);
            let runs = place.begin / ALIGNMENT..place.range().end.div_ceil(ALIGNMENT);
            for run in runs {
                settings[run * N..(run + 1) * N].copy_from_slice(&values);
            }
        }
        let len = settings.len();
        Tensor::upload(TensorData::new(settings, [len]), device)
    }
}

/// A tensor and its place in a pack.
#[derive(Clone, Debug)]
pub(crate) struct PlacedTensor {
    /// Its first element in the pack.
    pub(crate) begin: usize,
    pub(crate) tensor: Tensor<1>,
}

/// A value for each element of a pack.
#[derive(Clone, Debug)]
pub(crate) enum Spread {
    /// The same for all.
    Same(f64),
    /// One for each.
    Each(Box<Tensor<1>>),
}

impl Spread {
    /// Returns true if it is this value for all.
    pub(crate) fn is(&self, value: f64) -> bool {
        matches!(self, Self::Same(same) if same.to_bits() == value.to_bits())
    }

    /// `x` times the values times `factor`.
    pub(crate) fn times(&self, x: Tensor<1>, factor: f64) -> Tensor<1> {
        match self {
            Self::Same(value) => x * (value * factor),
            Self::Each(values) => x * (Tensor::clone(values) * factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::numbers;

    #[test]
    fn entries_are_aligned_and_come_back() {
        let device = Device::flex();
        let pack = Pack::new([2..5, 5..135, 140..141]);
        assert_eq!(pack.len, 128 + 256 + 128);
        let bucket: Vec<f32> = (0..150_u8).map(f32::from).collect();
        let packed = pack.upload(&bucket, &device);
        assert_eq!(numbers(pack.view(&packed, 0)), [2.0, 3.0, 4.0]);
        assert_eq!(numbers(pack.view(&packed, 2)), [140.0]);
        let mut found = vec![-1.0; 150];
        pack.unpack(&numbers(packed.clone()), &mut found);
        for (i, (found, value)) in found.iter().zip(&bucket).enumerate() {
            let packed = (2..135).contains(&i) || i == 140;
            let expected = if packed { *value } else { -1.0 };
            assert_eq!(found.to_bits(), expected.to_bits(), "{i}");
        }
        let joined = pack.join([(1, pack.view(&packed, 1))], &device);
        let total: f32 = bucket[5..135].iter().sum();
        assert_eq!(numbers(joined.sum()), [total]);
    }

    #[test]
    fn values_that_differ_are_spread_over_their_entries() {
        let device = Device::flex();
        let pack = Pack::new([0..2, 2..3]);
        assert!(pack.spread(|_| 0.5, &device).is(0.5));
        let spread = pack.spread(|entry| [3.0, 5.0][entry], &device);
        let found = numbers(spread.times(Tensor::ones([pack.len], &device), 2.0));
        assert_eq!((found[0], found[1], found[2]), (6.0, 6.0, 0.0));
        assert_eq!((found[128], found[129]), (10.0, 0.0));
    }
}
